"""Traces of Dask programs over arrays without data: pipelines that are common, and 40 that are drawn from seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc

Shape = tuple[int, ...]
Sections = list[tuple[slice, ...]]
CUBE, IMAGE = (1024, 512, 512), (16384, 16384)
HABITS: dict[str, tuple[Shape, Shape]] = {
    "maps": (CUBE, (4, 512, 512)),
    "series": (CUBE, (1024, 32, 32)),
    "cubes": (CUBE, (128, 64, 64)),
    "rows": (IMAGE, (64, 16384)),
    "columns": (IMAGE, (16384, 64)),
    "tiles": (IMAGE, (1024, 1024)),
}
"""Shapes and chunks that people choose by habit."""
WEIGHT = 50
"""Runs that a trace stands for, so that rewriting is worth while."""


def tiled(shape: Shape, *parts: int, every: int = 1, halo: int = 0) -> Sections:
    """Cut an array into a grid of tiles, each with a halo, and return one of ``every`` tiles."""
    along = []
    for extent, count in zip(shape, parts, strict=True):
        step = max(extent // count, 1)
        along.append([slice(max(i - halo, 0), min(i + step + halo, extent)) for i in range(0, extent, step)])
    return list(itertools.product(*along))[::every]


def boxes(shape: Shape, count: int, *shares: int) -> Sections:
    """Return boxes at random places, each a share of every axis long."""
    rng, lengths = np.random.default_rng(19), [max(n // share, 1) for n, share in zip(shape, shares, strict=True)]
    starts = rng.integers(0, [n - length + 1 for n, length in zip(shape, lengths, strict=True)], (count, len(shape)))
    return [tuple(slice(s, s + length) for s, length in zip(start, lengths, strict=True)) for start in starts.tolist()]


PIPELINES: dict[str, tuple[str, Sections]] = {
    "maps": ("series", tiled(CUBE, 64, 1, 1, every=4)),
    "series": ("maps", tiled(CUBE, 1, 16, 16, every=32)),
    "climatology": ("series", tiled(CUBE, 16, 2, 1)),
    "region": ("maps", boxes(CUBE, 4, 1, 8, 8)),
    "rolling": ("series", tiled(CUBE, 32, 2, 2, every=4, halo=2)),
    "anomalies": ("maps", tiled(CUBE, 1, 4, 4)),
    "thinned": ("cubes", [(slice(0, 1024, 16), slice(None), slice(i, i + 256)) for i in (0, 256)]),
    "samples": ("maps", boxes(CUBE, 48, 16, 16, 16)),
    "columns": ("rows", tiled(IMAGE, 1, 16)),
    "rows": ("columns", tiled(IMAGE, 16, 1)),
    "windows": ("rows", boxes(IMAGE, 64, 32, 32)),
    "stencil": ("tiles", tiled(IMAGE, 8, 8, halo=8)),
}
"""Chunks of today, and sections that are read."""


def tasks(array: zarr.Array, sections: Sections) -> list[da.Array]:
    """Return reductions of sections by Dask, in whose chunks most sections are whole."""
    lengths = tuple(max(len(range(*each.indices(n))), 1) for each, n in zip(sections[0], array.shape, strict=True))
    x = da.from_zarr(array, chunks=lengths)
    return [x[section].sum() for section in sections]


def source(folder: Path, name: str, shape: Shape, chunks: Shape, **options: Any) -> zarr.Array:
    """Create an array without data."""
    return zarr.create_array(folder / name, shape=shape, chunks=chunks, dtype="f4", **options)


def pipeline_traces(folder: Path) -> Iterator[tuple[str, Any]]:
    for name, (habit, sections) in PIPELINES.items():
        x = source(folder, f"{name}.zarr", *HABITS[habit])
        yield f"pipeline {name}", ooc.advise.trace(**{name: tasks(x, sections)}, weights={name: WEIGHT})
    x = source(folder, "two.zarr", *HABITS["maps"])
    reads = {"maps": tasks(x, tiled(CUBE, 16, 1, 1)), "series": tasks(x, tiled(CUBE, 1, 8, 8))}
    for weight in (1, 10, 100):
        yield f"pipeline two {weight}", ooc.advise.trace(**reads, weights={"maps": weight, "series": WEIGHT})


def drawn_traces(folder: Path, count: int = 40) -> Iterator[tuple[str, Any]]:
    for seed in range(count):
        rng = np.random.default_rng(seed)
        shape = tuple(rng.choice([128, 256, 512] if seed % 3 else [1024, 2048, 4096], 3 if seed % 3 else 2).tolist())
        chunks = tuple(max(n // int(rng.choice([1, 4, 16])), 1) for n in shape)
        codecs = {} if seed % 2 else {"compressors": None}
        x = source(folder, f"drawn-{seed}.zarr", shape, chunks, **codecs)
        blocks = {f"block-{n}": drawn_block(rng, x) for n in range(rng.integers(1, 4))}
        yield f"drawn {seed}", ooc.advise.trace(**blocks, weights={name: int(rng.integers(1, 99)) for name in blocks})


def drawn_block(rng: np.random.Generator, array: zarr.Array) -> Any:
    """Return reads of boxes by ranks, or of tiles by tasks."""
    shape = array.shape
    if rng.random() < 0.5:
        sections = boxes(shape, int(rng.integers(2, 9)), *rng.choice([4, 16, 64], len(shape)).tolist())
        return ooc.ranks.read_sections(array, sections, scheduler="threads")
    parts = rng.choice([1, 2, 8], len(shape)).tolist()
    return tasks(array, tiled(shape, *parts, every=int(rng.choice([1, 3])), halo=int(rng.choice([0, 2]))))
