"""What a use of an array costs in many layouts at one time, read alone or together: requests, bytes, seconds, memory.

    independent    every section visits its chunks      visits · (request + decoding + copy)
    two-phase      every chunk is read once, then sent  distinct · (the same) + exchange
    rewritten      every chunk of both layouts once     decoding + copy + encoding

The seconds are those of `oocarrays.plan.machine.Costs`, in closed form: thousands of layouts are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from oocarrays.mapping.grid import Stored
from oocarrays.plan.advice.access import Repeat
from oocarrays.plan.advice.counting import Counts, Footprint
from oocarrays.plan.collective.read import BUFFER_BYTES
from oocarrays.plan.cost import Work, is_cached, seconds
from oocarrays.plan.machine import Costs, speed
from oocarrays.plan.memory import Resources

METHODS = ("independent", "two-phase")
"""The rows of what is found."""
FRESH_BYTES = 2**25
"""Bytes of a chunk from which on each is decoded into memory that the system gives anew: the C library of Linux keeps
smaller pieces. Chunks of 1 to 16 MiB take no faults, those of 32 MiB more than 8,000 each."""
ZARR_AT_ONCE = 10
"""Chunks that Zarr reads for one section at one time, at most: its ``async.concurrency``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Use:
    """One way in which a block reads or writes an array."""

    footprints: tuple[Footprint, ...]
    """Sections of tasks or ranks."""
    writes: bool = False
    """Whether they are written."""
    ranks: int | None = None
    """Ranks that ask at one time, so that some may read for all; None for tasks that each read for themselves."""
    by_zarr: bool = False
    """Whether Zarr reads, as it does for Dask and xarray: whole chunks, also where ranges would do."""

    cut_by_chunks: bool = False
    """Whether there is a task for each chunk of which a section takes any: they are others in other chunks."""
    repeats: tuple[Repeat, ...] = ()
    """Repetitions of each section that depend on the chunks."""

    def often(self, shape: tuple[int, ...], chunks: np.ndarray) -> int | np.ndarray:
        """Count how often each section is taken in each of some chunk shapes."""
        return sum(each.blocks(shape, chunks) for each in self.repeats) if self.repeats else 1

    @property
    def elements(self) -> int:
        return sum(each.elements for each in self.footprints)

    @property
    def sections(self) -> int:
        return sum(each.sections for each in self.footprints)

    @property
    def largest(self) -> int:
        return max((math.prod(each.largest) for each in self.footprints), default=0)


@dataclass(frozen=True, eq=False)
class Prices:
    """Costs of a use in each layout: a row for each of `METHODS`; infinite seconds where one cannot be."""

    seconds: np.ndarray
    """Predicted by the clock."""
    requests: np.ndarray
    """Calls that read or write."""
    nbytes: np.ndarray
    """Stored bytes that they bring or take: an estimate where chunks are coded."""
    held: np.ndarray
    """Bytes that a process holds at one time."""

    def within(self, budget: int) -> Prices:
        """Return the same, with infinite seconds for what holds more."""
        return replace(self, seconds=np.where(self.held > budget, math.inf, self.seconds))


@dataclass(frozen=True, eq=False)
class _Taken:
    """Counts of what a use takes of each layout, all its sections together."""

    counts: Counts
    chunk_bytes: np.ndarray
    elements: int | np.ndarray
    """Elements that are taken."""

    @property
    def visits(self) -> np.ndarray:
        return self.counts.visits

    @property
    def distinct(self) -> np.ndarray:
        return self.counts.distinct

    @property
    def partial(self) -> np.ndarray:
        """Visits to chunks of which a part is taken."""
        return np.asarray(self.counts.visits - self.counts.whole)


def _nothing(layouts: int) -> Counts:
    none = np.zeros(layouts, np.int64)
    return Counts(none, none, none, none, none)


