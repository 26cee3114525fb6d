"""Requests, bytes, seconds and memory of a use of an array in many layouts at once, for each read method.

    independent    every section visits its chunks      visits · (request + decoding + copy)
    two-phase      every chunk is read once, then sent  distinct · (the same) + exchange
    rewritten      every chunk of both layouts once     decoding + copy + encoding

Seconds follow `oocarrays.plan.machine.Costs` in closed form, so that thousands of layouts can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, get_args

import numpy as np

from oocarrays.mapping.grid import Stored
from oocarrays.plan.advice.access import Access, Dataset
from oocarrays.plan.advice.patterns import Pattern, counted
from oocarrays.plan.collective.read import BUFFER_BYTES, Method
from oocarrays.plan.cost import Work, is_cached, seconds
from oocarrays.plan.exchange.prediction import unordered_seconds
from oocarrays.plan.machine import Costs, speed
from oocarrays.plan.plan import Resources

METHODS = get_args(Method)
"""Read methods: the rows of each array in `Prices`."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Costs of a use in each layout, one row per method of `METHODS`; seconds are infinite where infeasible."""

    seconds: np.ndarray
    requests: np.ndarray
    nbytes: np.ndarray
    """Stored bytes transferred; an estimate for coded chunks."""
    held: np.ndarray
    """Bytes of memory that a process holds at one time."""

    def within(self, budget: int) -> Prices:
        return replace(self, seconds=np.where(self.held > budget, math.inf, self.seconds))


class _Taken(NamedTuple):
    """Access counts for each layout, over all sections."""

    visits: np.ndarray
    """Number of chunks that sections touch, with repetitions."""
    distinct: np.ndarray
    partial: np.ndarray
    """Number of visits that access only part of the chunk."""
    runs: np.ndarray
    most: np.ndarray
    """Maximum number of chunks that one section touches."""
    chunk_bytes: np.ndarray
    elements: int | np.ndarray


