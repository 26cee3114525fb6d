"""File domains: the part of a file that one rank reads or writes for all.

    requests of ranks     · · 0 0 1 1 · · 2 2 · ·
    static                A A A B B B C C C D D D      the whole array is dealt out: A reads 1, B 3, C 2, D nothing
    dynamic               · · A A B B · · C C · ·      what is wanted is dealt out: A, B and C have 2 each, D nothing
      cyclic              · · A B C D · · A B · ·      ... in turn, by runs of chunks

    disks                 p q p q p q p q p q p q      A and B deal with what is on p, C and D with what is on q
                          · · A C A C · · B D · ·

Domains are cut on chunk boundaries, so that each chunk has one owner: where a file is written and has shards, they are
cut on those. A dynamic domain has no chunk that nobody wants, also where the bounding section of all requests has some:
so that as much falls to each aggregator. Chunks are dealt out in file order, that of any orientation. Thakur 1995,
sections 6.3.1, 6.4 and 6.6.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, get_args

from oocarrays.errors import InputError
from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.mapping.section import Section, axis_order
from oocarrays.mapping.selection import Axes, common
from oocarrays.mapping.union import Product, Union, product_of, runs_of
from oocarrays.plan.queueing.kept import ChunkTimes

Partition = Literal["dynamic", "static"]
"""Whether the chunks are dealt out that some rank wants, or those of the whole array."""
Deal = Literal["block", "cyclic"]
"""Whether an aggregator's part is contiguous in the file, or dealt out in turn."""
DiskOf = Callable[[tuple[int, ...]], Hashable]
"""The disk on which a chunk of some index lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Some of the chunks that are dealt out among a few aggregators."""

    chunks: Union
    """What is dealt out, along the axes of the grid from the slowest to the fastest."""
    starts: range
    """The numbers of the first chunks of this share's runs."""
    run: int
    """Chunks of a run."""

    @classmethod
    def whole(cls, chunks: Union) -> tuple[Share, ...]:
        """All of some chunks, for one aggregator."""
        return (cls(chunks=chunks, starts=range(1), run=chunks.count),) if chunks.count else ()

    def __iter__(self) -> Iterator[range]:
        """The numbers of the chunks of each run."""
        return (range(start, min(start + self.run, self.chunks.count)) for start in self.starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Part of a file that one aggregator reads or writes for all."""

    rank: int
    """The rank that does it."""
    grid: ChunkGrid
    """The chunks of the file."""
    order: tuple[int, ...]
    """The axes in which chunks follow each other in the file, from the slowest to the fastest."""
    shares: tuple[Share, ...]
    """What falls to it: one share, or one a disk."""

    @property
    def count(self) -> int:
        return sum(len(numbers) for share in self.shares for numbers in share)

    @property
    def boxes(self) -> tuple[Section, ...]:
        """Return its boxes in file order, each made of whole chunks, but for the array's edge."""
        return tuple(
            self._section(*box) for share in self.shares for numbers in share for box in share.chunks.boxes(numbers)
        )

    def wanted_by(self, requests: Sequence[Axes]) -> Domain:
        """Return the part of it that some rank wants: a static domain may have more."""
        within = ([common(axes, box) for axes in requests] for box in self.boxes)
        found = (_wanted(self.grid, self.order, each) for each in within)
        return replace(self, shares=tuple(share for chunks in found for share in Share.whole(chunks)))

    def rounds(self, chunks: int) -> Iterator[tuple[Section, ...]]:
        """The same, so many chunks at a time."""
        held: list[Section] = []
        left = chunks
        for share in self.shares:
            for numbers in share:
                while numbers:
                    held += (self._section(*box) for box in share.chunks.boxes(numbers[:left]))
                    left, numbers = left - len(numbers[:left]), numbers[left:]
                    if not left:
                        yield tuple(held)
                        held, left = [], chunks
        if held:
            yield tuple(held)

    def _section(self, first: tuple[int, ...], last: tuple[int, ...]) -> Section:
        """A box of chunks along the axes in their order, as a section of the array."""
        lower, upper = [0] * len(first), [0] * len(first)
        for axis, low, high in zip(self.order, first, last, strict=True):
            lower[axis], upper[axis] = low, high
        return self.grid.block(tuple(lower), tuple(upper))


@dataclass(frozen=True, slots=True, kw_only=True)
class Dealing:
    """How the chunks of a file are dealt out to aggregators."""

    partition: Partition | Literal["auto"] = "dynamic"
    """Whether the chunks are dealt out that some rank wants, or those of the whole array; ``"auto"`` where the planner
    is to choose."""
    deal: Deal = "block"
    """Whether each has contiguous chunks (HPF's BLOCK), or runs of them in turn (CYCLIC(run))."""
    run: int = 1
    """Chunks of such a run."""
    orientation: str | Sequence[int] = "row"
    """The order of chunks in the file: ``"row"`` has the last axis fastest, ``"column"`` the first; or axes from the
    slowest to the fastest."""
    disk_of: DiskOf | None = None
    """Where the store says on which disk a chunk lies: every disk is served by aggregators of its own, or where there
    are more disks than aggregators, by one that serves several. It is asked of every chunk that is dealt out."""
    times: ChunkTimes | None = None
    """What a chunk takes at each of these disks, where that was measured: as many read and write as keep them busy."""

    @classmethod
    def asked(cls, partition: str, deal: str, disk_of: DiskOf | None, times: ChunkTimes | None = None) -> Dealing:
        """Take the words of a person, which are checked when chunks are dealt out."""
        return cls(partition=partition, deal=deal, disk_of=disk_of, times=times)  # type: ignore[arg-type]

    @property
    def disks(self) -> int:
        """Disks that were measured; 0 of others."""
        return 0 if self.times is None else self.times.disks

    def disk_seconds(self, mode: str, stored: Stored, nbytes: float, ratio: float, under_way: int) -> float | None:
        """Return the seconds of disks that were measured for some bytes of chunks; None of others."""
        chunk = max(stored.chunk_bytes * ratio, 1.0)
        return None if self.times is None else self.times.seconds(mode, nbytes / chunk, under_way)


BLOCKS = Dealing()
"""What is wanted, in contiguous parts."""


def file_domains(
    grid: ChunkGrid, requests: Sequence[Axes], aggregators: Sequence[int], dealing: Dealing = BLOCKS
) -> tuple[Domain, ...]:
    """Deal out the chunks in file order, to each rank as many as to the others."""
    _check(aggregators, dealing)
    order = axis_order(dealing.orientation, len(grid.shape))
    whole = [tuple(map(range, grid.shape))]
    chunks = _wanted(grid, order, requests if dealing.partition == "dynamic" else whole)
    served: list[tuple[Union, Sequence[int]]] = [(chunks, range(len(aggregators)))]
    if dealing.disk_of is not None:
        served = _by_disk(chunks, order, dealing.disk_of, len(aggregators))
    shares: defaultdict[int, list[Share]] = defaultdict(list)
    for dealt, serving in served:
        for place, share in zip(serving, _dealt(dealt, len(serving), dealing.deal, dealing.run), strict=True):
            shares[place].append(share)
    return tuple(
        Domain(rank=rank, grid=grid, order=order, shares=tuple(shares[place])) for place, rank in enumerate(aggregators)
    )


def _check(aggregators: Sequence[int], dealing: Dealing) -> None:
    run, known_deals = dealing.run, ("deal", dealing.deal, get_args(Deal))
    for name, value, known in (("domains", dealing.partition, get_args(Partition)), known_deals):
        if not isinstance(value, str) or value not in known:
            raise InputError(f"{name}={value!r} is unknown: it is {' or '.join(map(repr, known))}")
    if run < 1:
        raise InputError(f"run={run}: at least 1 chunk is dealt out at a time")
    if not aggregators or len(set(aggregators)) < len(aggregators):
        raise InputError(f"aggregators={list(aggregators)}: at least one rank reads or writes, and each is named once")


def _wanted(grid: ChunkGrid, order: Sequence[int], requests: Iterable[Axes]) -> Union:
    """The chunks that hold any of some requests, along the axes in their order."""
    products = (product_of(axes, grid.chunks) for axes in requests)
    return Union.of(tuple(each[axis] for axis in order) for each in products)


def _dealt(chunks: Union, parts: int, deal: Deal, run: int) -> list[Share]:
    """Chunks dealt out in file order: BLOCK is CYCLIC of runs so long that each part has one."""
    block = max(ceil_div(chunks.count, parts), 1)
    run = block if deal == "block" or parts == 1 else run
    return [Share(chunks=chunks, starts=range(part * run, chunks.count, parts * run), run=run) for part in range(parts)]


def _by_disk(chunks: Union, order: Sequence[int], disk_of: DiskOf, parts: int) -> list[tuple[Union, Sequence[int]]]:
    """The chunks of each disk, and which of the parts they are dealt out to: the more there are, the more parts."""
    found: defaultdict[Hashable, list[Product]] = defaultdict(list)
    for first, last in chunks.boxes():
        for index in product(*map(range, first, last)):
            there = tuple(index[order.index(axis)] for axis in range(len(order)))
            found[disk_of(there)].append(tuple(runs_of(range(i, i + 1)) for i in index))
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


def spaced(ranks: int, count: int) -> tuple[int, ...]:
    """So many of the ranks as aggregators, evenly spaced: neighbours often share a worker."""
    count = min(count, ranks)
    return tuple(number * ranks // count for number in range(count))
