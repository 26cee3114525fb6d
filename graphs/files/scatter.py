"""Tasks of a scatter of a global array file into local ones, and of a gather.

In each round a rank reads a box of chunks, or its part of one, packs a message for each other rank, and writes the
elements that it receives. After the loss of a worker, parts that it had written and recorded are neither read nor
written again.

create ─► make ──┬─► read ─┬─► write ──┬─► read ─┬─► write ─► close ─► finish     in each round a box of the array,
            (a rank) ├─► read ─┼─► write ──┼─► read ─┼─► write ─► close ─┘            read by all, written by all
                     └─► read ─┴─► write ──┴─► …     ┴─► …
                              exchange: between workers in the schedule's steps, see `steps`

A round waits for the one two before it, so at most two rounds are in memory. A rank writes in the order of rounds.

begin     direction, source, chunks of a round; settings of local array files     ─► journal
resume    journal ─► the same rounds, without the parts that ranks have written; or, with less memory,
                     other rounds, without the stored chunks
          files on workers' own disks are not checked: they are written again
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, ClassVar

import numpy as np
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.errors import RunError
from oocarrays.graphs.exchange.messages import Came, Exchange, parts_for, steps_of
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.builder import Builder, Outbox, RoundsAhead
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Part, Program, Remaining
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.mapping.layouts.local import places_in
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.files.partitions import FileBlock, message_size, views
from oocarrays.plan.files.scatter import UNDER_WAY, FilesPlan
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.plan.sections.sieve import BUFFER_BYTES
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import finish_target
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget, TargetSpec
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section


@dataclass(frozen=True, kw_only=True)
class Files(Program):
    """Scatter of a global array file, or gather into one.

    A recorded part is ``(rank,)`` for a file that was made, and ``(round, rank)`` for a written share of a round.
    """

    exchange: ClassVar[Exchange] = Exchange()
    plan: FilesPlan
    source: ArrayFile | RankFiles
    """Global file of a scatter, or the local files of a gather."""
    target: TargetSpec
    """Local files of a scatter, or the global file of a gather."""

    @property
    def scatters(self) -> bool:
        return self.plan.way == "scatter"

    @property
    def merges(self) -> bool:
        """Return whether workers may write to forks of its target: only for a single array."""
        return not self.scatters

    @property
    def sources(self) -> Sequence[ArrayFile | RankFiles]:
        return (self.source,)

    @property
    def targets(self) -> Sequence[TargetSpec]:
        return (self.target,)

    @property
    def local(self) -> LocalFiles:
        files = self.source.files if isinstance(self.source, RankFiles) else getattr(self.target, "files", None)
        assert isinstance(files, LocalFiles), "a scatter writes local files"
        return files

    @property
    def made_place(self) -> StoreLike | None:
        """Return the global file, or that of the first rank; None on workers' own disks."""
        if not self.scatters:
            return self.target.store
        return None if self.local.descriptor.folders else self.local.place(0)

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        return self.local.place(int(name)) if name else self.target.store

    def place_name(self, rank: int) -> str:
        """Return the name of the place at which a rank writes, as in the journal."""
        return str(rank) if self.scatters else ""

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return the share of the ranks' writes that remains, over all rounds."""
        share = 1 - sum(len(part) > 1 for part in done) / max(len(self.plan.rounds) * self.plan.ranks, 1)
        return Remaining.of(share, self.plan.traffic)

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        plan, ranks = self.plan, range(self.plan.ranks)
        created = builder.create(addresses, probes=False)
        made = [builder.add(make, rank, after=[created]) for rank in ranks]
        exchange = ExchangeTasks(plan.schedule, steps_of(builder)) if plan.processes else Taking()
        written = RoundsAhead(UNDER_WAY, made)
        for number in range(len(plan.rounds)):
            held = [builder.add(read, number, rank, after=written.before) for rank in ranks]
            sends = self._sends(number)
            inputs = exchange.inputs(number, held=held, wants=lambda a, b, sends=sends: b in sends[a])  # type: ignore[misc]
            last = written.last
            written.add(
                [builder.add(write, number, rank, buffers=inputs[rank], after=[last[rank]]) for rank in ranks]
            )  # fmt: skip
        closed = [builder.add(close, rank, after=[written.last[rank]]) for rank in ranks]
        return builder.add(finish, after=closed, rank=0)

    def _sends(self, number: int) -> list[set[int]]:
        """Return the receivers of each rank in a round."""
        has = [self.plan.receivers(domain) for domain in self.plan.domains(number)]
        if self.scatters:
            return has
        return [{domain for domain, ranks in enumerate(has) if rank in ranks} for rank in range(self.plan.ranks)]


