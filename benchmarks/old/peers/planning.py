"""Ours, planning only: from the call to a finished Dask graph, for eight ranks; moves no byte."""

from __future__ import annotations

from cases import MIB, Job

import oocarrays as ooc

RANKS = 8


def run(job: Job) -> dict:
    """Plan and build the graph; tells its tasks."""
    work = ooc.rechunk(job.source, job.target, chunks=job.target_chunks, memory=f"{job.memory // MIB}MiB", ranks=RANKS)
    graph = dict(work.__dask_graph__())
    return {"tasks": len(graph), "note": str(getattr(work.plan, "strategy", ""))}
