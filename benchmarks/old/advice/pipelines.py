"""Twelve pipelines in the chunks that are there today, in those that are advised, and in two others that are habits.

    python benchmarks/advice/pipelines.py
    python benchmarks/advice/pipelines.py maps series --clock processor --json out.json

Each pipeline is a graph of Dask on threads, whose tasks each read a section by Zarr and reduce it; nothing of ours
reads. Its trace is recorded by `ooc.trace` in a run in today's chunks. The array is written in each of four layouts,
zstd-coded; layouts that several pipelines need are written once. Answers are checked against those of the first layout.
How fast these values are decoded is measured first, in such a run, while all processors work; then what a saving is
predicted to be, in seconds a run, stands beside what it was.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import dask
import machine
import numpy as np
import rounds
import zarr
from data import values

import oocarrays as ooc
from oocarrays.graphs import settings

Shape = tuple[int, ...]
CUBE, IMAGE = (1024, 512, 512), (16384, 16384)
"""Time, latitude, longitude; and rows, columns: 1 GiB each of float32."""
WEIGHT = 50
"""Runs that a trace stands for: rewriting is worth while."""
CORES = settings.local_cores()
CALIBRATING_RUNS = 5
"""Runs by whose median it is known how fast values are decoded."""


def habits(shape: Shape) -> dict[str, Shape]:
    """Return the layouts that people choose by habit: the chunks of each."""
    if len(shape) == 3:
        return {
            "maps": (max(shape[0] // 256, 1), *shape[1:]),
            "series": (shape[0], *(max(n // 16, 1) for n in shape[1:])),
            "cubes": tuple(max(n // 8, 1) for n in shape),
        }
    return {
        "rows": (max(shape[0] // 256, 1), shape[1]),
        "columns": (shape[0], max(shape[1] // 256, 1)),
        "tiles": tuple(max(n // 16, 1) for n in shape),
    }


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """What is read, task by task."""

    shape: Shape
    """Extents of the array at full size."""
    today: str
    """The habit by which the array is stored today."""
    sections: Callable[[Shape], list[tuple[slice, ...]]]
    """What each task reads of an array of some shape."""


def tiled(*lengths: int, every: int = 1, halo: int = 0) -> Callable[[Shape], list[tuple[slice, ...]]]:
    """Tiles of a grid of so many along each axis, with a halo; of the tiles each one in so many."""

    def sections(shape: Shape) -> list[tuple[slice, ...]]:
        along = []
        for extent, parts in zip(shape, lengths, strict=True):
            step = max(extent // parts, 1)
            along.append([slice(max(i - halo, 0), min(i + step + halo, extent)) for i in range(0, extent, step)])
        return list(product(*along))[::every]

    return sections


def boxes(count: int, *shares: int) -> Callable[[Shape], list[tuple[slice, ...]]]:
    """So many boxes at places that are drawn, a share of each axis long; the same each time."""

    def sections(shape: Shape) -> list[tuple[slice, ...]]:
        rng, lengths = np.random.default_rng(19), [max(n // share, 1) for n, share in zip(shape, shares, strict=True)]
        most = [n - length + 1 for n, length in zip(shape, lengths, strict=True)]
        starts = rng.integers(0, most, (count, len(shape))).tolist()
        return [tuple(slice(s, s + length) for s, length in zip(start, lengths, strict=True)) for start in starts]

    return sections


def every_nth(step: int, parts: int) -> Callable[[Shape], list[tuple[slice, ...]]]:
    """Each nth map, in parts of so many along the last axis."""

    def sections(shape: Shape) -> list[tuple[slice, ...]]:
        width = shape[2] // parts
        return [(slice(0, shape[0], step), slice(None), slice(i, i + width)) for i in range(0, shape[2], width)]

    return sections


PIPELINES = {
    "maps": Pipeline(shape=CUBE, today="series", sections=tiled(64, 1, 1, every=4)),
    "series": Pipeline(shape=CUBE, today="maps", sections=tiled(1, 16, 16, every=32)),
    "climatology": Pipeline(shape=CUBE, today="series", sections=tiled(16, 2, 1)),
    "region": Pipeline(shape=CUBE, today="maps", sections=boxes(4, 1, 8, 8)),
    "rolling": Pipeline(shape=CUBE, today="series", sections=tiled(32, 2, 2, every=4, halo=2)),
    "anomalies": Pipeline(shape=CUBE, today="maps", sections=tiled(1, 4, 4)),
    "thinned": Pipeline(shape=CUBE, today="cubes", sections=every_nth(16, 2)),
    "samples": Pipeline(shape=CUBE, today="maps", sections=boxes(48, 16, 16, 16)),
    "columns": Pipeline(shape=IMAGE, today="rows", sections=tiled(1, 16)),
    "rows": Pipeline(shape=IMAGE, today="columns", sections=tiled(16, 1)),
    "pyramid": Pipeline(shape=IMAGE, today="rows", sections=tiled(16, 16, every=4)),
    "crops": Pipeline(shape=IMAGE, today="columns", sections=boxes(32, 32, 32)),
}


# ---------------------------------------------------------------------- runs


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    print(machine.facts(None), flush=True)
    found = []
    with rounds.working_folder(options), dask.config.set({"oocarrays.cost.decode_bandwidth": _decoding(options)}):
        for name in options.pipelines or PIPELINES:
            found.append(_race(name, PIPELINES[name], options))
            print(*_lines(found[-1]), sep="\n", flush=True)
    print(*_summary(found), sep="\n", flush=True)
    rounds.save(options, {"results": [{"pipelines": found}]})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__ or "", cache=("warm",), timeout=300)
    parser.add_argument("pipelines", nargs="*", help=f"default: all; there are {', '.join(PIPELINES)}")
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall",
        help="on a machine that others use: seconds of processors over the number of them (default: %(default)s)",
    )  # fmt: skip
    return parser


def _race(name: str, pipeline: Pipeline, options: argparse.Namespace) -> dict:
    """Measure one pipeline in four layouts."""
    shape = tuple(max(n // options.scale, 16) for n in pipeline.shape)
    sections, known = pipeline.sections(shape), habits(shape)
    today = _made(shape, known[pipeline.today], options)
    advice = _trace(today, sections, options.clock).advise(memory="4GiB", scheduler="threads")
    (verdict,) = advice.arrays
    layouts = {"today": known[pipeline.today], "advised": verdict.chunks}
    layouts |= {habit: chunks for habit, chunks in known.items() if habit != pipeline.today}
    places = {label: _made(shape, chunks, options) for label, chunks in layouts.items()}
    runs: dict[str, list[float]] = {place: [] for place in places.values()}
    answers: list[list[float]] = []
    for turn in range(options.rounds + options.discard):
        for place in runs:
            seconds, answer = _run(place, sections, options.clock)
            answers.append(answer)
            if not np.allclose(answer, answers[0]):
                raise SystemExit(f"{name} in {place}: {answer} is not {answers[0]}")
            if turn >= options.discard:
                runs[place].append(seconds)
    if verdict.chunks not in known.values():
        shutil.rmtree(places["advised"])
    return {
        "name": name,
        "layouts": {label: list(chunks) for label, chunks in layouts.items()},
        "seconds": {label: statistics.median(runs[place]) for label, place in places.items()},
        "predicted": {"today": verdict.today.seconds / WEIGHT, "advised": verdict.advised.seconds / WEIGHT},
        "kept": verdict.kept,
    }


def _decoding(options: argparse.Namespace) -> dict[str, float]:
    """Measure how fast these values are decoded, in chunks of 4 MiB: bytes a second of a processor, as all work.

    Tasks take a corner of eight chunks each, of maps and of series: they are decoded whole, and hardly anything is
    copied. Where a task reads one chunk, processors wait for each other between tasks.
    """
    corner, shape, seconds, count = slice(0, 1), (256, 512, 512), 0.0, 0
    for chunks, sections in (
        ((4, 512, 512), [(slice(i, i + 32), corner, corner) for i in range(0, 256, 32)]),
        ((256, 64, 64), [(corner, slice(i, i + 1), slice(None)) for i in range(0, 512, 64)]),
    ):
        stored, tasks = _made(shape, chunks, options), 4 * sections  # a second or two: what begins and ends is little
        seconds += statistics.median(_run(stored, tasks, options.clock)[0] for _ in range(CALIBRATING_RUNS))
        count += 8 * len(tasks)
    costs, nbytes = settings.costs(), 2**22
    fixed = costs.zarr_chunk_seconds + costs.piece_seconds + costs.request_seconds
    byte = (seconds * CORES / count - fixed) / nbytes - 1 / costs.copy_bandwidth
    return {**costs.decode_bandwidth, "zstd": 1 / max(byte, 1e-10)}


def _made(shape: Shape, chunks: Shape, options: argparse.Namespace) -> str:
    """Return where the array lies in some chunks; it is written where it does not yet."""
    place = os.path.join(options.workdir, f"{'x'.join(map(str, shape))}-{'x'.join(map(str, chunks))}.zarr")
    if not os.path.exists(place):
        z = zarr.create_array(place, shape=shape, chunks=chunks, dtype="f4")
        least = max(shape[0] // 8, 1)
        step = -(-least // chunks[0]) * chunks[0]
        for low in range(0, shape[0], step):
            part = (slice(low, min(low + step, shape[0])), *(slice(0, n) for n in shape[1:]))
            z[part] = values(part)
    return place


def _trace(place: str, sections: list[tuple[slice, ...]], clock: str) -> ooc.Trace:
    """Return the trace of a pipeline, recorded in a run."""
    with ooc.trace(block="pipeline", weight=WEIGHT) as seen:
        _run(place, sections, clock)
    return seen.trace


def _run(place: str, sections: list[tuple[slice, ...]], clock: str) -> tuple[float, list[float]]:
    """One run: seconds, and what every task found."""
    return _run_of(zarr.open_array(place, mode="r"), sections, clock)


def _run_of(z: zarr.Array | np.ndarray, sections: list[tuple[slice, ...]], clock: str) -> tuple[float, list[float]]:
    """Take sections of an array that is open, or in memory."""
    now = time.perf_counter if clock == "wall" else lambda: time.process_time() / CORES
    start = now()
    tasks = [dask.delayed(_reduced)(z, section) for section in sections]
    (answer,) = dask.compute(tasks, scheduler="threads", num_workers=CORES)
    return now() - start, answer


def _reduced(z: zarr.Array | np.ndarray, section: tuple[slice, ...]) -> float:
    return float(np.max(z[section]))


# ---------------------------------------------------------------------- reports


def _lines(found: dict) -> Iterator[str]:
    took = found["seconds"]
    cells = [f"{label} {tuple(found['layouts'][label])} {took[label]:.2f} s" for label in took]
    yield f"{found['name']:>12}  " + "; ".join(cells)
    said, was = _savings(found)
    verdict = "fastest" if _wins(found) else "not fastest"
    yield f"{'':>12}  saving predicted {said:.2f} s, measured {was:.2f} s; {verdict}"


def _savings(found: dict) -> tuple[float, float]:
    return tuple(found[what]["today"] - found[what]["advised"] for what in ("predicted", "seconds"))  # type: ignore[return-value]


def _wins(found: dict) -> bool:
    """Whether what is advised is the fastest, or within a tenth of it."""
    return bool(found["seconds"]["advised"] <= 1.1 * min(found["seconds"].values()))


def _summary(found: list[dict]) -> Iterator[str]:
    yield f"advised is the fastest, or within 10 % of it, in {sum(map(_wins, found))} of {len(found)}"
    errors = [abs(said - was) / was for said, was in map(_savings, found) if was > 0]
    if errors:
        yield f"the predicted saving is off by {100 * statistics.median(errors):.0f} % at the median"


if __name__ == "__main__":
    main()