# ---------------------------------------------------------------------- beginning and end


def make(live: Live[Files], rank: int) -> None:
    """Make the file of a rank, unless this run has made it."""
    live.look()
    target, part = live.program.target, (rank,)
    if not isinstance(target, LocalTarget):
        return
    there = live.journal.is_there()
    made = live.is_done(part) or (there and live.journal.has(part))
    if not (made and is_finished(target.files.place(rank))):
        target.make(rank, live.state.id, durable=live.state.durable)
    if not made or (there and live.state.recovered.anew):
        live.journal.record(part)


def close(live: Live[Files], rank: int) -> None:
    """Remove the unfinished mark of a rank's file, which is complete."""
    live.look()
    live.syncer.finish()
    if live.program.scatters:
        finish_target(_file(live, rank), durable=live.state.durable)


def finish(live: Live[Files]) -> str:
    program = live.program
    name: str = recording.end(live, program.local.name if program.scatters else live.target().name)
    return name


def _whole(live: Live[Files]) -> ArrayFile:
    """Return the global file, opened for reading in a scatter and for writing in a gather."""
    source = live.program.source
    whole: ArrayFile = source if isinstance(source, ArrayFile) else live.target()
    return whole


def _file(live: Live[Files], rank: int) -> ArrayFile:
    """Return the file of a rank, opened for writing in a scatter and for reading in a gather."""
    source = live.program.source
    files: RankFiles = source if isinstance(source, RankFiles) else live.target()
    return files.file(rank)


def _is_done(live: Live[Files], number: int, rank: int) -> bool:
    """Return whether a rank's share was written before a worker was lost, unless its file was on that worker's disk."""
    return not live.program.local.descriptor.folders and live.is_done((number, rank))


# ---------------------------------------------------------------------- one round


def read(live: Live[Files], number: int, rank: int) -> Outbox:
    """Read a rank's share of a round, packed for each receiver."""
    return (_read_domain if live.program.scatters else _read_part)(live, number, rank)


def write(live: Live[Files], number: int, rank: int, *inputs: Outbox | Came | None) -> None:
    """Write a rank's share of a round from the messages of all ranks."""
    if _is_done(live, number, rank):
        return
    name, dtype = live.program.place_name(rank), _whole(live).dtype
    messages = {source: data.view(dtype) for source, data in parts_for(live, (number,), rank, inputs).items()}
    receipts = Receipts(live.state.recovered.kept.get(name, {}))
    (_write_part if live.program.scatters else _write_domain)(live, number, rank, messages, receipts)
    live.record((number, rank), {name: receipts.kept})


def _check_all(number: int, rank: int, messages: Mapping[int, np.ndarray], wanted: int) -> None:
    """Raise unless a rank has received all elements of a round."""
    came = sum(message.size for message in messages.values())
    if came != wanted:
        raise RunError(f"rank {rank} got {came} of {wanted} elements in round {number}")


def _read_domain(live: Live[Files], number: int, rank: int) -> Outbox:
    """Read each chunk of a domain once, and pack the share of each rank."""
    whole, plan = _whole(live), live.program.plan
    boxes = plan.domains(number)[rank]
    reader, grid = ChunkReader(whole, live.meter), whole.stored.grid
    left = {to for to in range(plan.ranks) if not _is_done(live, number, to)}
    outbox, packed = _packed(
        live, [[plan.block(to, box) if to in left else None for box in boxes] for to in range(plan.ranks)]
    )
    buffer = np.empty(grid.chunks, whole.dtype)
    for box, there in zip(boxes, zip(*packed, strict=True), strict=True):
        wanted = [each for each in there if each]
        every = len(wanted) == len(plan.receivers([box]))
        indices = (index for index in grid.indices(box) if every or _has_any(wanted, grid.section(index)))
        for index, chunk in reader.whole(indices, repeat(buffer)):
            for block, view in wanted:
                places = places_in(block.axes, grid.section(index))
                if places:
                    view[places[0]] = whole.fill_value if chunk is None else chunk[places[1]]
    return outbox


def _packed(live: Live[Files], blocks: Sequence[Sequence[FileBlock | None]]) -> tuple[Outbox, list[list[Any]]]:
    """Allocate a message for each rank; return the messages, and the view of each block in them."""
    dtype = _whole(live).dtype
    sizes = map(message_size, blocks)
    messages = [live.rooms.take(size * dtype.itemsize).view(dtype) if size else None for size in sizes]
    placed = [
        [None if block is None else (block, view) for block, view in zip(each, views(message, each), strict=True)]
        for each, message in zip(blocks, messages, strict=True)
    ]
    return Outbox([None if m is None else m.view(np.uint8) for m in messages], None), placed


