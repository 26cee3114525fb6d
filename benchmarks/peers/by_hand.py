"""Loops by hand, as an expert writes them: boxes of whole target chunks that fit in the budget."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from math import prod

import numpy as np
from case import ITEM, Job
from data import target

Box = tuple[slice, ...]


def edges(shape: tuple[int, ...], chunks: tuple[int, ...], elements: int) -> tuple[int, ...]:
    """Edges of the largest box of whole chunks with at most `elements`, grown from the last axis.

    Boxes are evened out: box = chunk × ⌈chunks along the axis / ⌈chunks along the axis / chunks that fit⌉⌉.
    """
    box = [min(chunk, extent) for chunk, extent in zip(chunks, shape, strict=True)]
    for axis in reversed(range(len(shape))):
        along = -(-shape[axis] // chunks[axis])
        fitting = min(along, max(1, elements // prod(box)))
        even = -(-along // -(-along // fitting))
        box[axis] = min(shape[axis], chunks[axis] * even)
    return tuple(box)


def boxes(shape: tuple[int, ...], box: tuple[int, ...]) -> list[Box]:
    """Sections with edges `box`, in C order, that cover `shape` once."""
    starts = product(*(range(0, extent, edge) for extent, edge in zip(shape, box, strict=True)))
    return [tuple(slice(s, min(s + e, n)) for s, e, n in zip(start, box, shape, strict=True)) for start in starts]


def cut(job: Job, chunks: tuple[int, ...], share: float) -> list[Box]:
    """Boxes of whole chunks that hold a share of the budget at most."""
    return boxes(job.shape, edges(job.shape, chunks, int(job.memory * share) // ITEM))


def parts(box: Box, chunks: tuple[int, ...]) -> list[Box]:
    """Return the parts of `box` cut at every chunk boundary, in C order: each lies in one chunk."""
    cuts = []
    for part, chunk in zip(box, chunks, strict=True):
        marks = [part.start, *range((part.start // chunk + 1) * chunk, part.stop, chunk), part.stop]
        cuts.append([slice(low, high) for low, high in pairwise(marks)])
    return list(product(*cuts))


def inside(part: Box, box: Box) -> Box:
    """`part` in the coordinates of `box`: part − box's lower corner."""
    return tuple(slice(p.start - b.start, p.stop - b.start) for p, b in zip(part, box, strict=True))


def zarr_python(job: Job) -> dict:
    """Decode each source chunk once a box, write whole chunks: two threads fill a box, then two write it.

    A box has 60 % of the budget; the rest is for chunks under way and their encoded copies.
    """
    import zarr

    source, made = zarr.open_array(job.source, mode="r"), target(job)
    found = cut(job, job.target_chunks, 0.6)
    with ThreadPoolExecutor(job.cores) as pool:
        for box in found:
            buffer = np.empty([part.stop - part.start for part in box], np.float32)

            def fetch(part: Box, box: Box = box, buffer: np.ndarray = buffer) -> None:
                buffer[inside(part, box)] = source[part]

            def store(part: Box, box: Box = box, buffer: np.ndarray = buffer) -> None:
                made[part] = buffer[inside(part, box)]

            list(pool.map(fetch, parts(box, job.chunks)))
            list(pool.map(store, parts(box, job.target_chunks)))
            del buffer
    return {"note": f"{len(found)} boxes"}


def zarrs(job: Job) -> dict:
    """One call to read a box, one to write it, by the `zarrs` pipeline, which cuts byte ranges and runs threads.

    A box has 45 % of the budget; the pipeline holds up to as much again while it writes.
    """
    import zarr
    import zarrs  # noqa: F401  (registers the pipeline; without it this way is not installed)

    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        source, made = zarr.open_array(job.source, mode="r"), target(job)
        found = cut(job, job.target_chunks, 0.45)
        for box in found:
            made[box] = source[box]
    return {"note": f"{len(found)} boxes"}
