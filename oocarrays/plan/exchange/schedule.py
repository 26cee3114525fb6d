"""Schedules of an all-to-all exchange: destination of each rank in each step, and contents of each message.

    PEX on 4 ranks                GEN on 3 ranks                REX on 4 ranks
    step 1   0↔1  2↔3             step 1   0→1  1→2  2→0        step 1   0↔2  1↔3    0 sends 2 data for 2 and 3
    step 2   0↔2  1↔3             step 2   0→2  1→0  2→1        step 2   0↔1  2↔3    2 sends 3 data of 0 and 2
    step 3   0↔3  1↔2

A rank sends at most one message in a step, so a step is one destination per rank. Steps are computed on demand: a
schedule is its name and its number of ranks. Thakur 1995, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pkgutil import resolve_name
from typing import Literal, NamedTuple, get_args

import numpy as np

from oocarrays.errors import ScheduleError, in_number
from oocarrays.mapping.given import whole
from oocarrays.mapping.layouts.distribution import MOST_RANKS

IDLE = -1
"""Destination of a rank that sends nothing in a step."""
Name = Literal["LEX", "PEX", "REX", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "GEN", "IPEX"]
NAMES: tuple[Name, ...] = get_args(Name)
COLORING = "COLORING"
"""Name of a schedule computed for given messages: see `oocarrays.plan.exchange.ordering`."""
UNORDERED = "unordered"
"""Name of an exchange without steps: all messages may be in flight at once."""
FORWARDING = ("REX", "IPEX")
"""Schedules that forward data through other ranks."""
POWERS_OF_TWO = ("PEX", "BEX", "REX", "IPEX")


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, in which each rank sends at most one message."""

    destinations: np.ndarray
    """``destinations[rank]`` is the destination of ``rank``, or ``IDLE``."""

    @cached_property
    def senders(self) -> np.ndarray:
        return np.flatnonzero(self.destinations != IDLE)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Source and destination of each message, by source."""
        return [(int(source), int(self.destinations[source])) for source in self.senders]

    def sources(self, rank: int) -> list[int]:
        return [int(source) for source in np.flatnonzero(self.destinations == rank)]


@dataclass(frozen=True, slots=True)
class Ride:
    """Contents of one message: the data of every pair of an origin and a final rank."""

    origins: np.ndarray
    """Ranks that the data comes from."""
    finals: np.ndarray
    """Ranks that the data is for."""

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Origin and final rank of each part, in the order of the message."""
        return [(int(origin), int(final)) for origin in self.origins for final in self.finals]


class Leg(NamedTuple):
    """Step of IPEX: each rank exchanges with the rank at exclusive-or ``turn``."""

    along_row: bool
    """True along rows of the mesh, with data for the whole column there; False along columns."""
    turn: int
    """Exclusive-or of the two ranks' numbers."""
    forwarded: int
    """Exclusive-or of the row step that brought the forwarded data; 0 if a rank sends its own."""


def is_auto(asked: object) -> bool:
    return asked is None or (isinstance(asked, str) and asked.lower() == "auto")


def is_coloring(asked: object) -> bool:
    return isinstance(asked, str) and asked.upper() == COLORING


def is_unordered(asked: object) -> bool:
    return isinstance(asked, str) and asked.lower() == UNORDERED


