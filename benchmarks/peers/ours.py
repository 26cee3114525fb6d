"""Ours, on threads of one process."""

from __future__ import annotations

from typing import Any

from case import Job
from data import shards

import oocarrays as ooc

PROMISED = ("peak_bytes", "read_bytes", "written_bytes", "tasks", "seconds")
COUNTED = ("read_bytes", "decoded_bytes", "written_bytes", "read_requests", "write_requests", "seconds")


def told(work: Any) -> dict:
    """Return what a plan promised beside what the meter counted, as far as they have it."""
    plan, meter = work.plan, getattr(work, "meter", None)
    return {
        "measured_seconds": getattr(work, "measured_seconds", None),
        "note": str(getattr(plan, "strategy", "")),
        "tasks": getattr(plan, "tasks", None),
        "plan": {name: getattr(plan, name, None) for name in PROMISED},
        "meter": {name: getattr(meter, name, None) for name in COUNTED},
    }


def rechunk(job: Job) -> dict:
    """Plan and run; `method` may be given."""
    work = ooc.rechunk(
        job.source,
        ooc.Target(job.target, shards=shards(job.target_chunks, job.params.get("target_per_shard", ()))),
        chunks=job.target_chunks,
        memory=job.budget,
        method=job.params.get("method", "auto"),
        resources=ooc.Resources(scratch=job.scratch),
    )
    work.run()
    return told(work)
