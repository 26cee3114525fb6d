"""Run benchmarks: each way of a case in a fresh process, in turn, watched from outside, its output checked.

    python benchmarks/run.py list                                  the cases and their questions
    python benchmarks/run.py rechunk-1g --rounds 3                 one case; prints its table
    python benchmarks/run.py rechunk-1g --peers ours,TensorStore --cache cold,warm --json out.json
    python benchmarks/run.py rechunk-1g --store                    keeps the result in benchmarks/results
    python benchmarks/run.py set --short                           all cases, or the short set, unattended; resumable
    python benchmarks/run.py render                                tables and figures from the stored results

Sources are made once and kept in the working folder. `set` stores each case as it ends, and skips those whose newest
result is of the same code. A result of uncommitted changes is refused unless `--dirty` is given, and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time

import cases
import results
import rounds
from case import Case


def main() -> None:
    """Do what the command line asks."""
    options = _parser().parse_args()
    if options.cases == ["list"]:
        for name, module in cases.modules().items():
            print(f"\n{name}: {(module.__doc__ or '').splitlines()[0]}")
            for case in module.CASES:
                print(f"  {case.name:24}{'short  ' if case.short else '       '}{case.question}")
    elif options.cases == ["render"]:
        print(*results.render(), sep="\n")
    else:
        folder = tempfile.mkdtemp(prefix="oocarrays-bench-", dir=None if os.environ.get("TMPDIR") else ".")
        try:
            _run(options, os.path.abspath(options.workdir or folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, names = parser.add_argument, lambda text: tuple(filter(None, text.split(";" if ";" in text else ",")))
    add("cases", nargs="+", metavar="CASE", help="names of cases; or list, set, render")
    add(
        "--peers", type=names, default=(), metavar="WAY,…", help="only these ways; parted by ; where a name has a comma"
    )
    add("--rounds", type=int, help="instead of the case's")
    add("--cache", type=names, default=(), help="cold, warm or both, instead of the case's")
    add("--scale", type=int, default=1, metavar="N", help="divide every edge by N")
    add("--workdir", help="kept afterwards, sources included (default: a temporary folder here or in $TMPDIR)")
    add("--json", metavar="FILE", help="write the results to this file")
    add("--store", action="store_true", help="keep the results in benchmarks/results")
    add("--dirty", action="store_true", help="keep them though there are uncommitted changes")
    add("--short", action="store_true", help="of set: the short set, in two rounds")
    add("--papers", action="store_true", help="of set: what papers measured, too")
    add("--patience", type=float, default=30, metavar="S", help="a way that took longer runs once (default: 30)")
    add("--python", action="append", default=[], metavar="NAME=PATH", help="interpreter of an environment: rechunker")
    add("--hurry", action="store_true", help="do not wait until the machine rests before each run")
    add("--inside", action="store_true", help="run in this process, unwatched: for tests")
    return parser


def _run(options: argparse.Namespace, workdir: str) -> None:
    known = cases.every()
    whole = options.cases == ["set"]
    if unknown := [name for name in options.cases if name not in known and not whole]:
        raise SystemExit(f"unknown: {', '.join(unknown)}; see list")
    chosen = [known[name] for name in (known if whole else options.cases)]
    if whole and not options.papers:
        chosen = [case for case in chosen if not cases.is_of_papers(case)]
    if whole and options.short:
        chosen = [case for case in chosen if case.short]
    keep = whole or options.store
    if keep and not options.dirty and (changed := results.uncommitted()):
        raise SystemExit(f"uncommitted changes; commit them, or add --dirty:\n{changed}")
    pythons = dict(each.split("=", 1) for each in options.python)
    asked = rounds.Options(
        workdir=workdir,
        rounds=options.rounds or (2 if whole and options.short else None),
        cache=options.cache,
        ways=options.peers,
        patience=options.patience,
        rest=not options.hurry,
        inside=options.inside,
        pythons=pythons,
    )
    found = []
    for case in chosen:
        if whole and results.is_current(results.newest().get(case.name)):
            print(f"{case.name}: measured", file=sys.stderr)
            continue
        begun = time.perf_counter()
        found.append(_case(case, asked, options, pythons))
        print(f"{case.name}: all in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
        if keep:
            print(results.store(found[-1], dirty=options.dirty))
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(found, file, ensure_ascii=False, indent=1)


def _case(case: Case, asked: rounds.Options, options: argparse.Namespace, pythons: dict[str, str]) -> results.Result:
    """Run one case and print its table."""
    case = case.scaled(options.scale) if options.scale > 1 else case
    load = f"{os.getloadavg()[0]:.2f}"
    played = list(rounds.play(case, asked))
    command = " ".join(["python benchmarks/run.py", case.name, *_said(options)])
    found = results.result(case, played, scale=options.scale, command=command, pythons=pythons, load=load)
    print(f"\n**{case.question}**\n\n{results.table(found)}\n{results.origin(found)}", flush=True)
    return found


def _said(options: argparse.Namespace) -> list[str]:
    """Return the options that change what is measured, without paths."""
    return [
        *(["--rounds", str(options.rounds or 2)] if options.rounds or options.short else []),
        *(["--peers", ",".join(options.peers)] if options.peers else []),
        *(["--cache", ",".join(options.cache)] if options.cache else []),
        *(["--scale", str(options.scale)] if options.scale > 1 else []),
    ]


if __name__ == "__main__":
    main()
