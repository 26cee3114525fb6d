"""Rechunks and passes over slabs in many chunks and budgets: seconds and memory beside predictions and limits.

    python benchmarks/matrix.py calibrate --workdir W             what the machine costs; kept in W
    python benchmarks/matrix.py rows maps --workdir W             measures, and adds to W/matrix.json
    python benchmarks/matrix.py tables --workdir W --store        draws all that is there, and keeps results/matrix.json

Each cell is a run of `rechunk.py` or `slabs.py`: fresh processes, a cold cache, every output compared. Limits are moved
by hand in the same round and budget (`limit-inplace`, `limit-append`); beside them stands what the codecs take by
themselves, and what the disk takes to read and write as many bytes in as many files.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import product
from pathlib import Path
from statistics import median

import machine
import results
import rounds
import slab_cases
import slab_race
from byte_time import byte_seconds
from cases import CUBES, GIB, MAPS, MIB, ONE_GIB, SQUARES, Case
from codec_time import codec_seconds
from peers import entry

CODECS = ("none", "zstd", "blosc")
LIMITS = ("limit-inplace", "limit-append")
OURS = "oocarrays"
COLUMNS = [
    "cell",
    "budget",
    "ours",
    "limit",
    "predicted",
    "predicted ÷ measured",
    "held",
    "planned",
    "held ÷ planned",
    "how",
]
HALF_MAPS = replace(MAPS, shape=(720, 361, 720), source_chunks=(1, 361, 720), memory=GIB)
QUARTER_SQUARES = replace(SQUARES, shape=(16384, 16384))
QUARTER_CUBES = replace(CUBES, shape=(1024, 512, 512))
SHARDS = {"source_per_shard": (4, 1), "target_per_shard": (1, 4)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One array and job in one budget."""

    name: str
    """As the table calls it."""
    case: Case | slab_cases.Case
    """What is asked."""


def cells(group: str) -> list[Cell]:
    """Return the cells of a group."""
    return list(GROUPS[group]())


def _rechunks(name: str, case: Case, budgets: Sequence[int], codecs: Sequence[str] = CODECS) -> Iterator[Cell]:
    for codec, budget in product(codecs, budgets):
        coded = replace(case, name=name, codec=codec, memory=budget * MIB)
        yield Cell(name=f"{name}, {codec}", case=coded)


def _slabs(operation: str, times: int, dtype: str, edge: int, budgets: Sequence[int]) -> Iterator[Cell]:
    for budget in budgets:
        case = slab_cases.Case(
            operation=operation, times=times, dtype=dtype, kind="noisy", edge=edge, memory=budget * MIB
        )
        yield Cell(name=f"{case.name}, {edge}²", case=case)


def _jacobi() -> Iterator[Cell]:
    for sweeps in (10, 40):
        yield from _slabs("jacobi", sweeps, "f8", 8192, (64, 128, 256))


GROUPS = {
    "rows": lambda: _rechunks("1 GiB, rows → columns", ONE_GIB, (1024, 256, 64)),
    "four": lambda: _rechunks(
        "4 GiB, rows → columns",
        replace(ONE_GIB, shape=(32768, 32768), source_chunks=(256, 32768), target_chunks=(32768, 256)),
        (1024, 256, 128),
        ("none",),
    ),
    "maps": lambda: _rechunks("0.7 GiB of maps → (720, 20, 20)", HALF_MAPS, (1024, 256, 64)),
    "squares": lambda: _rechunks("1 GiB, 1024² → 4096 × 256", QUARTER_SQUARES, (1024, 256, 64)),
    "cubes": lambda: _rechunks("1 GiB, 64³ → (512, 512, 1)", QUARTER_CUBES, (1024, 256, 64)),
    "shards": lambda: _rechunks(
        "1 GiB, 1024² in shards of four → 4096 × 256 in shards of four",
        replace(QUARTER_SQUARES, **SHARDS),
        (1024, 256),
        ("none", "zstd"),
    ),
    "median": lambda: _slabs("median", 5, "f4", 8192, (64, 128, 256, 1024)),
    "jacobi": _jacobi,
    "image": lambda: _slabs("median", 3, "f4", 32768, (128,)),
}
"""Cells by the name that a person types."""


