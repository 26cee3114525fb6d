"""Several lazy arrays of one dataset in one graph: their common inputs are computed once.

    frame ──┬─► put, put, … ──┬─► rechunk ─► rechunk ─► … ─► finish      one array after the other, where blocks
            └─► put, put, … ──┘                                          are not aligned

The frame is written by xarray: attributes, coordinates, and every array that is not lazy. All blocks are written before
the first rechunk begins, so blocks and rechunks are not in memory together. Each array has a run of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import zarr
from dask.task_spec import Task, TaskRef

from oocarrays.errors import TargetError
from oocarrays.graphs.lazy.blocks import BlockTasks
from oocarrays.graphs.rechunk.program import Rechunk
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Part, Program, Remaining, new_suffix
from oocarrays.graphs.run.run import Run, call
from oocarrays.graphs.run.steps import Key
from oocarrays.plan.lazy.blocks import DatasetPlan
from oocarrays.plan.machine import spread
from oocarrays.storage.files import group_file
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import document_store, unfinished_run
from oocarrays.storage.files.making_room import is_empty, names_in
from oocarrays.storage.files.places import StoreLike, local_folder, member_store, store_path
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.local.fs import MARK, OURS, SAYING, files_below
from oocarrays.storage.local.syncing import written
from oocarrays.storage.stores.joined import with_drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame(TargetSpec):
    """Group of a dataset, without its lazy arrays."""

    write: Callable[[dict[str, Any], bool], None]
    """Function that writes it, with more attributes; it may replace a group."""

    def create(self, run: str, *, durable: bool) -> None:
        """Write the group, marked unfinished, unless this run has done it.

        If an earlier attempt was interrupted, as its mark shows, everything is written again.
        """
        store: Any = self.store
        mark, begun = unfinished_run(store), f"{run}-begun"
        replaces = mark == begun
        if not replaces and not is_empty(store):
            if not self.overwrite:
                raise TargetError(f"the target {store} was created by another process in the meantime")
            group_file.make_group(store, {"attributes": {}}, begun, overwrite=True, durable=durable)
            replaces = True
        self.write({MARK: begun}, replaces)
        folder = local_folder(store) or ""
        for key in files_below(folder):
            written(os.path.join(folder, key))  # files written by xarray
        place = with_drafts(store_path(document_store(store, durable=durable)))
        zarr.open_group(place, mode="r+", use_consolidated=False).attrs[MARK] = run

    def open(self) -> None:
        """Do nothing: the lazy arrays are written by their own runs."""

    def finishing(self, opened: None, *, durable: bool) -> Callable[[], Any]:
        """Return a function that consolidates the metadata as xarray does, and removes the mark."""
        return partial(self._finish, durable=durable)

    def _finish(self, *, durable: bool) -> None:
        variables = [name for name in names_in(self.store) if not name.startswith((OURS, *SAYING))]
        group_file.finish_group(self.store, ("",), nodes=variables, durable=durable)


@dataclass(frozen=True, kw_only=True)
class Dataset(Program):
    """Write of a dataset, apart from its lazy arrays."""

    phases: ClassVar[Mapping[str, str]] = Rechunk.phases
    restarts: ClassVar[bool] = True
    plan: DatasetPlan
    target: Frame

    @property
    def made_place(self) -> StoreLike | None:
        """Return the first lazy array: beside a group's own metadata, Zarr would treat the request as a member."""
        return next((member_store(self.target.store, name) for name, _ in self.plan.arrays), None)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return no work: only that of the lazy arrays is counted."""
        return Remaining(1.0, 0.0, 0.0)


def create(live: Live[Dataset]) -> None:
    """Write everything that is not lazy, once, as arrays are written into it later."""
    live.begin_anew()
    live.state.begun = True
    if unfinished_run(live.store) == live.id or recording.has_ended(live):
        return
    live.program.target.create(live.id, durable=live.state.durable)
    if live.on_workers:
        live.syncer.finish()  # files made by this worker; other workers sync their own


def finish(live: Live[Dataset]) -> str:
    recording.end(live)
    return str(live.store)


def build_graph(
    run: Run[Dataset], addresses: Sequence[str], tasks: Mapping[Any, Any], keys: Sequence[Any]
) -> tuple[dict[Any, Any], Key, dict[str, Sequence[str]]]:
    """Return the tasks, the key of the last one, and the worker of each rank by the suffix in the tasks' keys."""
    suffix, workers = new_suffix(), list(dict.fromkeys(addresses))
    each = [
        BlockTasks(part, spread(part.program.plan.ranks, workers), blocks)
        for part, blocks in zip(run.parts, keys, strict=True)
    ]
    frame: Any = f"frame-{suffix}"
    first = not run.program.target.overwrite  # a replaced target may be read by the blocks
    done: list[Any] = [array.blocks([frame] if first else ()) for array in each]
    graph = dict(tasks) | {frame: Task(frame, call, run, create, (), 0, *map(TaskRef, () if first else done))}
    done = done if done and first else [frame]
    for array in each:
        last = array.rest(done)
        done = done if last is None else [last]
        graph |= array.graph
    finished: Key = (f"finish dataset-{suffix}", 0)
    shared = TaskRef(frame) if addresses else run
    graph[finished] = Task(finished, call, shared, finish, (), 0, *map(TaskRef, done))
    homes = {array.suffix: array.addresses for array in each}
    return graph, finished, homes | {suffix: workers[:1]}