def _taken(use: Access, stored: Stored, chunks: np.ndarray) -> _Taken:
    shape = stored.grid.shape
    there = np.multiply.reduce(-(-np.array(shape, np.int64) // chunks), axis=1)
    each = np.array([counted(one, shape, chunks) for one in use.patterns], np.int64).reshape(-1, 5, len(chunks))
    (visits, distinct, whole, runs, _), most = each.sum(axis=0), each[:, 4].max(axis=0, initial=0)
    often, nbytes = use.often(shape, chunks), np.multiply.reduce(chunks, axis=1) * stored.itemsize
    return _Taken(
        visits=often * visits, distinct=np.minimum(distinct, there), partial=often * (visits - whole),
        runs=often * runs, most=most, chunk_bytes=nbytes, elements=often * use.elements,
    )  # fmt: skip


def _by_ranges(use: Access, stored: Stored) -> bool:
    return use.by_ranks and not (use.writes or stored.coded)


def prices(use: Access, stored: Stored, chunks: np.ndarray, resources: Resources) -> Prices:
    taken = _taken(use, stored, chunks)
    alone, together = _alone(use, taken, stored, resources), _together(use, taken, stored, chunks, resources)
    ratio = resources.costs.stored_ratio(stored)
    moved = [taken.visits * taken.chunk_bytes * ratio, taken.distinct * taken.chunk_bytes * ratio]
    requests = [taken.visits, taken.distinct]
    if _by_ranges(use, stored):
        requests[0], moved[0] = taken.runs, np.full(len(chunks), float(use.elements * stored.itemsize))
    if use.writes:
        requests[0] = taken.visits + taken.partial
        moved[0] = moved[0] + taken.partial * taken.chunk_bytes * ratio
    held = _held(use, taken, stored, resources)
    return Prices(np.array([alone, together]), np.array(requests), np.array(moved), held)


def _lanes(sections: int | np.ndarray, resources: Resources) -> np.ndarray:
    """Return the mean number of sections processed at one time; the last ones leave processors idle."""
    cores = max(resources.costs.cores, 1)
    return np.asarray(np.where(sections, sections / np.maximum(np.ceil(np.divide(sections, cores)), 1), 1.0))


def _tasks(use: Access, taken: _Taken) -> int | np.ndarray:
    return taken.visits if use.cut_by_chunks else use.tasks


def _visit_seconds(use: Access, taken: _Taken, stored: Stored, costs: Costs) -> np.ndarray:
    """Return the processor seconds to read one whole chunk, or to encode and write one."""
    nbytes = taken.chunk_bytes
    coded = {"encoded" if use.writes else "decoded": nbytes}
    fresh = np.where(nbytes >= costs.fresh_bytes, nbytes, 0)
    took = seconds(Work(requests=1, pieces=1, copied=nbytes, touched=fresh, **coded), costs, stored)
    return np.asarray(took.processor + (0.0 if use.by_ranks else costs.zarr_chunk_seconds))


def _device_seconds(use: Access, visits: np.ndarray, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the seconds of the device or network; repeated reads are free if the page cache holds the array."""
    costs, each = resources.costs, taken.chunk_bytes * resources.costs.stored_ratio(stored)
    work = Work(written=visits * each)
    if not use.writes:
        work = Work(read=(taken.distinct if is_cached(costs, stored) else visits) * each)
    return np.asarray(seconds(work._replace(waits=visits / resources.requests), costs, stored).device)


def _alone(use: Access, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the wall-clock seconds if each section is read or written independently."""
    costs, nbytes = resources.costs, taken.elements * stored.itemsize
    visit = _visit_seconds(use, taken, stored, costs)
    work = taken.visits * visit + nbytes / costs.copy_bandwidth + nbytes / costs.touch_bandwidth
    if _by_ranges(use, stored):
        sieved = taken.visits * (costs.range_seconds + taken.chunk_bytes / costs.copy_bandwidth)
        direct = taken.runs * costs.range_seconds + nbytes / costs.copy_bandwidth
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


def _together(use: Access, taken: _Taken, stored: Stored, chunks: np.ndarray, resources: Resources) -> np.ndarray:
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

    This counts chunks that follow each other along one axis. Others are assigned in file order, which differs from the
    order of the ranks' sections, so any rank may want any chunk.
    """
    rows = (chunks < np.array(stored.grid.shape)).sum(axis=1) <= 1
    return np.where(rows, np.clip(taken.visits / np.maximum(taken.distinct, 1), 1, ranks), ranks)


def _exchange_seconds(
    rounds: np.ndarray, sharing: np.ndarray, ranks: int, nbytes: int, resources: Resources
) -> np.ndarray:
    """Return the seconds of the messages of a collective read; the reader of a chunk keeps its own share of it."""
    costs = resources.costs
    if not resources.on_workers:
        return np.asarray(rounds * ranks * costs.task_seconds + 2 * ranks * costs.small_task_seconds)
    sent, messages = nbytes / ranks * (1 - 1 / sharing), ranks * (sharing - 1)
    return np.asarray(unordered_seconds(rounds * messages, sent, costs, ranks, rounds) + costs.graph_seconds)


def _held(use: Access, taken: _Taken, stored: Stored, resources: Resources) -> np.ndarray:
    """Return the bytes of a process by method; Zarr reads up to 10 chunks of a section at once (async.concurrency)."""
    largest = max((math.prod(each.largest) for each in use.patterns), default=0) * stored.itemsize
    section = np.minimum(largest, taken.chunk_bytes if use.cut_by_chunks else math.inf)
    spare = stored.decode_workspace / max(stored.chunk_bytes, 1)
    each = taken.chunk_bytes * (2 + spare)
    lanes = np.minimum(_tasks(use, taken), resources.threads if resources.on_workers else resources.costs.cores)
    under_way = 1 if use.by_ranks or use.cut_by_chunks else np.minimum(taken.most, 10)
    alone = lanes * (section + each * under_way)
    if use.ranks is None:
        return np.array([alone, np.full(len(each), math.inf)])
    here = resources.ranks_of_a_process(use.ranks)
    buffered = np.maximum(np.minimum(BUFFER_BYTES, taken.distinct * taken.chunk_bytes / use.ranks), taken.chunk_bytes)
    busy, rooms = np.minimum(here, np.maximum(lanes, 1)), 3 if resources.on_workers else 1
    together = here * section + busy * (each + buffered * rooms)
    return np.array([np.maximum(alone, here * section), together])


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


_Awaited = dict[int, list[tuple[int, int]]]
"""Stride and index of each range that would continue at an element."""
_Alone = dict[int, list[int]]
"""Indices of one-element ranges, with undetermined stride, by that element."""


def use_of(access: Access, dataset: Dataset, ranks: int | None = None) -> Access:
    """Return a traced access as it is priced: with ranks that read together, and tasks that depend on no chunks."""
    alone = replace(access, cut_by_chunks=False, repeats=(), ranks=None)
    if access.by_ranks or ranks is not None:
        return replace(alone, by="oocarrays", ranks=access.ranks or ranks)
    if access.cut_by_chunks and all(_in_chunks(each, dataset.chunks) for each in access.patterns):
        return _whole(access, dataset)
    return alone


@lru_cache(maxsize=1024)
def _in_chunks(pattern: Pattern, chunks: tuple[int, ...]) -> bool:
    along = zip(pattern.ranges(), chunks, strict=True)
    return all(each[0] // c == each[-1] // c for taken, c in along for each in taken)


def _whole(access: Access, dataset: Dataset) -> Access:
    """Return the access of tasks cut by chunks, with their sections joined so that it is independent of the chunks."""
    repeats, often = access.repeats, int(np.sum(access.often(dataset.shape, np.array([dataset.chunks]))))
    if [pattern.times for pattern in access.patterns] != [often]:
        repeats, often = (), 1
    patterns = (replace(_joined(each, dataset.chunks), times=each.times // often) for each in access.patterns)
    return replace(access, patterns=tuple(patterns), repeats=repeats, ranks=None)


@lru_cache(maxsize=1024)
def _joined(pattern: Pattern, chunks: tuple[int, ...]) -> Pattern:
    return Pattern.of(joined(taken, c) for taken, c in zip(pattern.ranges(), chunks, strict=True))


def joined(taken: Iterable[range], chunk: int) -> list[range]:
    """Join ranges of one chunk each that continue each other with one stride across chunk edges."""
    made: list[range] = []
    awaited: _Awaited = {}
    alone: _Alone = {}
    for each in sorted(taken, key=lambda r: (r.start, -r.stop)):
        in_one = each.start // chunk == each[-1] // chunk
        number = _continued(each, awaited, alone, chunk) if in_one else None
        if number is None:
            number = len(made)
            made.append(each)
        else:
            made[number] = range(made[number].start, each.stop, each.start - made[number][-1])
        step = made[number].step
        if in_one and len(made[number]) == 1:
            alone.setdefault(each.start, []).append(number)
        elif in_one and (each[-1] + step) // chunk != each[-1] // chunk:
            awaited.setdefault(each[-1] + step, []).append((step, number))
    return made


def _continued(each: range, awaited: _Awaited, alone: _Alone, chunk: int) -> int | None:
    """Return the index of the range that `each` continues, and stop awaiting it; None for a new range."""
    for entry in awaited.get(each.start, []):
        if len(each) == 1 or entry[0] == each.step:
            awaited[each.start].remove(entry)
            return entry[1]
    before = each.start - each.step if len(each) > 1 else next(iter(alone), each.start)
    if before // chunk == each.start // chunk or before not in alone:
        return None
    number = alone[before].pop(0)
    if not alone[before]:
        del alone[before]
    return number
