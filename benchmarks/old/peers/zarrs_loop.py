"""The loop of an expert on the `zarrs` codec pipeline, which cuts byte ranges and runs threads itself."""

from __future__ import annotations

import zarr
import zarrs  # noqa: F401  (registers the pipeline; without it this peer is not installed)
from cases import ITEM, Job

from peers import stores
from peers.boxes import boxes, edges

SHARE = 0.45
"""Part of the budget for a box; the pipeline holds up to as much again while it writes."""


def run(job: Job) -> dict:
    """One call to read a box, one to write it."""
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        source, target = stores.source(job), stores.target(job)
        cut = boxes(job.shape, edges(job.shape, job.target_chunks, int(job.memory * SHARE) // ITEM))
        for box in cut:
            target[box] = source[box]
    return {"note": f"{len(cut)} boxes", "tasks": len(cut)}