@dataclass(frozen=True, slots=True)
class Schedule:
    """Destinations of all ranks in each step of an exchange.

    >>> schedule = Schedule.of("pex", 4)
    >>> len(schedule), schedule.step(1).pairs
    (3, [(0, 2), (1, 3), (2, 0), (3, 1)])
    >>> Schedule.of("rex", 4).ride(0, 0).pairs
    [(0, 2), (0, 3)]
    """

    name: Literal[Name, "COLORING"]
    """Name: one of ``NAMES``, or ``COLORING``."""
    ranks: int
    """Number of ranks."""
    columns: int
    """Columns of the mesh with ranks row by row (IPEX; REX, which halves columns first); 1 without a mesh."""
    listed: tuple[tuple[int, ...], ...] = field(default=(), metadata={"gained": True})
    """Destination of each rank in each step of ``COLORING``, or ``IDLE``."""

    @classmethod
    def of(cls, name: str | Schedule, ranks: int, *, columns: int | None = None) -> Schedule:
        """Return a validated schedule.

        Parameters
        ----------
        name : str or Schedule
            One of ``NAMES``, in any case, or an existing schedule for the same number of ranks.
        columns : int
            Columns of the mesh; by default IPEX uses the squarest mesh, and REX none.

        Raises
        ------
        ScheduleError
            If the name is unknown, or the schedule does not support this number of ranks.
        """
        if isinstance(name, Schedule):
            if name.ranks != ranks:
                raise ScheduleError(f"the schedule {name.name.lower()} is for {name.ranks} ranks, not {ranks}")
            if name.name == COLORING:
                raise ScheduleError("a schedule built for given messages does not fit others: pass 'coloring'")
            return cls.of(name.name, ranks, columns=name.columns)
        known = name.upper() if isinstance(name, str) else ""
        if known not in NAMES:
            raise ScheduleError(f"schedule={name!r} is unknown; pass one of {', '.join(n.lower() for n in NAMES)}")
        if whole(ranks, "ranks", error=ScheduleError) < 1:
            raise ScheduleError(f"ranks={ranks}: an exchange has at least 1")
        if ranks > MOST_RANKS:
            raise ScheduleError(f"ranks={ranks} exceeds {MOST_RANKS}, the maximum of an exchange")
        if known in POWERS_OF_TWO and ranks & (ranks - 1):
            any_number = ", ".join(n.lower() for n in NAMES if n not in POWERS_OF_TWO)
            raise ScheduleError(
                f"{known.lower()} needs a power of two of ranks, not {ranks}; for any number use {any_number}"
            )
        if columns is None:
            columns = 2 ** ((ranks.bit_length()) // 2) if known == "IPEX" else 1
        if known in FORWARDING and (columns & (columns - 1) or not 1 <= columns <= ranks):
            raise ScheduleError(
                f"{known.lower()} needs a mesh of powers of two, not {ranks} ranks in {columns} columns"
            )
        return cls(known, ranks, columns if known in FORWARDING else 1)

    def __repr__(self) -> str:
        return in_number(f"<oocarrays.Schedule {self.name.lower()}: {self.ranks} ranks, {len(self)} steps>")

    def _repr_html_(self) -> str:
        rows = resolve_name("oocarrays.show.exchanges:schedule_rows")(self)  # a layer above
        html: str = resolve_name("oocarrays.show.notebook:rows_html")(rows, title=repr(self)[1:-1])
        return html

    @property
    def forwards(self) -> bool:
        """True if data travels through other ranks."""
        return self.name in FORWARDING

    def __len__(self) -> int:
        if self.name == COLORING:
            return len(self.listed)
        if self.name == "LEX":
            return self.ranks if self.ranks > 1 else 0
        if self.name == "REX":
            return self.ranks.bit_length() - 1
        return (self._padded if self.name in ("PEX-GEN", "PEX-GEN-SHIFT") else self.ranks) - 1

    def step(self, number: int) -> Step:
        """Return step ``number``, from 0.

        Raises
        ------
        ScheduleError
            If the step does not exist.
        """
        if not 0 <= number < len(self):
            raise ScheduleError(
                f"step={number}: {self.name.lower()} on {self.ranks} ranks has {len(self)} steps, from 0"
            )
        ranks = np.arange(self.ranks)
        to = self._partners(ranks, number)
        return Step(destinations=np.where((to < self.ranks) & (to != ranks), to, IDLE))

    def __iter__(self) -> Iterator[Step]:
        return map(self.step, range(len(self)))

    def _partners(self, ranks: np.ndarray, number: int) -> np.ndarray:
        """Return the destinations of ``ranks`` in a step; a rank itself, or one past the last, means no destination."""
        turn = number + 1
        match self.name:
            case "COLORING":
                return np.take(np.array(self.listed[number], np.int64), ranks)
            case "LEX":
                return np.full_like(ranks, number)
            case "GEN":
                return (ranks + turn) % self.ranks
            case "BEX":
                return (((ranks + 1) % self.ranks ^ turn) - 1) % self.ranks
            case "PEX-GEN-SHIFT":
                shift = (self._padded - self.ranks) // 2
                return ((ranks + shift ^ turn) - shift) % self._padded
            case "REX":
                return ranks ^ 1 << self.halved_bits[number]
            case "IPEX":
                return ranks ^ self.leg(number).turn
        return ranks ^ turn

    @property
    def _padded(self) -> int:
        """Smallest power of two that is at least the number of ranks, which PEX-GEN pairs as PEX does."""
        return 1 << (self.ranks - 1).bit_length()

    @property
    def halved_bits(self) -> list[int]:
        """Bits by which REX halves the ranks, one per step: those of the column first, each from the highest."""
        bits, column = self.ranks.bit_length() - 1, self.columns.bit_length() - 1
        return [*range(column - 1, -1, -1), *range(bits - 1, column - 1, -1)]

    def leg(self, number: int) -> Leg:
        """Return a step's leg in IPEX; each step along rows is followed by all along columns that forward its data."""
        rows = self.ranks // self.columns
        row, column = divmod(number, rows)
        if row == self.columns - 1:
            return Leg(False, (column + 1) * self.columns, 0)
        return Leg(True, row + 1, 0) if column == 0 else Leg(False, column * self.columns, row + 1)

    def ride(self, number: int, source: int) -> Ride:
        """Return the contents of the message that ``source`` sends in step ``number``; it must send one."""
        to = int(self._partners(np.array([source]), number)[0])
        if self.name == "REX":
            return self._half(number, source, to)
        if self.name == "IPEX":
            leg = self.leg(number)
            column = np.arange(to % self.columns, self.ranks, self.columns)
            return Ride(np.array([source ^ leg.forwarded]), column if leg.along_row else np.array([to]))
        return Ride(np.array([source]), np.array([to]))

    def _half(self, number: int, source: int, to: int) -> Ride:
        """Return the contents of a REX message: the source's held data for the other half of ranks."""
        everyone = np.arange(self.ranks)
        done = sum(1 << bit for bit in self.halved_bits[:number])
        here = 1 << self.halved_bits[number]
        same = (everyone ^ source) & ~done == 0
        ahead = (everyone ^ to) & (done | here) == 0
        return Ride(everyone[same], everyone[ahead])


def schedules(ranks: int, *, columns: int | None = None, names: Iterable[str] = NAMES) -> list[Schedule]:
    """Return the schedules among ``names`` that support the number of ranks and columns."""
    power = ranks & (ranks - 1) == 0
    return [Schedule.of(n, ranks, columns=columns) for n in names if power or n.upper() not in POWERS_OF_TWO]


def complete_exchange(ranks: int) -> Schedule:
    """Return the default schedule: PEX for a power of two, otherwise GEN."""
    return Schedule.of("PEX" if ranks & (ranks - 1) == 0 else "GEN", ranks)
