"""Bringing an array up to date, as tasks.

    create ─┬─► part 0 ─► part 2 ─► …  ─┬─► finish       a part reads what has changed of the source, and replaces the
            └─► part 1 ─► part 3 ─► …  ─┘                target chunks in which that lies: no other part has any of them

create marks the target unfinished, and lets it grow. A part puts the source's elements where they belong, whatever is
there: one that was in the middle is done again.

begin     which way, what is read, chunks of a round; how local array files are made     ─► journal
resume    journal ─► the same rounds, less what ranks have written of them; or others, where there is less memory, less
                     the chunks that have been stored
          of files on workers' own disks nothing is known: they are written again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import zarr
from dask.task_spec import Task
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import JournalError, RunError
from oocarrays.graphs.files.scatter import FilesRun, place_names
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.journaled import JournaledRun, check_folder
from oocarrays.graphs.run.looking import CHUNKS_READ, Part, Trust, check_sources
from oocarrays.graphs.run.remains import NOTHING_LEFT, Left, Remains, journal_of
from oocarrays.graphs.run.sealed import Sealed
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.work import Work
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.files.scatter import FilesPlan
from oocarrays.plan.files.update import UpdatePlan
from oocarrays.plan.sections.batches import BUFFER_BYTES
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import finish_target, finishing
from oocarrays.storage.files.documents import document_store, is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.calls import CALL
from oocarrays.storage.journal.receipts import Store
from oocarrays.storage.local.names import MARK
from oocarrays.storage.sections.overlay import write_pieces
from oocarrays.storage.sections.read import read_section

SOURCE = "source_metadata"
"""Where a journal keeps what tells a source from others."""
LIKE = "like"
"""Where a journal keeps the metadata of the largest local array file."""


def files_content(
    plan: FilesPlan, call: Mapping[str, Any], read: Any, made: Mapping[str, Any] | None = None
) -> Document:
    """Write down what a scatter or gather does."""
    like = {} if made is None else {LIKE: _documents(made)}
    return {"files": plan.way, "room": plan.room, SOURCE: read, **like, **call}


def _documents(made: Mapping[str, Any]) -> Document:
    array = zarr.create_array(MemoryStore(), **made)
    found = array.metadata.to_buffer_dict(default_buffer_prototype())
    return {name: json.loads(buffer.to_bytes()) for name, buffer in found.items()}


def made_like(content: Mapping[str, Any]) -> zarr.Array:
    """An array in memory without chunks, of the metadata of the largest file of a scatter."""
    read = default_buffer_prototype().buffer.from_bytes
    documents: Any = {name: read(json.dumps(each).encode()) for name, each in content[LIKE].items()}
    return zarr.open_array(MemoryStore(documents), mode="r")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesLeft:
    """A scatter or gather that stopped, as its journal tells it."""

    id: str
    """Of the run."""
    content: Document
    """All that the journal keeps of it."""
    target: StoreLike
    """Where it was writing."""
    stored: Mapping[Part, Any]
    """What is recorded as done, and what it has stored."""
    kept: Mapping[str, Any]
    """What plans before that one have stored, by place."""
    trust: Trust
    """How far that is trusted."""

    @classmethod
    def at(cls, target: StoreLike, trust: Trust) -> FilesLeft:
        journal, id, content = journal_of(target, "array")
        if CALL not in content:
            raise JournalError(f"{target} was being written by {content['files']}_files: write it again with overwrite")
        stored = journal.stored()
        if trust.again:  # files that ranks have made stay
            stored = {part: receipts for part, receipts in stored.items() if len(part) == 1}
        kept = {} if trust.again else journal.kept()
        return cls(id=id, content=content, target=target, stored=stored, kept=kept, trust=trust)

    def check_source(self, read: Any) -> None:
        """Refuse another source than the run had."""
        if json.loads(json.dumps(read)) != self.content[SOURCE]:
            raise JournalError(f"the journal in {self.target} was written for another source than this one")

    def begun(self, content: Document) -> Document:
        """Complete what a journal keeps that is written anew: with how that was which the run began to read."""
        known = CHUNKS_READ in self.content and not self.trust.again
        return content | ({CHUNKS_READ: self.content[CHUNKS_READ]} if known else {})

    def gone_on_with(self, run: FilesRun, plan: Callable[[int], FilesPlan]) -> FilesRun:
        """Give a run what is left; ``plan`` makes the plan of so many chunks a round, as the journal has it."""
        notices = tuple(check_sources(run.read_from, self.content, self.target, self.trust))
        before, local = plan(self.content["room"]), run.local
        told = "files on workers' own disks are written again"
        names = {name: local.place(int(name)) if name else self.target for name in place_names(run.plan)}
        own_disks = bool(local.descriptor.folders) and run.plan.way == "scatter"
        files = {} if own_disks else dict(self._files(names))
        left = Left(
            id=self.id, content=self.content, stored=self.stored, kept=self.kept, trust=self.trust, notices=notices,
            places=names, files=files,
        )  # fmt: skip
        remains = left.remains(FilesParts(before), FilesParts(run.plan), same=run.plan.room == before.room)
        run.go_on(remains.told(told) if own_disks else remains)
        return run

    def _files(self, places: Mapping[str, StoreLike]) -> Iterator[tuple[str, ArrayFile]]:
        """The files that are there, those that had been closed among them."""
        for name, place in places.items():
            closed = name and (int(name),) in self.stored and is_finished(place)
            if closed or unfinished_run(place) == self.id:
                yield name, written_file(place)


@dataclass(frozen=True, slots=True)
class FilesParts:
    """Rounds of ranks as parts, and what each writes of a file."""

    plan: FilesPlan
    """What is done in which round."""

    def parts(self) -> Iterator[Part]:
        """The files of all ranks, and what each rank writes in each round."""
        ranks = range(self.plan.ranks)
        yield from ((rank,) for rank in ranks)
        yield from ((number, rank) for number in range(len(self.plan.rounds)) for rank in ranks)

    def sections(self, part: Part) -> Document:
        """The elements that a rank writes in a round, as they stand in the file."""
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
        return self._source.value

    @property
    def read_from(self) -> tuple[zarr.Array, ...]:
        return (self.source.zarr,)

    @property
    def resumes(self) -> bool:  # type: ignore[override]
        """Whether it goes on with what another process has left."""
        return self.destination.resumed

    @property
    def written_places(self) -> list[StoreLike]:
        return [self.destination.store]

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.source.zarr.store_path.store, "target": self.destination.store}

    def reads(self) -> Iterable[Presence]:
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
