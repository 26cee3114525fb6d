"""A loop on zarr-python, as an expert writes it: decode each source chunk once a box, write whole chunks.

A box is as many whole target chunks as half the budget holds; two threads fill it from source chunks, then
two threads write its chunks.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import zarr
from cases import ITEM, Job

from peers import stores
from peers.boxes import Box, boxes, edges, inside, within

SHARE = 0.6
"""Part of the budget for the box; the rest is for chunks under way and their encoded copies."""


def run(job: Job) -> dict:
    """Fill the target box by box."""
    source, target = stores.source(job), stores.target(job)
    cut = boxes(job.shape, edges(job.shape, job.target_chunks, int(job.memory * SHARE) // ITEM))
    with ThreadPoolExecutor(job.cores) as pool:
        for box in cut:
            buffer = np.empty([part.stop - part.start for part in box], np.float32)
            list(pool.map(partial(_fetch, source, buffer, box), within(box, job.source_chunks)))
            list(pool.map(partial(_store, target, buffer, box), within(box, job.target_chunks)))
            del buffer
    return {"note": f"{len(cut)} boxes", "tasks": len(cut)}


def _fetch(source: zarr.Array, buffer: np.ndarray, box: Box, part: Box) -> None:
    buffer[inside(part, box)] = source[part]


def _store(target: zarr.Array, buffer: np.ndarray, box: Box, part: Box) -> None:
    target[part] = buffer[inside(part, box)]
