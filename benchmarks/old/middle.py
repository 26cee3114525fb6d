"""A rechunk in the middle of a Dask pipeline: ours, by way of scratch, beside Dask's own two methods, in turn.

    python benchmarks/middle.py --rounds 3
    python benchmarks/middle.py --limits 500MB --scale 4

Random numbers of 2 GiB in slabs of rows → square root → columns → a mean of three neighbours → Zarr, on four workers of
one thread with so much memory each, in a fresh process and on a fresh cluster. Some columns of each result are compared
with numpy's. `restarts` counts workers that went above their limit; where one does so again and again, the run is lost.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import time
from statistics import median
from typing import Any

import machine
import numpy as np
import rounds
from report import row

EDGE, SLABS, WORKERS = 16384, 64, 4
WAYS = ("oocarrays", "p2p", "tasks")


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=300)
    parser.add_argument("--limits", type=lambda text: text.split(","), default=["500MB", "1GB"])
    options = parser.parse_args()
    facts, found = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for limit in options.limits:
            runs = [_round(limit, turn, options) for turn in range(options.discard + options.rounds)]
            found.append({"limit": limit, "rounds": runs[options.discard :]})
            print(_table(found[-1]), flush=True)
    rounds.save(options, {"machine": facts, "results": found})


def child(way: str, limit: str, edge: int, target: str, scratch: str) -> dict[str, Any]:
    """One way, once, in this process."""
    import dask
    import zarr
    from distributed import Client, LocalCluster
    from distributed.scheduler import KilledWorker

    logging.disable(logging.CRITICAL)
    image = _image(edge)
    with (
        LocalCluster(WORKERS, threads_per_worker=1, memory_limit=limit, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        before, start = set(client.scheduler_info()["workers"]), time.perf_counter()
        try:
            dask.compute(_smoothed(_turned(image, way, edge, scratch)).to_zarr(target, compute=False))
            verdict = "ok"
        except KilledWorker:
            verdict = "killed"
        seconds = time.perf_counter() - start
        restarts = len(set(client.scheduler_info()["workers"]) - before)
    if verdict == "ok":
        few = _smoothed(image[:, :40]).compute(scheduler="threads")[:, :32]
        verdict = "ok" if np.allclose(zarr.open_array(target, mode="r")[:, :32], few) else "wrong"
    return {"seconds": seconds, "verdict": verdict, "restarts": restarts}


def _image(edge: int) -> Any:
    import dask.array as da

    return np.sqrt(da.random.default_rng(0).random((edge, edge), chunks=(edge // SLABS, edge)))


def _turned(image: Any, way: str, edge: int, scratch: str) -> Any:
    chunks = (edge, edge // SLABS)
    if way == "oocarrays":
        import oocarrays as ooc

        return ooc.rechunk(image, chunks=chunks, scratch=scratch)
    return image.rechunk(chunks, method=way)


def _smoothed(image: Any) -> Any:
    return image.map_overlap(_mean, depth={1: 1}, boundary="none", meta=np.empty((0, 0)))


def _mean(block: np.ndarray) -> np.ndarray:
    made = block.copy()
    made[:, 1:-1] = (block[:, :-2] + block[:, 1:-1] + block[:, 2:]) / 3
    return made


def _round(limit: str, turn: int, options: Any) -> dict[str, dict[str, Any]]:
    """All ways, each time another one first."""
    found = {}
    for way in rounds.in_turn(WAYS, turn):
        target, scratch = (os.path.join(options.workdir, name) for name in ("target.zarr", "scratch"))
        os.makedirs(scratch, exist_ok=True)
        time.sleep(options.pause)
        asked = {"way": way, "limit": limit, "edge": EDGE // options.scale, "target": target, "scratch": scratch}
        found[way] = rounds.answered(__file__, asked, options.timeout)
        print(f"{limit} {way}: {found[way]}", file=sys.stderr)
        for place in (target, scratch):
            shutil.rmtree(place, ignore_errors=True)
    return found


def _table(result: dict[str, Any]) -> str:
    lines = [f"\n**{result['limit']}**\n", row(["way", "s", "× ours", "restarts", ""]), row(["---"] * 5)]
    for way in WAYS:
        runs = [each for each in result["rounds"] if each[way]["verdict"] == "ok"]
        if not runs:
            lines.append(row([way, "", "", "", result["rounds"][0][way]["verdict"]]))
            continue
        ratios = [each[way]["seconds"] / each["oocarrays"].get("seconds", np.nan) for each in runs]
        seconds, restarts = (median(each[way][name] for each in runs) for name in ("seconds", "restarts"))
        lines.append(row([way, f"{seconds:.1f}", f"{median(ratios):.2f}", f"{restarts:g}", ""]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
