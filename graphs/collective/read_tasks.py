"""Tasks of a collective read: read for all ranks, send, and fill parts.

    stored chunks ─► tight section of a box ─► share of each rank ─► its place in that rank's part

While a part is being filled, each element is only ever assigned its final value: a task repeated after the loss of a
worker yields the same part. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from oocarrays.graphs.events import warn_of_missing
from oocarrays.graphs.exchange.messages import Exchange, Round
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Program
from oocarrays.mapping.section import Section, in_one_piece
from oocarrays.mapping.selection import Axes, Selection, lengths
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.collective.wanted import Place, places
from oocarrays.plan.machine import Costs
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.meter import WATCHERS, watched_for
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.windows import read_pieces

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message

Packed = tuple[Place, np.ndarray]
"""Elements, and their place in a part."""


@dataclass(slots=True)
class Read:
    """Pieces read by an aggregator in a round; Dask does not learn their size: the plan has counted it."""

    packed: dict[int, list[Packed]]
    """Share of each rank in each piece, contiguous; a view if it is contiguous in the piece.

    The aggregator's own share is in its part already.
    """


@dataclass(slots=True)
class FilledPart:
    """Part of a rank while it is being filled; Dask does not learn its size, as tasks pass it on."""

    array: np.ndarray
    """Elements; read-only if the part came from another process."""

    def at(self, place: Place) -> np.ndarray:
        """Return a writable view of a place; first copy the part if it came read-only from another process."""
        if not self.array.flags.writeable:
            self.array = self.array.copy()
        return self.array[(*place, ...)]

    def put(self, place: Place, data: np.ndarray) -> None:
        """Copy data to a place, unless they lie there already."""
        there = self.at(place)
        if there.ctypes.data != data.ctypes.data:
            there[...] = data.reshape(there.shape)


def pack(live: Live[Reading], round: Round, rank: int, held: Read, final: int) -> np.ndarray | None:
    """Pack the share of another rank, piece after piece."""
    if final not in held.packed or final == rank:
        return None
    return live.rooms.joined([piece for _, piece in held.packed[final]])


def place(
    live: Live[Reading], round: Round, stage: int, rank: int, there: FilledPart, came: dict[int, np.ndarray]
) -> FilledPart:
    plan = live.program.plan
    for source, data in came.items():
        elements, start = data.view(live.program.file.dtype), 0
        for piece, axes in plan.pieces(round[0], source):
            room = there.at(places(plan.requests[rank], piece, axes)[0])
            room[...] = elements[start : start + room.size].reshape(room.shape)
            start += room.size
    return there


@dataclass(frozen=True, kw_only=True)
class Reading(Program):
    exchange: ClassVar[Exchange] = Exchange(pack=pack, place=place)
    plan: CollectivePlan
    """Rounds, aggregators and the sections that each rank wants."""
    file: ArrayFile
    under_way: int = 16
    """Maximum concurrent requests of a rank, for remote stores."""
    costs: Costs | None = None
    selections: tuple[Selection, ...] = ()
    """Arrangement of each rank's array, if it differs from the order of reading."""


def wanting(plan: CollectivePlan, number: int, source: int) -> list[int]:
    """Return the ranks that want any of an aggregator's share of a round."""
    return np.flatnonzero(plan.read.sizes(number)[source]).tolist()


@contextmanager
def _reading(live: Live[Reading], rank: int | None = None) -> Iterator[None]:
    """Compare reads with the versions of chunks; report what ``rank`` wants to the access hooks, and nothing else."""
    file, requests = live.program.file, live.program.plan.requests
    wanted: Any = (range(0),) * len(file.stored.grid.shape) if rank is None else requests[rank]
    with live.reading(), watched_for(file, wanted, len(requests)) if WATCHERS else nullcontext():
        yield
    warn_of_missing(live.meter, file.presence.name, so_far=True)


def _section(live: Live[Reading], axes: Axes, out: np.ndarray | None = None) -> np.ndarray:
    """Read a section of the file in this thread alone: ranks run in parallel."""
    program = live.program
    return read_section(
        program.file, axes, out, meter=live.meter, requests=program.under_way, threads=1, costs=program.costs
    )


# ---------------------------------------------------------------------- independent reads, and reads on threads


