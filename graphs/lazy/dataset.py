"""Several lazy arrays of one dataset in one graph: their common inputs are computed once.

    frame ──┬─► put, put, … ──┬─► rechunk ─► rechunk ─► … ─► finish      one array after the other, where blocks
            └─► put, put, … ──┘                                          are not aligned

The frame is written by xarray: attributes, coordinates, and every array that is not lazy. All blocks are written before
the first rechunk begins, so blocks and rechunks are not in memory together.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import zarr
from dask.core import flatten
from dask.task_spec import Task, TaskRef

from oocarrays.errors import TargetError
from oocarrays.graphs.lazy.blocks import BlocksBuilder, LazyRun
from oocarrays.graphs.run.builder import new_suffix
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import EndingRun, Work
from oocarrays.mapping.layouts.local import spread
from oocarrays.plan.documents import Document
from oocarrays.plan.lazy.blocks import DatasetPlan
from oocarrays.storage.files import group_file
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import document_store, unfinished_run
from oocarrays.storage.files.making_room import names_in
from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.notes import Notes
from oocarrays.storage.journal.sources import can_keep
from oocarrays.storage.journal.texts import REQUEST
from oocarrays.storage.local.fs import files_below
from oocarrays.storage.local.names import MARK, OURS, SAYING
from oocarrays.storage.local.syncing import written
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.aside import with_drafts


class DatasetRun(EndingRun):
    """One run of a dataset."""

    phases: ClassVar[Mapping[str, str]] = LazyRun.phases
    unsent: ClassVar[tuple[str, ...]] = ("runs",)
    plan: DatasetPlan
    runs: tuple[LazyRun, ...] = ()
    resumes = False

    def __init__(
        self, plan: DatasetPlan, destination: TargetSpec, frame: Callable[[dict[str, Any], bool], None], id: str
    ) -> None:
        self.plan = plan
        self.content: Document = {}
        self.destination = destination
        self.frame = Sealed(frame)
        super().__init__(destination.store, plan.processes, id)

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and pieces and chunks to write."""
        each = [run.expected for run in self.runs]
        return sum(reads for reads, _ in each), sum(writes for _, writes in each)

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Journals in which the run records its end, and those of its arrays."""
        return [*super().ends, *(end for run in self.runs for end in run.ends)]

    @property
    def made_place(self) -> StoreLike | None:
        """Return the first lazy array: beside a group's own metadata, Zarr would treat the request as a member."""
        return next((group_file.member_store(self.destination.store, name) for name, _ in self.plan.arrays), None)

    def _keep_request(self) -> None:
        place = self.made_place
        if place is not None and can_keep(place) and REQUEST in self.content:
            Notes(place).keep_made(self.id, {REQUEST: self.content[REQUEST]})

    def read_now(self) -> list[Any]:
        """Return no arrays: none can be checked."""
        return []

    def count_with(self, meter: Meter) -> None:
        """Count reads and writes of this process in ``meter``."""
        self.meter = meter
        for run in self.runs:
            run.count_with(meter)

    def abort(self, error: BaseException) -> BaseException:
        """Stop all runs."""
        for run in self.runs:
            run.abort(error)
        return super().abort(error)

    def settle(self, *, resumable: bool = False) -> None:
        """Settle all runs; scratch is not kept, as it is useless without the other arrays."""
        for run in self.runs:
            run.settle()
        super().settle()

    def _create(self) -> None:
        """Write everything that is not lazy into a group marked unfinished, once, as arrays are written into it later.

        If an earlier attempt was interrupted, as its mark shows, everything is written again.
        """
        self.failure = None
        store: Any = self.destination.store
        mark, begun = unfinished_run(store), f"{self.id}-begun"
        if mark == self.id or self.has_ended():
            return
        replaces = mark == begun
        if not replaces and not is_empty(store):
            if not self.destination.overwrite:
                raise TargetError(f"the target {store} was created by another process in the meantime")
            group_file.make_group(store, {"attributes": {}}, begun, overwrite=True, durable=self.durable)
            replaces = True
        self.frame.value({MARK: begun}, replaces)
        folder = local_folder(store) or ""
        for key in files_below(folder):
            written(os.path.join(folder, key))  # files written by xarray
        place = with_drafts(store_path(document_store(store, durable=self.durable)))
        zarr.open_group(place, mode="r+", use_consolidated=False).attrs[MARK] = self.id
        if self.processes is not None:
            self.syncer.finish()  # files made by this worker; other workers sync their own

    def _finish(self) -> str:
        """Consolidate the metadata as xarray does, and remove the mark."""
        self._end(None)
        return str(self.destination.store)

    def _finish_targets(self) -> None:
        store = self.destination.store
        variables = [name for name in names_in(store) if not name.startswith((OURS, *SAYING))]
        group_file.finish_group(store, ("",), nodes=variables, durable=self.durable)


class DatasetBuilder:
    """Builder of the graph of a dataset."""

    def __init__(
        self, run: DatasetRun, addresses: Sequence[str], tasks: Mapping[Any, Any], keys: Sequence[Any]
    ) -> None:
        self.run = run
        self.graph: dict[Any, Any] = dict(tasks)
        self.homes: dict[str, Sequence[str]] = {}
        """Worker of each rank, by the suffix in the tasks' keys."""
        self.suffix = new_suffix()
        self._workers = list(dict.fromkeys(addresses))
        self._builders = list(self._each(self._workers, keys))

    def _each(self, workers: list[str], keys: Sequence[Any]) -> Iterator[BlocksBuilder]:
        for run, blocks in zip(self.run.runs, keys, strict=True):
            suffix = new_suffix()
            self.homes[suffix] = spread(run.plan.ranks, workers)
            yield BlocksBuilder(run, suffix, self.homes[suffix], {}, list(flatten(blocks)))

    def build(self) -> Key:
        """Add every task; return the key of the last one."""
        frame: Any = f"frame-{self.suffix}"
        first = [] if self.run.destination.overwrite else [frame]  # a replaced target may be read by the blocks
        done = [builder.blocks(first) for builder in self._builders]
        self.graph[frame] = Task(frame, Work.task, self.run, "create", (), 0, *map(TaskRef, [] if first else done))
        done = done if done and first else [frame]
        for builder in self._builders:
            last = builder.rest(done)
            done = done if last is None else [last]
        for builder in self._builders:
            self.graph |= builder.graph
        finish: Key = (f"finish dataset-{self.suffix}", 0)
        self.homes[self.suffix] = self._workers[:1]
        self.graph[finish] = Task(finish, Work.task, self.run, "finish", (), 0, *map(TaskRef, done))
        return finish
