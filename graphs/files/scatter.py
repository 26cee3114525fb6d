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
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Outbox, Part, Program, Remaining, RoundsAhead
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
from oocarrays.storage.files.creating import TargetSpec, finish_target
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.journal.texts import Kept, Receipts
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section

Packed = Sequence[Sequence[tuple[FileBlock, np.ndarray] | None]]
"""Blocks of messages with their elements, by the other rank and the box of a domain; None for a block that is empty."""


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
        return isinstance(self.target, LocalTarget)

    @property
    def merges(self) -> bool:
        return not self.scatters

    @property
    def sources(self) -> Sequence[ArrayFile | RankFiles]:
        return (self.source,)

    @property
    def local(self) -> LocalFiles:
        if isinstance(self.target, LocalTarget):
            return self.target.files
        assert isinstance(self.source, RankFiles), "a gather reads local files"
        return self.source.files

    @property
    def made_place(self) -> StoreLike | None:
        """Return the global file, or that of the first rank; None on workers' own disks."""
        if not self.scatters:
            return self.target.store
        return None if self.local.descriptor.folders else self.local.place(0)

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        return self.local.place(int(name)) if name else self.target.store

    def place_name(self, rank: int) -> str:
        return str(rank) if self.scatters else ""

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
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
            sizes = plan.sizes(number)
            inputs = exchange.inputs(number, held=held, wants=lambda a, b, sizes=sizes: bool(sizes[a, b]))  # type: ignore[misc]
            last = written.last
            written.add(
                [builder.add(write, number, rank, buffers=inputs[rank], after=[last[rank]]) for rank in ranks]
            )  # fmt: skip
        closed = [builder.add(close, rank, after=[written.last[rank]]) for rank in ranks]
        return builder.add(finish, after=closed, rank=0)


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
    return recording.end(live, program.local.name if program.scatters else live.target().name)


def _whole(live: Live[Files]) -> ArrayFile:
    """Return the global file, opened for reading in a scatter and for writing in a gather."""
    source = live.program.source
    return source if isinstance(source, ArrayFile) else live.target()


def _file(live: Live[Files], rank: int) -> ArrayFile:
    """Return the file of a rank, opened for writing in a scatter and for reading in a gather."""
    source = live.program.source
    files: RankFiles = source if isinstance(source, RankFiles) else live.target()
    return files.file(rank)


def _is_done(live: Live[Files], number: int, rank: int) -> bool:
    """Return whether a rank's share was written before a worker was lost, unless its file was on that worker's disk."""
    return not live.program.local.descriptor.folders and live.is_done((number, rank))


def _blocks(live: Live[Files], number: int, rank: int, *, domain: bool) -> list[list[FileBlock | None]]:
    """Return the blocks of a round between a rank and each rank: those of its domain, or those of its file."""
    plan = live.program.plan
    domains = plan.domains(number)
    if domain:
        return [[plan.block(other, box) for box in domains[rank]] for other in range(plan.ranks)]
    return [[plan.block(rank, box) for box in boxes] for boxes in domains]


def read(live: Live[Files], number: int, rank: int) -> Outbox:
    """Read a rank's share of a round, packed for each receiver."""
    scatters, dtype = live.program.scatters, _whole(live).dtype
    blocks = _blocks(live, number, rank, domain=scatters)
    left = [not _is_done(live, number, to) for to in range(len(blocks))]
    sizes = [message_size(each) * some for each, some in zip(blocks, left, strict=True)]
    messages = [live.rooms.take(size * dtype.itemsize) if size else None for size in sizes]
    packed = [
        views(None if message is None else message.view(dtype), each)
        for each, message in zip(blocks, messages, strict=True)
    ]
    if scatters:
        _read_domain(live, number, rank, packed, every=all(left))
    else:
        _read_part(live, rank, packed)
    return Outbox(messages, None)


