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
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef

from oocarrays.errors import KernelError
from oocarrays.graphs.layouts.exchanging import Moving, PartExchange, Pieces, exchange_parts
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.steps import Key
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.slicing import Slices, local_slices
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.assembly import Messaging
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.storage.meter import Meter


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


def pieces_exchanged(
    name: str,
    parts: Parts,
    pieces: HaloPlan | AlltoallPlan,
    schedule: Schedule | None,
    workers: Sequence[str],
    meter: Meter,
) -> Parts:
    """Return the window of every rank, its part with halos, or the rows that it receives."""
    program = PartExchange(plan=Pieces(of=pieces), schedule=schedule, assembly="asynchronous", dtype=parts.dtype)
    return exchange_parts(program, parts, pieces.ranks, workers, meter=meter, name=name)


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
