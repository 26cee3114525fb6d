"""Mean over time and monthly climatology of an array that is larger than its budget: ours, xarray with Dask, cubed.

    python benchmarks/reduce.py --rounds 3
    python benchmarks/reduce.py --layouts maps --codecs zstd --ways ours,xarray --cache cold,warm --times 4
    python benchmarks/reduce.py --std

Hourly fields of float32 in maps (24, 361, 720) or series (all, 19, 20), not coded or in zstd. xarray reads the stored
chunks, with flox for groups where that is installed; its chunks' memory is its own. `-workers` are four worker
processes of one thread, which are there and have imported all before. Each result is checked against the first;
`peak` is what the process, or a worker, holds above its level before. `--std` is the deviation of 10^8 values with
mean 10^6.
"""

from __future__ import annotations

import json
import os
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
JOBS, WAYS = ("mean", "climatology"), ("ours", "xarray", "cubed", "ours-workers", "xarray-workers")
WORKERS, WORKER_BYTES = 4, 2**31


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=600)
    parser.add_argument("--layouts", type=lambda text: text.split(","), default=list(CHUNKS))
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "zstd"])
    parser.add_argument("--memory", type=parse_bytes, default=256 * MIB, help="for ours (default: 256MiB)")
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(JOBS))
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--times", type=int, default=1, help="how often 1008 fields (default: 1, which is 1 GiB)")
    parser.add_argument("--std", action="store_true", help="the deviation of many values, and nothing else")
    options = parser.parse_args()
    facts, results = machine.facts(None), []
    if options.std:
        with rounds.working_folder(options):
            print(facts, _std(options), sep="\n")
        return
    with rounds.working_folder(options):
        print(facts, flush=True)
        for layout in options.layouts:
            for codec in options.codecs:
                source = _source(options, layout, codec)
                for job in options.jobs:
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

    small = os.path.join(options.workdir, "small.zarr")
    if not os.path.exists(small):
        zarr.create_array(small, data=np.ones((64, 8), "f4"), chunks=(1, 8))
    place = os.path.join(options.workdir, f"{layout}-{codec}-{options.times}-{options.scale}.zarr")
    if os.path.exists(place):
        return place
    shape = tuple(max(n // options.scale, 1) for n in (SHAPE[0] * options.times, *SHAPE[1:]))
    long = (shape[0], *CHUNKS[layout][1:]) if layout == "series" else CHUNKS[layout]
    chunks = tuple(min(c, n) for c, n in zip(long, shape, strict=True))
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

    run = {"ours": _ours, "xarray": _xarray, "cubed": _cubed}[way.removesuffix("-workers")]
    if way.endswith("-workers"):
        return _on_workers(run, job, source, memory)
    run(job, source, memory, tiny=True)
    with MemoryWatch() as watch:
        start = time.perf_counter()
        made = run(job, source, memory, tiny=False)
    return _result(time.perf_counter() - start, watch.peak_bytes, made)


def _result(seconds: float, peak: int, made: np.ndarray) -> dict:
    return {"seconds": seconds, "peak": peak, "sum": float(np.asarray(made, "f8").sum()), "verdict": "ok"}


def _on_workers(run, job: str, source: str, memory: int) -> dict:
    """The same on workers, which have done something small before, and are watched by themselves."""
    from distributed import Client, LocalCluster

    made = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, memory_limit=WORKER_BYTES, dashboard_address=None, processes=True
    )
    with made as cluster, Client(cluster) as client:
        run(job, source, memory, tiny=True, scheduler=client)
        client.run(_watch)
        start = time.perf_counter()
        result = run(job, source, memory, tiny=False, scheduler=client)
        seconds = time.perf_counter() - start
        return _result(seconds, max(client.run(_watched).values()), result)


def _watch(dask_worker) -> None:
    from oocarrays.storage.meter import MemoryWatch

    dask_worker.watch = MemoryWatch()
    dask_worker.watch.__enter__()


def _watched(dask_worker) -> int:
    dask_worker.watch.__exit__(None, None, None)
    return dask_worker.watch.peak_bytes


def _months(count: int) -> np.ndarray:
    """The month of each field, as if each were that of half a day."""
    return (np.datetime64("2001-01-01T00", "h") + 12 * np.arange(count)).astype("M8[M]").astype(int) % 12


def _ours(job: str, source: str, memory: int, *, tiny: bool, scheduler="threads") -> np.ndarray:
    import oocarrays as ooc

    a = ooc.open_array(f"{source}/air")
    if tiny:
        small = os.path.join(os.path.dirname(source), "small.zarr")
        return ooc.reduce(small, "mean", axis=0, memory=memory, scheduler=scheduler)
    by = _months(a.shape[0]) if job == "climatology" else None
    return ooc.reduce(a, "mean", axis=0, by=by, memory=memory, scheduler=scheduler)


def _cubed(job: str, source: str, memory: int, *, tiny: bool) -> np.ndarray:
    """Plan with more memory, where its plan asks for that; it has groups by its own function."""
    import cubed
    import cubed.array_api as xp
    from cubed.core.groupby import groupby_reduction

    if tiny:
        return np.zeros(1)
    allowed = memory // 2
    while True:
        spec = cubed.Spec(allowed_mem=allowed, executor_name="threads", executor_options={"max_workers": 2})
        x = cubed.from_zarr(f"{source}/air", spec=spec)
        try:
            if job == "mean":
                return xp.mean(x, axis=0).compute()
            by, count = _months(x.shape[0]), 12
            labels = cubed.from_array(by, chunks=x.chunksize[:1], spec=spec)
            how = {"func": _grouped, "combine_func": _added, "intermediate_dtype": np.float32, "dtype": np.float32}
            sums = groupby_reduction(x, labels, axis=0, num_groups=count, **how)
            return sums.compute() / np.bincount(by, minlength=count)[:, None, None]
        except ValueError as refusal:
            if "mem" not in str(refusal):
                raise
            allowed += allowed // 2


def _grouped(a: np.ndarray, by: np.ndarray, *, num_groups: int, **_) -> np.ndarray:
    return np.stack([a[by == group].sum(axis=0) for group in range(num_groups)])


def _added(a: np.ndarray, *, dummy_axis: int, keepdims: bool = True, **_) -> np.ndarray:
    return np.sum(a, axis=dummy_axis, keepdims=keepdims)


def _xarray(job: str, source: str, memory: int, *, tiny: bool, scheduler="threads") -> np.ndarray:
    import dask
    import xarray as xr

    air = xr.open_zarr(source, consolidated=False).air
    if tiny:
        return air[:1, :1].mean("time").values
    with dask.config.set(scheduler=scheduler):
        if job == "climatology":
            air = air.assign_coords(month=("time", _months(air.sizes["time"]))).groupby("month")
        return air.mean("time").values


def _round(job: str, source: str, cache: str, turn: int, options) -> dict[str, dict]:
    """All ways, each time another one first."""
    found = {}
    for way in rounds.in_turn(options.ways, turn):
        (machine.make_cold if cache == "cold" else machine.make_warm)(source)
        time.sleep(options.pause)
        asked = {"job": job, "way": way, "source": source, "memory": options.memory}
        found[way] = rounds.answered(__file__, asked, options.timeout)
    wanted = found[options.ways[0]].get("sum", np.nan)
    for each in found.values():
        if each["verdict"] == "ok" and not np.isclose(each["sum"], wanted, rtol=1e-5):
            each["verdict"] = f"its sum is {each['sum']}, not {wanted}"
    return found


def _std(options) -> str:
    """The deviation of 10^8 values with mean 10^6, in several budgets, against the same in 80 bits."""
    import zarr

    import oocarrays as ooc

    count, step = 10**8 // options.scale, 10**7 // options.scale
    place = os.path.join(options.workdir, "many.zarr")
    z = zarr.create_array(place, shape=(count,), chunks=(10**6 // options.scale,), dtype="f4", compressors=None)
    rng, parts = np.random.default_rng(1), []
    for first in range(0, count, step):
        part = rng.normal(1e6, 1, step).astype("f4")
        z[first : first + step] = part
        wide = part.astype("f16") if hasattr(np, "float128") else part.astype("f8")
        parts.append((wide.sum(), (wide - 10**6).sum(), ((wide - 10**6) ** 2).sum()))
    total, squares = sum(each[1] for each in parts), sum(each[2] for each in parts)
    wanted = np.sqrt(squares / count - (total / count) ** 2)
    found = {memory: ooc.reduce(place, "std", memory=memory, scheduler="threads") for memory in ("64MiB", "1GiB")}
    error = max(abs(float((each - wanted) / wanted)) for each in found.values())
    same = len({np.asarray(each).tobytes() for each in found.values()}) == 1
    return f"std of {count} values: relative error {error:.1e}, the same bits in {', '.join(found)}: {same}"


def _table(result: dict) -> str:
    said = [f"{result['job']} of {result['layout']}, {result['codec']}, {result['cache']}"]
    for way in result["rounds"][0]:
        ours = "ours-workers" if way.endswith("-workers") else "ours"
        runs = [turn[way] for turn in result["rounds"]]
        wrong = [each["verdict"] for each in runs if each["verdict"] != "ok"]
        pairs = [(turn[way], turn.get(ours, {})) for turn in result["rounds"]]
        good = [(a, b) for a, b in pairs if a["verdict"] == b.get("verdict") == "ok"]
        ratios = [a["seconds"] / b["seconds"] for a, b in good] or [0.0]
        seconds = [each.get("seconds", 0.0) for each in runs]
        peak = max(each.get("peak", 0) for each in runs) // MIB
        said.append(row([way, f"{median(seconds):.2f} s", f"{median(ratios):.2f}", f"{peak} MiB", *wrong[:1]]))
    return "\n".join(said)


if __name__ == "__main__":
    main()