def write(live: Live[Files], number: int, rank: int, *inputs: Outbox | Came | None) -> None:
    if _is_done(live, number, rank):
        return
    program, dtype = live.program, _whole(live).dtype
    name = program.place_name(rank)
    messages = {source: data.view(dtype) for source, data in parts_for(live, (number,), rank, inputs).items()}
    blocks = _blocks(live, number, rank, domain=not program.scatters)
    came, wanted = sum(message.size for message in messages.values()), sum(map(message_size, blocks))
    if came != wanted:
        raise RunError(f"rank {rank} got {came} of {wanted} elements in round {number}")
    receipts = Receipts(live.state.recovered.kept.get(name, {}))
    placed = [views(messages.get(source), each) for source, each in enumerate(blocks)]
    if wanted:
        (_write_part if program.scatters else _write_domain)(live, number, rank, placed, receipts)
    live.record((number, rank), {name: receipts.kept})


def _read_domain(live: Live[Files], number: int, rank: int, packed: Packed, *, every: bool) -> None:
    """Read each chunk of a domain once, into the messages of the ranks that need it."""
    whole = _whole(live)
    reader, grid = ChunkReader(whole, live.meter), whole.stored.grid
    buffer = np.empty(grid.chunks, whole.dtype)
    for box, there in zip(live.program.plan.domains(number)[rank], zip(*packed, strict=True), strict=True):
        wanted = [each for each in there if each]
        indices = (index for index in grid.indices(box) if every or _has_any(wanted, grid.section(index)))
        for index, chunk in reader.whole(indices, repeat(buffer)):
            for block, view in wanted:
                places = places_in(block.axes, grid.section(index))
                if places:
                    view[places[0]] = whole.fill_value if chunk is None else chunk[places[1]]


def _read_part(live: Live[Files], rank: int, packed: Packed) -> None:
    """Read a rank's share of a round, into the messages of the domains that it overlaps."""
    wanted = [each for each in chain.from_iterable(packed) if each]
    if not wanted:
        return
    mine = wanted[0][0].place.hull(*(block.place for block, _ in wanted))
    data = read_section(
        _file(live, rank), mine.axes, meter=live.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
        threads=1, costs=live.program.plan.costs,
    )  # fmt: skip
    for block, view in wanted:
        view[...] = data[block.place.relative_to(mine.lower).slices]


def _write_part(live: Live[Files], number: int, rank: int, placed: Packed, receipts: Receipts) -> None:
    plan = live.program.plan
    mine = plan.block(rank, plan.rounds[number])
    assert mine is not None, "a rank without a share receives nothing"
    data = np.empty(mine.place.shape, _whole(live).dtype)
    for each in chain.from_iterable(placed):
        if each:
            data[each[0].place.relative_to(mine.place.lower).slices] = each[1]
    write_section(_file(live, rank), mine.place.axes, data, meter=live.meter, receipts=receipts)


def _write_domain(live: Live[Files], number: int, rank: int, placed: Packed, receipts: Receipts) -> None:
    """Write each chunk of a domain once, from the shares of all ranks."""
    whole = _whole(live)
    writer = ChunkWriter(whole, live.meter, fresh=live.state.made)
    for box, there in zip(live.program.plan.domains(number)[rank], zip(*placed, strict=True), strict=True):
        writer.write_all(_chunks(whole, box, [each for each in there if each]), receipts)


def _chunks(
    whole: ArrayFile, box: Section, blocks: Sequence[tuple[FileBlock, Any]]
) -> Iterator[tuple[Any, np.ndarray]]:
    grid = whole.stored.grid
    for index in grid.indices(box):
        chunk = np.full(grid.chunks, whole.fill_value, whole.dtype)
        for block, view in blocks:
            places = places_in(block.axes, grid.section(index))
            if places:
                chunk[places[1]] = view[places[0]]
        yield index, chunk


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
    places: dict[str, Any] = {name: program.place_of((), name) for name in map(program.place_name, range(plan.ranks))}

    def is_there(name: str) -> bool:
        """Return whether the run has made a file, and perhaps closed it."""
        closed = name and (int(name),) in left.stored and is_finished(places[name])
        return bool(closed) or unfinished_run(places[name]) == left.id

    own_disks = bool(local.descriptor.folders) and program.scatters
    there = {name: place for name, place in places.items() if not own_disks and is_there(name)}
    recovered = left.recover(plan, there, before=None if plan.room == before.room else before)
    told = "files on workers' own disks are written again" if own_disks else ""
    return Run(program, content | left.begun_with, recovered.told(told))
