"""The tasks of a collective read: read for all, send, and fill parts.

    stored chunks ─► tight section of a box ─► what each rank wants of it ─► its place in that rank's part

While a part is being filled, each of its elements is only ever given the one value that it will have: a task that is
done again after a worker was lost makes the same of it. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from oocarrays.graphs.exchange.messages import Messages, Round
from oocarrays.graphs.run.builder import new_suffix
from oocarrays.graphs.run.telling import warn_of_missing
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes, Selection, lengths
from oocarrays.plan.collective.read import CollectivePlan, in_one_piece, part_shape
from oocarrays.plan.collective.wanted import Place, places
from oocarrays.plan.machine import Costs
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.metered import WATCHERS, watched_for
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.windows import read_pieces

if TYPE_CHECKING:
    from oocarrays.graphs.collective.deliveries import Delivery, FilledPart

FIRST = ("independent", "make", "begin")
"""What the first task of each rank's part is called."""
Packed = tuple[Place, np.ndarray]
"""Elements, and where they belong in a part."""


@dataclass(slots=True)
class Read:
    """Pieces that an aggregator has read in a round; it does not tell Dask how large it is: the plan has counted it."""

    packed: dict[int, list[Packed]]
    """The share of each rank in each piece, contiguous: a view, where it lies in one piece. The aggregator's own is in
    its part already."""


