"""Update of an array to match its source, as tasks.

    create ─┬─► part 0 ─► part 2 ─► …  ─┬─► finish       a part reads changed elements of the source, and replaces the
            └─► part 1 ─► part 3 ─► …  ─┘                target chunks that contain them; no other part writes these

`create` marks the target unfinished and resizes it. A part overwrites elements regardless of their old values, so an
interrupted part is simply repeated.

begin     direction, source, chunks of a round; settings of local array files     ─► journal
resume    journal ─► the same rounds, without the parts that ranks have written; or, with less memory,
                     other rounds, without the stored chunks
          files on workers' own disks are not checked: they are written again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import zarr
from dask.task_spec import Task
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import JournalError, RunError
from oocarrays.graphs.files.scatter import FilesRun, place_names
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.journaled import OneTarget
from oocarrays.graphs.run.looking import Part, Trust, check_sources
from oocarrays.graphs.run.remains import NOTHING_LEFT, Left, Remains, journal_of
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import Work
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.files.scatter import FilesPlan
from oocarrays.plan.files.update import UpdatePlan
from oocarrays.plan.sections.batches import BUFFER_BYTES
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import finish_target
from oocarrays.storage.files.documents import document_store, is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.calls import CALL
from oocarrays.storage.journal.receipts import Store
from oocarrays.storage.local.names import MARK
from oocarrays.storage.sections.overlay import write_pieces
from oocarrays.storage.sections.read import read_section


def files_content(
    plan: FilesPlan, call: Mapping[str, Any], read: Any, made: Mapping[str, Any] | None = None
) -> Document:
    """Return the journal content of a scatter or gather, with the metadata of the largest local array file."""
    like = {} if made is None else {"like": _documents(made)}
    return {"files": plan.way, "room": plan.room, "source_metadata": read, **like, **call}


def _documents(made: Mapping[str, Any]) -> Document:
    array = zarr.create_array(MemoryStore(), **made)
    found = array.metadata.to_buffer_dict(default_buffer_prototype())
    return {name: json.loads(buffer.to_bytes()) for name, buffer in found.items()}


def made_like(content: Mapping[str, Any]) -> zarr.Array:
    """Return an in-memory array without chunks, with the metadata of the largest file of a scatter."""
    read = default_buffer_prototype().buffer.from_bytes
    documents: Any = {name: read(json.dumps(each).encode()) for name, each in content["like"].items()}
    return zarr.open_array(MemoryStore(documents), mode="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesLeft(Left):
    """Journal of an interrupted scatter or gather."""

    target: StoreLike
    """Target of the run."""

    @classmethod
    def at(cls, target: StoreLike, trust: Trust) -> FilesLeft:
        journal, id, content = journal_of(target, "array")
        if CALL not in content:
            raise JournalError(
                f"{target} was being written by {content['files']}_files: pass overwrite=True (--overwrite) to "
                "write it again"
            )
        stored = journal.stored()
        if trust.again:  # files made by ranks are kept
            stored = {part: receipts for part, receipts in stored.items() if len(part) == 1}
        kept = {} if trust.again else journal.kept()
        return cls(id=id, content=content, target=target, stored=stored, kept=kept, trust=trust, notices=())

    def check_source(self, read: Any) -> None:
        """Raise if the source is not that of the run."""
        if json.loads(json.dumps(read)) != self.content["source_metadata"]:
            raise JournalError(f"the journal in {self.target} belongs to a different source")

    def begun(self, content: Document) -> Document:
        """Return journal content completed with the source versions at which the run began to read."""
        return content | self.begun_with

    def gone_on_with(self, run: FilesRun, plan: Callable[[int], FilesPlan]) -> FilesRun:
        """Resume a run; ``plan`` makes a plan from the number of chunks in a round, as in the journal."""
        notices = tuple(check_sources(run.read_from, self.content, self.target, self.trust))
        before, local = plan(self.content["room"]), run.local
        told = "files on workers' own disks are written again"
        names = {name: local.place(int(name)) if name else self.target for name in place_names(run.plan)}
        own_disks = bool(local.descriptor.folders) and run.plan.way == "scatter"
        files = {} if own_disks else dict(self._files(names))
        same = run.plan.room == before.room
        left = replace(self, notices=notices)
        remains = left.reused(FilesParts(before), FilesParts(run.plan), names, files, same=same)
        run.go_on(remains.told(told) if own_disks else remains)
        return run

    def _files(self, places: Mapping[str, StoreLike]) -> Iterator[tuple[str, ArrayFile]]:
        """Yield the existing files of the run, including closed ones."""
        for name, place in places.items():
            closed = name and (int(name),) in self.stored and is_finished(place)
            if closed or unfinished_run(place) == self.id:
                yield name, written_file(place)


@dataclass(frozen=True, slots=True)
class FilesParts:
    """Rounds of ranks as parts, and the sections of each file that they write."""

    plan: FilesPlan
    """Plan of the rounds."""

    def parts(self) -> Iterator[Part]:
        """Yield the parts: the files of all ranks, and each rank's share of each round."""
        ranks = range(self.plan.ranks)
        yield from ((rank,) for rank in ranks)
        yield from ((number, rank) for number in range(len(self.plan.rounds)) for rank in ranks)

    def sections(self, part: Part) -> Document:
        """Return the sections that a rank writes in a round, in the coordinates of the file."""
        if len(part) == 1:
            return {}
        number, rank = part
        if self.plan.way == "gather":
            boxes = self.plan.domains(number)[rank]
            return {"": boxes} if boxes else {}
        block = self.plan.block(rank, self.plan.rounds[number])
        return {str(rank): [block.place]} if block else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing(TargetSpec):
    """Existing array with its shape before and after the update."""

    before: tuple[int, ...] = ()
    """Shape when the update was planned."""
    after: tuple[int, ...] = field(default=())
    """Shape of the source."""


