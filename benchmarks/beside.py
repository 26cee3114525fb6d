"""This checkout beside another: the same cases of each, in turn, each with the Python of its own environment.

    python benchmarks/beside.py --other ../older rechunk-1g rechunk-1g-zstd --workdir /tmp/b
    python benchmarks/beside.py --other ../older --turns 3 hot

Each checkout runs its own copy of `run.py` with `--peers ours` (or what `--peers` says) and one round a turn, and
begins every other turn. Each time that both measure is set side by side: medians of all turns, and the ratio of this
checkout's to the other's, below 1 where this one is faster; in brackets the least and the most of the ratios within one
turn. With `--workdir` both read the same sources. Further options go to `run.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from statistics import median

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def times(results: list[dict]) -> Iterator[tuple[str, float]]:
    """Yield each time in what `run.py` wrote, and what it is of.

    >>> list(times([{"case": "c", "rounds": [{"cache": "cold", "runs": {"ours": {"verdict": "ok", "seconds": 1.5}}}]}]))
    [('c, cold, ours', 1.5)]
    """
    for result in results:
        for each in result["rounds"]:
            for label, run in each["runs"].items():
                name = f"{result['case']}, {each['cache']}, {label}"
                figures = run.get("told", {}).get("figures", {})
                yield from ((f"{name}, {figure}", median(seconds)) for figure, seconds in figures.items())
                if run["verdict"] == "ok" and not figures:
                    yield name, run["seconds"]


def run(checkout: str, python: str, arguments: list[str], folder: str) -> dict[str, float]:
    """Run one checkout's copy of the benchmark: its times."""
    out = os.path.join(folder, "out.json")
    command = [python, os.path.join(checkout, "benchmarks", "run.py"), *arguments, "--json", out]
    environment = {**os.environ, "PYTHONPATH": checkout}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder, env=environment)
    with open(out) as file:
        return dict(times(json.load(file)))


def main() -> None:
    """Run the cases as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--other", required=True, metavar="CHECKOUT", help="with an environment in its .venv")
    parser.add_argument("--python", help="the other's Python (default: CHECKOUT/.venv/bin/python)")
    parser.add_argument("--turns", type=int, default=5, help="of each (default: %(default)s)")
    parser.add_argument("--peers", default="ours", help="ways that run (default: %(default)s)")
    parser.add_argument("--out", metavar="JSON", help="where to keep what was measured")
    options, more = parser.parse_known_args()
    other = os.path.abspath(options.other)
    theirs = options.python or os.path.join(other, ".venv", "bin", "python")
    sides = {"this": (HERE, sys.executable), "other": (other, theirs)}
    arguments = [*options.cases, "--peers", options.peers, "--rounds", "1", *more]
    turns = []
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        for number in range(options.turns):
            order = list(sides) if number % 2 else list(sides)[::-1]
            turns.append({side: run(*sides[side], arguments, folder) for side in order})
            print(table(turns), "\n", flush=True)
            if options.out:
                with open(options.out, "w") as file:
                    json.dump({"cases": options.cases, "turns": turns}, file, indent=1)


def table(turns: list[dict[str, dict[str, float]]]) -> str:
    """Return the medians of each thing that both have measured, and their ratio."""
    rows = [f"| after {len(turns)} | this | other | this/other |", "|---|---|---|---|"]
    for name in turns[0]["this"]:
        pairs = [(turn["this"][name], turn["other"][name]) for turn in turns if name in turn["other"]]
        if pairs:
            ours, theirs = (median(each) for each in zip(*pairs, strict=True))
            ratios = [mine / other for mine, other in pairs if other]
            spread = f"({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
            rows.append(f"| {name} | {ours:.4g} | {theirs:.4g} | {ours / theirs:.3f} {spread} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