@dataclass(eq=False, kw_only=True)
class Reading(Messages):
    """The tasks of a collective read."""

    file: ArrayFile
    """The array on disk."""
    plan: CollectivePlan
    """Who reads what for whom."""
    under_way: int = 16
    """Requests that a rank has under way at one time, to stores that are not local files."""
    costs: Costs | None = None
    """The constants that the plan was made with."""
    selections: tuple[Selection, ...] = ()
    """How what each rank wants stands in its array, where that is not as it is read."""

    def __post_init__(self) -> None:
        self.id = new_suffix()
        self._arrive()

    def _here(self) -> None:
        super()._here()
        self.versions: Versions | None = None

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which tell a cluster what they did."""
        return bool(self.plan.processes)

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        versions = self.versions.reading(self.file) if self.versions else nullcontext()
        with versions, self._watched(verb, args) if WATCHERS else nullcontext():
            result = super()._do(verb, args, inputs)
        warn_of_missing(self.meter, self.file.presence.name, so_far=True)
        return result

    def _watched(self, verb: str, args: tuple[int, ...]) -> AbstractContextManager[None]:
        """Tell whoever watches what ranks want, not what is read for them."""
        requests = self.plan.requests
        wanted = requests[args[-1]] if verb in FIRST else (range(0),) * len(self.plan.stored.grid.shape)
        return watched_for(self.file, wanted, len(requests))

    def _section(self, axes: Axes, out: np.ndarray | None = None) -> np.ndarray:
        """Read a section of the file, by this thread alone: ranks are side by side."""
        return read_section(
            self.file, axes, out, meter=self.meter, requests=self.under_way, threads=1, costs=self.costs
        )

    # ------------------------------------------------------------------ each for itself, or all on threads

    def _look(self) -> Versions | None:
        """Look at the chunks that are wanted, before any is read."""
        self.file.presence.check()
        self.file.presence.check_planned()
        return Versions.of(self.file, self.plan.requests)

    def _make(self, rank: int, versions: Versions | None) -> np.ndarray:
        """Make a rank's part, still empty, of an array that is there."""
        self.file.presence.check()
        self.versions = versions
        return np.empty(part_shape(self.plan, rank), self.file.dtype)

    def _independent(self, rank: int, versions: Versions | None) -> np.ndarray:
        """Read a rank's part, by itself."""
        self.file.presence.check()
        self.versions = versions
        with versions.reading(self.file) if versions else nullcontext():
            part = self._section(self.plan.requests[rank])
        return self._filled(rank, part)

    def _gather(self, number: int, source: int, *parts: np.ndarray) -> None:
        """Read what an aggregator reads in a round, and fill the parts of those who want any of it."""
        filled = dict(zip(self.wanting(number, source), parts, strict=True))
        for box in self.plan.rounds[number][source]:
            self._gather_box(box, {rank: filled[rank] for rank in self.plan.table.ranks(box)})

    def _gather_box(self, box: Section, parts: dict[int, np.ndarray]) -> None:
        owner = self.plan.only(box)
        if owner is not None:  # what one rank alone wants is read to its place
            self._section(self.plan.tight(box), parts[owner][(*self.plan.places(box, owner)[0], ...)])
            return
        data = self._section(self.plan.tight(box))
        for rank, part in parts.items():
            there, inside = self.plan.places(box, rank)
            part[(*there, ...)] = selected(data, inside)

    def wanting(self, number: int, source: int) -> list[int]:
        """Name the ranks that want any of what another reads in a round."""
        found: list[int] = np.flatnonzero(self.plan.sizes(number)[source]).tolist()
        return found

    def _filled(self, rank: int, part: np.ndarray) -> np.ndarray:
        """Return a rank's array, when all has been read that it wants, and is still as it was."""
        if self.versions:
            self.versions.check(self.file, self.plan.requests[rank])
        return self.selections[rank].arranged(part) if self.selections else part

    # ------------------------------------------------------------------ between workers

    def _begin(self, rank: int, versions: Versions | None) -> FilledPart:
        """Make a rank's part, still empty."""
        from oocarrays.graphs.collective.deliveries import FilledPart

        part = FilledPart(self._make(rank, versions), (self.topic, rank))
        part.expect()
        return part

    def _end(self, rank: int, part: FilledPart) -> np.ndarray:
        """Return a rank's array, when all has come that it wants."""
        part.done()
        return self._filled(rank, part.array)

    def _read(self, number: int, rank: int, part: FilledPart) -> Read:
        """Read an aggregator's share of a round: each piece is packed for all who want some of it while it is there."""
        pieces = [self._piece(rank, *each) for each in self.plan.pieces(number, rank)]
        sent = _Memory(self.rooms.take(sum(piece.sent_bytes for piece in pieces)))
        come = read_pieces(
            self.file,
            [piece.axes for piece in pieces],
            (self._room(piece, part, sent) for piece in pieces),
            meter=self.meter,
            requests=self.under_way,
            costs=self.costs,
        )
        packed: defaultdict[int, list[Packed]] = defaultdict(list)
        for piece, data in zip(pieces, come, strict=True):
            for want in piece.wanted:
                packed[want.rank].append((want.there, self._elements_for(piece, want, data, part, sent)))
        return Read(dict(packed))

    def _piece(self, rank: int, box: Section, axes: Axes) -> _Piece:
        wanted = [_Want(r, *places(self.plan.requests[r], box, axes)) for r in self.plan.table.ranks(box)]
        size = sum(math.prod(want.shape) for want in wanted if want.rank != rank)
        stays = size > math.prod(lengths(axes)) or not self.plan.stored.coded
        return _Piece(axes, self.file.dtype, wanted, rank, stays)

    @staticmethod
    def _elements_for(piece: _Piece, want: _Want, data: np.ndarray, part: FilledPart, sent: _Memory) -> np.ndarray:
        """Return the share of a rank in a piece: in the part, where that is the aggregator's own; else contiguous."""
        mine = selected(data, want.inside)
        if want.rank == piece.reader:
            part.put(want.there, mine)
            return part.at(want.there)
        if piece.goes_as_it_is(want):
            return mine
        packed = sent.room(mine.shape, mine.dtype)
        packed[...] = mine
        return packed

    def _room(self, piece: _Piece, part: FilledPart, sent: _Memory) -> np.ndarray:
        """Where a piece is read: at its place, where the aggregator alone wants it; in what is sent, where some of it
        can go as it is; or in memory that is used again for the next."""
        if [want.rank for want in piece.wanted] == [piece.reader] and piece.wanted[0].shape == piece.shape:
            there = part.at(piece.wanted[0].there)
            if self.plan.stored.coded or there.flags.c_contiguous:
                return there
        if any(piece.goes_as_it_is(want) for want in piece.wanted):
            return sent.room(piece.shape, piece.dtype)
        return _Memory(self.rooms.take(piece.nbytes)).room(piece.shape, piece.dtype)

    def _keep(self, number: int, rank: int, part: FilledPart, read: Read) -> FilledPart:
        """Fill a rank's part with what it has read for itself."""
        for place, data in read.packed.get(rank, ()):
            part.put(place, data)
        return part

    # ------------------------------------------------------------------ all messages of a round at one time

    def _message(self, number: int, final: int, rank: int, read: Read) -> Delivery:
        from oocarrays.graphs.collective.deliveries import Delivery

        delivery = Delivery((self.topic, final), *zip(*read.packed[final], strict=True))
        self.meter.add(messages=1, sent_bytes=delivery.nbytes)
        return delivery

    def _fill(self, number: int, rank: int, part: FilledPart, read: Read | None, *deliveries: Delivery) -> FilledPart:
        """Fill a rank's part with what it and others have read of a round."""
        if read is not None:
            self._keep(number, rank, part, read)
        for delivery in deliveries:
            delivery.fill(part)
        return part

    def _finish(self, number: int, rank: int, part: FilledPart, read: Read | None, *deliveries: Delivery) -> np.ndarray:
        """Return a rank's array, when the last has come that it wants."""
        return self._end(rank, self._fill(number, rank, part, read, *deliveries))

    def _took(self, number: int, rank: int) -> None:
        """Say that all has been received of a round."""

    # ------------------------------------------------------------------ by a schedule

    def packed(self, round: Round, rank: int, held: Read, final: int) -> np.ndarray | None:
        """Pack the share of another rank, piece after piece."""
        if final not in held.packed or final == rank:
            return None
        return self.rooms.joined([piece for _, piece in held.packed[final]])

    def placed(self, round: Round, stage: int, rank: int, there: FilledPart, came: dict[int, np.ndarray]) -> FilledPart:
        """Fill a rank's part with what has come."""
        for source, data in came.items():
            elements, start = data.view(self.file.dtype), 0
            for piece, axes in self.plan.pieces(round[0], source):
                room = there.at(places(self.plan.requests[rank], piece, axes)[0])
                room[...] = elements[start : start + room.size].reshape(room.shape)
                start += room.size
        return there


