"""Shift of local array files as tasks.

    create ─┬─► read ─╳─► write ─► finish        each rank reads its borders once and writes its halo
            ├─► read ─╳─► write ─┘
            ╰─► read ─╳─► write ─┘
                      exchange: between workers in the schedule's steps, see `steps`

Only halos are written: an interrupted run leaves some halos old, and can be run again. Thakur 1995, section 5.4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, ClassVar

import numpy as np

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.exchange.messages import Exchange, parts_for, steps_of
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, InPlace, Outbox, Part, Program
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.mapping.layouts.local import places_in
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import lengths
from oocarrays.plan.files.shift import ShiftPlan
from oocarrays.plan.layouts.halos import HaloPlan, Loan, Place
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.plan.sections.sieve import BUFFER_BYTES
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_pieces, write_section


@dataclass(frozen=True, kw_only=True)
class Shift(Program):
    exchange: ClassVar[Exchange] = Exchange()
    plan: ShiftPlan
    files: LocalFiles

    @property
    def destination(self) -> InPlace:
        return InPlace(self.files.store)

    @property
    def stores(self) -> dict[str, Any]:
        return {"target": self.files.store}

    @property
    def leaves(self) -> str:
        return f"some halos of {self.files.name} may be old: run it again, or resume it"

    def check_visible(self) -> None:
        """Raise if this worker does not see the files, unless only its worker can open a rank's file."""
        if self.files.descriptor.folders:
            return
        try:
            self.files.open(0)
        except DescriptorError as error:
            raise RunError(f"{error} on this worker: the files must be shared") from error

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        plan, ranks = self.plan, range(self.plan.ranks)
        created = builder.create(addresses)
        filled = [builder.add(read, rank, after=[created]) for rank in ranks]
        exchange = ExchangeTasks(plan.schedule, steps_of(builder)) if plan.processes else Taking()
        inputs = exchange.inputs(0, held=filled, wants=lambda a, b: bool(plan.sizes[a, b]))
        written = [builder.add(write, rank, buffers=inputs[rank], after=[filled[rank]]) for rank in ranks]
        return builder.add(finish, after=written, rank=0)


def finish(live: Live[Shift]) -> str:
    recording.end(live)
    return live.program.files.name


def read(live: Live[Shift], rank: int) -> Outbox:
    """Read a rank's borders, each once, and pack them for every rank that sees them."""
    plan, dtype = live.program.plan, live.program.files.open(rank).dtype
    packed: list[tuple[Loan, np.ndarray]] = []
    messages: list[np.ndarray | None] = [None] * plan.ranks
    for taker in np.flatnonzero(plan.sizes[rank]).tolist():
        message = live.rooms.take(int(plan.sizes[rank, taker]) * dtype.itemsize).view(dtype)
        packed += _views(plan.halos.loans(rank, taker), message)
        messages[taker] = message.view(np.uint8)
    for box, data in _borders(live, rank):
        own = box.relative_to(plan.halos.depth)
        for loan, view in packed:
            places = places_in(loan.taken, own)
            if places:
                view[places[0]] = data[places[1]]
    return Outbox(messages, None)


def _borders(live: Live[Shift], rank: int) -> Iterator[tuple[Section, Any]]:
    """Yield boxes that cover a rank's borders, with their data; for coded files, each box is a chunk."""
    file, plan = live.program.files.file(rank), live.program.plan
    if not file.stored.coded:
        for box in plan.borders(rank):
            yield box, read_section(
                file, box.axes, meter=live.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS, threads=1,
                costs=plan.costs,
            )  # fmt: skip
        return
    grid = file.stored.grid
    indices = list(plan.chunks(rank))
    for index, chunk in ChunkReader(file, live.meter).whole(indices, repeat(np.empty(grid.chunks, file.dtype))):
        section = grid.section(index)
        yield section, np.broadcast_to(file.fill_value, section.shape) if chunk is None else chunk


def write(live: Live[Shift], rank: int, *inputs: Any) -> None:
    plan = live.program.plan
    if not (boxes := plan.halo(rank)):
        return
    file = live.program.files.file(rank, written=True)
    came = {source: data.view(file.dtype) for source, data in parts_for(live, (), rank, inputs).items()}
    stands = [*_standing(plan.halos, rank, came)]
    pieces = [(there.axes, _filled(box, stands, file.dtype)) for box, there in boxes]
    if plan.way(rank) == "direct":
        for axes, values in pieces:
            write_section(file, axes, values, meter=live.meter, method="direct")
    else:
        write_pieces(file, pieces, plan.coverage(rank), meter=live.meter)


def _standing(halos: HaloPlan, rank: int, messages: dict[int, np.ndarray]) -> Iterator[tuple[Section, np.ndarray]]:
    """Yield the sections of a rank's window with their data: constants, and what other ranks sent."""
    shape = halos.shape(rank)
    for there, constant in halos.filled(rank):
        place = _section(there, shape)
        yield place, np.broadcast_to(constant, place.shape)
    for source, message in messages.items():
        for loan, view in _views(halos.loans(source, rank), message):
            for there, among in loan.strips:
                place = _section(there, shape)
                yield place, np.broadcast_to(view[among], place.shape)


def _filled(box: Section, stands: Sequence[tuple[Section, np.ndarray]], dtype: np.dtype) -> np.ndarray:
    values = np.empty(box.shape, dtype)
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
    parts = (*there[:-1], *[slice(None)] * (len(shape) - len(there) + 1))
    along = [part.indices(n) for part, n in zip(parts, shape, strict=True)]
    return Section(tuple(start for start, _, _ in along), tuple(stop for _, stop, _ in along))