def _taken(use: Use, stored: Stored, chunks: np.ndarray) -> _Taken:
    there = np.multiply.reduce(-(-np.array(stored.grid.shape, np.int64) // chunks), axis=1)
    found, *more = [footprint.counts(chunks) for footprint in use.footprints] or [_nothing(len(chunks))]
    for each in more:
        most = np.maximum(found.most, each.most)
        visits, distinct, whole, runs = (a + b for a, b in zip(found[:4], each[:4], strict=True))
        found = Counts(visits, distinct, whole, runs, most)
    often = use.often(stored.grid.shape, chunks)
    visits, whole, runs = (often * each for each in (found.visits, found.whole, found.runs))
    found = Counts(visits, np.minimum(found.distinct, there), whole, runs, found.most)
    return _Taken(found, np.multiply.reduce(chunks, axis=1) * stored.itemsize, often * use.elements)


def _by_ranges(use: Use, stored: Stored) -> bool:
    return not (use.by_zarr or use.writes or stored.coded)


def prices(use: Use, stored: Stored, chunks: np.ndarray, resources: Resources) -> Prices:
    """Price a use of an array in each of some chunk shapes, its codec and place as they are."""
    taken = _taken(use, stored, chunks)
    alone, together = _alone(use, taken, stored, resources), _together(use, taken, stored, chunks, resources)
    ratio = resources.costs.stored_ratio(stored)
    moved = [taken.visits * taken.chunk_bytes * ratio, taken.distinct * taken.chunk_bytes * ratio]
    requests = [taken.visits, taken.distinct]
    if _by_ranges(use, stored):
        requests[0], moved[0] = taken.counts.runs, np.full(len(chunks), float(use.elements * stored.itemsize))
    if use.writes:
        requests[0] = taken.visits + taken.partial
        moved[0] = moved[0] + taken.partial * taken.chunk_bytes * ratio
    held = _held(use, taken, stored, resources)
    return Prices(np.array([alone, together]), np.array(requests), np.array(moved), held)


# ---------------------------------------------------------------------- seconds


def _lanes(sections: int | np.ndarray, resources: Resources) -> np.ndarray:
    """Sections that are worked on at one time, on the average: the last ones leave processors idle."""
    cores = max(resources.costs.cores, 1)
    return np.asarray(np.where(sections, sections / np.maximum(np.ceil(np.divide(sections, cores)), 1), 1.0))


def _tasks(use: Use, taken: _Taken) -> int | np.ndarray:
    """Tasks that take the sections: one for each, or for each chunk that one takes from."""
    return taken.visits if use.cut_by_chunks else use.sections


def _visit_seconds(use: Use, taken: _Taken, stored: Stored, costs: Costs) -> np.ndarray:
    """Seconds of a processor in which one chunk is read whole, or made and written."""
    nbytes = taken.chunk_bytes
    coded = {"encoded" if use.writes else "decoded": nbytes}
    fresh = np.where(nbytes >= FRESH_BYTES, nbytes, 0)
    took = seconds(Work(requests=1, pieces=1, copied=nbytes, touched=fresh, **coded), costs, stored)
    return np.asarray(took.processor + (costs.zarr_chunk_seconds if use.by_zarr else 0.0))


def _device_seconds(use: Use, visits: np.ndarray, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Seconds of the device, which gives a chunk once where the cache keeps it, or of the network, which does not."""
    costs, each = resources.costs, taken.chunk_bytes * resources.costs.stored_ratio(stored)
    work = Work(written=visits * each)
    if not use.writes:
        work = Work(read=(taken.distinct if is_cached(costs, stored) else visits) * each)
    return np.asarray(seconds(work._replace(waits=visits / resources.requests), costs, stored).device)


def _alone(use: Use, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Seconds by the clock in which each section is read or written for itself."""
    costs, nbytes = resources.costs, taken.elements * stored.itemsize
    visit = _visit_seconds(use, taken, stored, costs)
    work = taken.visits * visit + nbytes / costs.copy_bandwidth + nbytes / costs.touch_bandwidth
    if _by_ranges(use, stored):
        sieved = taken.visits * (costs.range_seconds + taken.chunk_bytes / costs.copy_bandwidth)
        direct = taken.counts.runs * costs.range_seconds + nbytes / costs.copy_bandwidth
        work = taken.visits * costs.piece_seconds + np.minimum(sieved, direct) + nbytes / costs.touch_bandwidth
    if use.writes:  # chunks of which a part is written are read first
        work = work + taken.partial * taken.chunk_bytes / speed(costs.decode_bandwidth, stored.codec)
    tasks = _tasks(use, taken)
    overhead = costs.graph_seconds if resources.on_workers else tasks * costs.task_seconds
    device = _device_seconds(use, taken.visits, taken, stored, resources)
    seconds = np.maximum(work / _lanes(tasks, resources), device) + overhead
    if use.writes:  # two tasks that write one chunk at one time lose what one of them wrote
        seconds = np.where(taken.distinct < taken.visits, math.inf, seconds)
    return np.asarray(seconds)


def _together(use: Use, taken: _Taken, stored: Stored, chunks: np.ndarray, resources: Resources) -> np.ndarray:
    """Seconds by the clock in which each chunk is read or written once for all ranks."""
    if use.ranks is None:
        return np.full(len(taken.visits), math.inf)
    costs, ranks, nbytes = resources.costs, use.ranks, use.elements * stored.itemsize
    visit = _visit_seconds(use, taken, stored, costs)
    filled = nbytes / costs.copy_bandwidth + nbytes / costs.touch_bandwidth
    work = (taken.distinct * visit) / _lanes(ranks, resources) + filled / _lanes(ranks, resources)
    device = _device_seconds(use, taken.distinct, taken, stored, resources)
    rounds = np.maximum(np.ceil(taken.distinct * taken.chunk_bytes / ranks / BUFFER_BYTES), 1)
    sharing = _sharing(taken, stored, chunks, ranks)
    return np.asarray(np.maximum(work, device) + _exchange_seconds(rounds, sharing, ranks, nbytes, resources))


def _sharing(taken: _Taken, stored: Stored, chunks: np.ndarray, ranks: int) -> np.ndarray:
    """Ranks that want a chunk, its reader among them: of chunks that follow each other along one axis. Others are dealt
    out in file order, which is not that in which ranks want them: all may want any."""
    rows = (chunks < np.array(stored.grid.shape)).sum(axis=1) <= 1
    return np.where(rows, np.clip(taken.visits / np.maximum(taken.distinct, 1), 1, ranks), ranks)


def _exchange_seconds(
    rounds: np.ndarray, sharing: np.ndarray, ranks: int, nbytes: int, resources: Resources
) -> np.ndarray:
    """Seconds of messages in each round, as a collective read counts them: a rank that reads a chunk, which so many
    ranks share, keeps its own share of it and sends theirs to the others."""
    costs = resources.costs
    if not resources.on_workers:
        return np.asarray(rounds * ranks * costs.task_seconds + 2 * ranks * costs.small_task_seconds)
    startup, task, byte = (costs.exchange[name] for name in ("startup", "task", "exchange"))
    sent, messages = nbytes / ranks * (1 - 1 / sharing), ranks * (sharing - 1)
    return np.asarray(rounds * (startup + (messages + 2 * ranks) * task) + sent * byte + costs.graph_seconds)


# ---------------------------------------------------------------------- memory


def _held(use: Use, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Bytes that a process holds, by method: sections, and chunks that are under way for each."""
    section = np.minimum(use.largest * stored.itemsize, taken.chunk_bytes if use.cut_by_chunks else math.inf)
    spare = stored.decode_workspace / max(stored.chunk_bytes, 1)
    each = taken.chunk_bytes * (2 + spare)
    lanes = np.minimum(_tasks(use, taken), resources.threads if resources.on_workers else resources.costs.cores)
    under_way = np.minimum(taken.counts.most, ZARR_AT_ONCE) if use.by_zarr and not use.cut_by_chunks else 1
    alone = lanes * (section + each * under_way)
    if use.ranks is None:
        return np.array([alone, np.full(len(each), math.inf)])
    here = resources.ranks_of_a_process(use.ranks)
    buffered = np.maximum(np.minimum(BUFFER_BYTES, taken.distinct * taken.chunk_bytes / use.ranks), taken.chunk_bytes)
    busy, rooms = np.minimum(here, np.maximum(lanes, 1)), 3 if resources.on_workers else 1
    together = here * section + busy * (each + buffered * rooms)
    return np.array([np.maximum(alone, here * section), together])


# ---------------------------------------------------------------------- other layouts


def rewriting_seconds(stored: Stored, sources: np.ndarray, targets: np.ndarray, resources: Resources) -> np.ndarray:
    """Seconds in which an array is rewritten from each of some chunk shapes in each of others: one pass over all."""
    costs, ratio, nbytes = resources.costs, resources.costs.stored_ratio(stored), stored.nbytes
    counts = [np.prod(-(-np.array(stored.grid.shape) // each), axis=1, dtype=float) for each in (sources, targets)]
    read, written = counts[0][:, None], counts[1]
    work = Work(
        requests=read + written, pieces=read, copied=3 * nbytes, decoded=nbytes, encoded=nbytes,
        read=nbytes * ratio, written=nbytes * ratio, waits=(read + written) / resources.requests,
    )  # fmt: skip
    took = seconds(work, costs, stored)
    processor = (took.processor + costs.place_seconds * written) / max(costs.cores, 1)
    same = (sources[:, None, :] == targets[None, :, :]).all(axis=2)
    return np.asarray(np.where(same, 0.0, np.maximum(processor, took.device)))
