"""The machine's limit for uncoded chunks: the same bytes moved by hand, by one process a core.

Each process takes boxes of whole target chunks. It maps the source's chunk files, tells the kernel which
come next, copies the box's part of each into a buffer laid out chunk by chunk as the target stores it, and
writes whole chunk files: through the page cache while they are few, past it (O_DIRECT) beyond 512 MiB, where
that is steadier. Nothing is general here: little-endian float32 in Zarr format 3, no codec.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import pairwise, product
from math import prod
from multiprocessing import get_context

import numpy as np
from case import GIB, ITEM, Job, within
from data import target

from peers.by_hand import Box, boxes, edges, inside, parts

SHARE = 0.55
"""Part of the budget for the buffers of all processes together."""
AHEAD = 2
"""Source chunks announced to the kernel before they are needed."""
PAST_CACHE = GIB // 2
"""Bytes written from which O_DIRECT is faster than the page cache."""


@contextmanager
def workers(job: Job) -> Iterator[ProcessPoolExecutor]:
    """One process a core."""
    with ProcessPoolExecutor(job.cores, mp_context=get_context("spawn"), initializer=_imported) as pool:
        list(pool.map(time.sleep, [0.3] * job.cores))
        yield pool


def _imported() -> None:
    """Do nothing: a process that found this function has imported this module."""


@within(workers)
def rechunk(job: Job, pool: ProcessPoolExecutor) -> dict:
    """Move every box."""
    target(job)
    _folders(job)
    found = boxes(job.shape, edges(job.shape, job.target_chunks, int(job.memory * SHARE) // job.cores // ITEM))
    list(pool.map(partial(_move, job), range(len(found)), found))
    return {"note": f"{len(found)} boxes"}


def _folders(job: Job) -> None:
    counts = [-(-n // c) for n, c in zip(job.shape, job.target_chunks, strict=True)]
    for index in product(*map(range, counts[:-1])):
        os.makedirs(os.path.join(job.target, "c", *map(str, index)), exist_ok=True)


def _move(job: Job, number: int, box: Box) -> None:
    """Fill the buffer from the source, then write its chunks; odd boxes start half-way, to share the disk."""
    buffer = _Buffer(box, job.target_chunks)
    found = parts(box, job.chunks)
    half = len(found) // 2 * (number % 2)
    found = found[half:] + found[:half]
    for number, part in enumerate(found):
        for coming in found[number + AHEAD : number + AHEAD + 1]:
            _announce(chunk_path(job.source, coming, job.chunks))
        buffer.put(part, _mapped(job, part))
    buffer.write(job)


class _Buffer:
    """The target chunks of a box, one after another, each in C order: shape = chunks of the box × chunk."""

    def __init__(self, box: Box, chunks: tuple[int, ...]) -> None:
        self.box, self.chunks = box, chunks
        self.counts = tuple(-(-(part.stop - part.start) // chunk) for part, chunk in zip(box, chunks, strict=True))
        self.memory = mmap.mmap(-1, prod(self.counts) * prod(chunks) * ITEM, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = np.frombuffer(self.memory, np.float32).reshape(self.counts + chunks)

    def put(self, part: Box, values: np.ndarray) -> None:
        """Copy `values`, the array's elements in `part`, to the chunks that they lie in."""
        here = inside(part, self.box)
        for pieces in product(*(_pieces(p.start, p.stop, c) for p, c in zip(here, self.chunks, strict=True))):
            numbers, inner, taken = zip(*pieces, strict=True)
            out = self.array[numbers + inner]
            rank = len(self.chunks)
            split = [n for pair in zip(out.shape[:rank], out.shape[rank:], strict=True) for n in pair]
            order = [*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)]
            piece = values[tuple(slice(t.start - p.start, t.stop - p.start) for t, p in zip(taken, here, strict=True))]
            out[...] = piece.reshape(split).transpose(order)

    def write(self, job: Job) -> None:
        """Write each chunk in one file."""
        size = prod(self.chunks) * ITEM
        direct = os.O_DIRECT if job.nbytes > PAST_CACHE and size % mmap.PAGESIZE == 0 else 0
        view = memoryview(self.memory)
        for number, index in enumerate(product(*map(range, self.counts))):
            corner = [p.start // c + i for p, c, i in zip(self.box, self.chunks, index, strict=True)]
            path = os.path.join(job.target, "c", *map(str, corner))
            _write(path, view[number * size : (number + 1) * size], direct)


def _pieces(low: int, high: int, chunk: int) -> list[tuple[slice, slice, slice]]:
    """[low, high) as (chunk numbers, elements within the chunk, elements taken): ends, and whole chunks."""
    first, last = -(-low // chunk), high // chunk
    marks = [low, high] if first > last else [low, first * chunk, last * chunk, high]
    result = []
    for start, stop in pairwise(marks):
        if start < stop:
            numbers = slice(start // chunk, -(-stop // chunk))
            inner = slice(start % chunk, chunk if numbers.stop - numbers.start > 1 else stop - numbers.start * chunk)
            result.append((numbers, inner, slice(start, stop)))
    return result


def _write(path: str, data: memoryview, direct: int) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | direct, 0o644)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)


def _announce(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_WILLNEED)
    os.close(file)


def _mapped(job: Job, part: Box) -> np.ndarray:
    """Return the elements in `part`, which lies in one source chunk, as mapped pages."""
    chunk = np.memmap(chunk_path(job.source, part, job.chunks), np.float32, "r", shape=job.chunks)
    return np.asarray(chunk)[
        tuple(slice(p.start % c, p.start % c + p.stop - p.start) for p, c in zip(part, job.chunks, strict=True))
    ]


def chunk_path(store: str, part: Box, chunks: tuple[int, ...]) -> str:
    """Where the chunk is in which `part` lies."""
    return os.path.join(store, "c", *(str(p.start // c) for p, c in zip(part, chunks, strict=True)))