def main() -> None:
    """Run what the command line asks for."""
    options = _parser().parse_args()
    costs = os.path.join(options.workdir, "costs")
    os.makedirs(costs, exist_ok=True)
    os.environ["DASK_CONFIG"] = os.path.abspath(costs)  # constants of this machine, for all processes
    found: list[dict] = []
    with rounds.working_folder(options):
        for what in options.what:
            if what == "calibrate":
                _calibrate(options)
            elif what == "tables":
                _tables(options)
            else:
                found += _measure(what, options)
                rounds.save(options, {"machine": machine.facts(None), "results": found})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__, cache=("cold",), timeout=180)
    add, numbers = parser.add_argument, lambda text: [*map(int, text.split(","))]
    add("what", nargs="+", choices=[*GROUPS, "calibrate", "tables"], metavar="WHAT", help=", ".join(GROUPS))
    add("--codec", type=lambda text: text.split(","), help="only these: none, zstd, blosc")
    add("--budgets", type=numbers, metavar="MIB", help="only these")
    add("--without-limits", action="store_true", help="ours alone")
    add("--methods", type=lambda text: text.split(","), default=["auto"], help="strategies (default: auto)")
    add("--prepare", action="store_true", help="only make the sources")
    add("--store", action="store_true", help="keep the tables as results/matrix.json")
    parser.set_defaults(rounds=1, discard=0, pause=0)
    return parser


def _calibrate(options: argparse.Namespace) -> None:
    from oocarrays.graphs.calibrate.keeping import keep
    from oocarrays.graphs.calibrate.machine import calibrate

    print(keep(calibrate(options.workdir)).read_text())


# ---------------------------------------------------------------------- measuring


def _measure(group: str, options: argparse.Namespace) -> list[dict]:
    """Run a group's cells, and add what they took to the working folder's file."""
    measured = []
    for cell in cells(group):
        if options.budgets and cell.case.memory // MIB not in options.budgets:
            continue
        if options.codec and cell.case.codec not in options.codec:
            continue
        case, play = (cell.case, _play_slabs) if isinstance(cell.case, slab_cases.Case) else (cell.case, _play)
        if options.prepare:
            _prepare(case, options)
            continue
        played = play(_scaled(case, options.scale), options)
        about = {"group": group, "cell": cell.name, "budget": cell.case.memory, "when": date.today().isoformat()}
        measured.append(about | {"machine": machine.facts(None), "load": os.getloadavg()[0], "rounds": played})
        for row in rows(measured[-1:]):
            print(results.table({"columns": COLUMNS, "rows": [row]}).splitlines()[-1], flush=True)
        if options.scale == 1:
            _add(Path(options.workdir) / "matrix.json", measured[-1])
    return measured


