"""Limits of a machine, places of ranks on it, and constants of the cost model, each with its unit.

rank      0  1  2  3  4
place     a  a  a  b  b        neighbours together, so that their halos stay in one place
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol, TypeVar

from oocarrays.errors import BudgetError, InputError

T = TypeVar("T")
Place = TypeVar("Place")
MOST_TASKS = 4_000_000
"""Maximum number of tasks of a graph: Dask keeps and orders them in some 10 GB."""


def check_count(tasks: int, what: str = "this job", advice: str = "give more memory, larger chunks") -> None:
    if tasks > MOST_TASKS:
        raise InputError(
            f"{what} has {tasks} tasks, more than the {MOST_TASKS} that can run: {advice}, or process the array "
            "in parts"
        )


def within_budget(plans: Iterable[Callable[[], T]]) -> list[T]:
    """Make several plans for one budget; if any fails, the error states a minimum that suffices for all."""
    made: list[T] = []
    refused: list[BudgetError] = []
    for plan in plans:
        try:
            made.append(plan())
        except BudgetError as error:
            refused.append(error)
    check_budgets(refused)
    return made


def check_budgets(refused: Sequence[BudgetError]) -> None:
    if refused:
        raise max(refused, key=lambda error: error.least)


def spread(ranks: int, places: Sequence[Place]) -> tuple[Place, ...]:
    """Return the place of each rank: neighbours together, and numbers of ranks that differ by at most one."""
    if not places:
        return ()
    return tuple(places[rank * len(places) // max(ranks, len(places))] for rank in range(ranks))


def evenly(count: int, places: Sequence[Place]) -> Sequence[Place]:
    """Return ``count`` places, evenly spaced because neighbours may be on one machine, or all if there are no more."""
    return tuple(places[n * len(places) // count] for n in range(count)) if count < len(places) else places


def sides(before: int, after: int, places: Sequence[Place]) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
    """Return the places of the ranks of an exchange for sending and for receiving, for different numbers of ranks.

    A rank on one side only gets on the other the place that it has among all.
    """
    every = spread(max(before, after), places)
    return spread(before, places) + every[before:], spread(after, places) + every[after:]


class HasCodec(Protocol):
    """A stored array, as far as constants depend on it."""

    @property
    def coded(self) -> bool: ...


OTHER = "other"
"""Key of codecs without a measured speed."""


def speed(bandwidths: Mapping[str, float], codec: str | None) -> float:
    """Return the bytes per second of a codec; infinite without one."""
    return math.inf if codec is None else bandwidths.get(codec, bandwidths[OTHER])


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of this machine for each kind of work; the defaults of ``oocarrays.cost.*`` in Dask's configuration."""

    read_bandwidth: float = 1.2e9
    """Bytes a second that the device reads, all ranks together."""
    write_bandwidth: float = 2.0e9
    """Bytes a second that the device writes, all ranks together."""
    burst_bytes: float = math.inf
    """Bytes written at `write_bandwidth`; a shared device, or one with a memory buffer, is slower afterwards."""
    sustained_bandwidth: float = 0.4e9
    """Bytes a second that the device writes afterwards."""
    copy_bandwidth: float = 4.0e9
    """Bytes a second that one core copies while all others copy as well."""
    cache_bandwidth: float = 3.0e9
    """Bytes a second that one core reads of files in the system's cache."""
    cache_write_bandwidth: float = 1.1e9
    """Bytes a second that one core writes to new files in the system's cache, including allocation of its memory: 0.4e9
    if a virtual machine has to request it from its host first, 3e9 if not.
    """
    touch_bandwidth: float = 2.2e9
    """Bytes a second of newly allocated memory that one core touches for the first time."""
    decode_bandwidth: Mapping[str, float] = field(
        default_factory=lambda: {"zstd": 0.55e9, "blosc": 2.0e9, "gzip": 0.25e9, OTHER: 0.45e9}, hash=False
    )
    """Decoded bytes a second that one core produces, by codec."""
    encode_bandwidth: Mapping[str, float] = field(
        default_factory=lambda: {"zstd": 0.16e9, "blosc": 1.0e9, "gzip": 0.03e9, OTHER: 0.14e9}, hash=False
    )
    """Decoded bytes a second that one core encodes, by codec."""
    request_seconds: float = 4e-6
    """Seconds of one request to a local file; the interpreter serialises them."""
    range_seconds: float = 2e-6
    """Seconds of one of many ranges of local files requested at one time: 0.4 µs from the cache, 5 µs from a device."""
    store_request_seconds: float = 1e-4
    """Seconds that the interpreter takes for one request to any other store."""
    remote_request_seconds: float = 0.02
    """Seconds until a network store begins to answer; concurrent requests wait together."""
    remote_bandwidth: float = 4e8
    """Bytes a second to or from network stores, of all ranks together."""
    handoff_seconds: float = 6e-6
    """Seconds that two threads lose in a short call of one of them, as the interpreter's lock changes hands; with more
    threads, all lose that times the root of the others' number.
    """
    run_seconds: float = 4e-9
    """Seconds that each contiguous run adds to a copy between layouts."""
    piece_seconds: float = 4e-5
    """Seconds to open a chunk and locate its pieces."""
    file_seconds: float = 2.5e-4
    """Seconds to create, open and rename a file, without writing its bytes."""
    place_seconds: float = 2e-5
    """Seconds of the interpreter to lay out one piece of a chunk and to start its in-place write."""
    put_seconds: float = 2.5e-4
    """Seconds that a rank waits for the device in one write past the system's cache, without its bytes."""
    seek_seconds: float = 1e-4
    """Seconds until the device begins to answer one short request that the cache cannot serve."""
    task_seconds: float = 6e-4
    """Seconds that the scheduler takes for one task."""
    worker_task_seconds: float = 6e-3
    """Seconds from one task to the next in a chain on a worker of a cluster: mostly messages to and from the
    scheduler."""
    message_seconds: float = 16e-3
    """Seconds of a step of the exchange between workers and its two tasks, for an empty message: α."""
    message_bandwidth: float = 5e8
    """Bytes a second that each rank sends and receives while all do: 1 / β."""
    step_seconds: float = 3e-3
    """Seconds of a step of the exchange between workers for an empty message, if one task holds a whole round."""
    scheduler_seconds: float = 2.5e-4
    """Seconds that the scheduler of a cluster is busy with one task of a graph; it handles one after the other."""
    graph_seconds: float = 0.03
    """Seconds of an empty graph on a cluster."""
    exchange: Mapping[str, float] = field(
        default_factory=lambda: {
            "startup": 0.012,
            "exchange": 1e-9,
            "send_receive": 1e-9,
            "single": 0.5e-9,
            "saturated": 0.5e-9,
            "forward": 0.5e-9,
            "task": 0.5e-3,
        },
        hash=False,
    )
    """Constants of a redistribution between workers, in seconds and seconds a byte, including packing and unpacking;
    the names are those of `oocarrays.plan.exchange.prediction.Constants`.
    """
    coded_ratio: float = 0.6
    """Coded bytes over decoded bytes; an estimate."""
    cache_bytes: float = 4e9
    """Bytes of files that the operating system can keep in memory."""
    cores: int = 2
    """Processors that ranks can use."""
    cache_writers: int = 2
    """Cores that write to the system's cache at full speed: 1 GiB took 1.7, 0.7 and 0.5 s by one, two and four."""
    fresh_bytes: float = 2**25
    """Minimum bytes of a chunk for which each decode uses memory newly mapped by the system: the C library of Linux
    caches smaller blocks. Chunks of 1 to 16 MiB cause no page faults, those of 32 MiB more than 8,000 each.
    """
    kernel_copies: float = 8
    """Copies of its block that one core makes in the time of a kernel: a guess, for any kernel."""
    sweep_copies: float = 1.5
    """Copies of an array that one core makes in the time of one sweep of it in cache: a guess, for any kernel."""
    small_task_seconds: float = 1e-4
    """Seconds of a task between threads that only makes or forwards a part: measured 0.08 to 0.13 ms."""
    zarr_chunk_seconds: float = 3e-4
    """Seconds that Zarr's own readers and writers spend on one chunk in addition to its bytes, one after the other."""
    row_seconds: float = 1e-5
    """Minimum seconds of a request for part of one row: each of many waits for the interpreter's lock."""
    element_seconds: float = 2e-9
    """Seconds that each piece, copied as one wide element, adds to a copy: measured."""

    def write_seconds(self, nbytes: float) -> float:
        burst = min(nbytes, self.burst_bytes)
        return burst / self.write_bandwidth + (nbytes - burst) / self.sustained_bandwidth

    def stored_ratio(self, stored: HasCodec) -> float:
        """Return stored bytes over decoded bytes; an estimate if chunks are coded."""
        return self.coded_ratio if stored.coded else 1.0


COST_NAMES = tuple(field.name for field in fields(Costs))
