"""Read files that are not Zarr: NetCDF-4 to time series, a median of a TIFF, and the opening of many files.

    python benchmarks/formats.py --rounds 3
    python benchmarks/formats.py --jobs netcdf --memory 512MiB --scale 2
    python benchmarks/formats.py --jobs open --files 10000

64 files of NetCDF-4 (zlib and shuffle, 24 hours each) become series in blosc-zstd: ours; ours from a Zarr copy of the
same bytes and codecs; xarray with Dask on threads and on four processes; VirtualiZarr with Dask. A 3 × 3 median of a
tiled, deflated TIFF: ours, and dask-image on tifffile's store. `open` looks at what every file says of its arrays, and
plans. Every output is checked; `peak` is what the process holds above its level before (of four processes: not seen).
"""

from __future__ import annotations

import glob
import json
import os
import resource
import shutil
import sys
import time
from statistics import median

import machine
import numpy as np
import rounds
from cases import MIB, parse_bytes
from report import row

FILES, HOURS, EDGES, CHUNK = 64, 24, (180, 360), (4, 180, 360)
TILE, IMAGE = 256, 8192
WAYS = {
    "netcdf": ("ours", "ours-zarr", "xarray", "xarray-processes", "virtualizarr"),
    "tiff": ("ours", "dask-image"),
    "open": ("ours",),
}


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=900)
    parser.add_argument("--jobs", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--ways", type=lambda text: text.split(","), help="only these")
    parser.add_argument("--memory", type=parse_bytes, default=512 * MIB, help="for each way (default: 512MiB)")
    parser.add_argument("--files", type=int, default=10_000, help="files to open (default: %(default)s)")
    options = parser.parse_args()
    facts, results = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for job in options.jobs:
            source = {"netcdf": _days, "tiff": _image, "open": _many}[job](options)
            runs = [_round(job, source, turn, options) for turn in range(options.discard + options.rounds)]
            results.append({"job": job, "rounds": runs[options.discard :]})
            print(_table(results[-1]), flush=True)
    rounds.save(options, {"machine": facts, "results": results})


# ---------------------------------------------------------------------- sources


def _edges(scale: int) -> tuple[int, ...]:
    return tuple(max(edge // scale, 8) for edge in EDGES)


def _days(options) -> str:
    """Make files of NetCDF-4, and one array of Zarr with the same chunks and codecs."""
    import h5py
    import numcodecs
    import zarr

    folder = os.path.join(options.workdir, f"days-{options.scale}")
    if os.path.exists(f"{folder}/done"):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    edges, rng = _edges(options.scale), np.random.default_rng(1)
    chunk = (CHUNK[0], *edges)
    copy = zarr.create_array(
        f"{folder}/copy.zarr", shape=(FILES * HOURS, *edges), chunks=chunk, dtype="f4", zarr_format=2,
        filters=[numcodecs.Shuffle(4)], compressors=[numcodecs.Zlib(4)],
    )  # fmt: skip
    for day in range(FILES):
        air = np.cumsum(rng.normal(0, 0.1, (HOURS, *edges)), axis=2).astype("f4").round(2) + 280
        with h5py.File(f"{folder}/{day:05d}.nc", "w") as file:
            hours = file.create_dataset("time", data=np.arange(HOURS) + HOURS * day, maxshape=(None,), chunks=(HOURS,))
            hours.make_scale("time")
            data = file.create_dataset(
                "air", data=air, maxshape=(None, *edges), chunks=chunk, compression="gzip", shuffle=True
            )
            for axis, name in enumerate(("time", "lat", "lon")):
                if axis:
                    file.create_dataset(name, data=np.arange(float(edges[axis - 1]))).make_scale(name)
                data.dims[axis].attach_scale(file[name])
        copy[day * HOURS : (day + 1) * HOURS] = air
    open(f"{folder}/done", "w").close()
    return folder


def _image(options) -> str:
    import tifffile

    path, edge = os.path.join(options.workdir, f"image-{options.scale}.tif"), IMAGE // options.scale
    if not os.path.exists(path):
        ramp = np.add.outer(np.arange(edge) // 8, np.arange(edge) // 8)
        noise = np.random.default_rng(2).integers(0, 64, (edge, edge))
        tifffile.imwrite(path, (ramp + noise).astype("u2"), tile=(TILE, TILE), compression="zlib")
    return path


def _many(options) -> str:
    """Make many small files of NetCDF-4."""
    import h5py

    folder, count = os.path.join(options.workdir, f"many-{options.files}"), options.files
    if os.path.exists(f"{folder}/done"):
        return folder
    os.makedirs(folder, exist_ok=True)
    for day in range(count):
        with h5py.File(f"{folder}/{day:05d}.nc", "w") as file:
            hours = file.create_dataset("time", data=np.arange(4) + 4 * day, maxshape=(None,), chunks=(4,))
            hours.make_scale("time")
            data = file.create_dataset(
                "air", data=np.full((4, 8, 9), day, "f4"), maxshape=(None, 8, 9), chunks=(4, 8, 9), compression="gzip"
            )
            data.dims[0].attach_scale(hours)
    open(f"{folder}/done", "w").close()
    return folder


# ---------------------------------------------------------------------- one run


def child(job: str, way: str, source: str, target: str, memory: int) -> dict:
    """One way, once, in this process: what it took."""
    from oocarrays.storage.meter import MemoryWatch

    run = {"netcdf": _series, "tiff": _filtered, "open": _opened}[job]
    run(way, source, f"{target}.warm", memory, tiny=True)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with MemoryWatch() as watch:
        start = time.perf_counter()
        told = run(way, source, target, memory, tiny=False) or {}
    seconds = told.pop("seconds", time.perf_counter() - start)
    used = resource.getrusage(resource.RUSAGE_SELF)
    told["cpu"] = round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 2)
    right = {"netcdf": _is_series, "tiff": _is_filtered, "open": lambda *_: True}[job](source, target)
    return {"seconds": seconds, "peak": watch.peak_bytes, "verdict": "ok" if right else "wrong", **told}


def _series(way: str, source: str, target: str, memory: int, *, tiny: bool) -> dict | None:
    from zarr.codecs import BloscCodec

    files = sorted(glob.glob(f"{source}/*.nc"))[: 2 if tiny else None]
    codec = BloscCodec(cname="zstd", clevel=1, shuffle="shuffle", typesize=4)
    chunks = {"time": len(files) * HOURS, "lat": 20, "lon": 20}
    if way.startswith("ours"):
        import oocarrays as ooc

        copied = way == "ours-zarr" and not tiny
        place = f"{source}/copy.zarr" if copied else ooc.open_group(ooc.files(files, concat_dim="time"))["air"]
        wanted = tuple(chunks.values())
        job = ooc.rechunk(
            place, target, chunks=wanted, memory=memory, compressors=[codec], filters=[], zarr_format=3,
            scheduler="threads",
        )  # fmt: skip
        job.run()
        return {"planned": job.plan.peak_bytes, "predicted": job.plan.seconds, "strategy": job.plan.strategy}
    return _by_xarray(way, files, target, memory, chunks, codec)


def _by_xarray(way: str, files: list[str], target: str, memory: int, chunks: dict, codec) -> dict | None:
    import dask
    import xarray as xr

    how = {"encoding": {"air": {"compressors": [codec], "chunks": tuple(chunks.values())}}}
    with dask.config.set({"array.chunk-size": memory // 16, "scheduler": "threads"}):
        if way == "virtualizarr":
            data = xr.concat([_virtual(file) for file in files], "time", data_vars="minimal", **NEW)
        else:
            given = {"combine": "nested", "concat_dim": "time", "data_vars": "minimal", "chunks": {}, **NEW}
            data = xr.open_mfdataset(files, engine="h5netcdf", **given)
        made = data[["air"]].chunk(chunks)
        if way != "xarray-processes":
            made.to_zarr(target, consolidated=False, **how)
            return None
    from distributed import Client, LocalCluster

    with LocalCluster(4, threads_per_worker=1, memory_limit=memory, dashboard_address=None) as cluster, Client(cluster):
        start = time.perf_counter()
        made.to_zarr(target, consolidated=False, **how)
        return {"seconds": time.perf_counter() - start}


NEW = {"compat": "override", "coords": "minimal", "join": "override"}
"""What xarray is going to do by default."""


def _virtual(file: str):
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr.parsers import HDFParser

    store = HDFParser()(url=f"file://{file}", registry=ObjectStoreRegistry({"file:///": LocalStore()}))
    return xr.open_zarr(store, consolidated=False, zarr_format=3)


def _is_series(source: str, target: str) -> bool:
    import h5py
    import zarr

    group = zarr.open(target, mode="r")
    made = group if isinstance(group, zarr.Array) else group["air"]
    files = sorted(glob.glob(f"{source}/*.nc"))
    for day in (0, len(files) // 2, len(files) - 1):
        with h5py.File(files[day]) as file:
            if not np.array_equal(made[day * HOURS : (day + 1) * HOURS], file["air"][...]):
                return False
    return True


def _filtered(way: str, source: str, target: str, memory: int, *, tiny: bool) -> dict | None:
    import tifffile

    if tiny:
        source = f"{target}.tif"
        tifffile.imwrite(source, np.zeros((512, 512), "u2"), tile=(TILE, TILE), compression="zlib")
    if way == "ours":
        import oocarrays as ooc

        job = ooc.map_slabs(
            ooc.kernels.median, source, target, depth=1, boundary="reflect", memory=memory, scheduler="threads"
        )
        job.run()
        return {"planned": job.plan.peak_bytes}
    import dask.array as da
    import zarr
    from dask_image.ndfilters import median_filter

    with tifffile.imread(source, aszarr=True) as store:
        image = da.from_array(zarr.open_array(store, mode="r"), chunks=(1024, 1024))
        chunks = tuple(min(1024, n) for n in image.shape)
        made = zarr.create_array(target, shape=image.shape, chunks=chunks, dtype="u2", overwrite=True)
        da.store(median_filter(image, size=3, mode="reflect"), made, lock=False, scheduler="threads")
    return None


def _is_filtered(source: str, target: str) -> bool:
    import scipy.ndimage
    import tifffile
    import zarr

    part = tifffile.imread(source)[:700, :700]
    wanted = scipy.ndimage.median_filter(part, 3, mode="reflect")[:600, :600]
    return bool(np.array_equal(zarr.open_array(target, mode="r")[:600, :600], wanted))


def _opened(way: str, source: str, target: str, memory: int, *, tiny: bool) -> dict | None:
    import oocarrays as ooc

    if tiny:
        return None
    start = time.perf_counter()
    group = ooc.open_group(f"{source}/*.nc")
    opened = time.perf_counter()
    steps = group["air"].shape[0]
    job = ooc.rechunk(group.zarr, target, chunks={"air": (steps, 4, 3)}, memory=memory, scheduler="threads")
    return {"seconds": opened - start, "plan": time.perf_counter() - opened, "members": len(job.plan.members)}


# ---------------------------------------------------------------------- rounds

OK = {"verdict": "ok"}


def _round(job: str, source: str, turn: int, options) -> dict[str, dict]:
    """All ways, each time another one first."""
    found, ways = {}, [way for way in WAYS[job] if not options.ways or way in options.ways]
    for way in rounds.in_turn(ways, turn):
        machine.make_warm(source) if os.path.isdir(source) else None
        target = os.path.join(options.workdir, "target")
        time.sleep(options.pause)
        asked = {"job": job, "way": way, "source": source, "target": target, "memory": options.memory}
        found[way] = rounds.answered(__file__, asked, options.timeout)
        print(f"{job} {way}: {found[way].get('seconds', 0):.2f} s, {found[way]['verdict']}", file=sys.stderr)
        for place in glob.glob(f"{target}*"):
            shutil.rmtree(place) if os.path.isdir(place) else os.remove(place)
    return found


def _table(result: dict) -> str:
    runs = result["rounds"]
    lines = [
        f"\n**{result['job']}**\n",
        row(["way", "s", "× ours", "peak MiB", ""]),
        row(["---", *["---:"] * 3, "---"]),
    ]
    for way in WAYS[result["job"]]:
        if way not in runs[0]:
            continue
        good = [
            each for each in runs if each[way]["verdict"] == "ok" and each.get("ours", {}).get("verdict", "ok") == "ok"
        ]
        if not good:
            lines.append(row([way, "", "", "", runs[0][way]["verdict"]]))
            continue
        seconds, peak = (median(each[way][name] for each in good) for name in ("seconds", "peak"))
        ratio = median(each[way]["seconds"] / each["ours"]["seconds"] for each in good) if "ours" in good[0] else 0
        more = ", ".join(f"{k} {v}" for k, v in good[-1][way].items() if k not in ("seconds", "peak", "verdict"))
        lines.append(row([way, f"{seconds:.2f}", f"{ratio:.2f}", f"{peak / MIB:.0f}", more]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
