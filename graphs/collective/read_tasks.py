"""Tasks of a collective read: read for all ranks, send, and fill parts.

    stored chunks ─► tight section of a box ─► share of each rank ─► its place in that rank's part

While a part is being filled, each element is only ever assigned its final value: a task repeated after the loss of a
worker yields the same part. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from oocarrays.graphs.events import warn_of_missing
from oocarrays.graphs.exchange.messages import Messages, Round
from oocarrays.mapping.section import Section, in_one_piece
from oocarrays.mapping.selection import Axes, Selection, lengths
from oocarrays.plan.collective.read import CollectivePlan, part_shape
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
"""Verbs of the first task of each rank's part."""
Packed = tuple[Place, np.ndarray]
"""Elements, and their place in a part."""


@dataclass(slots=True)
class Read:
    """Pieces read by an aggregator in a round; Dask does not learn their size: the plan has counted it."""

    packed: dict[int, list[Packed]]
    """Share of each rank in each piece, contiguous; a view if it is contiguous in the piece.

    The aggregator's own share is in its part already.
    """


@dataclass(eq=False, kw_only=True)
class Reading(Messages):
    """Tasks of a collective read."""

    file: ArrayFile
    """Array on disk."""
    plan: CollectivePlan
    """Rounds, aggregators and the sections that each rank wants."""
    under_way: int = 16
    """Maximum concurrent requests of a rank, for remote stores."""
    costs: Costs | None = None
    """Cost constants of the plan."""
    selections: tuple[Selection, ...] = ()
    """Arrangement of each rank's array, if it differs from the order of reading."""

    def _here(self) -> None:
        super()._here()
        self.versions: Versions | None = None

    @property
    def on_workers(self) -> bool:
        """Return whether ranks are on workers, which report to a scheduler."""
        return bool(self.plan.processes)

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        versions = self.versions.reading(self.file) if self.versions else nullcontext()
        with versions, self._watched(verb, args) if WATCHERS else nullcontext():
            result = super()._do(verb, args, inputs)
        warn_of_missing(self.meter, self.file.presence.name, so_far=True)
        return result

    def _watched(self, verb: str, args: tuple[int, ...]) -> AbstractContextManager[None]:
        """Report the sections that ranks want to the access hooks, and suppress reports of aggregated reads."""
        requests = self.plan.requests
        wanted = requests[args[-1]] if verb in FIRST else (range(0),) * len(self.plan.stored.grid.shape)
        return watched_for(self.file, wanted, len(requests))

    def _section(self, axes: Axes, out: np.ndarray | None = None) -> np.ndarray:
        """Read a section of the file in this thread alone: ranks run in parallel."""
        return read_section(
            self.file, axes, out, meter=self.meter, requests=self.under_way, threads=1, costs=self.costs
        )

    # ------------------------------------------------------------------ independent reads, and reads on threads

    def _look(self) -> Versions | None:
        """Record the versions of the wanted chunks, before any is read."""
        self.file.presence.check()
        self.file.presence.check_planned()
        return Versions.of(self.file, self.plan.requests)

    def _make(self, rank: int, versions: Versions | None) -> np.ndarray:
        """Allocate a rank's part, after checking that the array exists."""
        self.file.presence.check()
        self.versions = versions
        return np.empty(part_shape(self.plan, rank), self.file.dtype)

    def _independent(self, rank: int, versions: Versions | None) -> np.ndarray:
        self.file.presence.check()
        self.versions = versions
        with versions.reading(self.file) if versions else nullcontext():
            part = self._section(self.plan.requests[rank])
        return self._filled(rank, part)

    def _gather(self, number: int, source: int, *parts: np.ndarray) -> None:
        """Read an aggregator's share of a round, and copy it into the parts of the ranks that want it."""
        filled = dict(zip(self.wanting(number, source), parts, strict=True))
        for box in self.plan.rounds[number][source]:
            self._gather_box(box, {rank: filled[rank] for rank in self.plan.table.ranks(box)})

    def _gather_box(self, box: Section, parts: dict[int, np.ndarray]) -> None:
        owner = self.plan.only(box)
        if owner is not None:  # the section of a single rank is read straight into its part
            self._section(self.plan.tight(box), parts[owner][(*self.plan.places(box, owner)[0], ...)])
            return
        data = self._section(self.plan.tight(box))
        for rank, part in parts.items():
            there, inside = self.plan.places(box, rank)
            part[(*there, ...)] = selected(data, inside)

    def wanting(self, number: int, source: int) -> list[int]:
        """Return the ranks that want any of an aggregator's share of a round."""
        found: list[int] = np.flatnonzero(self.plan.read.sizes(number)[source]).tolist()
        return found

    def _filled(self, rank: int, part: np.ndarray) -> np.ndarray:
        """Return a rank's array once its reads are complete, after checking that they have not changed."""
        if self.versions:
            self.versions.check(self.file, self.plan.requests[rank])
        return self.selections[rank].arranged(part) if self.selections else part

    # ------------------------------------------------------------------ between workers

    def _begin(self, rank: int, versions: Versions | None) -> FilledPart:
        """Allocate a rank's part and enable deliveries into it."""
        from oocarrays.graphs.collective.deliveries import FilledPart

        part = FilledPart(self._make(rank, versions), (self.topic, rank))
        part.expect()
        return part

    def _end(self, rank: int, part: FilledPart) -> np.ndarray:
        """Return a rank's array once its deliveries are complete."""
        part.done()
        return self._filled(rank, part.array)

    def _read(self, number: int, rank: int, part: FilledPart) -> Read:
        """Read an aggregator's share of a round, packing each piece for all ranks that want it."""
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

    def _room(self, piece: _Piece, part: FilledPart, sent: _Memory) -> np.ndarray:
        """Return the buffer for a piece: in the part if only the aggregator wants it, to be sent, or reusable."""
        if [want.rank for want in piece.wanted] == [piece.reader] and piece.wanted[0].shape == piece.shape:
            there = part.at(piece.wanted[0].there)
            if self.plan.stored.coded or there.flags.c_contiguous:
                return there
        if any(piece.goes_as_it_is(want) for want in piece.wanted):
            return sent.room(piece.shape, piece.dtype)
        return _Memory(self.rooms.take(piece.nbytes)).room(piece.shape, piece.dtype)

    def _keep(self, number: int, rank: int, part: FilledPart, read: Read) -> FilledPart:
        """Copy an aggregator's own share into its part."""
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
        """Fill a rank's part with its own and the received shares of a round."""
        if read is not None:
            self._keep(number, rank, part, read)
        for delivery in deliveries:
            delivery.fill(part)
        return part

    def _finish(self, number: int, rank: int, part: FilledPart, read: Read | None, *deliveries: Delivery) -> np.ndarray:
        return self._end(rank, self._fill(number, rank, part, read, *deliveries))

    # ------------------------------------------------------------------ by a schedule

    def packed(self, round: Round, rank: int, held: Read, final: int) -> np.ndarray | None:
        """Pack the share of another rank, piece after piece."""
        if final not in held.packed or final == rank:
            return None
        return self.rooms.joined([piece for _, piece in held.packed[final]])

    def placed(self, round: Round, stage: int, rank: int, there: FilledPart, came: dict[int, np.ndarray]) -> FilledPart:
        """Copy received data into a rank's part."""
        for source, data in came.items():
            elements, start = data.view(self.file.dtype), 0
            for piece, axes in self.plan.pieces(round[0], source):
                room = there.at(places(self.plan.requests[rank], piece, axes)[0])
                room[...] = elements[start : start + room.size].reshape(room.shape)
                start += room.size
        return there


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
    """Rank that wants the share."""
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
    """Indices along each axis."""
    dtype: np.dtype
    """Dtype of the elements."""
    wanted: list[_Want]
    """Shares of the ranks."""
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
