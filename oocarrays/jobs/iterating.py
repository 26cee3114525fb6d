"""Iterated stencils: a numpy function applied repeatedly to an array larger than memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Generic, Literal, Unpack, overload

import numpy as np
import zarr
from distributed import Client

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError
from oocarrays.graphs.cluster.placement import Cluster, Disks
from oocarrays.graphs.run.execution import Graph, resumable
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.course import Course, Progress
from oocarrays.graphs.slabs.program import SlabPass
from oocarrays.graphs.slabs.sweeps import Residual, change
from oocarrays.jobs.job import Job, suffix_of
from oocarrays.jobs.passes import Made, arrays_of, opener, preview_scratch
from oocarrays.kernels.results import check_call
from oocarrays.mapping.layouts.halo import BoundaryLike
from oocarrays.options.asked import as_list, scratch_at
from oocarrays.options.given import OneTarget, Resources, Target, means_of, stored_as, verb
from oocarrays.options.shapes import SeveralTargets, SweepKeywords
from oocarrays.options.slabs import SlabRequest, iteration, own_depth, pass_options
from oocarrays.plan.machine import check_count
from oocarrays.plan.plan import where
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from oocarrays.plan.slabs.options import DepthLike
from oocarrays.show.progress import ProgressBar
from oocarrays.show.report import READ_AND_WRITTEN
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.meter import Meter
from oocarrays.stored.array import placer

Source = OutOfCoreArray | zarr.Array[Any] | np.ndarray | StoreLike


class IterateJob(Job[Run[SlabPass], Made, IteratePlan], Generic[Made]):
    """Planned sweeps: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted = READ_AND_WRITTEN

    def __init__(
        self, course: Course, result: Callable[[str], Made], cluster: Cluster | None, disks: Disks | None = None
    ) -> None:
        self._course = course
        self._goes_on = course.resumes
        self._spent = Meter()
        self._runs: list[Run[SlabPass]] = []
        self.residuals: list[float] = []
        """Largest residual of each finished pass, if residuals are computed."""
        super().__init__(course.run(Progress(), resumes=course.resumes), result, cluster, disks)

    @property
    def plan(self) -> IteratePlan:
        """Frozen plan: reads, sweeps, writes and memory."""
        return self._course.plan

    @property
    def meter(self) -> Meter:
        """Return the meter of the last run: requests and bytes of its passes."""
        for run in self._runs:
            self._spent.put(run.meter.take())
        return self._spent

    @property
    def expected(self) -> tuple[int, int]:
        """Numbers of read requests and of written chunks in all passes."""
        return self.plan.traffic.read_requests, self.plan.traffic.write_requests

    def _bar(self) -> ProgressBar:
        return ProgressBar(self.plan, self)

    def _left(self) -> float:
        here, counts = self._course.progress(), [step.count for step in self.plan.passes]
        done = sum(counts[: len(here.residuals)]) + here.slabs
        return 1 - done / max(sum(counts), 1)

    @property
    def _run_plan(self) -> Any:
        return self._run.program.plan

    def _execute(self) -> Any:
        """Run pass after pass; each begins once it is known to be needed."""
        start, moves = time.perf_counter(), []
        self._course = self._course.looked_back()
        progress: Progress | None = self._started()
        try:
            while progress is not None:
                progress = self._pass(progress)
                moves += self.moves
        finally:
            self.moves = moves
            self._built = None
        self.measured_seconds = time.perf_counter() - start
        return self._ended("")

    def _started(self) -> Progress:
        """Reset the meter and the residuals, and return the progress of an earlier run of the same id."""
        progress = self._course.progress()
        self._runs, self._spent = [], Meter()
        self.residuals = list(progress.residuals) if self._course.residual else []
        return progress

    def _pass(self, progress: Progress) -> Progress | None:
        """Run the next pass; return None after the last."""
        run = self._run = self._course.run(progress, resumes=self._goes_on)
        self._goes_on = False
        if self._cluster:
            self._find_workers(self._cluster)
        self._pinned = {}
        self._built = self._pass_graph(run)
        self._runs = [run]
        found: Any = self._on_cluster(self._cluster) if self._cluster else self._on_threads()
        self._spent = self.meter
        swept = run.program.plan.sweeps
        if self._course.residual and swept and swept.count:
            self.residuals.append(found)
        return None if run.program.is_last else progress.after(found)

    def _on_cluster(self, cluster: Cluster) -> Any:
        """Run on the cluster; if it cannot be resumed, scratch on workers' own disks is removed there."""
        try:
            return super()._on_cluster(cluster)
        except BaseException as error:
            for rank in () if resumable(error) else range(len(self._disks.workers)):
                with suppress(Exception):
                    self._disks.call(rank, self._course.scratch.remove)
            raise

    def _threads(self) -> int:
        return 3 * self.plan.ranks  # one reads, one computes, one writes

    def _pass_graph(self, run: Run[SlabPass], *after: Key) -> Graph:
        check_count(run.program.plan.tasks)
        graph, last = run.graph(self._addresses, after)
        self._pinned = {**self._pinned, suffix_of(last): self._addresses}
        return graph, last

    def _build(self) -> Graph:
        if self._course.until is not None:
            raise InputError(f"until={self._course.until!r} is tested between passes: call job.run()")
        progress, self._pinned = self._started(), {}
        check_count(self.plan.traffic.tasks)
        graph: dict[Any, Any] = {}
        after: list[Key] = []
        while True:
            run = self._course.run(progress, resumes=self._goes_on and not self._runs)
            self._runs.append(run)
            tasks, last = self._pass_graph(run, *after)
            graph, after = graph | tasks, [last]
            if run.program.is_last:
                break
            progress = progress.after(np.nan)
        self._run = self._runs[0]
        return graph, last

    def _measured(self) -> list[tuple[str, str, str]]:
        last = [f"{residual:g}" for residual in self.residuals[-1:]]
        return [
            *super()._measured(),
            ("passes", str(len(self.plan.passes)), str(len(self.residuals) or len(self.plan.passes))),
            *(("residual", f"{self._course.until}", residual) for residual in last),
        ]

    def _beside(self) -> Mapping[str, str]:
        until = self._course.until
        most = "" if until is None else f"; fewer where the residual is {until:g} before"
        return {"sweeps": most, "peak memory": where(self._course.processes)}


