"""Requests, bytes, seconds and memory of a use of an array in many layouts at once, for each read method.

    independent    every section visits its chunks      visits · (request + decoding + copy)
    two-phase      every chunk is read once, then sent  distinct · (the same) + exchange
    rewritten      every chunk of both layouts once     decoding + copy + encoding

Seconds follow `oocarrays.plan.machine.Costs` in closed form, so that thousands of layouts can be compared.
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
"""Read methods: the rows of each array in `Prices`."""
FRESH_BYTES = 2**25
"""Minimum bytes of a chunk for which each decode uses memory newly mapped by the system: the C library of Linux
caches
smaller blocks. Chunks of 1 to 16 MiB cause no page faults, those of 32 MiB more than 8,000 each.
"""
ZARR_AT_ONCE = 10
"""Maximum number of chunks that Zarr reads at once for one section: its ``async.concurrency``."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Use:
    """One kind of access of a block to an array."""

    footprints: tuple[Footprint, ...]
    """Sections of tasks or ranks."""
    writes: bool = False
    """True for writes, False for reads."""
    ranks: int | None = None
    """Number of ranks that read together, so that some may read for all; None for independent tasks."""
    by_zarr: bool = False
    """True if Zarr reads, as under Dask and xarray: whole chunks, even where byte ranges would do."""

    cut_by_chunks: bool = False
    """True if a section has one task per chunk it touches, so that other chunks mean other tasks."""
    repeats: tuple[Repeat, ...] = ()
    """Repetitions of each section that depend on the chunks."""

    def often(self, shape: tuple[int, ...], chunks: np.ndarray) -> int | np.ndarray:
        """Return the number of times each section is accessed, for each chunk shape."""
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
    """Costs of a use in each layout, one row per method of `METHODS`; seconds are infinite where infeasible."""

    seconds: np.ndarray
    """Predicted wall-clock seconds."""
    requests: np.ndarray
    """Number of read and write requests."""
    nbytes: np.ndarray
    """Stored bytes transferred; an estimate for coded chunks."""
    held: np.ndarray
    """Bytes of memory that a process holds at one time."""

    def within(self, budget: int) -> Prices:
        """Return these prices with infinite seconds wherever memory exceeds the budget."""
        return replace(self, seconds=np.where(self.held > budget, math.inf, self.seconds))


@dataclass(frozen=True, eq=False)
class _Taken:
    """Access counts of a use for each layout, over all its sections."""

    counts: Counts
    chunk_bytes: np.ndarray
    elements: int | np.ndarray
    """Number of elements accessed."""

    @property
    def visits(self) -> np.ndarray:
        return self.counts.visits

    @property
    def distinct(self) -> np.ndarray:
        return self.counts.distinct

    @property
    def partial(self) -> np.ndarray:
        """Number of visits that access only part of the chunk."""
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
    """Price a use of an array for each chunk shape, with the array's own codec and location."""
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
    """Return the mean number of sections processed at one time; the last ones leave processors idle."""
    cores = max(resources.costs.cores, 1)
    return np.asarray(np.where(sections, sections / np.maximum(np.ceil(np.divide(sections, cores)), 1), 1.0))


def _tasks(use: Use, taken: _Taken) -> int | np.ndarray:
    """Return the number of tasks: one per section, or one per chunk visit."""
    return taken.visits if use.cut_by_chunks else use.sections


def _visit_seconds(use: Use, taken: _Taken, stored: Stored, costs: Costs) -> np.ndarray:
    """Return the processor seconds to read one whole chunk, or to encode and write one."""
    nbytes = taken.chunk_bytes
    coded = {"encoded" if use.writes else "decoded": nbytes}
    fresh = np.where(nbytes >= FRESH_BYTES, nbytes, 0)
    took = seconds(Work(requests=1, pieces=1, copied=nbytes, touched=fresh, **coded), costs, stored)
    return np.asarray(took.processor + (costs.zarr_chunk_seconds if use.by_zarr else 0.0))


def _device_seconds(use: Use, visits: np.ndarray, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the seconds of the device or network; repeated reads are free if the page cache holds the array."""
    costs, each = resources.costs, taken.chunk_bytes * resources.costs.stored_ratio(stored)
    work = Work(written=visits * each)
    if not use.writes:
        work = Work(read=(taken.distinct if is_cached(costs, stored) else visits) * each)
    return np.asarray(seconds(work._replace(waits=visits / resources.requests), costs, stored).device)


def _alone(use: Use, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the wall-clock seconds if each section is read or written independently."""
    costs, nbytes = resources.costs, taken.elements * stored.itemsize
    visit = _visit_seconds(use, taken, stored, costs)
    work = taken.visits * visit + nbytes / costs.copy_bandwidth + nbytes / costs.touch_bandwidth
    if _by_ranges(use, stored):
        sieved = taken.visits * (costs.range_seconds + taken.chunk_bytes / costs.copy_bandwidth)
        direct = taken.counts.runs * costs.range_seconds + nbytes / costs.copy_bandwidth
        work = taken.visits * costs.piece_seconds + np.minimum(sieved, direct) + nbytes / costs.touch_bandwidth
    if use.writes:  # chunks written in part are read first
        work = work + taken.partial * taken.chunk_bytes / speed(costs.decode_bandwidth, stored.codec)
    tasks = _tasks(use, taken)
    overhead = costs.graph_seconds if resources.on_workers else tasks * costs.task_seconds
    device = _device_seconds(use, taken.visits, taken, stored, resources)
    seconds = np.maximum(work / _lanes(tasks, resources), device) + overhead
    if use.writes:  # two tasks that write one chunk at the same time overwrite each other's part
        seconds = np.where(taken.distinct < taken.visits, math.inf, seconds)
    return np.asarray(seconds)


def _together(use: Use, taken: _Taken, stored: Stored, chunks: np.ndarray, resources: Resources) -> np.ndarray:
    """Return the wall-clock seconds if each chunk is read or written once for all ranks."""
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
    """Return the number of ranks that share a chunk, its reader included.

    This counts chunks that follow each other along one axis. Others are assigned in file order, which differs from
    the
    order of the ranks' sections, so any rank may want any chunk.
    """
    rows = (chunks < np.array(stored.grid.shape)).sum(axis=1) <= 1
    return np.where(rows, np.clip(taken.visits / np.maximum(taken.distinct, 1), 1, ranks), ranks)


def _exchange_seconds(
    rounds: np.ndarray, sharing: np.ndarray, ranks: int, nbytes: int, resources: Resources
) -> np.ndarray:
    """Return the seconds of the messages in all rounds, as a collective read counts them.

    The rank that reads a chunk shared by `sharing` ranks keeps its own share and sends the others theirs.
    """
    costs = resources.costs
    if not resources.on_workers:
        return np.asarray(rounds * ranks * costs.task_seconds + 2 * ranks * costs.small_task_seconds)
    startup, task, byte = (costs.exchange[name] for name in ("startup", "task", "exchange"))
    sent, messages = nbytes / ranks * (1 - 1 / sharing), ranks * (sharing - 1)
    return np.asarray(rounds * (startup + (messages + 2 * ranks) * task) + sent * byte + costs.graph_seconds)


# ---------------------------------------------------------------------- memory


def _held(use: Use, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the bytes that a process holds, by method: sections plus the chunks in progress."""
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
    """Return the seconds to rewrite an array from each source chunk shape to each target chunk shape, in one pass."""
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