def look(live: Live[Reading]) -> Versions | None:
    """Record the versions of the wanted chunks, before any is read."""
    file = live.program.file
    file.presence.check()
    file.presence.check_planned()
    return Versions.of(file, live.program.plan.requests)


@contextmanager
def _first(live: Live[Reading], rank: int, versions: Versions | None) -> Iterator[None]:
    """Begin a rank's part, after checking that the array exists."""
    file = live.program.file
    file.presence.check()
    live.state.versions = [] if versions is None else [(file, versions)]
    with _reading(live, rank):
        yield


def make(live: Live[Reading], rank: int, versions: Versions | None) -> np.ndarray:
    with _first(live, rank, versions):
        return np.empty(lengths(live.program.plan.requests[rank]), live.program.file.dtype)


def independent(live: Live[Reading], rank: int, versions: Versions | None) -> np.ndarray:
    with _first(live, rank, versions):
        part = _section(live, live.program.plan.requests[rank])
    return filled(live, rank, part)


def gather(live: Live[Reading], number: int, source: int, *parts: np.ndarray) -> None:
    """Read an aggregator's share of a round, and copy it into the parts of the ranks that want it."""
    plan, of_rank = live.program.plan, dict(zip(wanting(live.program.plan, number, source), parts, strict=True))
    with _reading(live):
        for box in plan.rounds[number][source]:
            _gather_box(live, box, {rank: of_rank[rank] for rank in plan.table.of(box).ranks})


def _gather_box(live: Live[Reading], box: Section, parts: dict[int, np.ndarray]) -> None:
    plan = live.program.plan
    owner = plan.only(box)
    if owner is not None:  # the section of a single rank is read straight into its part
        _section(live, plan.tight(box), parts[owner][(*plan.places(box, owner)[0], ...)])
        return
    data = _section(live, plan.tight(box))
    for rank, part in parts.items():
        there, inside = plan.places(box, rank)
        part[(*there, ...)] = selected(data, inside)


def filled(live: Live[Reading], rank: int, part: np.ndarray) -> np.ndarray:
    """Return a rank's array once its reads are complete, after checking that they have not changed."""
    for file, versions in live.state.versions:
        versions.check(file, live.program.plan.requests[rank])
    selections = live.program.selections
    return selections[rank].arranged(part) if selections else part


# ---------------------------------------------------------------------- between workers


def begin(live: Live[Reading], rank: int, versions: Versions | None) -> FilledPart:
    return FilledPart(make(live, rank, versions))


def end(live: Live[Reading], rank: int, part: FilledPart) -> np.ndarray:
    return filled(live, rank, part.array)


def read(live: Live[Reading], number: int, rank: int, part: FilledPart) -> Read:
    """Read an aggregator's share of a round, packing each piece for all ranks that want it."""
    program = live.program
    pieces = [_piece(program, rank, *each) for each in program.plan.pieces(number, rank)]
    sent = _Memory(live.rooms.take(sum(piece.sent_bytes for piece in pieces)))
    packed: defaultdict[int, list[Packed]] = defaultdict(list)
    with _reading(live):
        come = read_pieces(
            program.file,
            [piece.axes for piece in pieces],
            (_room(live, piece, part, sent) for piece in pieces),
            meter=live.meter,
            requests=program.under_way,
            costs=program.costs,
        )
        for piece, data in zip(pieces, come, strict=True):
            for want in piece.wanted:
                packed[want.rank].append((want.there, _elements_for(piece, want, data, part, sent)))
    return Read(dict(packed))


def _piece(program: Reading, rank: int, box: Section, axes: Axes) -> _Piece:
    plan = program.plan
    wanted = [_Want(r, *places(plan.requests[r], box, axes)) for r in plan.table.of(box).ranks]
    size = sum(math.prod(want.shape) for want in wanted if want.rank != rank)
    stays = size > math.prod(lengths(axes)) or not plan.stored.coded
    return _Piece(axes, program.file.dtype, wanted, rank, stays)


def _elements_for(piece: _Piece, want: _Want, data: np.ndarray, part: FilledPart, sent: _Memory) -> np.ndarray:
    """Return the share of a rank in a piece: in the part for the aggregator's own, else contiguous."""
    mine = selected(data, want.inside)
    if want.rank == piece.reader:
        part.put(want.there, mine)
        return part.at(want.there)
    if piece.goes_as_it_is(want):
        return mine
    packed = sent.room(mine.shape, mine.dtype)
    packed[...] = mine
    return packed


