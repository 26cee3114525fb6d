"""Pyramids of an image that is larger than its budget: ours, Dask with ``coarsen``, and ngff-zarr, in turn.

    python benchmarks/pyramid.py --rounds 3
    python benchmarks/pyramid.py --scale 4 --codecs none --memory 128MiB

32768² uint16 in chunks of 512², six levels of factor 2 and means of 2 × 2, not coded or in zstd, each way in a fresh
process on all cores. `dask` makes a level of the one below, which it reads again from the disk; `dask, one graph`
computes all levels together. ngff-zarr makes means by its method ``DASK_BIN_SHRINK``, and codes as it does by default.
Peers have no budget. A corner of each third level is held against numpy's; `read` is what the process asked of files,
as the system counts it (what is mapped is not among it), in multiples of the decoded source; `peak` is what it holds
above its level before.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from statistics import median

import machine
import numpy as np
import rounds
from cases import MIB, parse_bytes
from report import row

EDGE, CHUNK, LEVELS = 32768, 512, 6
WAYS = ("ours", "dask", "dask, one graph", "ngff-zarr")


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=300)
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "zstd"])
    parser.add_argument("--ways", type=lambda text: text.split(","), default=list(WAYS))
    parser.add_argument("--memory", type=parse_bytes, default=512 * MIB, help="for ours (default: 512MiB)")
    options = parser.parse_args()
    facts, results = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for codec in options.codecs:
            source = _source(options, codec)
            for cache in options.cache:
                turns = [_round(source, cache, turn, options) for turn in range(options.discard + options.rounds)]
                results.append({"codec": codec, "cache": cache, "rounds": turns[options.discard :]})
                print(_table(results[-1], options), flush=True)
    rounds.save(options, {"machine": facts, "edge": EDGE // options.scale, "results": results})


def _source(options, codec: str) -> str:
    """Make the image: smooth, with noise in its last bits, as a microscope has it."""
    import zarr
    from zarr.codecs import ZstdCodec

    edge = EDGE // options.scale
    place = os.path.join(options.workdir, f"image-{codec}-{options.scale}.zarr")
    if os.path.exists(place):
        return place
    z = zarr.create_array(
        place, shape=(edge, edge), chunks=(CHUNK, CHUNK), dtype="u2", dimension_names=("y", "x"),
        compressors=ZstdCodec(level=1) if codec == "zstd" else None,
    )  # fmt: skip
    rng, columns = np.random.default_rng(1), np.arange(edge)
    for first in range(0, edge, CHUNK):
        rows = np.arange(first, first + CHUNK)[:, np.newaxis]
        smooth = 2000 + 1500 * np.sin(rows / 900) * np.cos(columns / 700)
        z[first : first + CHUNK] = (smooth + rng.integers(0, 32, (CHUNK, edge), "u2")).astype("u2")
    return place


def child(way: str, source: str, target: str, memory: int) -> dict:
    """One way, once, in this process: what it took."""
    from oocarrays.storage.meter import MemoryWatch

    run = {"ours": _ours, "dask": _dask, "dask, one graph": _one_graph, "ngff-zarr": _ngff}[way]
    _import(way)
    with MemoryWatch() as watch:
        before, start = _asked_bytes(), time.perf_counter()
        run(source, target, memory)
        seconds, asked = time.perf_counter() - start, _asked_bytes() - before
    return {"seconds": seconds, "peak": watch.peak_bytes, "asked": asked, "verdict": _verdict(source, target)}


def _asked_bytes() -> int:
    """Bytes that this process asked the system for, by reads; mapped files are not among them."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


def _import(way: str) -> None:
    import dask.array
    import zarr

    import oocarrays

    assert oocarrays.pyramid, "imported"
    if way == "ngff-zarr":
        import ngff_zarr

        assert ngff_zarr.to_multiscales, "imported"
    assert dask.array.coarsen, "imported"
    assert zarr.open_array, "imported"


def _ours(source: str, target: str, memory: int) -> None:
    import oocarrays as ooc

    job = ooc.pyramid(source, target, levels=LEVELS, memory=memory, scheduler="threads")
    job.run()
    traffic = job.plan.traffic
    assert job.meter.read_requests == traffic.read_requests, "the source is read once"


