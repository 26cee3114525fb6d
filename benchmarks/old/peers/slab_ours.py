"""Ours: `map_slabs` and `iterate`, in the case's memory, on threads.

Variants: `median` (the examples' kernel), `opencv` (OpenCV's), `jacobi` (a plain numpy sweep, fused by `iterate`),
`numba` (the same sweep, compiled), `poisson` (with a right-hand side and a mask beside the array that is swept).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import slab_kernels as kernels
from cases import MIB
from slab_cases import Job, beside

import oocarrays as ooc
from peers.oocarrays import told

__all__ = ["Job", "run"]


def run(job: Job) -> dict:
    """Plan, run, and tell what the plan promised beside what the meter counted."""
    work = WAYS[job.variant](job, {"memory": f"{job.memory // MIB}MiB", "scheduler": "threads"})
    work.run()
    return told(work) | {"note": _note(work.plan)}


def _note(plan: Any) -> str:
    passes = getattr(plan, "passes", None)
    slabs = passes[0].slabs if passes else plan
    fused = f"{len(passes)} passes of {plan.fuse} sweeps, " if passes else ""
    shape = " × ".join(map(str, slabs.heights))
    return f"{fused}slabs of {shape}, {plan.ranks} ranks, planned {plan.peak_bytes / MIB:.0f} MiB"


def _median(job: Job, means: dict[str, Any]) -> Any:
    size = job.case.times
    means |= {"depth": size // 2, "boundary": "nearest", "workspace": "5.5MiB"}
    return ooc.map_slabs(partial(ooc.kernels.median, size=size, mode="nearest"), job.source, job.target, **means)


def _opencv(job: Job, means: dict[str, Any]) -> Any:
    size = job.case.times
    means |= {"depth": size // 2, "boundary": "nearest", "workspace": "6MiB"}
    return ooc.map_slabs(partial(kernels.opencv, size=size), job.source, job.target, **means)


def _jacobi(job: Job, means: dict[str, Any], kernel: Any = kernels.sweep_in_place) -> Any:
    return ooc.iterate(kernel, job.source, job.target, sweeps=job.case.times, depth=1, **means)


def _numba(job: Job, means: dict[str, Any]) -> Any:
    return _jacobi(job, means, kernels.numba_in_place())


def _poisson(job: Job, means: dict[str, Any]) -> Any:
    sources, count = [job.source, *beside(job)], job.case.times
    return ooc.iterate(kernels.poisson_in_place, sources, job.target, sweeps=count, depth=1, **means)


WAYS = {"median": _median, "opencv": _opencv, "jacobi": _jacobi, "numba": _numba, "poisson": _poisson}
