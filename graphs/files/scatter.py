"""Tasks of a scatter of a global array file into local ones, and of a gather.

In each round a rank reads a box of chunks, or its part of one, packs a message for each other rank, and writes the
elements that it receives. After the loss of a worker, parts that it had written and recorded are neither read nor
written again.

create ─► make ──┬─► read ─┬─► write ──┬─► read ─┬─► write ─► close ─► finish     in each round a box of the array,
            (a rank) ├─► read ─┼─► write ──┼─► read ─┼─► write ─► close ─┘            read by all, written by all
                     └─► read ─┴─► write ──┴─► …     ┴─► …
                              exchange: between workers in the schedule's steps, see `steps`

A round waits for the one two before it, so at most two rounds are in memory. A rank writes in the order of rounds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
import zarr
from dask.task_spec import Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.exchange.messages import Came, Messages
from oocarrays.graphs.run.builder import Builder, Outbox, RoundsAhead, new_suffix
from oocarrays.graphs.run.journaled import JournaledRun
from oocarrays.graphs.run.remains import Remains
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import Work
from oocarrays.mapping.layouts.local import places_in
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document
from oocarrays.plan.files.partitions import FileBlock, message_size, views
from oocarrays.plan.files.scatter import UNDER_WAY, FilesPlan
from oocarrays.plan.sections.batches import BUFFER_BYTES
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files import local_files
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_place, finish_target
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import LocalTarget, TargetSpec, written_file
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section


def build_graph(run: FilesRun, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """Return the graph of a run, and the key of its last task; its result is the name of the target."""
    builder = _FilesBuilder(run, addresses)
    last = builder.build()
    return builder.graph, last


class _FilesBuilder(Builder):
    """Builder of the tasks of one run."""

    def __init__(self, run: FilesRun, addresses: Sequence[str]) -> None:
        super().__init__(new_suffix(), Work.task, run)
        self.plan = run.plan
        if addresses:
            self.share("run")
        created = self.add("create", rank=0)
        self._shared = TaskRef(created) if addresses else run
        self._ranks = range(run.plan.ranks)
        self._made = [self.add("make", rank, after=[created]) for rank in self._ranks]

    def build(self) -> Key:
        """Add every task; return the key of the last one."""
        exchange = ExchangeTasks(self.plan.schedule, self.add) if self.plan.processes else Taking()
        written = RoundsAhead(UNDER_WAY, self._made)
        for number in range(len(self.plan.rounds)):
            read = [self.add("read", number, rank, after=written.before) for rank in self._ranks]
            sends = self._sends(number)
            inputs = exchange.inputs(number, held=read, wants=lambda a, b, sends=sends: b in sends[a])  # type: ignore[misc]
            written.add(
                [
                    self.add("write", number, rank, buffers=inputs[rank], after=[written.last[rank]])
                    for rank in self._ranks
                ]
            )  # fmt: skip
        closed = [self.add("close", rank, after=[written.last[rank]]) for rank in self._ranks]
        return self.add("finish", after=closed, rank=0)

    def _sends(self, number: int) -> list[set[int]]:
        """Return the receivers of each rank in a round."""
        has = [self.plan.receivers(domain) for domain in self.plan.domains(number)]
        if self.plan.way == "scatter":
            return has
        return [{domain for domain, ranks in enumerate(has) if rank in ranks} for rank in self._ranks]


class FilesRun(Messages, JournaledRun):
    """One run of a scatter or a gather, shared by its tasks."""

    plan: FilesPlan
    destination: TargetSpec

    @property
    def merges(self) -> bool:  # type: ignore[override]
        """Return whether workers may write to forks of its target: only for a single array."""
        return self.plan.way == "gather"

    def __init__(
        self,
        plan: FilesPlan,
        source: ArrayFile | None,
        local: LocalFiles,
        destination: TargetSpec,
        content: Document,
    ) -> None:
        self.plan = plan
        self.content = content
        self._source = Sealed(source)
        self.local = local
        self.destination = destination
        super().__init__(destination.store, plan.processes, None)

    def go_on(self, remains: Remains) -> None:
        """Resume an interrupted run."""
        assert remains.id, "a run that stopped has an id"
        self.id, self.remains = remains.id, remains

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        """Return the global array of a scatter, or the files of a gather unless they are on workers' own disks."""
        if self.plan.way == "scatter":
            return [self._read_whole().zarr]
        ranks = () if self.local.descriptor.folders else range(self.plan.ranks)
        return [self._file(rank).zarr for rank in ranks]

    def _here(self) -> None:
        super()._here()
        self._opening = threading.RLock()
        self._files: dict[Any, ArrayFile] = {}

    @property
    def made_place(self) -> StoreLike | None:
        """Return the global file, or that of the first rank; None on workers' own disks."""
        if self.plan.way == "gather":
            return self.destination.store
        return None if self.local.descriptor.folders else self.local.place(0)

    @property
    def written_places(self) -> list[StoreLike]:
        """Return the target, and for a scatter the files of all ranks; only local ones are checked."""
        return [self.destination.store, *(self.destination.places if self.plan.way == "scatter" else ())]

    @property
    def stores(self) -> dict[str, Any]:
        read = self.destination.store if self.plan.way == "gather" else self._read_whole().zarr.store_path
        written = self.local.store
        source, target = (read, written) if self.plan.way == "scatter" else (written, read)
        return {name: getattr(place, "store", place) for name, place in (("source", source), ("target", target))}

    def reads(self) -> Iterable[Presence]:
        """Return the global file of a scatter; for a gather, the files open in this process."""
        if self.plan.way == "scatter":
            return self._read_whole().presences
        with self._opening:
            return [file.presence for what, file in self._files.items() if what != "whole"]

    @property
    def left(self) -> float:
        """Share of the ranks' writes that remains, over all rounds."""
        done = sum(len(part) > 1 for part in self.done)
        return 1 - done / max(len(self.plan.rounds) * self.plan.ranks, 1)

    # ------------------------------------------------------------------ files, opened once in each process

    def _read_whole(self) -> ArrayFile:
        source = self._source.value
        assert source is not None, "a gather writes the whole array"
        return source

    def _opened(self, what: Any, opens: Callable[[], ArrayFile]) -> ArrayFile:
        with self._opening:
            if what not in self._files:
                self._files[what] = opens()
            return self._files[what]

    def _whole(self) -> ArrayFile:
        """Return the global file, opened for reading in a scatter and for writing in a gather."""
        if self.plan.way == "scatter":
            return self._opened("whole", self._read_whole)
        store = self.destination.store
        return self._opened("whole", lambda: written_file(store, mode="r+"))

    def _file(self, rank: int) -> ArrayFile:
        written = self.plan.way == "scatter"
        return self._opened(rank, lambda: self.local.file(rank, written=written, unfinished=written))

    # ------------------------------------------------------------------ beginning and end

    def _check_target(self) -> None:
        check = check_place if self.plan.way == "gather" else local_files.check_group_place
        check(self.destination.store, overwrite=self.destination.overwrite)

    def _make_targets(self) -> None:
        self.destination.create(self.id, durable=self.durable)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._files.clear()

    def is_done(self, part: tuple[int, ...]) -> bool:
        """Return whether a part was done before a worker was lost, unless its file was on that worker's disk."""
        return (len(part) == 1 or not self.local.descriptor.folders) and super().is_done(part)

    def _make(self, rank: int) -> None:
        """Make the file of a rank, unless this run has made it."""
        if not isinstance(self.destination, LocalTarget):
            return
        there = self.journal.is_there()
        made = self.is_done((rank,)) or (there and self.journal.has((rank,)))
        if not (made and is_finished(self.local.place(rank))):
            self.destination.make(rank, self.id, durable=self.durable)
        if not made or (there and self.remains.anew):
            self.journal.record((rank,))

    def _changed_places(self) -> Sequence[StoreLike]:
        return self.destination.places

    def _close(self, rank: int) -> None:
        """Remove the unfinished mark of a rank's file, which is complete."""
        self.syncer.finish()
        if self.plan.way == "scatter":
            finish_target(self._file(rank), durable=self.durable)

    def _finish(self) -> str:
        name: str = self._end(self.local.name if self.plan.way == "scatter" else self._whole().name)
        return name

    def _finishing(self) -> Callable[[], None]:
        return self.destination.finishing(self._whole(), durable=self.durable)

    # ------------------------------------------------------------------ one round

    def _read(self, number: int, rank: int) -> Outbox:
        """Read a rank's share of a round, packed for each receiver."""
        return (self._read_domain if self.plan.way == "scatter" else self._read_part)(number, rank)

    def _write(self, number: int, rank: int, *inputs: Outbox | Came | None) -> None:
        """Write a rank's share of a round from the messages of all ranks."""
        if self.is_done((number, rank)):
            return
        messages = self._messages(number, rank, inputs)
        receipts = Receipts(self.remains.kept.get(self._place_name(rank), {}))
        (self._write_part if self.plan.way == "scatter" else self._write_domain)(number, rank, messages, receipts)
        self.record((number, rank), {self._place_name(rank): receipts.kept})

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        return self.local.place(int(name)) if name else self.destination.store

    def _place_name(self, rank: int) -> str:
        """Return the name of the place at which a rank writes, as in the journal."""
        return str(rank) if self.plan.way == "scatter" else ""

    def _wanted(self, number: int, box: Section, rank: int) -> FileBlock | None:
        """Return the block of a box that a rank still has to receive in a scatter; None if there is none."""
        block = self.plan.block(rank, box)
        return None if block is None or self.is_done((number, rank)) else block

    def _check_all(self, number: int, rank: int, came: int, wanted: int) -> None:
        """Raise unless a rank has received all elements of a round."""
        if came != wanted:
            raise RunError(f"rank {rank} got {came} of {wanted} elements in round {number}")

    def _messages(self, number: int, rank: int, inputs: Sequence[Any]) -> dict[int, np.ndarray]:
        return {source: data.view(self._dtype) for source, data in self.parts_for((number,), rank, inputs).items()}

    @property
    def _dtype(self) -> np.dtype:
        return self._whole().dtype

    def _read_domain(self, number: int, rank: int) -> Outbox:
        """Read each chunk of a domain once, and pack the share of each rank."""
        whole, boxes = self._whole(), self.plan.domains(number)[rank]
        reader, grid = ChunkReader(whole, self.meter), whole.stored.grid
        outbox, packed = self._packed(
            [[self._wanted(number, box, to) for box in boxes] for to in range(self.plan.ranks)]
        )
        buffer = np.empty(grid.chunks, whole.dtype)
        for box, there in zip(boxes, zip(*packed, strict=True), strict=True):
            wanted = [each for each in there if each]
            every = len(wanted) == len(self.plan.receivers([box]))
            indices = (index for index in grid.indices(box) if every or _has_any(wanted, grid.section(index)))
            for index, chunk in reader.whole(indices, repeat(buffer)):
                for block, view in wanted:
                    places = places_in(block.axes, grid.section(index))
                    if places:
                        view[places[0]] = whole.fill_value if chunk is None else chunk[places[1]]
        return outbox

    def _packed(self, blocks: Sequence[Sequence[FileBlock | None]]) -> tuple[Outbox, list[list[Any]]]:
        """Allocate a message for each rank; return the messages, and the view of each block in them."""
        messages = [self._message(message_size(each)) for each in blocks]
        placed = [
            [None if block is None else (block, view) for block, view in zip(each, views(message, each), strict=True)]
            for each, message in zip(blocks, messages, strict=True)
        ]
        return Outbox([None if m is None else m.view(np.uint8) for m in messages], None), placed

    def _message(self, size: int) -> np.ndarray | None:
        return self.rooms.take(size * self._dtype.itemsize).view(self._dtype) if size else None

    def _read_part(self, number: int, rank: int) -> Outbox:
        """Read a rank's share of a round, split by the domains that it overlaps."""
        outbox, packed = self._packed(
            [
                [None if done else self.plan.block(rank, box) for box in boxes]
                for boxes, done in self._domains(number, rank)
            ]
        )
        wanted = [each for each in chain.from_iterable(packed) if each]
        if not wanted:
            return outbox
        mine = wanted[0][0].place.hull(*(block.place for block, _ in wanted))
        data = read_section(
            self._file(rank), mine.axes, meter=self.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
            threads=1, costs=self.plan.costs,
        )  # fmt: skip
        for block, view in wanted:
            view[...] = data[block.place.relative_to(mine.lower).slices]
        return outbox

    def _domains(self, number: int, rank: int) -> Iterator[tuple[Sequence[Section], bool]]:
        """Yield the domains of a gather round, and whether a rank has nothing to send to each."""
        for writer, boxes in enumerate(self.plan.domains(number)):
            yield boxes, rank not in self.plan.receivers(boxes) or self.is_done((number, writer))

    def _write_part(self, number: int, rank: int, messages: dict[int, np.ndarray], receipts: Receipts) -> None:
        """Write a rank's share of a round to its file."""
        mine = self.plan.block(rank, self.plan.rounds[number])
        if mine is None:
            return
        data, domains = np.empty(mine.place.shape, self._dtype), self.plan.domains(number)
        self._check_all(number, rank, sum(message.size for message in messages.values()), data.size)
        for source, message in messages.items():
            blocks = [self.plan.block(rank, box) for box in domains[source]]
            for block, view in zip(blocks, views(message, blocks), strict=True):
                if block is not None:
                    data[block.place.relative_to(mine.place.lower).slices] = view
        write_section(self._file(rank), mine.place.axes, data, meter=self.meter, receipts=receipts)

    def _write_domain(self, number: int, rank: int, messages: dict[int, np.ndarray], receipts: Receipts) -> None:
        """Write each chunk of a domain once, from the shares of all ranks."""
        boxes = self.plan.domains(number)[rank]
        wanted = sum(box.size for box in boxes)
        self._check_all(number, rank, sum(message.size for message in messages.values()), wanted)
        came = {source: [self.plan.block(source, box) for box in boxes] for source in messages}
        held = [views(message, came[source]) for source, message in messages.items()]
        writer = ChunkWriter(self._whole(), self.meter, fresh=self.made)
        for number_of_box, box in enumerate(boxes):
            there = [
                (blocks[number_of_box], each[number_of_box]) for blocks, each in zip(came.values(), held, strict=True)
            ]
            blocks = [(block, view) for block, view in there if block is not None]
            writer.write_all(self._chunks(box, blocks), receipts)

    def _chunks(self, box: Section, blocks: Sequence[tuple[FileBlock, Any]]) -> Iterator[tuple[Any, np.ndarray]]:
        """Yield the whole chunks of a box."""
        whole = self._whole()
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
