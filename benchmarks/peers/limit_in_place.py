"""A second limit for uncoded chunks: each source chunk is read once, its pieces go to their places in chunk files.

Threads take source chunks in turn. A piece is laid out as the target stores it, and written past the page cache where
it lies on sectors; chunk files get their names when all is written. What is held is a source chunk and a piece for each
thread, so that there are as many threads as fit the budget, up to two a core. Nothing is general here: little-endian
float32 in Zarr format 3, no codec, chunks that cover the array without remainder.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from math import prod

import numpy as np
from case import ITEM, MIB, Job
from data import target

from peers.by_hand import Box, boxes, inside, parts
from peers.limit import chunk_path

SHARE = 0.8
"""Part of the budget for the buffers of all threads together."""
LONG = 8 * MIB
"""Bytes of one read."""
LEAST_DIRECT = 64 * 1024
"""Bytes of a run from which it is worth a request of its own to the device."""


def rechunk(job: Job) -> dict:
    """Move every source chunk."""
    target(job)
    files = Files(job)
    held = (prod(job.chunks) + prod(map(min, job.chunks, job.target_chunks))) * ITEM
    threads = max(1, min(2 * job.cores, int(job.memory * SHARE) // held))
    cut = boxes(job.shape, job.chunks)
    at_once(threads, lambda rank: _move(job, files, cut[rank::threads], rank / threads))
    files.finish()
    return {"note": f"{threads} threads"}


def at_once(threads: int, work: Callable[[int], None]) -> None:
    """Do something in some threads; what goes wrong in one is raised."""
    errors: list[BaseException] = []

    def guarded(rank: int) -> None:
        try:
            work(rank)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    running = [threading.Thread(target=guarded, args=(rank,)) for rank in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if errors:
        raise errors[0]


class Files:
    """The unfinished files of the target, open for writing: past the page cache where all pieces allow that."""

    def __init__(self, job: Job) -> None:
        pieces = list(map(min, job.chunks, job.target_chunks))
        longest = _run(pieces, job.target_chunks) * ITEM
        self.flags = os.O_DIRECT if longest % mmap.PAGESIZE == 0 and longest >= LEAST_DIRECT else 0
        self.open = {}
        for box in boxes(job.shape, job.target_chunks):
            path = chunk_path(job.target, box, job.target_chunks)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            file = os.open(f"{path}.unfinished", os.O_RDWR | os.O_CREAT | self.flags, 0o644)
            os.ftruncate(file, prod(job.target_chunks) * ITEM)
            self.open[path] = file

    def finish(self) -> None:
        """Give every chunk its name."""
        for path, file in self.open.items():
            os.close(file)
            os.rename(f"{path}.unfinished", path)


def _run(piece: list[int], chunks: tuple[int, ...]) -> int:
    """Elements of a contiguous run of a piece in its chunk."""
    length = 1
    for n, c in zip(reversed(piece), reversed(chunks), strict=True):
        length *= n
        if n < c:
            break
    return length


def _move(job: Job, files: Files, mine: list[Box], share: float) -> None:
    size = prod(job.chunks) * ITEM
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    values = np.frombuffer(memory, np.float32).reshape(job.chunks)
    laid = mmap.mmap(-1, prod(map(min, job.chunks, job.target_chunks)) * ITEM)
    for box in mine:
        _read(chunk_path(job.source, box, job.chunks), memoryview(memory), files.flags)
        found = parts(box, job.target_chunks)
        first = int(len(found) * share)  # each thread begins elsewhere
        for part in found[first:] + found[:first]:
            path = chunk_path(job.target, part, job.target_chunks)
            _put(files.open[path], part, job.target_chunks, values[inside(part, box)], laid)


def _read(path: str, out: memoryview, flags: int) -> None:
    file, at = os.open(path, os.O_RDONLY | flags), 0
    try:
        while at < len(out):
            at += os.preadv(file, [out[at : at + LONG]], at)
    finally:
        os.close(file)


def _put(file: int, part: Box, chunks: tuple[int, ...], values: np.ndarray, laid: mmap.mmap) -> None:
    """Write a piece in its place, one contiguous run after the other."""
    piece = np.frombuffer(laid, np.float32, values.size).reshape(values.shape)
    piece[...] = values
    length = _run(list(values.shape), chunks)
    origin = [p.start % c for p, c in zip(part, chunks, strict=True)]
    data = memoryview(laid)
    for number in range(values.size // length):
        place = np.unravel_index(number * length, values.shape)
        at = int(np.ravel_multi_index([o + p for o, p in zip(origin, place, strict=True)], chunks))
        os.pwrite(file, data[number * length * ITEM : (number + 1) * length * ITEM], at * ITEM)
