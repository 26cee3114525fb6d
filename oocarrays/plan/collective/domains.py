"""File domains: the parts of a file that single ranks read or write for all.

    requests of ranks     · · 0 0 1 1 · · 2 2 · ·
    static                A A A B B B C C C D D D      the whole array is assigned: A reads 1, B 3, C 2, D nothing
    dynamic               · · A A B B · · C C · ·      wanted chunks are assigned: A, B and C have 2 each, D nothing
      cyclic              · · A B C D · · A B · ·      ... in turn, by runs of chunks

    disks                 p q p q p q p q p q p q      A and B serve disk p, C and D serve disk q
                          · · A C A C · · B D · ·

Domains are cut on chunk boundaries, so that each chunk has one owner; writes to sharded files are cut on shard
boundaries. A dynamic domain has no unwanted chunk, even if the bounding section of all requests has some, so that
aggregators get equal shares. Chunks are assigned in file order, for any orientation. Thakur 1995, sections 6.3.1, 6.4
and 6.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from oocarrays.errors import InputError
from oocarrays.mapping.given import chosen, index_of, whole
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div, inverse, turned, turned_back
from oocarrays.mapping.section import Section, axis_order
from oocarrays.mapping.selection import Axes, common
from oocarrays.mapping.union import Product, Union, product_of, runs_of
from oocarrays.plan.machine import evenly
from oocarrays.plan.queueing.kept import ChunkTimes

Partition = Literal["dynamic", "static"]
"""Chunks assigned to aggregators: those wanted by some rank, or those of the whole array."""
Deal = Literal["block", "cyclic"]
"""Assignment of chunks: contiguous in the file, or cyclic."""
Aggregators = str | int | Sequence[int]
"""Number of aggregators, their ranks, or "auto"."""
DiskOf = Callable[[tuple[int, ...]], Hashable]
"""Function from a chunk's index to the chunk's disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One aggregator's runs among a set of assigned chunks."""

    chunks: Union
    """Chunks assigned among the aggregators, along the grid's axes from the slowest to the fastest."""
    starts: range
    """Number of the first chunk of each run."""
    run: int

    @classmethod
    def whole(cls, chunks: Union) -> tuple[Share, ...]:
        return (cls(chunks=chunks, starts=range(1), run=chunks.count),) if chunks.count else ()

    def __iter__(self) -> Iterator[range]:
        return (range(start, min(start + self.run, self.chunks.count)) for start in self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Part of a file that one aggregator reads or writes for all."""

    rank: int
    grid: ChunkGrid
    order: tuple[int, ...]
    """Axes of the chunks' file order, from the slowest to the fastest."""
    shares: tuple[Share, ...]
    """Assigned shares: one, or one per disk."""

    @property
    def count(self) -> int:
        return sum(len(numbers) for share in self.shares for numbers in share)

    @property
    def boxes(self) -> tuple[Section, ...]:
        """Boxes of the domain in file order, each made of whole chunks except at the array's edge."""
        return next(self.rounds(self.count), ())

    def wanted_by(self, requests: Sequence[Axes]) -> Domain:
        """Return the part of the domain that some rank wants; a static domain may have more."""
        within = ([common(axes, box) for axes in requests] for box in self.boxes)
        found = (_wanted(self.grid, self.order, each) for each in within)
        return replace(self, shares=tuple(share for chunks in found for share in Share.whole(chunks)))

    def rounds(self, chunks: int) -> Iterator[tuple[Section, ...]]:
        """Yield the boxes of the domain in groups of `chunks` chunks."""
        held: list[Section] = []
        left, back = chunks, inverse(self.order)
        for share in self.shares:
            for numbers in share:
                while numbers:
                    ends = share.chunks.boxes(numbers[:left])
                    held += (self.grid.block(turned(first, back), turned(last, back)) for first, last in ends)
                    left, numbers = left - len(numbers[:left]), numbers[left:]
                    if not left:
                        yield tuple(held)
                        held, left = [], chunks
        if held:
            yield tuple(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """Rules to assign the chunks of a file to aggregators."""

    partition: Partition | Literal["auto"] = "dynamic"
    """Chunks assigned: those wanted by some rank, or those of the whole array; ``"auto"`` lets the planner choose.
    `file_domains` validates it."""
    deal: Deal = "block"
    """Assignment: contiguous chunks (HPF's BLOCK), or runs in turn (CYCLIC(run))."""
    run: int = 1
    """Number of chunks in a cyclic run."""
    orientation: str | Sequence[int] = "row"
    """File order of chunks: ``"row"`` (last axis fastest), ``"column"`` (first fastest), or axes slowest first."""
    disk_of: DiskOf | None = None
    """Function from a chunk's index to its disk; None if unknown. Each disk gets its own aggregators; with more disks
    than aggregators, one serves several. It is called for every assigned chunk.
    """
    times: ChunkTimes | None = None
    """Measured times per chunk at each disk, which give the parallelism that keeps disks busy; None if not measured."""

    @property
    def disks(self) -> int:
        """Number of measured disks; 0 without measurements."""
        return 0 if self.times is None else self.times.disks

    def disk_seconds(self, mode: str, stored: Stored, nbytes: float, ratio: float, under_way: int) -> float | None:
        """Return the seconds for a number of bytes on measured disks; None without measurements."""
        chunk = max(stored.chunk_bytes * ratio, 1.0)
        return None if self.times is None else self.times.seconds(mode, nbytes / chunk, under_way)


BLOCKS = Dealing()
"""Default: wanted chunks, in contiguous parts."""


def file_domains(
    grid: ChunkGrid, requests: Sequence[Axes], aggregators: Sequence[int], dealing: Dealing = BLOCKS
) -> tuple[Domain, ...]:
    """Assign the chunks in file order, in equal shares to all aggregators."""
    chosen(dealing.partition, "domains", get_args(Partition))
    chosen(dealing.deal, "deal", get_args(Deal))
    whole(dealing.run, "run", 1)
    if not aggregators or len(set(aggregators)) < len(aggregators):
        raise InputError(f"aggregators={list(aggregators)}: name at least one rank, and each once")
    order = axis_order(dealing.orientation, len(grid.shape))
    chunks = _wanted(grid, order, requests if dealing.partition == "dynamic" else [tuple(map(range, grid.shape))])
    served: list[tuple[Union, Sequence[int]]] = [(chunks, range(len(aggregators)))]
    if dealing.disk_of is not None:
        served = _by_disk(chunks, order, dealing.disk_of, len(aggregators))
    shares: defaultdict[int, list[Share]] = defaultdict(list)
    for dealt, serving in served:
        block = dealing.deal == "block" or len(serving) == 1  # BLOCK is CYCLIC with one long run per part
        run = max(ceil_div(dealt.count, len(serving)), 1) if block else dealing.run
        for part, place in enumerate(serving):
            starts = range(part * run, dealt.count, len(serving) * run)
            shares[place].append(Share(chunks=dealt, starts=starts, run=run))
    return tuple(
        Domain(rank=rank, grid=grid, order=order, shares=tuple(shares[place])) for place, rank in enumerate(aggregators)
    )


def _wanted(grid: ChunkGrid, order: Sequence[int], requests: Iterable[Axes]) -> Union:
    """Return the chunks that hold any element of the requests, along the ordered axes."""
    products = (product_of(axes, grid.chunks) for axes in requests)
    return Union.of(tuple(each[axis] for axis in order) for each in products)


def _by_disk(chunks: Union, order: Sequence[int], disk_of: DiskOf, parts: int) -> list[tuple[Union, Sequence[int]]]:
    """Return the chunks of each disk and the parts that serve them; disks with more chunks get more parts."""
    found: defaultdict[Hashable, list[Product]] = defaultdict(list)
    for index in chunks:
        found[disk_of(turned_back(index, order))].append(tuple(runs_of(range(i, i + 1)) for i in index))
    disks = sorted((Union.of(each) for each in found.values()), key=lambda each: -each.count)
    serving: list[list[int]] = [[] for _ in disks]
    held = [0.0] * parts
    for disk, each in enumerate(disks):
        least = held.index(min(held))
        serving[disk].append(least)
        held[least] += each.count
    for part in range(len(disks), parts) if disks else ():
        crowded = max(range(len(disks)), key=lambda disk: disks[disk].count / len(serving[disk]))
        serving[crowded].append(part)
    return list(zip(disks, serving, strict=True))


def chosen_aggregators(asked: Aggregators, ranks: int, disks: int = 0) -> list[tuple[int, ...]]:
    """Return the candidate sets of aggregators; with measured disks, one set has one rank per disk."""
    if isinstance(asked, str) and asked == "auto":
        counts = {ceil_div(ranks, 2**k) for k in range(ranks.bit_length())} | ({min(disks, ranks)} if disks else set())
        return [tuple(evenly(count, range(ranks))) for count in sorted(counts, reverse=True)]
    if (count := index_of(asked)) is not None and 1 <= count <= ranks:
        return [tuple(evenly(count, range(ranks)))]
    if _are_ranks(asked, ranks):
        return [tuple(map(int, asked))]  # type: ignore[arg-type]
    raise InputError(
        f"aggregators={asked!r} is not 'auto', a number from 1 to {ranks}, or distinct ranks below {ranks}"
    )


def _are_ranks(asked: Aggregators, ranks: int) -> bool:
    if not isinstance(asked, Sequence) or isinstance(asked, str) or not asked:
        return False
    return len({*map(repr, asked)}) == len(asked) and all(index_of(rank) in range(ranks) for rank in asked)