def _scaled(case: Case | slab_cases.Case, factor: int) -> Case | slab_cases.Case:
    return case.scaled(factor) if isinstance(case, Case) else replace(case, edge=case.edge // factor)


def _prepare(case: Case | slab_cases.Case, options: argparse.Namespace) -> None:
    """Make a cell's source, and what is right, where they are not there yet."""
    sources = os.path.join(options.workdir, "sources")
    os.makedirs(sources, exist_ok=True)
    if isinstance(case, Case):
        rounds.job_of(case, entry(OURS), options.workdir, options)
    else:
        slab_cases.source(case, case.chunks("squares"), sources)
        slab_cases.expected(case, sources)


def _play(case: Case, options: argparse.Namespace) -> list[dict]:
    ours = [entry(OURS if method == "auto" else f"{OURS}:{method}") for method in options.methods]
    limits = [] if options.without_limits or case.codec != "none" else [entry(name) for name in _limits(case)]
    (cache,) = options.cache
    played = rounds.plain(case, cache, rounds.play(case, [*ours, *limits], cache, options))["rounds"]
    for found in () if options.without_limits else played:
        if case.codec != "none":
            found["codecs"] = {"verdict": "ok", "seconds": codec_seconds(case)}
        found["bytes"] = {"verdict": "ok", "seconds": _byte_seconds(case, options)}
    return played


def _byte_seconds(case: Case, options: argparse.Namespace) -> float:
    folder = rounds.clean(os.path.join(options.workdir, "run"), options.pause)
    source = rounds.job_of(case, entry(OURS), options.workdir, options).source
    seconds = byte_seconds(case, source, os.path.join(folder, "scratch"))
    shutil.rmtree(folder)
    return seconds


def _limits(case: Case) -> Sequence[str]:
    if case.name.endswith("columns"):
        return LIMITS
    return LIMITS[:1] if case.name.endswith("4096 × 256") else ()


def _play_slabs(case: slab_cases.Case, options: argparse.Namespace) -> list[dict]:
    options.patience = 60.0
    ways = [slab_race.Way(label=OURS, module="peers.slab_ours", variant=case.operation, layout="squares")]
    if case.operation == "jacobi":
        compiled = replace(ways[0], label=f"{OURS}, compiled kernel", variant="numba")
        in_core = replace(ways[0], label="numba", module="peers.slab_in_core", variant="numba-parallel")
        ways += [compiled] if options.without_limits else [compiled, in_core]
    played = slab_race.play(case, ways, *options.cache, options)
    return [{label: asdict(run) for label, run in found.items()} for found in played]


def _add(path: Path, found: dict) -> None:
    """Put what was measured of a cell in place of what was measured before."""
    kept = json.loads(path.read_text()) if path.exists() else []
    others = [each for each in kept if (each["cell"], each["budget"]) != (found["cell"], found["budget"])]
    path.write_text(json.dumps([*others, found], indent=1))


# ---------------------------------------------------------------------- what is told of it


def rows(measured: Sequence[dict]) -> Iterator[list[str]]:
    """Yield a row of the table for each way of ours in each cell."""
    for cell in measured:
        ways = dict.fromkeys(label for found in cell["rounds"] for label in found)
        for way in (label for label in ways if label.startswith(OURS)):
            yield _row(cell, way)


def _row(cell: dict, way: str) -> list[str]:
    runs = [found[way] for found in cell["rounds"] if way in found]
    name = cell["cell"] + way.removeprefix(OURS)
    budget = f"{cell['budget'] // MIB} MiB"
    if bad := [run["verdict"] for run in runs if run["verdict"] != "ok"]:
        return [name, budget, bad[0], *[""] * (len(COLUMNS) - 3)]
    seconds, plan = [run["seconds"] for run in runs], runs[0]["told"]["plan"]
    held, planned, predicted = max(run["peak"] for run in runs), plan["peak_bytes"], plan["seconds"]
    return [
        name,
        budget,
        f"{_spread(seconds)} s",
        "; ".join(_limit(cell, way, label) for label in _others(cell)),
        f"{predicted:.2f} s" if predicted else "",
        f"{predicted / median(seconds):.2f}" if predicted else "",
        f"{held / MIB:.0f} MiB" + (", OVER ITS BUDGET" if held > cell["budget"] else ""),
        f"{planned / MIB:.0f} MiB",
        f"{held / planned:.2f}",
        runs[0]["told"].get("note") or "",
    ]


def _others(cell: dict) -> list[str]:
    labels = dict.fromkeys(label for found in cell["rounds"] for label in found)
    return [label for label in labels if not label.startswith(OURS)]


def _limit(cell: dict, way: str, label: str) -> str:
    """What another way took, and how many times as long as it ours did."""
    pairs = [(found[label], found[way]) for found in cell["rounds"] if label in found and way in found]
    good = [(other["seconds"], ours["seconds"]) for other, ours in pairs if other["verdict"] == "ok"]
    if not good:
        return f"{label} {pairs[0][0]['verdict']}"
    times = median(ours / other for other, ours in good)
    return f"{label} {median(other for other, _ in good):.2f} s: {times:.2f} ×"


def _spread(numbers: Sequence[float]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{median(numbers):.2f}" + (f" ({least:.2f}–{most:.2f})" if len(numbers) > 1 else "")


def _tables(options: argparse.Namespace) -> None:
    """Print the table of all that has been measured and how near predictions are; keep both where that is asked."""
    measured = json.loads((Path(options.workdir) / "matrix.json").read_text())
    order = list(GROUPS)
    measured.sort(key=lambda cell: order.index(cell["group"]))
    columns = {"entered": max(cell["when"] for cell in measured), "columns": COLUMNS}
    table = columns | {"rows": list(rows(measured))}
    print(results.table(table), near(measured), sep="\n")
    if options.store:
        _keep(measured, table)


def near(measured: Sequence[dict]) -> str:
    """Say how near predicted seconds are to measured ones, and what is held to what is planned."""
    seconds, held = [], []
    for cell in measured:
        runs = [found[OURS] for found in cell["rounds"] if found.get(OURS, {}).get("verdict") == "ok"]
        if runs:
            plan = runs[0]["told"]["plan"]
            held.append(max(run["peak"] for run in runs) / plan["peak_bytes"])
            if plan["seconds"]:
                seconds.append(plan["seconds"] / median(run["seconds"] for run in runs))
    off = [max(each, 1 / each) for each in seconds]
    far = sum(each > 2 for each in off)
    return (
        f"Predicted ÷ measured seconds of {len(seconds)} cells: {median(seconds):.2f} at the median, off by "
        f"{median(off) - 1:.0%} at the median, {max(off):.1f} × at most, {far} by more than twice. Held ÷ planned: "
        f"{median(held):.2f} at the median, {min(held):.2f} to {max(held):.2f}."
    )


def _keep(measured: Sequence[dict], table: dict) -> None:
    """Write a result as `results/` keeps them."""
    groups = " ".join(dict.fromkeys(cell["group"] for cell in measured))
    found = {
        "how": "written by the runs themselves",
        "machine": measured[-1]["machine"],
        "commands": [
            ".venv/bin/python benchmarks/matrix.py calibrate --workdir W",
            f".venv/bin/python benchmarks/matrix.py {groups} --workdir W",
            ".venv/bin/python benchmarks/matrix.py tables --workdir W --store",
        ],
        "tables": {"cells": table},
        "stated": [near(measured)],
    }
    text = json.dumps(found, ensure_ascii=False, indent=1)
    (results.STORED / "matrix.json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