def _read_part(live: Live[Files], number: int, rank: int) -> Outbox:
    """Read a rank's share of a round, split by the domains that it overlaps."""
    plan = live.program.plan
    outbox, packed = _packed(
        live,
        [
            [None if done else plan.block(rank, box) for box in boxes]
            for boxes, done in _domains(live, number, rank)
        ]
    )  # fmt: skip
    wanted = [each for each in chain.from_iterable(packed) if each]
    if not wanted:
        return outbox
    mine = wanted[0][0].place.hull(*(block.place for block, _ in wanted))
    data = read_section(
        _file(live, rank), mine.axes, meter=live.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
        threads=1, costs=plan.costs,
    )  # fmt: skip
    for block, view in wanted:
        view[...] = data[block.place.relative_to(mine.lower).slices]
    return outbox


def _domains(live: Live[Files], number: int, rank: int) -> Iterator[tuple[Sequence[Section], bool]]:
    """Yield the domains of a gather round, and whether a rank has nothing to send to each."""
    plan = live.program.plan
    for writer, boxes in enumerate(plan.domains(number)):
        yield boxes, rank not in plan.receivers(boxes) or _is_done(live, number, writer)


def _write_part(live: Live[Files], number: int, rank: int, messages: dict[int, np.ndarray], receipts: Receipts) -> None:
    """Write a rank's share of a round to its file."""
    plan = live.program.plan
    mine = plan.block(rank, plan.rounds[number])
    if mine is None:
        return
    data, domains = np.empty(mine.place.shape, _whole(live).dtype), plan.domains(number)
    _check_all(number, rank, messages, data.size)
    for source, message in messages.items():
        blocks = [plan.block(rank, box) for box in domains[source]]
        for block, view in zip(blocks, views(message, blocks), strict=True):
            if block is not None:
                data[block.place.relative_to(mine.place.lower).slices] = view
    write_section(_file(live, rank), mine.place.axes, data, meter=live.meter, receipts=receipts)


def _write_domain(
    live: Live[Files], number: int, rank: int, messages: dict[int, np.ndarray], receipts: Receipts
) -> None:
    """Write each chunk of a domain once, from the shares of all ranks."""
    plan, whole = live.program.plan, _whole(live)
    boxes = plan.domains(number)[rank]
    _check_all(number, rank, messages, sum(box.size for box in boxes))
    came = {source: [plan.block(source, box) for box in boxes] for source in messages}
    held = [views(message, came[source]) for source, message in messages.items()]
    writer = ChunkWriter(whole, live.meter, fresh=live.state.made)
    for number_of_box, box in enumerate(boxes):
        there = [(blocks[number_of_box], each[number_of_box]) for blocks, each in zip(came.values(), held, strict=True)]
        blocks = [(block, view) for block, view in there if block is not None]
        writer.write_all(_chunks(whole, box, blocks), receipts)


def _chunks(
    whole: ArrayFile, box: Section, blocks: Sequence[tuple[FileBlock, Any]]
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the whole chunks of a box."""
    grid = whole.stored.grid
    for index in grid.indices(box):
        chunk = np.full(grid.chunks, whole.fill_value, whole.dtype)
        for block, view in blocks:
            places = places_in(block.axes, grid.section(index))
            if places:
                chunk[places[1]] = view[places[0]]
        yield index, chunk


def place_names(plan: FilesPlan) -> list[str]:
    """Return the names of the places at which a scatter or gather writes, as in its journal."""
    return list(map(str, range(plan.ranks))) if plan.way == "scatter" else [""]


def _has_any(wanted: Sequence[tuple[FileBlock, Any]], section: Section) -> bool:
    return any(places_in(block.axes, section) for block, _ in wanted)


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


def resumed_files(program: Files, content: Document, left: Interrupted, before: FilesPlan) -> Run[Files]:
    """Return the rest of a scatter or gather; ``before`` is its plan with the rounds of the journal."""
    plan, local, left = program.plan, program.local, left.recorded(program.read_from, files=True)
    places = {name: local.place(int(name)) if name else left.target for name in place_names(plan)}

    def is_there(name: str) -> bool:
        """Return whether the run has made a file, and perhaps closed it."""
        closed = name and (int(name),) in left.stored and is_finished(places[name])
        return bool(closed) or unfinished_run(places[name]) == left.id

    own_disks = bool(local.descriptor.folders) and program.scatters
    there = {name: place for name, place in places.items() if not own_disks and is_there(name)}
    recovered = left.recover(plan, there, before=None if plan.room == before.room else before)
    told = "files on workers' own disks are written again" if own_disks else ""
    return Run(program, content | left.begun_with, recovered.told(told))
