"""Shift of local array files as tasks.

    create ─┬─► read ─╳─► write ─► finish        each rank reads its borders once and writes its halo
            ├─► read ─╳─► write ─┘
            ╰─► read ─╳─► write ─┘
                      exchange: between workers in the schedule's steps, see `steps`

Only halos are written: an interrupted run leaves some halos old, and can be run again. Thakur 1995, section 5.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from dask.task_spec import Task

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.exchange.messages import Messages
from oocarrays.graphs.run.builder import Builder, Outbox, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.graphs.run.work import NotedRun, Work
from oocarrays.mapping.layouts.local import places_in
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import lengths
from oocarrays.plan.files.shift import ShiftPlan
from oocarrays.plan.layouts.halos import Loan, Place
from oocarrays.plan.sections.batches import BUFFER_BYTES
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.overlay import write_pieces
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section


class ShiftRun(Messages, NotedRun):
    """One shift, shared by its tasks."""

    plan: ShiftPlan

    def __init__(self, plan: ShiftPlan, files: LocalFiles, note: Mapping[str, Any]) -> None:
        self.plan = plan
        self.files = files
        super().__init__(files.store, plan.processes, note)

    @property
    def leaves(self) -> str:
        return f"some halos of {self.files.name} may be old: run it again, or resume it"

    def _check_visible(self) -> None:
        if self.files.descriptor.folders:
            return  # only its worker can open a rank's file
        try:
            self.files.open(0)
        except DescriptorError as error:
            raise RunError(f"{error} on this worker: the files must be shared") from error

    def _create(self, *probes: tuple[int, str, str]) -> ShiftRun:
        """Start the run; a shift makes no targets."""
        self.check_placement(probes)
        if self.processes is None:
            with self._idle:
                self.failure, self.meter = None, Meter()
        self._say_begun()
        return self

    def _finish(self) -> str:
        self._say_done()
        return self.files.name

    # ------------------------------------------------------------------ reading

    def _read(self, rank: int) -> Outbox:
        """Read a rank's borders, each once, and pack them for every rank that sees them."""
        dtype = self.files.open(rank).dtype
        packed: list[tuple[Loan, np.ndarray]] = []
        messages: list[np.ndarray | None] = [None] * self.plan.ranks
        for taker in self.plan.takers[rank]:
            message = self.rooms.take(self.plan.message_size(rank, taker) * dtype.itemsize).view(dtype)
            packed += _views(self.plan.halos.loans(rank, taker), message)
            messages[taker] = message.view(np.uint8)
        for box, data in self._borders(rank):
            own = box.relative_to(self.plan.halos.depth)
            for loan, view in packed:
                places = places_in(loan.taken, own)
                if places:
                    view[places[0]] = data[places[1]]
        return Outbox(messages, None)

    def _borders(self, rank: int) -> Iterator[tuple[Section, Any]]:
        """Yield boxes that cover a rank's borders, with their data; for coded files, each box is a chunk."""
        file, boxes = self.files.file(rank), self.plan.borders(rank)
        if not file.stored.coded:
            for box in boxes:
                yield box, read_section(
                    file, box.axes, meter=self.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS, threads=1,
                    costs=self.plan.costs,
                )  # fmt: skip
            return
        grid = file.stored.grid
        indices = list(self.plan.chunks(rank))
        for index, chunk in ChunkReader(file, self.meter).whole(indices, repeat(np.empty(grid.chunks, file.dtype))):
            section = grid.section(index)
            yield section, np.broadcast_to(file.fill_value, section.shape) if chunk is None else chunk

    # ------------------------------------------------------------------ writing

    def _write(self, rank: int, *inputs: Any) -> None:
        """Write a rank's halo from the messages of all ranks."""
        boxes = self.plan.halo(rank)
        if not boxes:
            return
        file = self.files.file(rank, written=True)
        came = {source: data.view(file.dtype) for source, data in self.parts_for((), rank, inputs).items()}
        stands = [*self._standing(rank, came)]
        pieces = [(there.axes, self._filled(rank, box, stands, file.dtype)) for box, there in boxes]
        if self.plan.way(rank) == "direct":
            for axes, values in pieces:
                write_section(file, axes, values, meter=self.meter, method="direct")
        else:
            write_pieces(file, pieces, self.plan.coverage(rank), self.plan.inner(rank), meter=self.meter)

    def _standing(self, rank: int, messages: dict[int, np.ndarray]) -> Iterator[tuple[Section, np.ndarray]]:
        """Yield the sections of a rank's window, with the data that other ranks sent for them."""
        for source, message in messages.items():
            for loan, view in _views(self.plan.halos.loans(source, rank), message):
                for there, among in loan.strips:
                    place = _section(there, self.plan.halos.shape(rank))
                    yield place, np.broadcast_to(view[among], place.shape)

    def _filled(
        self, rank: int, box: Section, stands: Sequence[tuple[Section, np.ndarray]], dtype: np.dtype
    ) -> np.ndarray:
        values = np.empty(box.shape, dtype)
        for there, constant in self.plan.halos.filled(rank):
            common = _section(there, self.plan.halos.shape(rank)).intersection(box)
            if common is not None:
                values[common.relative_to(box.lower).slices] = constant
        for place, data in stands:
            common = place.intersection(box)
            if common is not None:
                values[common.relative_to(box.lower).slices] = data[common.relative_to(place.lower).slices]
        return values


def _views(loans: Sequence[Loan], message: np.ndarray) -> Iterator[tuple[Loan, np.ndarray]]:
    """Yield each loan with its elements in a message that concatenates them."""
    start = 0
    for loan in loans:
        yield loan, message[start : start + loan.size].reshape(lengths(loan.taken))
        start += loan.size


def _section(there: Place, shape: tuple[int, ...]) -> Section:
    """Return a place in a window of this shape as a section."""
    parts = (*there[:-1], *[slice(None)] * (len(shape) - len(there) + 1))
    along = [part.indices(n) for part, n in zip(parts, shape, strict=True)]
    return Section(tuple(start for start, _, _ in along), tuple(stop for _, stop, _ in along))


def build_graph(run: ShiftRun, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """Return the graph of a shift, and the key of its last task; its result is the name of the files."""
    builder, plan, ranks = Builder(new_suffix(), Work.task, run), run.plan, range(run.plan.ranks)
    created = builder.create(addresses)
    read = [builder.add("read", rank, after=[created]) for rank in ranks]
    exchange = ExchangeTasks(plan.schedule, builder.add) if plan.processes else Taking()
    inputs = exchange.inputs(0, held=read, wants=lambda a, b: b in plan.takers[a])
    written = [builder.add("write", rank, buffers=inputs[rank], after=[read[rank]]) for rank in ranks]
    return builder.graph, builder.add("finish", after=written, rank=0)
