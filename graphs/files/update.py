"""Bringing an array up to date, as tasks.

    create ─┬─► part 0 ─► part 2 ─► …  ─┬─► finish       a part reads what has changed of the source, and replaces the
            └─► part 1 ─► part 3 ─► …  ─┘                target chunks in which that lies: no other part has any of them

create marks the target unfinished, and lets it grow. A part puts the source's elements where they belong, whatever is
there: one that was in the middle is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import zarr
from dask.task_spec import Task

from oocarrays.errors import RunError
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.journaled import JournaledRun, check_folder
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.run.sealed import Sealed
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.work import Work
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.files.update import REQUESTS, UpdatePlan
from oocarrays.plan.sections.batches import BUFFER_BYTES
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import finish_target, finishing
from oocarrays.storage.files.documents import MARK, document_store
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.receipts import Store
from oocarrays.storage.sections.overlay import write_pieces
from oocarrays.storage.sections.read import read_section


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing(TargetSpec):
    """An array that is there, and how large it was and is to be."""

    before: tuple[int, ...] = ()
    """Its shape when the update was planned."""
    after: tuple[int, ...] = field(default=())
    """That of the source."""


class UpdateRun(JournaledRun):
    """One update, shared by its tasks."""

    phases: ClassVar[Any] = {"part": "write", "read": "read", "write": "write"}
    threads_stay: ClassVar[bool] = True
    plan: UpdatePlan
    destination: Growing

    def __init__(
        self,
        plan: UpdatePlan,
        source: ArrayFile,
        destination: Growing,
        content: Document,
        *,
        remains: Remains = NOTHING_LEFT,
    ) -> None:
        self.plan = plan
        self._source = Sealed(source)
        self.destination = destination
        self.content = content
        self.remains = remains
        super().__init__(destination.store, plan.processes, remains.id)

    def _here(self) -> None:
        super()._here()
        self._target: ArrayFile | None = None

    @property
    def source(self) -> ArrayFile:
        """The source."""
        return self._source.value

    @property
    def read_from(self) -> tuple[zarr.Array, ...]:
        """The source."""
        return (self.source.zarr,)

    @property
    def resumes(self) -> bool:  # type: ignore[override]
        """Whether it goes on with what another process has left."""
        return self.destination.resumed

    @property
    def written_places(self) -> list[StoreLike]:
        """The target."""
        return [self.destination.store]

    @property
    def stores(self) -> dict[str, Any]:
        """Where it reads and writes."""
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
        """The source."""
        return (self.source.presence,)

    @property
    def left(self) -> float:
        """The share of the parts that is still to be done."""
        parts = len(list(self.plan.parts()))
        return 1 - len(self.done) / parts if parts else 0.0

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and chunks that are written, in what is left."""
        return self.left * self.plan.traffic.read_requests, self.left * self.plan.traffic.write_requests

    # ------------------------------------------------------------------ beginning and end

    def _check_visible(self) -> None:
        check_folder(self.destination.store)

    def _check_target(self) -> None:
        """Refuse a target that is another one than it was when the update was planned."""
        if self._written().stored.grid.shape not in (self.destination.before, self.destination.after):
            raise RunError(f"{self.destination.store} has changed since its update was planned: plan it again")

    def _make_targets(self) -> None:
        """Mark the target, and let it grow: at every moment there is the old one, or one that is marked."""
        store = document_store(self.destination.store, durable=self.durable)
        array = zarr.open_array(store, mode="r+")  # type: ignore[arg-type]
        array.attrs.put({**array.attrs.asdict(), MARK: self.id})
        if tuple(array.shape) != self.destination.after:
            array.resize(self.destination.after)

    def _go_on(self) -> None:
        super()._go_on()
        if self.resumes:  # with a source that may have grown since
            self._make_targets()
            self._target = None

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._target = None

    def _written(self) -> ArrayFile:
        return written_file(self.destination.store, mode="r+")

    @property
    def target(self) -> ArrayFile:
        """The target, open in this process."""
        with self._idle:
            if self._target is None:
                self._target = self._written()
            return self._target

    def _nothing(self) -> str:
        """Name the target, which is up to date, and need not be marked."""
        file = self._written()
        if MARK in file.zarr.attrs:
            finish_target(file, durable=self.durable)
        return file.name

    def _finish(self) -> str:
        name: str = self._end(self.target.name)
        self.journal.release()
        return name

    def _finishing(self) -> Callable[[], None]:
        publish = finishing(self.target, durable=self.durable)

        def finish() -> None:
            """Keep the source last: where that is lost, what has changed is written once more."""
            publish()
            self._keep_source(durable=self.durable)

        return finish

    # ------------------------------------------------------------------ parts

    def _part(self, number: int, rank: int, former: None = None) -> None:
        """Read what has changed, and replace the chunks in which it lies."""
        if self.is_done((number,)):
            return
        self.journal.join()
        pieces = self.plan.pieces(number)
        with self.meter.phase("read"):
            data = [(piece.axes, self._read(piece)) for piece in pieces]
        with self.meter.phase("write"):
            write_pieces(
                self.target, data, self.plan.units(number), self.plan.inner(number), at_once=self.plan.at_once,
                meter=self.meter,
            )  # fmt: skip
        keys = [self.target.chunk_key(index) for index in self.plan.units(number).elements]
        self.record((number,), {"": Store(self.destination.store).receipts(keys)})

    def _read(self, piece: Section) -> np.ndarray:
        if self.failure:
            raise self.failure
        return read_section(
            self.source, piece.axes, meter=self.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
            threads=self.plan.threads, costs=self.plan.costs,
        )  # fmt: skip


def build_graph(run: UpdateRun, addresses: tuple[str, ...] = ()) -> tuple[dict[Key, Task], Key]:
    """The graph of an update, and the key of its last task, whose value is the name of the target."""
    builder, plan = Builder(new_suffix(), Work.task, run), run.plan
    if not plan.changed:
        return builder.graph, builder.add("nothing", rank=0)
    created = builder.create(addresses)
    ends = []
    for rank in range(plan.ranks):
        last = None
        for number in plan.mine(rank):
            if (number,) not in run.done:
                last = builder.add("part", number, rank, buffers=(last,), after=[created] if last is None else [])
        ends += [] if last is None else [last]
    return builder.graph, builder.add("finish", after=ends or [created], rank=0)