class UpdateRun(OneTarget):
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

    @property
    def left(self) -> float:
        """Share of the parts that remains to be done."""
        parts = len(list(self.plan.parts()))
        return 1 - len(self.done) / parts if parts else 0.0

    # ------------------------------------------------------------------ beginning and end

    def _check_target(self) -> None:
        """Raise if the target has changed since the update was planned."""
        if self.destination.open().stored.grid.shape not in (self.destination.before, self.destination.after):
            raise RunError(f"{self.destination.store} has changed since the update was planned: plan the update again")

    def _make_targets(self) -> None:
        """Mark the target and resize it: at every moment it is the old array, or a marked one."""
        store = document_store(self.destination.store, durable=self.durable)
        array = zarr.open_array(store, mode="r+")  # type: ignore[arg-type]
        array.attrs.put({**array.attrs.asdict(), MARK: self.id})
        if tuple(array.shape) != self.destination.after:
            array.resize(self.destination.after)

    def _go_on(self) -> None:
        super()._go_on()
        if self.resumes:  # the source may have grown since
            self._make_targets()
            self._target = None

    def _nothing(self) -> str:
        """Return the name of the target, which is up to date; remove its mark if it has one."""
        file: ArrayFile = self.destination.open()
        if MARK in file.zarr.attrs:
            finish_target(file, durable=self.durable)
        return file.name

    def _finish(self) -> str:
        name: str = self._end(self.target.name)
        return name

    def _finishing(self) -> Callable[[], None]:
        publish = super()._finishing()

        def finish() -> None:
            """Record the source last: if the record is lost, changed elements are written once more."""
            publish()
            self._keep_source(durable=self.durable)

        return finish

    # ------------------------------------------------------------------ parts

    def _part(self, number: int, rank: int, former: None = None) -> None:
        """Read changed elements, and replace the chunks that contain them."""
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
        keys = [self.target.chunk_key(index) for index in self.plan.units(number)]
        self.record((number,), {"": Store(self.destination.store).receipts(keys)})

    def _read(self, piece: Section) -> np.ndarray:
        if self.failure:
            raise self.failure
        return read_section(
            self.source, piece.axes, meter=self.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
            threads=self.plan.threads, costs=self.plan.costs,
        )  # fmt: skip


def build_graph(run: UpdateRun, addresses: tuple[str, ...] = ()) -> tuple[dict[Key, Task], Key]:
    """Return the graph of an update, and the key of its last task; its result is the name of the target."""
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
