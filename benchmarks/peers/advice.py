"""Pipelines of Dask on arrays in several layouts: tasks read sections by zarr-python and reduce them.

Nothing of ours reads, except where a pipeline is traced, advised on, and its array rechunked, all before its time is
taken. Every answer is compared with that of the field.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import dask
import numpy as np
import zarr
from case import Job, cores
from data import field, values

import oocarrays as ooc

WEIGHT = 50
"""Runs that a trace stands for: enough for a rechunk to pay."""
Shape = tuple[int, ...]
Section = tuple[slice, ...]


def shapes(edge: int) -> dict[str, Shape]:
    """Return the extents of a cube of time, latitude and longitude, and of an image of as many elements."""
    return {"cube": (max(edge // 16, 4), max(edge // 32, 4), max(edge // 16, 4)), "image": (edge, edge)}


def habits(shape: Shape) -> dict[str, Shape]:
    """Return the chunks that people choose by habit, by layout: along the last axes, along the first, and equal."""
    parts = {2: (256, 256, 16), 3: (256, 16, 8)}[len(shape)]
    return {
        "maps or rows": (max(shape[0] // parts[0], 1), *shape[1:]),
        "series or columns": (shape[0], *(max(n // parts[1], 1) for n in shape[1:])),
        "cubes or tiles": tuple(max(n // parts[2], 1) for n in shape),
    }


def store(path: str, edge: int) -> None:
    """Write the field as cube and as image, in every layout, in zstd."""
    os.makedirs(path)
    for kind, shape in shapes(edge).items():
        for name, chunks in habits(shape).items():
            field(os.path.join(path, f"{kind}, {name}"), shape, chunks, "zstd")


def tiled(*lengths: int, every: int = 1, halo: int = 0) -> Callable[[Shape], list[Section]]:
    """Tiles of a grid with a number of parts along each axis, with a halo; one tile in `every`."""

    def sections(shape: Shape) -> list[Section]:
        along = []
        for extent, parts in zip(shape, lengths, strict=True):
            step = max(extent // parts, 1)
            along.append([slice(max(i - halo, 0), min(i + step + halo, extent)) for i in range(0, extent, step)])
        return list(product(*along))[::every]

    return sections


def boxes(count: int, *shares: int) -> Callable[[Shape], list[Section]]:
    """Boxes at random places, the same each time; each is a share of each axis long."""

    def sections(shape: Shape) -> list[Section]:
        rng, lengths = np.random.default_rng(19), [max(n // share, 1) for n, share in zip(shape, shares, strict=True)]
        most = [n - length + 1 for n, length in zip(shape, lengths, strict=True)]
        starts = rng.integers(0, most, (count, len(shape))).tolist()
        return [tuple(slice(s, s + length) for s, length in zip(start, lengths, strict=True)) for start in starts]

    return sections


class Pipeline(NamedTuple):
    """The sections that tasks read, and the layout in which the array is stored today."""

    kind: str
    today: str
    sections: Callable[[Shape], list[Section]]


MAPS, SERIES = "maps or rows", "series or columns"
PIPELINES = {
    "maps": Pipeline("cube", SERIES, tiled(64, 1, 1, every=4)),
    "series": Pipeline("cube", MAPS, tiled(1, 16, 16, every=32)),
    "rolling": Pipeline("cube", SERIES, tiled(32, 2, 2, every=4, halo=2)),
    "samples": Pipeline("cube", MAPS, boxes(48, 16, 16, 16)),
    "columns": Pipeline("image", MAPS, tiled(1, 16)),
    "crops": Pipeline("image", SERIES, boxes(32, 32, 32)),
}


def advised(job: Job) -> dict:
    """Each pipeline in the chunks that are advised from a trace of it in today's."""
    figures, numbers = {}, {}
    for name, pipeline in PIPELINES.items():
        sections = pipeline.sections(shapes(job.edge)[pipeline.kind])
        today, target = _place(job, pipeline, pipeline.today), os.path.join(job.scratch, "advised")
        with ooc.advise.trace(block=name, weight=WEIGHT) as seen:
            _run(today, sections)
        (verdict,) = seen.trace.advise(memory=job.budget, scheduler="threads").arrays
        ooc.rechunk(today, target, chunks=verdict.chunks, memory=job.budget, scheduler="threads").run()
        figures[name] = _timed(target, sections)
        shutil.rmtree(target)
        numbers[f"{name}: predicted times as fast as today"] = verdict.today.seconds / verdict.advised.seconds
    return {"figures": figures, "numbers": numbers}


def by_habit(job: Job) -> dict:
    """Each pipeline in the chunks of a habit, `layout`; where that is empty, in today's."""
    return {
        "figures": {
            name: _timed(
                _place(job, pipeline, job.layout or pipeline.today),
                pipeline.sections(shapes(job.edge)[pipeline.kind]),
            )
            for name, pipeline in PIPELINES.items()
        }
    }


def _place(job: Job, pipeline: Pipeline, layout: str) -> str:
    return os.path.join(job.source, f"{pipeline.kind}, {layout}")


def _timed(place: str, sections: list[Section]) -> list[float]:
    """Seconds of a run, whose answer is compared with the field's."""
    begun = time.perf_counter()
    answer = _run(place, sections)
    seconds = time.perf_counter() - begun
    if answer != [float(values(section).max()) for section in sections]:
        raise ValueError(f"a section of {place} is wrong")
    return [seconds]


def _run(place: str, sections: list[Section]) -> list[float]:
    array = zarr.open_array(place, mode="r")
    tasks = [dask.delayed(_reduced)(array, section) for section in sections]
    (answer,) = dask.compute(tasks, scheduler="threads", num_workers=cores())
    return answer


def _reduced(array: Any, section: Section) -> float:
    return float(np.max(array[section]))
