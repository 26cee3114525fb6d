"""Ours; a variant is the strategy: `oocarrays:staged`."""

from __future__ import annotations

from cases import MIB, Job, shards

import oocarrays as ooc


def run(job: Job) -> dict:
    """Plan, run, and tell what the plan promised beside what the meter counted."""
    work = ooc.rechunk(
        job.source,
        job.target,
        chunks=job.target_chunks,
        shards=shards(job.target_chunks, job.target_per_shard),
        memory=f"{job.memory // MIB}MiB",
        method=job.variant or "auto",
        scratch=job.scratch,
    )
    work.run()
    return told(work)


def told(work) -> dict:
    """Return the figures of plan and meter, as far as they have them."""
    plan, meter = work.plan, getattr(work, "meter", None)
    promised = ("peak_bytes", "read_bytes", "written_bytes", "tasks", "seconds")
    counted = ("read_bytes", "decoded_bytes", "written_bytes", "read_requests", "write_requests", "seconds")
    return {
        "measured_seconds": getattr(work, "measured_seconds", None),
        "note": str(getattr(plan, "strategy", "")),
        "tasks": getattr(plan, "tasks", None),
        "plan": {name: getattr(plan, name, None) for name in promised},
        "meter": {name: getattr(meter, name, None) for name in counted},
    }
