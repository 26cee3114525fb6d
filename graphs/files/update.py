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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import JournalError, RunError
from oocarrays.graphs.files.scatter import Files, place_names
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.builder import Builder
from oocarrays.graphs.run.journaled import keep_source_of
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.looking import Part, Trust, check_sources
from oocarrays.graphs.run.program import Program, Remaining
from oocarrays.graphs.run.recovery import Left, journal_of
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
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
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_pieces


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

    def resumed(self, program: Files, content: Document, plan: Callable[[int], FilesPlan]) -> Run[Files]:
        """Return the rest of the run; ``plan`` makes a plan from the number of chunks in a round, as in the journal."""
        notices = tuple(check_sources(program.read_from, self.content, self.target, self.trust))
        before, local = plan(self.content["room"]), program.local
        told = "files on workers' own disks are written again"
        names = {name: local.place(int(name)) if name else self.target for name in place_names(program.plan)}
        own_disks = bool(local.descriptor.folders) and program.scatters
        files = {} if own_disks else dict(self._files(names))
        same = program.plan.room == before.room
        left = replace(self, notices=notices)
        remains = left.reused(FilesParts(before), FilesParts(program.plan), names, files, same=same)
        return Run(program, content | self.begun_with, remains.told(told) if own_disks else remains)

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

    def check(self, *sources: Any) -> None:
        """Raise if the target has changed since the update was planned."""
        if self.open().stored.grid.shape not in (self.before, self.after):
            raise RunError(f"{self.store} has changed since the update was planned: plan the update again")

    def create(self, run: str, *, durable: bool) -> None:
        """Mark the target and resize it: at every moment it is the old array, or a marked one."""
        array = zarr.open_array(document_store(self.store, durable=durable), mode="r+")  # type: ignore[arg-type]
        array.attrs.put({**array.attrs.asdict(), MARK: run})
        if tuple(array.shape) != self.after:
            array.resize(self.after)

    def resume(self, run: str, *, durable: bool) -> None:
        """Resize the target again: the source may have grown since."""
        super(Growing, self).resume(run, durable=durable)  # a class with slots is made twice
        self.create(run, durable=durable)


@dataclass(frozen=True, kw_only=True)
class Update(Program):
    """Update of an array to match its source; a recorded part is ``(number,)``."""

    phases: ClassVar[Mapping[str, str]] = {"part": "write", "read": "read", "write": "write"}
    threads_stay: ClassVar[bool] = True
    discards: ClassVar[bool] = False
    plan: UpdatePlan
    source: ArrayFile
    """Source of the array."""
    target: Growing
    """Array to change."""

    @property
    def sources(self) -> Sequence[ArrayFile]:
        return (self.source,)

    @property
    def targets(self) -> Sequence[TargetSpec]:
        return (self.target,)

    def remaining(self, done: Collection[Part]) -> Remaining:
        parts = len(list(self.plan.parts()))
        return Remaining.of(1 - len(done) / parts if parts else 0.0, self.plan.traffic)

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        if not self.plan.changed:
            return builder.add(nothing, rank=0)
        created = builder.create(addresses)
        ends: list[Key] = []
        for rank in range(self.plan.ranks):
            last: Key | None = None
            for number in self.plan.mine(rank):
                if (number,) not in done:
                    last = builder.add(part, number, rank, buffers=(last,), after=[created] if last is None else [])
            ends += [] if last is None else [last]
        return builder.add(finish, after=ends or [created], rank=0)


def nothing(live: Live[Update]) -> str:
    """Return the name of the target, which is up to date; remove its mark if it has one."""
    file: ArrayFile = live.program.target.open()
    if MARK in file.zarr.attrs:
        finish_target(file, durable=live.state.durable)
    return file.name


def part(live: Live[Update], number: int, rank: int, former: None = None) -> None:
    """Read changed elements, and replace the chunks that contain them."""
    if live.is_done((number,)):
        return
    live.journal.join()
    plan, target = live.program.plan, live.target()
    with live.meter.phase("read"):
        data = [(piece.axes, _read(live, piece)) for piece in plan.pieces(number)]
    with live.meter.phase("write"):
        write_pieces(target, data, plan.units(number), plan.inner(number), at_once=plan.at_once, meter=live.meter)
    keys = [target.chunk_key(index) for index in plan.units(number)]
    live.record((number,), {"": Store(live.store).receipts(keys)})


def _read(live: Live[Update], piece: Section) -> np.ndarray:
    if live.failure:
        raise live.failure
    plan = live.program.plan
    return read_section(
        live.program.source, piece.axes, meter=live.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
        threads=plan.threads, costs=plan.costs,
    )  # fmt: skip


def finish(live: Live[Update]) -> str:
    """End the run; record the source last: if the record is lost, changed elements are written once more."""
    keep = partial(keep_source_of, live.journal, live.program.read_from, durable=live.state.durable)
    name: str = recording.end(live, live.target().name, then=keep)
    return name
