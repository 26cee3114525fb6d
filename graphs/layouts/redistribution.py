"""Redistribution as tasks: the parts of every rank in another layout, made from those in this one.

    part ─► an exchange ─► part        straight from others' parts, or by messages in the steps of a schedule

Old parts are only read, and can be used again. Thakur 1995, sections 3.4 and 4.2.

rows ─► an exchange ─► rows        a slice of a rank's rows is a message; between threads it is copied once

Thakur 1995, chapter 4.

part ─► an exchange ─► window        only borders are sent, or copied once from the neighbour's part

Thakur 1995, section 5.4 (PASSION_oc_shift).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import KernelError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.layouts.exchanging import PartExchange, exchange_parts
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.steps import Key
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.slicing import Slices, local_slices
from oocarrays.mapping.selection import lengths
from oocarrays.plan.exchange.prediction import square
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.assembly import Messaging
from oocarrays.plan.layouts.halos import Halos, lent
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.packing import move, pack, unpack


def mapped(
    function: Callable[..., Any], several: Sequence[Parts], layout: Layout, dtype: np.dtype, addresses: Sequence[str]
) -> Parts:
    """Return the parts computed by a function from the parts of arrays in one layout."""

    def make(key: Key) -> Task:
        parts = (TaskRef(each.keys[key[-1]]) for each in several)
        return Task(key, apply, function, layout.local_shape(key[-1]), dtype, *parts)

    return Parts.made(make, layout.ranks, dtype, addresses, *several, verb="mapped")


def sliced(parts: Parts, layout: Layout, taken: Slices, addresses: Sequence[str]) -> Parts:
    """Return each rank's part of a slice, in a layout for which no element moves."""

    def make(key: Key) -> Task:
        return Task(key, _copied, TaskRef(parts.keys[key[-1]]), local_slices(layout, taken, key[-1]))

    return Parts.made(make, layout.ranks, parts.dtype, addresses, parts, verb="sliced")


def _copied(part: np.ndarray, places: tuple[slice, ...]) -> np.ndarray:
    return part[places].copy()


def apply(function: Callable[..., Any], shape: tuple[int, ...], dtype: np.dtype, *parts: np.ndarray) -> np.ndarray:
    """Call a function with read-only views of parts, and check its result."""
    shown = [part.view() for part in parts]
    for view in shown:
        view.flags.writeable = False
    try:
        made = on_host(function(*shown))
    except Exception as error:
        raise KernelError(f"the function of map_local failed: {type(error).__name__}: {error}") from error
    if made.shape != shape:
        raise KernelError(f"the function of map_local returned an array of shape {made.shape} for a part of {shape}")
    unfit = misfit(made, dtype)
    if unfit is not None:
        raise KernelError(f"the function of map_local returned {unfit}, which dtype {dtype} cannot hold: pass dtype=")
    return np.asarray(made, dtype, order="C")


def windows(parts: Parts, halos: Halos, schedule: Schedule | None, workers: Sequence[str], meter: Meter) -> Parts:
    """Return the window of every rank: its part with halos."""
    return _pieces_exchanged("windows", parts, halos, schedule, workers, meter)


def rows_exchanged(parts: Parts, plan: AlltoallPlan, workers: Sequence[str], meter: Meter) -> Parts:
    """Return the received rows of every rank."""
    return _pieces_exchanged("rows", parts, plan, plan.schedule, workers, meter)


def _pieces_exchanged(
    name: str,
    parts: Parts,
    pieces: Halos | AlltoallPlan,
    schedule: Schedule | None,
    workers: Sequence[str],
    meter: Meter,
) -> Parts:
    program = PartExchange(plan=Pieces(of=pieces), schedule=schedule, assembly="asynchronous", dtype=parts.dtype)
    return exchange_parts(program, parts, pieces.ranks, workers, meter=meter, name=name)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Pieces of all ranks' parts that move to a new array of each rank; implements `Moves`."""

    of: Halos | AlltoallPlan
    """Halo pieces, or rows, that each rank receives, by sender."""

    def sizes(self) -> np.ndarray:
        """Return the number of elements from each rank to each."""
        return self.of.sizes()

    def made(self, rank: int, dtype: np.dtype) -> np.ndarray:
        """Allocate the array of a rank, with its boundary values filled in."""
        made = np.empty(self.of.shape(rank), dtype)
        for place, constant in self.of.filled(rank):
            made[place] = constant
        return made

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Copy a rank's pieces from a part into its array."""
        found = lent(part, self.of.taken(source, rank))
        for there, among in self.of.strips(source, rank):
            made[there] = found[among]

    def packed(self, rank: int, part: np.ndarray, final: int, rooms: Rooms) -> np.ndarray | None:
        """Pack the pieces of another rank from the part of ``rank``."""
        if rank not in self.of.lenders(final):
            return None
        return rooms.packed(lent(part, self.of.taken(rank, final))).reshape(-1)

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Copy received pieces into the array."""
        for source, message in came.items():
            found = message.reshape(lengths(self.of.taken(source, rank)))
            for there, among in self.of.strips(source, rank):
                made[there] = found[among]


def moved(
    parts: Parts, transfers: Sequence[Transfer], messaging: Messaging, workers: Sequence[str], meter: Meter
) -> Parts:
    """Return the parts after transfers in sequence; unchanged if no element moves."""
    for transfer, schedule in zip(transfers, messaging.schedules, strict=True):
        if not _stays(transfer):
            parts = exchanged(parts, transfer, schedule, messaging, workers, meter)
    return parts


def _stays(transfer: Transfer) -> bool:
    """Return whether no element moves between ranks and no part changes shape."""
    sides = transfer.source, transfer.target
    before, after = ([side.local_shape(rank) for rank in range(side.ranks)] for side in sides)
    return before == after and not transfer.work.moved


@dataclass(frozen=True, kw_only=True)
class Moving:
    """Elements of one transfer; implements `Moves`."""

    transfer: Transfer
    """Transfer, with the layouts before and afterwards."""

    def sizes(self) -> np.ndarray:
        """Return the number of elements from each origin to each final rank."""
        return square(self.transfer.sizes())

    def made(self, rank: int, dtype: np.dtype) -> np.ndarray:
        """Allocate the new part of a rank."""
        return np.empty(self.transfer.target.local_shape(rank), dtype)

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Copy the share of a rank from an old part into its new one."""
        move(part, self.transfer, source, rank, made)

    def packed(self, rank: int, part: np.ndarray, final: int, rooms: Rooms) -> np.ndarray | None:
        """Pack the elements that ``rank`` holds for another."""
        if final >= self.transfer.target.ranks:
            return None
        message = pack(part, self.transfer, rank, final, rooms.take)
        return message if len(message) else None

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Copy received elements into the new part."""
        unpack(came, self.transfer, rank, made)


def exchanged(
    parts: Parts,
    transfer: Transfer,
    schedule: Schedule | None,
    messaging: Messaging,
    workers: Sequence[str],
    meter: Meter | None = None,
) -> Parts:
    """Return the parts after a transfer; without a schedule, it is a copy between threads."""
    travels = transfer.bare() if schedule else transfer
    moving = Moving(transfer=travels)
    program = PartExchange(plan=moving, schedule=schedule, assembly=messaging.assembly, dtype=parts.dtype)
    ranks = transfer.target.ranks
    return exchange_parts(program, parts, ranks, workers, ordered=messaging.ordered, meter=meter)