@overload
def iterate(
    kernel: Callable[..., Any],
    source: LocalArrays | Sequence[LocalArrays],
    target: OneTarget,
    **keywords: Unpack[SweepKeywords],
) -> IterateJob[LocalArrays]: ...
@overload
def iterate(
    kernel: Callable[..., Any], source: Sequence[LocalArrays], target: SeveralTargets, **keywords: Unpack[SweepKeywords]
) -> IterateJob[list[LocalArrays]]: ...
@overload
def iterate(
    kernel: Callable[..., Any], source: Source | Sequence[Source], target: OneTarget, **keywords: Unpack[SweepKeywords]
) -> IterateJob[OutOfCoreArray]: ...
@overload
def iterate(
    kernel: Callable[..., Any], source: Sequence[Source], target: SeveralTargets, **keywords: Unpack[SweepKeywords]
) -> IterateJob[list[OutOfCoreArray]]: ...
@verb(
    target=("folders",),
    resources=("workers", "ranks", "prefetch", "workspace", "window", "fuse", "scratch"),
    old={
        "residual": "until=(tolerance, residual)", "axis": "resources=oocarrays.Resources(window={axis: 'auto'})",
        "height": "resources=oocarrays.Resources(window={axis: height})",
    },
)  # fmt: skip
def iterate(
    kernel: Callable[..., Any],
    source: Source | LocalArrays | Sequence[Source | LocalArrays],
    target: Target | StoreLike | Sequence[Target | StoreLike],
    *,
    sweeps: int,
    until: float | tuple[float | None, Residual] | None = None,
    depth: DepthLike | None = None,
    boundary: BoundaryLike = "none",
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> IterateJob[Any]:
    """Plan to apply a kernel to an array repeatedly: the result equals ``sweeps`` sweeps of the whole array.

    A pass reads the array once, sweeps every slab several times, and writes it once. The
    result is bit for bit that of plain sweeps. Reads no data.

    Parameters
    ----------
    kernel : callable
        One sweep: takes a numpy block with its halo and returns one of the same shape and type; its halo is discarded.
        It may change its block and return it. Blocks are tiles of about 256 KiB, in several threads. For several
        sources it takes one block of each, and may change only blocks of sources that are swept. For a list of targets
        it returns a tuple of one block each.
    source : OutOfCoreArray, zarr.Array, path, URL or store, or LocalArrays, or a list of them
        The arrays to sweep; they are not changed. In a list, the first ones, as many as targets, evolve together. The
        others are arrays of the same shape and of any type that every sweep reads unchanged, such as a right-hand side,
        coefficients or a land mask.
    target : path, URL, Zarr store or Target, or a list of them
        Location of the result, with the source's shape, type, chunks, codecs, attributes and dimension names. If the
        sources are local array files, the targets are too: of the same layout, without halos. In a list, each target is
        like its own source.
    sweeps : int
        Number of sweeps; with ``until`` the maximum.
    until : float or (float, callable)
        The residual at which sweeping ends, tested after each pass: the largest change of an element in the last sweep,
        or the maximum of ``residual(before, after)`` over all parts of the array, of several arrays as tuples:
        ``(1e-6, residual)``. ``(None, residual)`` measures it, and ends nothing.
    depth : int, sequence of int or mapping
        Neighbours that one sweep reads on each side, as in `map_slabs`. By default the depth that a kernel of
        `oocarrays.kernels` needs, as in `map_slabs`, and one for any other kernel.
    boundary : str or number, or a mapping or sequence of them
        Values beyond the edges in every sweep, as in `map_slabs`.
    memory : int or str
        Budget of each process in bytes; by default as in `rechunk`.
    overwrite : bool
        Whether an existing target may be replaced.
    resume : bool or str
        As in `map_slabs`: from the pass in which the run stopped, less the slabs that it wrote. The number of sweeps of
        each pass stays.
    scheduler : Client, address or "threads"
        As in `rechunk`.
    resources : Resources
        ``ranks``, ``workers``, ``missing`` and ``storage_options``; ``prefetch``, ``workspace``, ``window`` and
        ``fuse`` of the passes: ⌈sweeps ÷ fuse⌉, at least 8 with ``until``; and ``scratch`` for the results between
        passes, at most two arrays a target, by default beside it; of local array files on workers' own disks beside the
        file of each rank, or in a folder there with ``{rank}`` in its name for the rank.

    Returns
    -------
    IterateJob
        ``.run()`` returns the target, an `OutOfCoreArray`, or a list of them for a list of targets; ``.residuals`` are
        those of its passes. ``dask.compute(job)`` does the same, without ``until``.

    Raises
    ------
    InputError
        For invalid arguments; `BudgetError` if not one slab fits: the error states the minimum.

    Notes
    -----
    Thakur 1995, section 5.4, Figure 5.3 (Laplace's equation by Jacobi iteration); Wolf & Lam 1991 (skewed tiles).

    Examples
    --------
    >>> z = zarr.create_array({}, data=np.array([16.0, 0, 0, 0, 0, 0]), chunks=(2,))
    >>> def smooth(block):
    ...     return np.convolve(block, [0.25, 0.5, 0.25], "same")
    >>> store = zarr.storage.MemoryStore()
    >>> job = iterate(smooth, z, store, sweeps=3, boundary="nearest", memory="64MiB", scheduler="threads",
    ...               resources=Resources(fuse=2))
    >>> len(job.plan.passes), job.run()[...]
    (2, array([8.75, 5.25, 1.75, 0.25, 0.  , 0.  ]))
    """
    check_call(kernel, len(as_list(source)))
    tolerance, watched = _watched(until)
    means = means_of(resources, iterate, memory=memory, scheduler=scheduler)
    targets = [stored_as(each, iterate) for each in as_list(target)]
    seen = (own_depth(kernel) or 1) if depth is None else depth
    asked = pass_options(means, depth=seen, boundary=boundary, window=means.window)
    fuse = "auto" if means.fuse is None else means.fuse
    options = SweepOptions(sweeps=sweeps, fuse=fuse, watched=watched is not None, **asked)
    place = placer(means.storage_options, source, [each.store for each in targets], means.scratch)
    request = SlabRequest(
        kernel=kernel, options=options, means=means, overwrite=overwrite, resume=resume, residual=watched,
        until=tolerance, targets=[replace(each, store=place(each.store)) for each in targets],
        single=not isinstance(target, list | tuple),
    )  # fmt: skip
    arrays = arrays_of(request, as_list(source), place, means.missing)
    where, between = preview_scratch(arrays, scratch_at(place, means.scratch))
    threads = arrays.resources.threads
    plan = partial(plan_iterate, arrays.read, between, arrays.written, threads=threads)
    job = IterateJob(iteration(arrays, plan, where), opener(arrays), arrays.cluster, arrays.disks)
    return job.again(resume, overwrite=overwrite)


def _watched(asked: Any) -> tuple[Any, Residual | None]:
    """Return the residual at which sweeping ends, if any, and its measure, if there is one."""
    until, residual = asked if isinstance(asked, tuple) and len(asked) == 2 else (asked, None)
    if until is not None and (isinstance(until, bool) or not isinstance(until, Real)):
        raise InputError(f"until={until!r} is not a number: the residual at which sweeping ends")
    if until is not None and (math.isnan(until) or (until < 0 and residual is None)):
        raise InputError(f"until={until!r} must be at least 0: no change of an element is less")
    if residual is not None and not callable(residual):
        raise InputError(
            f"residual={residual!r} is not callable: pass a function of the fields before and after a sweep"
        )
    return until, residual or (None if until is None else change)
