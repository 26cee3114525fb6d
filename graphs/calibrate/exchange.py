"""Constants of a live cluster's network, fitted to measured redistributions.

    rows, one slab a worker  ─► columns, one slab a worker         a message is SIZES bytes
    by PEX-GEN   two ranks send to each other        β_ex
    by GEN       a rank serves two others            β_sr
    by LEX       many send to one                    β_sat
    by REX       forwarded data is copied            (powers of two)

They are real redistributions, packed, sent and unpacked. The time of an empty graph, and of each rank's own copy, is
subtracted first. Thakur 1995, section 4.3.8.

seconds = steps · α  +  tasks · τ  +  exchanged · β_ex  +  passed on · β_sr  +  sent · β_s
                                       +  on shared links · β_sat  +  packed again · a copy        (all in bytes)

A step counts with its largest message, under that message's kind. If its busiest link carries more than that (many send
to one, as in LEX), it counts with the bytes on the link. A constant that no exchange contains, or none independently of
the others, keeps its known value.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.task_spec import Task

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import Worker, workers_of
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.layouts.redistribution import exchanged
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import costs
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.exchange.network import FlatCluster, Network, busiest
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.prediction import Constants, flat_constants, message_kinds
from oocarrays.plan.exchange.schedule import schedules
from oocarrays.plan.layouts.assembly import Messaging, crowded_seconds
from oocarrays.plan.layouts.transfer import Transfer

if TYPE_CHECKING:
    from distributed import Client

NAMES = ("startup", "exchange", "send_receive", "single", "saturated", "forward", "task")


def parts(exchange: Exchange, network: Network) -> np.ndarray:
    """Return the terms of an exchange, one for each of ``NAMES``: steps, successive bytes of each kind, tasks."""
    found = np.zeros(len(NAMES))
    for turn in exchange:
        sources, sizes = turn.step.senders, turn.sizes
        largest = int(sizes.argmax())
        link = busiest(network, sources, turn.step.destinations[sources], sizes)
        found[[0, 5, 6]] += 1, turn.forwards * sizes[largest], turn.tasks
        if link > sizes[largest]:
            found[4] += link
        else:
            found[1 + int(message_kinds(turn.step)[largest])] += sizes[largest]
    return found


def fitted(measured: Iterable[tuple[Exchange, float]], network: Network, known: Constants) -> Constants:
    """Fit the non-negative constants of a network to the measured seconds of exchanges."""
    exchanges, seconds = zip(*measured, strict=True)
    table = np.array([parts(exchange, network) for exchange in exchanges]) / np.array(seconds)[:, None]
    told = chosen = _independent(table)
    while len(chosen):
        scale = table[:, chosen].max(axis=0)
        values = np.linalg.lstsq(table[:, chosen] / scale, np.ones(len(table)), rcond=None)[0] / scale
        if (values >= 0).all():
            none = dict.fromkeys((NAMES[column] for column in told), 0.0)
            found = {NAMES[column]: float(value) for column, value in zip(chosen, values, strict=True)}
            return replace(known, **none | found)  # type: ignore[arg-type]
        chosen = np.delete(chosen, values.argmin())
    return known


def _independent(table: np.ndarray) -> np.ndarray:
    """Return the columns that are linearly independent of those before them."""
    chosen: list[int] = []
    for column in np.flatnonzero(table.any(axis=0)).tolist():
        scaled = table[:, [*chosen, column]] / table[:, [*chosen, column]].max(axis=0)
        if np.linalg.matrix_rank(scaled, tol=1e-6) > len(chosen):
            chosen.append(column)
    return np.array(chosen, int)


SIZES = (2**24, 2**21, 2**12)
"""Maximum bytes of a message, the largest first: first use of memory is slow."""
TIMEOUT_SECONDS = 60
"""Seconds after which an exchange expected to take less than one second is abandoned."""


def calibrate_exchange(client: Client, workers: Sequence[str]) -> dict[str, Any]:
    workers = workers[:: -(-len(workers) // 8)]  # more add no information, and messages grow as their square
    ranks, sizes = len(workers), message_sizes(workers_of(client, workers))
    known = replace(costs(), graph_seconds=min(_seconds(client, _slabs(_rows(ranks, 1), workers)) for _ in range(4)))
    measured = []
    for nbytes in sizes:
        rows = _rows(ranks, nbytes)
        slabs, transfer = _there(client, _slabs(rows, workers)), Transfer(rows, _columns(rows))
        own = known.graph_seconds + crowded_seconds(transfer, 1, known)
        for schedule in schedules(ranks, names=("PEX-GEN", "GEN", "LEX", "REX")):
            messaging = Messaging(schedules=(schedule,), assembly="synchronous", ordered=True)
            took = [_seconds(client, exchanged(slabs, transfer, schedule, messaging, workers)) for _ in range(3)]
            seconds = median(took[1:])  # the first is slower
            measured.append((Exchange.of(schedule, transfer.sizes()), max(seconds - own, seconds / 10)))
    constants = asdict(fitted(measured, FlatCluster.of(ranks), flat_constants(known)[0]))
    del constants["from_bytes"]
    return {"graph_seconds": known.graph_seconds, "exchange": constants}


def message_sizes(workers: Sequence[Worker]) -> list[int]:
    """Return the message sizes to try: an array of at most 256 MiB on a machine, an eighth of a worker's memory limit.

    A worker also holds sent, received and forwarded data.
    """
    most = 2**28
    ranks, (_, fullest) = len(workers), Counter(worker.host for worker in workers).most_common(1)[0]
    each = min(most // fullest, *(worker.memory_limit // 8 or most for worker in workers))
    return [max(min(size, each // ranks // 8**number), 1) for number, size in enumerate(SIZES)]


def _rows(ranks: int, nbytes: int) -> Layout:
    """Return the layout of a byte array in rows; each rank has about ``nbytes`` of every other rank's columns."""
    rows = 64
    return Layout.of((ranks * rows, ranks * max(nbytes // rows, 1)), "(block, *)", ranks=ranks)


def _columns(rows: Layout) -> Layout:
    return Layout.of(rows.shape, "(*, block)", ranks=rows.ranks)


def _slabs(layout: Layout, workers: Sequence[str]) -> Parts:

    def make(key: Key) -> Task:
        return Task(key, _ones, layout.local_shape(key[-1]))

    return Parts.made(make, layout.ranks, np.dtype("u1"), workers, verb="slab")


def _ones(shape: tuple[int, ...]) -> np.ndarray:
    return np.ones(shape, "u1")


def _there(client: Client, parts: Parts) -> Parts:
    """Return the parts, computed and held in memory."""
    futures = _futures(client, parts)
    return Parts.of(dict(zip(parts.keys, futures, strict=True)), parts.keys, parts.dtype, {})


def _seconds(client: Client, parts: Parts) -> float:
    """Return the seconds from submission until all parts are computed."""
    start = time.perf_counter()
    _futures(client, parts)
    return time.perf_counter() - start


def _futures(client: Client, parts: Parts) -> list[Any]:
    return finished(client, parts.graph, parts.keys, parts.homes, "an exchange")


def finished(
    client: Client, graph: Any, keys: Iterable[Key], homes: Mapping[str, Sequence[str]], what: str
) -> list[Any]:
    """Compute tasks, each on the worker of its rank by the suffix in its key; return the futures of some, all done."""
    for suffix, addresses in homes.items():
        pin(client, suffix, addresses, f"oocarrays-{suffix}")
    futures: list[Any] = client.get(graph, list(keys), sync=False)  # type: ignore[no-untyped-call]
    try:
        await_all(futures, what, TIMEOUT_SECONDS)
        for future in futures:
            if future.status == "error":  # results of finished ones are large
                future.result()
    except BaseException:
        for future in futures:
            future.release()
        raise
    return futures


def await_all(futures: list[Any], what: str, seconds: float) -> None:
    """Wait until all futures are done, successfully or not."""
    from distributed import wait

    try:
        wait(futures, timeout=seconds)  # type: ignore[no-untyped-call]
    except TimeoutError:
        raise RunError(f"the cluster did not finish {what} within {seconds} s: a worker may be lost") from None
