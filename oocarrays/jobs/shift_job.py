"""Refreshing the halos of local array files: the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dask.utils import format_bytes

from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError, LayoutError, TargetError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.files.shift import ShiftRun, build_graph
from oocarrays.graphs.run.job import Graph
from oocarrays.jobs.job import Job
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.layouts.boundary import Boundary
from oocarrays.mapping.layouts.local import depths
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.plan.exchange.ordering import schedule_for
from oocarrays.plan.files.shift import ShiftPlan
from oocarrays.plan.layouts.halos import Halos
from oocarrays.show import report
from oocarrays.show.planned import rows
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.journal.calls import call_content, named

if TYPE_CHECKING:
    from distributed import Client


class ShiftJob(Job[ShiftRun, LocalArrays]):
    """Halos of local array files that will be refreshed: ``.plan``, ``.explain()``, ``.run()``,
    ``dask.compute(job)``."""

    def __init__(self, run: ShiftRun, a: LocalArrays, cluster: Cluster | None) -> None:
        self._array = a
        super().__init__(run, lambda name: a, cluster)

    @property
    def plan(self) -> ShiftPlan:
        """Who reads, sends and writes which borders: frozen data."""
        return self._run.plan

    def _homed(self, addresses: Sequence[str]) -> Sequence[str]:
        return self._array.disks.homes(addresses)

    def _build(self) -> Graph:
        return build_graph(self._run, self._addresses)

    def _threads(self) -> int:
        return min(self.plan.ranks, 2 * settings.local_cores())

    def _rows(self) -> list[tuple[str, str]]:
        plan, t = self.plan, self.plan.traffic
        each = " in each worker" if plan.processes else ""
        about = " (estimate)" if plan.written[0].made or plan.read[0].coded else ""
        sends = f"{t.messages}, {format_bytes(t.exchanged_bytes)}, {plan.schedule.name}"
        ways = {plan.way(rank) for rank in range(plan.ranks)}
        how = "where they are" if ways == {"direct"} else "in chunks that are read first, and replaced at once"
        return [
            ("files", f"{plan.halos.layout}, halo of depth {report.shape_text(plan.halos.depth)}"),
            ("boundary", repr(plan.halos.boundary)),
            *rows(plan, reads=about, writes=f"{about}, halos {how}"),
            ("messages", sends if plan.processes else "none: ranks are threads"),
            *rows(plan, peak_memory=each, predicted=""),
        ]

    def _title(self) -> str:
        return f"oocarrays.ShiftJob of {self._array.store}"


def shift_files(
    a: LocalArrays,
    depth: int | Sequence[int] | None,
    boundary: Boundary,
    *,
    schedule: str,
    memory: int | float | str | None,
    scheduler: Client | str | None,
    workers: Sequence[str] | None,
) -> ShiftJob:
    """Plan to refresh the halos of local array files: see `oocarrays.shift`."""
    if depth is not None and depths(depth, a.ndim) != a.depth:
        raise LayoutError(f"depth={depth!r}: the files of {a.store} have halos of depth {a.depth}: leave depth out")
    if not any(a.depth):
        raise InputError(f"the files of {a.store} have no halo: create_array and scatter_files take depth=")
    if not a.is_writable:
        raise TargetError(f"{a.store} is opened for reading: open it with mode='r+' to write to it")
    cluster = cluster_of(a.disks.client or scheduler, workers)
    resources = resources_of(cluster, memory, schedule)
    order = schedule_for(resources.order, a.ranks)
    plan = ShiftPlan(
        halos=Halos.of(a.layout, a.depth, boundary),
        read=a.stored,
        written=tuple(a.disks.call(rank, _written, a.files, rank) for rank in range(a.ranks)),
        schedule=order,
        budget=resources.budget,
        processes=resources.workers,
        costs=resources.costs,
    )
    note = (
        {}
        if named(a.files.store) is None
        else call_content(
            "shift", [], memory=resources.budget, processes=resources.workers, boundary=boundary, schedule=schedule
        )
    )
    return ShiftJob(ShiftRun(plan.checked(), a.before_changes(), note), a, cluster)


def _written(files: LocalFiles, rank: int) -> Stored:
    return files.file(rank, written=True).stored
