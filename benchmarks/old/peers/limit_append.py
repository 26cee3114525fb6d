"""A third limit for uncoded chunks: two processes append short pieces to chunk files, each to its own half of them.

A process maps one source chunk after the other, in order, and appends what each of its target chunks has of some rows:
64 KiB at a time. That works where target chunks are as long as the array along the first axis, and source chunks along
all others: rows that become columns. Nothing is general here: little-endian float32 in Zarr format 3, no codec.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import prod

import numpy as np
from cases import ITEM, Job

from peers import limit, stores
from peers.boxes import boxes
from peers.limit_inplace import chunk_path

PIECE = 64 * 1024
"""Bytes that are appended at a time."""


@contextmanager
def workers(job: Job) -> Iterator[ProcessPoolExecutor]:
    """One process a core."""
    with limit.workers(job) as pool:
        yield pool


def run(job: Job, pool: ProcessPoolExecutor) -> dict:
    """Move all rows; only for arrays without a codec whose rows become columns."""
    ordered = job.target_chunks[0] == job.shape[0] and job.source_chunks[1:] == job.shape[1:]
    even = all(n % c == 0 for n, *cs in zip(job.shape, job.source_chunks, job.target_chunks, strict=True) for c in cs)
    if job.codec != "none" or not ordered or not even:
        return {"skipped": "only for rows that become columns, without a codec"}
    stores.target(job)
    list(pool.map(partial(_append, job), range(job.cores)))
    return {"note": f"{job.cores} processes", "tasks": job.cores}


def _append(job: Job, rank: int) -> None:
    """Append to every target chunk of a rank, a few rows at a time."""
    mine = boxes(job.shape, job.target_chunks)
    mine = mine[rank * len(mine) // job.cores : (rank + 1) * len(mine) // job.cores]
    paths = [chunk_path(job.target, box, job.target_chunks) for box in mine]
    for path in paths:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    files = [open(f"{path}.unfinished", "wb", buffering=0) for path in paths]  # noqa: SIM115
    rows = max(PIECE // (prod(job.target_chunks[1:]) * ITEM), 1)
    for start in range(0, job.shape[0], job.source_chunks[0]):
        first = (slice(start, start + 1), *(slice(0, 1) for _ in job.shape[1:]))
        path = chunk_path(job.source, first, job.source_chunks)
        slab = np.memmap(path, np.float32, "r", shape=job.source_chunks)
        for row in range(0, job.source_chunks[0], rows):
            for file, box in zip(files, mine, strict=True):
                file.write(np.ascontiguousarray(slab[(slice(row, row + rows), *box[1:])]))
    for file, path in zip(files, paths, strict=True):
        file.close()
        os.rename(f"{path}.unfinished", path)
