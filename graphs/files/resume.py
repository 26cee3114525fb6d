"""Going on with a scatter or gather that stopped: its rounds are cut again as they were, or otherwise.

begin     which way, what is read, chunks of a round; how local array files are made     ─► journal
resume    journal ─► the same rounds, less what ranks have written of them; or others, where there is less memory, less
                     the chunks that have been stored
          of files on workers' own disks nothing is known: they are written again
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import JournalError
from oocarrays.graphs.files.scatter import FilesRun, place_names
from oocarrays.graphs.run.left import Left
from oocarrays.graphs.run.looking import CHUNKS_READ, Part, Trust, check_sources
from oocarrays.graphs.run.remains import journal_of
from oocarrays.plan.documents import Document
from oocarrays.plan.files.scatter import FilesPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import written_file
from oocarrays.storage.journal.calls import CALL

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
        """Read what the journal at a target says."""
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
