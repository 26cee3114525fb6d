"""Mean over time and monthly climatology of an array that is larger than its budget: ours, and xarray with Dask.

    python benchmarks/reduce.py --rounds 3
    python benchmarks/reduce.py --layouts maps --codecs zstd --memory 256MiB --cache cold,warm

Hourly fields of float32 in maps (24, 361, 720) or series (all, 19, 20), not coded or in zstd. xarray reads the stored
chunks, with flox for groups where that is installed; its chunks' memory is its own. Each result is checked against
another; `peak` is what the process holds above its level before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

import machine
import numpy as np
import rounds
from cases import MIB, parse_bytes
from report import row

SHAPE = (1008, 361, 720)
CHUNKS = {"maps": (24, 361, 720), "series": (1008, 19, 20)}
JOBS, WAYS = ("mean", "climatology"), ("ours", "xarray")


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=600)
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=list(CHUNKS))
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "zstd"])
    parser.add_argument("--memory", type=parse_bytes, default=256 * MIB, help="for ours (default: 256MiB)")
    options = parser.parse_args()
    facts, results = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for layout in options.layouts:
            for codec in options.codecs:
                source = _source(options, layout, codec)
                for job in JOBS:
                    for cache in options.cache:
                        turns = [
                            _round(job, source, cache, n, options) for n in range(options.discard + options.rounds)
                        ]
                        case = {"layout": layout, "codec": codec, "job": job, "cache": cache}
                        results.append(case | {"rounds": turns[options.discard :]})
                        print(_table(results[-1]), flush=True)
    rounds.save(options, {"machine": facts, "results": results})


def _source(options, layout: str, codec: str) -> str:
    """Make the fields, in one of the layouts."""
    import zarr
    from zarr.codecs import ZstdCodec

    place = os.path.join(options.workdir, f"{layout}-{codec}-{options.scale}.zarr")
    if os.path.exists(place):
        return place
    shape = tuple(max(n // options.scale, 1) for n in SHAPE)
    chunks = tuple(min(c, n) for c, n in zip(CHUNKS[layout], shape, strict=True))
    z = zarr.create_group(place).create_array(
        "air", shape=shape, chunks=chunks, dtype="f4", dimension_names=("time", "lat", "lon"),
        compressors=ZstdCodec(level=1) if codec == "zstd" else None,
    )  # fmt: skip
    rng = np.random.default_rng(1)
    for first in range(0, shape[0], 168):
        part = np.cumsum(rng.normal(0, 0.1, (min(168, shape[0] - first), *shape[1:])), axis=2) + 280
        z[first : first + 168] = part.astype("f4").round(2)
    return place


def child(job: str, way: str, source: str, memory: int) -> dict:
    """One way, once, in this process: what it took, and what came out."""
    from oocarrays.storage.meter import MemoryWatch

    run = {"ours": _ours, "xarray": _xarray}[way]
    run(job, source, memory, tiny=True)
    with MemoryWatch() as watch:
        start = time.perf_counter()
        made = run(job, source, memory, tiny=False)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "peak": watch.peak_bytes, "sum": float(np.asarray(made, "f8").sum()), "verdict": "ok"}


def _months(count: int) -> np.ndarray:
    """The month of each field, as if each were that of half a day."""
    return (np.datetime64("2001-01-01T00", "h") + 12 * np.arange(count)).astype("M8[M]").astype(int) % 12


def _ours(job: str, source: str, memory: int, *, tiny: bool) -> np.ndarray:
    import oocarrays as ooc

    a = ooc.open_array(f"{source}/air")
    if tiny:
        return np.asarray(a[:1, :1])
    by = _months(a.shape[0]) if job == "climatology" else None
    return ooc.reduce(a, "mean", axis=0, by=by, memory=memory)


def _xarray(job: str, source: str, memory: int, *, tiny: bool) -> np.ndarray:
    import dask
    import xarray as xr

    air = xr.open_zarr(source, consolidated=False).air
    if tiny:
        return air[:1, :1].values
    with dask.config.set(scheduler="threads"):
        if job == "climatology":
            air = air.assign_coords(month=("time", _months(air.sizes["time"]))).groupby("month")
        return air.mean("time").values


def _round(job: str, source: str, cache: str, turn: int, options) -> dict[str, dict]:
    """All ways, each time another one first."""
    found = {}
    for way in WAYS[turn % 2 :] + WAYS[: turn % 2]:
        (machine.make_cold if cache == "cold" else machine.make_warm)(source)
        time.sleep(options.pause)
        asked = {"job": job, "way": way, "source": source, "memory": options.memory}
        command = [sys.executable, "-W", "ignore", __file__, "child", json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
        found[way] = (
            json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {"verdict": done.stderr[-300:]}
        )
    sums = [each.get("sum", np.nan) for each in found.values()]
    if not np.isclose(sums[0], sums[1], rtol=1e-5):
        found["ours"]["verdict"] = f"sums differ: {sums}"
    return found


def _table(result: dict) -> str:
    said = [f"{result['job']} of {result['layout']}, {result['codec']}, {result['cache']}"]
    for way in WAYS:
        runs = [turn[way] for turn in result["rounds"]]
        wrong = [each["verdict"] for each in runs if each["verdict"] != "ok"]
        good = [turn for turn in result["rounds"] if all(each["verdict"] == "ok" for each in turn.values())]
        ratios = [turn[way]["seconds"] / turn["ours"]["seconds"] for turn in good] or [0.0]
        seconds = [each.get("seconds", 0.0) for each in runs]
        peak = max(each.get("peak", 0) for each in runs) // MIB
        said.append(row([way, f"{median(seconds):.2f} s", f"{median(ratios):.2f}", f"{peak} MiB", *wrong[:1]]))
    return "\n".join(said)


if __name__ == "__main__":
    main()