class _Memory:
    """Memory that is given away from its beginning on: in one piece, it has few and large pages."""

    def __init__(self, memory: np.ndarray) -> None:
        self._left = memory

    def room(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        nbytes = math.prod(shape) * dtype.itemsize
        given, self._left = self._left[:nbytes], self._left[nbytes:]
        return given.view(dtype).reshape(shape)


class _Want(NamedTuple):
    """The share of one rank in a piece."""

    rank: int
    """Who wants it."""
    there: Place
    """Where it belongs in that rank's part."""
    inside: Place
    """Where it is in the piece."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(along.stop - along.start for along in self.there if isinstance(along, slice))


class _Piece(NamedTuple):
    """A section of the file that is read at one time."""

    axes: Axes
    """Its elements, along each axis."""
    dtype: np.dtype
    """Of its elements."""
    wanted: list[_Want]
    """Who wants what of it."""
    reader: int
    """Who reads it."""
    stays: bool
    """Whether what lies in it in one piece is sent from where it is: where it would be read for that anyway, or copies
    would take more memory. Else it is packed from a cache to as much memory as others want."""

    @property
    def shape(self) -> tuple[int, ...]:
        return lengths(self.axes)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def goes_as_it_is(self, want: _Want) -> bool:
        """Whether what another rank wants is sent from where it is."""
        along = zip(want.inside, want.shape, strict=True)
        even = all(n == 1 or (isinstance(part, slice) and part.step in (None, 1)) for part, n in along)
        return self.stays and want.rank != self.reader and even and in_one_piece(want.shape, self.shape)

    @property
    def sent_bytes(self) -> int:
        """Bytes that are held until others have taken them: what is packed for them, and the piece where some of it
        goes as it is."""
        as_it_is = [want for want in self.wanted if self.goes_as_it_is(want)]
        packed = (math.prod(w.shape) for w in self.wanted if w.rank != self.reader and not self.goes_as_it_is(w))
        return sum(packed) * self.dtype.itemsize + (self.nbytes if as_it_is else 0)


def selected(data: np.ndarray, place: Place) -> np.ndarray:
    """Return the elements at a place, axis after axis: a view, where all along each axis follow one another evenly."""
    slices: Any = tuple(part if isinstance(part, slice) else slice(None) for part in place)
    data = data[(*slices, ...)]
    for axis, part in enumerate(place):
        if not isinstance(part, slice):
            data = data.take(part, axis)
    return data