def _dask_level(below):
    import dask.array as da

    return da.coarsen(_rounded_mean, below, {0: 2, 1: 2})


def _rounded_mean(block: np.ndarray, axis: tuple[int, ...] | None = None, keepdims: bool = False) -> np.ndarray:
    return ((block.sum(axis=axis, dtype=np.uint32, keepdims=keepdims) + 2) // 4).astype(block.dtype)


def _dask(source: str, target: str, memory: int) -> None:
    import dask
    import dask.array as da

    below = source
    for level in range(LEVELS):
        image = da.from_zarr(below)
        image = image if level == 0 else _dask_level(image).rechunk((CHUNK, CHUNK))
        below = f"{target}/{level}"
        dask.compute(image.to_zarr(below, **_arguments(source), compute=False))


def _one_graph(source: str, target: str, memory: int) -> None:
    import dask
    import dask.array as da

    image, jobs = da.from_zarr(source), []
    for level in range(LEVELS):
        image = image if level == 0 else _dask_level(image).rechunk((CHUNK, CHUNK))
        jobs.append(image.to_zarr(f"{target}/{level}", **_arguments(source), compute=False))
    dask.compute(*jobs)


def _arguments(source: str) -> dict:
    import zarr

    return {"compressors": zarr.open_array(source, mode="r").compressors or None}


def _ngff(source: str, target: str, memory: int) -> None:
    import dask.array as da
    import ngff_zarr as nz

    image = nz.to_ngff_image(da.from_zarr(source), dims=("y", "x"))
    factors = [2**level for level in range(1, LEVELS)]
    scales = nz.to_multiscales(image, scale_factors=factors, method=nz.Methods.DASK_BIN_SHRINK, chunks=CHUNK)
    nz.to_ngff_zarr(target, scales, version="0.5")


def _verdict(source: str, target: str) -> str:
    """Whether the third level is what numpy makes of the first, in a corner, to one: rounding is the peers' own."""
    import zarr

    found = next((p for p in (f"{target}/2", f"{target}/scale2/image") if os.path.exists(p)), None)
    if found is None:
        return "no third level"
    made = zarr.open_array(found, mode="r")[:64, :64].astype("f8")
    exact = zarr.open_array(source, mode="r")[:256, :256].reshape(64, 4, 64, 4).mean(axis=(1, 3))
    return "ok" if np.abs(made - exact).max() <= 1.5 else f"other by {np.abs(made - exact).max():.1f}"


def _round(source: str, cache: str, turn: int, options) -> dict[str, dict]:
    """All ways, each time another one first."""
    found = {}
    for way in rounds.in_turn(options.ways, turn):
        target = os.path.join(options.workdir, "levels.zarr")
        (machine.make_cold if cache == "cold" else machine.make_warm)(source)
        time.sleep(options.pause)
        asked = {"way": way, "source": source, "target": target, "memory": options.memory}
        found[way] = rounds.answered(__file__, asked, options.timeout)
        print(f"{way}: {found[way]}", file=sys.stderr)
        shutil.rmtree(target, ignore_errors=True)
    return found


def _table(result: dict, options) -> str:
    nbytes = 2 * (EDGE // options.scale) ** 2
    head = row(["way", "s", "× ours", "peak, MiB", "read, × source", ""])
    lines = [f"\n**{result['codec']}, {result['cache']}**\n", head, row(["---"] * 6)]
    for way in options.ways:
        runs = [each for each in result["rounds"] if "seconds" in each[way] and "seconds" in each["ours"]]
        if not runs:
            lines.append(row([way, "", "", "", "", result["rounds"][0][way]["verdict"]]))
            continue
        ratio = median(each[way]["seconds"] / each["ours"]["seconds"] for each in runs)
        seconds, peak, asked = (median(each[way][name] for each in runs) for name in ("seconds", "peak", "asked"))
        verdict = runs[0][way]["verdict"]
        cells = [way, f"{seconds:.2f}", f"{ratio:.2f}", f"{peak / MIB:.0f}", f"{asked / nbytes:.2f}"]
        lines.append(row([*cells, "" if verdict == "ok" else verdict]))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
