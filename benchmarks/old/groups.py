"""Rechunk a group of arrays in one job, and the same arrays one job each, in turn, each way in a fresh process.

    python benchmarks/groups.py --rounds 3
    python benchmarks/groups.py --arrays 20 --codec zstd --memory 256MiB --scale 4

Prints for each way the seconds from planning to the last write and the memory held above the idle level, and the
ratio of the group to the sum of its arrays: medians of those within a round.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from statistics import median

import machine
import rounds
from cases import MIB, Case, job_for, parse_bytes

WAYS = ("group", "singles")
EDGE = 4096
"""Elements along each axis of an array: 64 MiB of float32."""


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        child(**json.loads(sys.argv[2]))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=180)
    parser.add_argument("--arrays", type=int, default=20, help="arrays in the group (default: %(default)s)")
    parser.add_argument("--codec", choices=("none", "zstd", "blosc"), default="none", help="(default: %(default)s)")
    parser.add_argument("--memory", type=parse_bytes, default=256 * MIB, help="budget of each job (default: 256MiB)")
    options = parser.parse_args()
    facts = machine.facts(None)
    with rounds.working_folder(options):
        print(facts, flush=True)
        case = _case(options.codec, options.memory).scaled(options.scale)
        source = _source(case, options)
        found = [_round(source, case, options, turn) for turn in range(options.discard + options.rounds)]
    found = found[options.discard :]
    print(_table(found), flush=True)
    rounds.save(options, {"machine": facts, "results": [{"arrays": options.arrays, "rounds": found}]})


def _case(codec: str, memory: int) -> Case:
    return Case(
        name="group",
        shape=(EDGE, EDGE),
        source_chunks=(EDGE // 64, EDGE),
        target_chunks=(EDGE, EDGE // 64),
        codec=codec,
        memory=memory,
    )


def _source(case: Case, options) -> str:
    """Return a group of equal arrays, and a coordinate that is copied."""
    import zarr

    folder = os.path.join(options.workdir, f"group-{case.codec}-{options.arrays}-{options.scale}")
    if not os.path.exists(folder):
        group = zarr.create_group(folder)
        group.create_array("axis", shape=(case.shape[0],), chunks=case.shape[:1], dtype="f8")[...] = 1
        first = os.path.join(folder, "v0")
        rounds.data("make", first, job_for(case, first, options.workdir), 3)
        for number in range(1, options.arrays):
            shutil.copytree(first, os.path.join(folder, f"v{number}"))
    return folder


def _round(source: str, case: Case, options, turn: int) -> dict:
    """Both ways, the first of them now the one and now the other."""
    found = {}
    for way in WAYS if turn % 2 == 0 else WAYS[::-1]:
        target = os.path.join(options.workdir, "target")
        shutil.rmtree(target, ignore_errors=True)
        time.sleep(options.pause)
        task = {"way": way, "source": source, "target": target, "arrays": options.arrays}
        task |= {"chunks": case.target_chunks, "memory": case.memory if options.scale == 1 else options.memory}
        command = [sys.executable, __file__, "child", json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout, check=False)
        found[way] = json.loads(done.stdout) if done.returncode == 0 else {"verdict": done.stderr.strip()[-200:]}
    return found


def child(way: str, source: str, target: str, arrays: int, chunks: list[int], memory: int) -> None:
    """One way, once, in this process; prints what it took as JSON."""
    import numpy as np
    import zarr

    import oocarrays as ooc
    from oocarrays.storage.meter import MemoryWatch

    names = [f"v{number}" for number in range(arrays)]
    warm = {name: zarr.storage.MemoryStore() for name in ("a", "b")}
    zarr.create_array(warm["a"], data=np.ones((8, 8)), chunks=(1, 8))
    ooc.rechunk(warm["a"], warm["b"], chunks=(8, 1), memory="64MiB").run()
    start = time.perf_counter()
    with MemoryWatch() as watch:
        if way == "group":
            job = ooc.rechunk(source, target, chunks=dict.fromkeys(names, tuple(chunks)), memory=memory)
            job.run()
            predicted = job.plan.peak_bytes
        else:
            predicted = 0
            os.makedirs(target)
            for name in names:
                job = ooc.rechunk(f"{source}/{name}", f"{target}/{name}", chunks=tuple(chunks), memory=memory)
                job.run()
                predicted = max(predicted, job.plan.peak_bytes)
    seconds = time.perf_counter() - start
    wrong = [name for name in names if not _same(f"{source}/{name}", f"{target}/{name}")]
    verdict = f"wrong: {', '.join(wrong)}" if wrong else "ok"
    told = {"verdict": verdict, "seconds": seconds, "peak": watch.peak_bytes}
    print(json.dumps(told | {"predicted_peak": predicted, "budget": memory}))


def _same(source: str, target: str) -> bool:
    """Return whether two arrays hold the same, some rows at a time."""
    import numpy as np
    import zarr

    a, b = (zarr.open_array(path, mode="r") for path in (source, target))
    step = -(-a.shape[0] // 4)
    return all(
        np.array_equal(a[row : row + step], b[row : row + step]) for row in range(0, a.shape[0], step)
    )  # fmt: skip


def _table(found: list[dict]) -> str:
    """Return a table of the results, as Markdown."""
    lines = ["", "| way | seconds | memory |", "|---|---|---|"]
    for way in WAYS:
        ok = [each[way] for each in found if each[way]["verdict"] == "ok"]
        failed = next((each[way]["verdict"] for each in found if each[way]["verdict"] != "ok"), "")
        figures = (
            f"{median(run['seconds'] for run in ok):.2f} | {median(run['peak'] for run in ok) / MIB:.0f} MiB"
            if ok
            else "– | –"
        )
        lines.append(f"| {way} {failed} | {figures} |")
    ratios = [
        each["group"]["seconds"] / each["singles"]["seconds"]
        for each in found
        if {run["verdict"] for run in each.values()} == {"ok"}
    ]
    if ratios:
        lines.append(f"\ngroup ÷ singles: {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