def _room(live: Live[Reading], piece: _Piece, part: FilledPart, sent: _Memory) -> np.ndarray:
    """Return the buffer for a piece: in the part if only the aggregator wants it, to be sent, or reusable."""
    if [want.rank for want in piece.wanted] == [piece.reader] and piece.wanted[0].shape == piece.shape:
        there = part.at(piece.wanted[0].there)
        if live.program.plan.stored.coded or there.flags.c_contiguous:
            return there
    if any(piece.goes_as_it_is(want) for want in piece.wanted):
        return sent.room(piece.shape, piece.dtype)
    return _Memory(live.rooms.take(piece.nbytes)).room(piece.shape, piece.dtype)


def keep(live: Live[Reading], number: int, rank: int, part: FilledPart, held: Read) -> FilledPart:
    for there, data in held.packed.get(rank, ()):
        part.put(there, data)
    return part


# ---------------------------------------------------------------------- all messages of a round at one time


def message(live: Live[Reading], number: int, final: int, rank: int, held: Read) -> Message:
    from oocarrays.graphs.cluster.nearby import Message

    there, arrays = zip(*held.packed[final], strict=True)
    made = Message(arrays, places=there)
    live.meter.add(messages=1, sent_bytes=made.nbytes)
    return made


def fill(
    live: Live[Reading], number: int, rank: int, part: FilledPart, held: Read | None, *messages: Message
) -> FilledPart:
    """Fill a rank's part with its own and the received shares of a round."""
    if held is not None:
        keep(live, number, rank, part, held)
    for each in messages:
        for there, data in zip(each.places, each.arrays, strict=True):
            part.put(there, data)
    return part


def finish(
    live: Live[Reading], number: int, rank: int, part: FilledPart, held: Read | None, *messages: Message
) -> np.ndarray:
    return end(live, rank, fill(live, number, rank, part, held, *messages))


class _Memory:
    """Memory handed out from its start: a single block has few and large pages."""

    def __init__(self, memory: np.ndarray) -> None:
        self._left = memory

    def room(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        nbytes = math.prod(shape) * dtype.itemsize
        given, self._left = self._left[:nbytes], self._left[nbytes:]
        return given.view(dtype).reshape(shape)


class _Want(NamedTuple):
    """Share of one rank in a piece."""

    rank: int
    there: Place
    """Place in that rank's part."""
    inside: Place
    """Place in the piece."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(along.stop - along.start for along in self.there if isinstance(along, slice))


class _Piece(NamedTuple):
    """Section of the file that is read at one time."""

    axes: Axes
    dtype: np.dtype
    wanted: list[_Want]
    reader: int
    """Rank that reads the piece."""
    stays: bool
    """Whether contiguous shares are sent without packing.

    True if the piece is read into memory anyway, or if packed copies would take more memory. Otherwise shares are
    packed from a cache buffer into memory of their total size.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        return lengths(self.axes)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def goes_as_it_is(self, want: _Want) -> bool:
        """Return whether another rank's share is sent without packing."""
        along = zip(want.inside, want.shape, strict=True)
        even = all(n == 1 or (isinstance(part, slice) and part.step in (None, 1)) for part, n in along)
        return self.stays and want.rank != self.reader and even and in_one_piece(want.shape, self.shape)

    @property
    def sent_bytes(self) -> int:
        """Return the bytes held for other ranks: packed shares, and the whole piece if any share is sent unpacked."""
        as_it_is = [want for want in self.wanted if self.goes_as_it_is(want)]
        packed = (math.prod(w.shape) for w in self.wanted if w.rank != self.reader and not self.goes_as_it_is(w))
        return sum(packed) * self.dtype.itemsize + (self.nbytes if as_it_is else 0)


def selected(data: np.ndarray, place: Place) -> np.ndarray:
    """Return the elements at a place, axis by axis: a view if every axis is a slice."""
    slices: Any = tuple(part if isinstance(part, slice) else slice(None) for part in place)
    data = data[(*slices, ...)]
    for axis, part in enumerate(place):
        if not isinstance(part, slice):
            data = data.take(part, axis)
    return data
