"""Update: read the changed elements of a source, and replace the target chunks that contain them.

    source   │ │ │ │ │ │ │ │▓│▓│      changed: chunks with new contents, and new chunks
    target   ├───────┼───────┼┄┄┐     grown
                     │   ▓▓▓▓│▓▓      part 0, 1, …: whole target chunks, each in one part; a chunk
                                      changed in part is read first, and replaced as a whole

A part has as many target chunks as the budget allows for their changed elements. A source chunk that crosses several
parts is read in each of them, so parts are cut along the axes with the fewest repeated reads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import mul

import numpy as np

from oocarrays.errors import plural
from oocarrays.mapping.grid import ChunkGrid, Index, Stored, ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.collective.wanted import Coverage
from oocarrays.plan.cost import Pipeline, Traffic
from oocarrays.plan.plan import (
    PROCESS_BYTES,
    Bytes,
    Facts,
    Memory,
    OnePass,
    Resources,
    estimate,
    first_fitting,
    shared_facts,
)
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES


def boxes_of(mask: np.ndarray) -> Iterator[tuple[Index, Index]]:
    """Yield boxes that cover the true places of a mask: first index, and one past the last, along each axis."""
    if not mask.ndim:
        yield from [((), ())] if mask else []
        return
    rows = mask.reshape(len(mask), math.prod(mask.shape[1:]))
    ends = [*(np.flatnonzero((rows[1:] != rows[:-1]).any(axis=1)) + 1).tolist(), len(mask)]
    for start, stop in zip([0, *ends], ends, strict=False):
        if rows[start:stop].any():
            yield from (((start, *low), (stop, *high)) for low, high in boxes_of(mask[start]))


@dataclass(frozen=True, kw_only=True)
class UpdatePlan(OnePass):
    """Plan of an update."""

    source: Stored
    """Source as it is now."""
    target: Stored
    """Target as written, with the source's current shape; its chunks are shards if it has shards."""
    changed: tuple[Section, ...]
    """Disjoint sections of the source with elements that may differ from the target's."""
    lengths: tuple[int, ...]
    """Number of target chunks of a part along each axis."""
    ranks: int
    """Number of ranks that process parts in turn: one on threads, which read and write for it; one per worker."""
    threads: int
    """Number of threads that read and write in a process."""

    def facts(self) -> Facts:
        if not self.changed:
            return [("changed", ("nothing: the target is up to date",))]
        about = estimate(self.source.coded, self.target.made)
        changed = Bytes(sum(box.size for box in self.changed) * self.source.itemsize)
        replaced = f"{self.touched} of {self.target.grid.count} {self.target.unit} of the target"
        return [
            ("changed", (f"{100 * self.source_share:.3g} % of the source, ", changed)),
            ("replaced", (f"{replaced}, {100 * self.target_share:.3g} %",)),
            ("parts", (f"{len(self._all)}, by {self.ranks} ranks",)),
            *shared_facts(self, reads=about, writes=about, tasks="", peak_memory=None, predicted=""),
        ]

    @property
    def title(self) -> str:
        return plural(len(self._all), "part")

    @cached_property
    def _pieces(self) -> dict[Index, list[Section]]:
        found: dict[Index, list[Section]] = defaultdict(list)
        grid = ChunkGrid.of(self.target.grid.shape, _part_shape(self.target.grid, self.lengths))
        for box in self.changed:
            for index in grid.indices(box):
                common = grid.section(index).intersection(box)
                if common is not None:
                    found[index].append(common)
        return dict(sorted(found.items()))

    @cached_property
    def _all(self) -> list[list[Section]]:
        return list(self._pieces.values())

    def parts(self) -> Iterator[tuple[int, ...]]:
        return ((number,) for number in range(len(self._all)))

    def pieces(self, number: int) -> Sequence[Section]:
        return self._all[number]

    def sections(self, part: tuple[int, ...]) -> dict[str, Sequence[Section]]:
        return {"": self.pieces(*part)}

    def mine(self, rank: int) -> range:
        return range(rank, len(self._all), self.ranks)

    def read(self, piece: Section) -> SectionPlan:
        return SectionPlan.of(self.source, piece.axes, self.costs)

    def units(self, number: int) -> Coverage:
        return Coverage(stored=self.target, requests=tuple(piece.axes for piece in self.pieces(number)))

    @cached_property
    def at_once(self) -> int:
        """Number of chunks (or shards) replaced at one time."""
        room = self.budget - PROCESS_BYTES - self._held
        return max(min(self.threads, room // _unit_bytes(self.target)), 1)

    @property
    def touched(self) -> int:
        """Number of target chunks (or shards) replaced."""
        return self.traffic.write_requests

    @property
    def source_share(self) -> float:
        """Fraction of the source's elements that is read."""
        return sum(box.size for box in self.changed) / max(math.prod(self.source.grid.shape), 1)

    @property
    def target_share(self) -> float:
        """Fraction of the target's chunks that is replaced."""
        return self.touched / max(self.target.grid.count, 1)

    @cached_property
    def traffic(self) -> Traffic:
        """Reads and writes; exact for uncoded data without missing chunks."""
        total = Traffic(tasks=(2 + len(self._all)) if self._all else 1)
        for number, pieces in enumerate(self._all):
            for plan in map(self.read, pieces):
                total += plan.traffic + Traffic(pieces=plan.chunks, copied_bytes=2 * plan.useful_bytes)
            total += self.units(number).traffic(self.costs.stored_ratio(self.target))
        return total

    @cached_property
    def _held(self) -> int:
        sizes = (sum(piece.size for piece in pieces) for pieces in self._all)
        return max(sizes, default=0) * self.source.itemsize

    @cached_property
    def memory(self) -> Memory:
        """Peak memory of a process: the bytes read by a part, and the workspace to read a piece or write chunks."""
        reading = max((self.read(piece).held_bytes for pieces in self._all for piece in pieces), default=0)
        writing = self.at_once * _unit_bytes(self.target) if self._all else 0
        each = Memory.of(elements=self._held, in_hand=max(reading + self.source.index_workspace, writing))
        shares = ceil_div(self.ranks, self.processes) if self.processes else 1
        return Memory.of(stacks=PROCESS_BYTES) + each * shares

    @property
    def _work(self) -> tuple[Stored, Stored, Pipeline]:
        cores = self.threads * (self.processes or 1)
        return self.source, self.target, Pipeline(ranks=cores, turns=1, workers=self.processes is not None)


def _part_shape(grid: ChunkGrid, lengths: Sequence[int]) -> tuple[int, ...]:
    return tuple(n * c for n, c in zip(lengths, grid.chunks, strict=True))


def _unit_bytes(stored: Stored) -> int:
    return stored.chunk_bytes + stored.decode_workspace + stored.encode_workspace


def plan_update(
    source: Stored, target: Stored, changed: Sequence[Section], resources: Resources, lengths: Sequence[int] = ()
) -> UpdatePlan:
    ranks = resources.workers or 1
    shares = resources.ranks_of_a_process(ranks)

    def planned(each: tuple[int, ...]) -> UpdatePlan:
        return UpdatePlan(
            source=source, target=target, changed=tuple(changed), lengths=each, ranks=ranks, budget=resources.budget,
            processes=resources.workers, threads=resources.threads, costs=resources.costs,
        )  # fmt: skip

    if lengths:
        return planned(tuple(lengths))
    reading = source.chunk_bytes + source.decode_workspace if source.coded else BUFFER_BYTES
    room = (resources.budget - PROCESS_BYTES) // shares - max(_unit_bytes(target), reading)
    cut = _Cut(source, target.grid, changed)
    smaller = map(planned, cut.halvings(cut.within(room // source.itemsize, ranks)))
    plan, refused = first_fitting(smaller, resources.budget, "this update")
    return plan.after(refused)


class _Cut:
    """Division of the changed sections into parts."""

    def __init__(self, source: Stored, grid: ChunkGrid, changed: Sequence[Section]) -> None:
        self.grid, self.chunks = grid, source.grid.chunks
        self.lower = np.array([box.lower for box in changed], np.int64).reshape(len(changed), len(grid.shape))
        self.upper = np.array([box.upper for box in changed], np.int64).reshape(len(changed), len(grid.shape))

    def within(self, room: int, ranks: int) -> tuple[int, ...]:
        """Return the number of target chunks of a part along each axis; more parts than fit may be made for ranks."""
        lengths = self.grid.counts
        while math.prod(lengths) > 1 and self._held(lengths) > room:
            lengths = self.halved(lengths)
        most = 1.5 * self._reads(lengths)  # for each rank to have a part
        while math.prod(lengths) > 1 and self._parts(lengths) < ranks:
            less = self.halved(lengths)
            if self._reads(less) > most:
                break
            lengths = less
        return lengths

    def halvings(self, lengths: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        yield lengths
        while math.prod(lengths) > 1:
            lengths = self.halved(lengths)
            yield lengths

    def halved(self, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Return half of a part, cut along the axis with the fewest repeated reads."""
        ways = [
            (*lengths[:axis], ceil_div(n, 2), *lengths[axis + 1 :]) for axis, n in enumerate(lengths) if n > 1
        ]  # fmt: skip
        return min(ways, key=lambda way: (self._reads(way), self._held(way)))

    def _product(self, lengths: tuple[int, ...], along: Callable[..., np.ndarray]) -> np.ndarray:
        """Return the product over all axes of a number for each changed section, of unbounded size.

        ``along`` takes the sections' bounds, the length of a part and that of a source chunk.
        """
        parts = enumerate(_part_shape(self.grid, lengths))
        each = (along(self.lower[:, axis], self.upper[:, axis], part, self.chunks[axis]) for axis, part in parts)
        return reduce(mul, (numbers.astype(object) for numbers in each), np.ones(len(self.lower), object))

    def _held(self, lengths: tuple[int, ...]) -> int:
        """Return the maximum number of changed elements of a part."""
        each = self._product(lengths, lambda lower, upper, part, _: np.minimum(upper - lower, part))
        return min(int(each.sum()), math.prod(_part_shape(self.grid, lengths)))

    def _reads(self, lengths: tuple[int, ...]) -> int:
        """Return the number of source chunks that all parts together read."""

        def read(lower: np.ndarray, upper: np.ndarray, part: int, chunk: int) -> np.ndarray:
            cuts, both = ((upper - 1) // step - lower // step for step in (part, math.lcm(part, chunk)))
            count: np.ndarray = -(-upper // chunk) - lower // chunk + cuts - both
            return count

        return int(self._product(lengths, read).sum())

    def _parts(self, lengths: tuple[int, ...]) -> int:
        """Return about the number of parts with changes."""
        each = self._product(lengths, lambda lower, upper, part, _: (upper - 1) // part - lower // part + 1)
        return int(each.max(initial=0))
