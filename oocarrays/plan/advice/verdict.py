"""Verdict on each array: advised chunks, read method of each block, savings and drawbacks.

    units of the graph ──► priced ──► chosen ──► a verdict for each array and producer

The verdicts are plain data; `oocarrays.advice` shows and applies them.

    sections    365 × 10 × 10        split    365 × 5 × 10 …   into chunks that sections cover wholly
                1 × 180 × 360        grown    365 × 20 × 20 …  where sections are short
    both        1 × 10 × 10          between  19 × 42 × 60     equal loss for both
    stored      30 × 180 × 360

Chunk sizes range from the least that justifies a file to the most that memory and codecs allow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, combinations

import numpy as np

from oocarrays.mapping.grid import ChunkGrid, Stored, ceil_div
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.choice import LEAST_COPY, Choice, ChoiceUnit, Priced, choose, priced, subgraphs_of
from oocarrays.plan.advice.patterns import Pattern
from oocarrays.plan.advice.price import METHODS, Prices
from oocarrays.plan.cost import Sums
from oocarrays.plan.machine import within_budget
from oocarrays.plan.plan import Resources

SIZES = (2**21, 2**23, 2**19, 2**25)
"""Chunk sizes tried, in bytes, the likeliest first."""
MOST_BYTES = 2**28
"""Maximum bytes of a chunk: codecs are limited to 2 GiB, and a reader holds several chunks."""
Shape = tuple[int, ...]


def candidates(stored: Stored, uses: Iterable[Access], most_bytes: int = MOST_BYTES) -> np.ndarray:
    """Return candidate chunk shapes, one per row; the first is today's."""
    wanted = tuple(_sections(uses, stored.grid.shape))
    found = _allowed(stored.grid, stored.itemsize, wanted, min(most_bytes, MOST_BYTES))
    return np.array(found, np.int64).reshape(len(found), len(stored.grid.chunks))


@lru_cache(maxsize=1024)
def _allowed(grid: ChunkGrid, itemsize: int, wanted: tuple[Shape, ...], most: int) -> tuple[Shape, ...]:
    """Return today's chunks and up to 95 candidates beside them; cached, so that equal arrays are computed once.

    Candidates have at least 64 KiB, which justify a file, and at most 2**20 chunks: a store lists, copies and deletes
    each.
    """
    found, nbytes = dict.fromkeys([grid.chunks]), math.prod(grid.shape) * itemsize
    if not nbytes:
        return tuple(found)
    least, chunks = min(2**16, grid.chunk_size * itemsize, nbytes), max(2**20, grid.count)
    for shape in _shapes(grid, itemsize, wanted):
        if shape in found or not least <= math.prod(shape) * itemsize <= most:
            continue
        if math.prod(map(ceil_div, grid.shape, shape)) <= chunks:
            found[shape] = None
        if len(found) >= 96:
            break
    return tuple(found)


def _shapes(grid: ChunkGrid, itemsize: int, wanted: Sequence[Shape]) -> Iterator[Shape]:
    """Yield every candidate shape, the likeliest first, possibly with repetitions."""
    extents, small = grid.shape, (2**17, 2**18, 2**16)  # for small sections
    starts = [*wanted, *_between(wanted)]
    starts += [tuple(n if 2 * s > n else s for s, n in zip(each, extents, strict=True)) for each in wanted]
    yield from starts
    for nbytes in (*SIZES, *small):
        for start in starts:
            yield from _sized(start, extents, nbytes // itemsize)
    for nbytes in (*small, *SIZES):
        yield from _sized(grid.chunks, extents, nbytes // itemsize)


def _sections(uses: Iterable[Access], extents: Shape) -> list[Shape]:
    """Return six shapes of the accessed sections, those with the most accessed elements first."""
    seen: Counter[Shape] = Counter()
    for use in uses:
        for each in use.patterns:
            for shape in _shapes_of(each, extents) if all(each.largest) else ():
                seen[shape] += each.elements
    return [shape for shape, _ in seen.most_common(6)]


def _shapes_of(each: Pattern, extents: Shape) -> Iterator[Shape]:
    """Yield the shapes of a section: its elements; with strides also its span, and one element along strided axes."""
    largest, span = each.largest, tuple(map(min, each.span, extents))
    yield largest
    if span != largest:
        yield span
        yield tuple(1 if n < s else n for n, s in zip(largest, span, strict=True))


def _between(sections: Sequence[Shape]) -> Iterator[Shape]:
    for one, other in combinations(sections, 2):
        yield tuple(map(min, one, other))
        yield tuple(max(round(math.sqrt(a * b)), 1) for a, b in zip(one, other, strict=True))


def _sized(shape: Shape, extents: Shape, elements: int) -> Iterator[Shape]:
    """Yield the shape split, or grown along each axis, to about the given number of elements."""
    parts = ceil_div(math.prod(shape), max(elements, 1))
    if parts > 1:
        yield _split(shape, parts, range(len(shape)))
        yield _split(shape, parts, reversed(range(len(shape))))
        yield _even(shape, elements)
        return
    yield _grown(shape, extents, elements)
    for axis, extent in enumerate(extents):
        times = max(elements // max(math.prod(shape), 1), 1)
        grown = min(shape[axis] * times, extent)
        if grown > shape[axis]:
            yield (*shape[:axis], grown, *shape[axis + 1 :])


def _grown(shape: Shape, extents: Shape, elements: int) -> Shape:
    """Double axes evenly up to the given number of elements, so that a section takes an equal share along each."""
    lengths = list(shape)
    while True:
        more = [a for a, n in enumerate(extents) if 2 * lengths[a] <= n and 2 * math.prod(lengths) <= elements]
        if not more:
            return tuple(lengths)
        axis = min(more, key=lambda a: lengths[a] / shape[a])
        lengths[axis] *= 2


def _split(shape: Shape, parts: int, order: Iterable[int]) -> Shape:
    """Split a shape into at least `parts` parts, along one axis as far as possible, then along the next."""
    lengths = list(shape)
    for axis in order:
        length = _divided(lengths[axis], parts)
        parts = ceil_div(parts, ceil_div(lengths[axis], length))
        lengths[axis] = length
    return tuple(lengths)


def _divided(length: int, parts: int) -> int:
    """Return a part length that divides `length` evenly into `parts` to `2 * parts` parts; otherwise round up."""
    for count in range(parts, min(2 * parts, length) + 1):
        if length % count == 0:
            return length // count
    return max(ceil_div(length, parts), 1) if parts < length else 1


def _even(shape: Shape, elements: int) -> Shape:
    """Scale all axes by about the same factor, with equal parts along each."""
    scale = (elements / math.prod(shape)) ** (1 / max(sum(n > 1 for n in shape), 1))
    scaled = tuple(max(math.floor(n * scale), 1) for n in shape)
    return tuple(_divided(n, ceil_div(n, s)) for n, s in zip(shape, scaled, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedLoad(Sums):
    """Weighted requests, bytes and seconds of all runs together."""

    requests: float = 0.0
    nbytes: float = 0.0
    """Stored bytes transferred; an estimate for coded chunks."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVerdict:
    """Advised access of one block to an array."""

    block: str
    writes: bool
    weight: float
    """Total number of accesses."""
    method: str
    """``"independent"`` or ``"two-phase"``, as `read_sections` takes it."""
    today_method: str
    """Cheapest method for today's chunks."""
    chunks: tuple[int, ...]
    """Chunks of the layout that the block accesses."""
    uses: tuple[Access, ...]
    today: WeightedLoad
    """Load in today's chunks, with the cheapest method."""
    advised: WeightedLoad
    """Load in the advised chunks, with the advised method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on an array with one producer, or on one that existed before."""

    array: str
    producer: str | None
    """Block that writes the array; None if the array existed before."""
    stored: Stored
    """Array as stored today."""
    made: tuple[int, ...]
    """Advised chunks for producing the array; today's if it is not produced again."""
    copied: tuple[int, ...]
    """Advised chunks for the rewritten array; equal to `made` without a rewrite."""
    saving: float
    """Fraction of today's seconds saved, with rewriting included in the cost."""
    rewriting: float
    """Seconds to rewrite the array once."""
    blocks: tuple[BlockVerdict, ...]
    against: tuple[str, ...]

    @property
    def kept(self) -> bool:
        return self.made == self.copied == self.stored.grid.chunks

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.copied

    @property
    def copies(self) -> bool:
        return len({each.chunks for each in self.blocks if not each.writes}) > 1

    @property
    def today(self) -> WeightedLoad:
        return sum((each.today for each in self.blocks), WeightedLoad())

    @property
    def advised(self) -> WeightedLoad:
        """Load of all blocks in the advised chunks, without rewriting."""
        return sum((each.advised for each in self.blocks), WeightedLoad())

    @property
    def runs_to_pay(self) -> float:
        """Share of the traced runs after which rewriting has paid for itself; infinite if it never does."""
        gained = self.today.seconds - self.advised.seconds
        return self.rewriting / gained if gained > 0 else math.inf


def verdicts(
    arrays: Mapping[str, Stored],
    accesses: Iterable[Access],
    resources: Resources,
    *,
    weights: Mapping[tuple[str | None, str], float] | None = None,
    fixed: Callable[[str], bool] = lambda name: False,
    copies: bool = True,
) -> tuple[Verdict, ...]:
    most = min(MOST_BYTES, max(resources.budget // 4, min(SIZES)))  # smaller ones save no memory to speak of
    units = []
    for flow in subgraphs_of(accesses, weights):
        stored, keep = arrays[flow.dataset], fixed(flow.dataset)
        every = () if keep else chain(*(reader.uses for reader in flow.readers), flow.writing)
        units.append(ChoiceUnit(flow=flow, stored=stored, shapes=candidates(stored, every, most), fixed=keep))
    costed: list[Priced] = within_budget([partial(priced, unit, resources) for unit in units])
    least_copy = LEAST_COPY if copies else math.inf
    return tuple(verdict(costs, choose(costs, least_copy=least_copy)) for costs in costed)


def verdict(costs: Priced, choice: Choice) -> Verdict:
    unit, flow = costs.unit, costs.unit.flow
    layout = [tuple(shape) for shape in unit.shapes.tolist()]
    blocks = [
        _of_block(block, weight, uses, prices, layout, at, method)
        for (block, weight, uses), prices, (at, method) in zip(flow.blocks, costs.prices, choice.ways, strict=True)
        if block is not None
    ]
    rewriting = float(costs.rewriting[choice.made, choice.copied])
    return Verdict(
        array=flow.dataset,
        producer=flow.producer,
        stored=unit.stored,
        made=layout[choice.made],
        copied=layout[choice.copied],
        saving=choice.saving,
        rewriting=rewriting / flow.times if flow.times else rewriting,
        blocks=tuple(blocks),
        against=() if choice.kept else tuple(_against(costs, choice, layout)),
    )


def _of_block(
    block: str,
    weight: float,
    uses: tuple[Access, ...],
    details: tuple[Prices, ...],
    layout: Sequence[tuple[int, ...]],
    at: int,
    method: int,
) -> BlockVerdict:
    priced = zip(uses, details, strict=True)
    total = sum((use.weight * each.seconds[:, 0] for use, each in priced if use.weight), np.zeros(2))
    counts, today = [weight * use.weight for use in uses], int(np.argmin(total))
    return BlockVerdict(
        block=block,
        writes=any(use.writes for use in uses),
        weight=sum(counts),
        method=METHODS[method],
        today_method=METHODS[today],
        chunks=layout[at],
        uses=uses,
        today=_load(details, counts, 0, today),
        advised=_load(details, counts, at, method),
    )


def _load(details: Sequence[Prices], counts: Sequence[float], at: int, method: int) -> WeightedLoad:
    found = WeightedLoad()
    for each, count in zip(details, counts, strict=True):
        rows = (each.requests, each.nbytes, each.seconds)
        requests, nbytes, seconds = (count * float(row[method, at]) if count else 0.0 for row in rows)
        found += WeightedLoad(requests=requests, nbytes=nbytes, seconds=seconds)
    return found


def _against(costs: Priced, choice: Choice, layout: Sequence[Shape]) -> Iterator[str]:
    stored, chunks = costs.unit.stored, layout[choice.copied]
    if len({place for place, _ in choice.ways[1:]}) > 1:
        one = choose(costs, least_copy=math.inf)
        yield (
            f"a second copy of {stored.nbytes / 2**20:.0f} MiB; one layout (copies=False), "
            f"{' × '.join(map(str, layout[one.copied]))}, takes {one.seconds:.3g} s where both take "
            f"{choice.seconds:.3g} s"
        )
    uses = [use for reader in costs.unit.flow.readers for use in reader.uses]
    others = sorted({name for use in uses for each in use.repeats for name in each.of})
    if others:
        yield f"its requests depend on the chunks of {', '.join(others)}: they are counted for those of today"
    count = math.prod(map(ceil_div, stored.grid.shape, chunks))
    nbytes = math.prod(chunks) * stored.itemsize
    if count > 100_000 and not stored.shards:
        yield f"{count} objects, today {stored.grid.count}: put chunks in shards"
    if nbytes > 2**27:
        yield f"chunks of {nbytes // 2**20} MiB: who reads one element decodes as much"
    if nbytes < 2**17 < stored.nbytes:
        yield f"chunks of {nbytes / 2**10:.0f} KiB: a request takes longer than what it brings"
    padded = math.prod(ceil_div(n, c) * c for n, c in zip(stored.grid.shape, chunks, strict=True)) * stored.itemsize
    if padded > 1.25 * stored.nbytes and not stored.coded:
        yield f"chunks at the edge are stored whole: {padded / max(stored.nbytes, 1):.2f} times the bytes"
    if stored.coded:
        yield f"{stored.codec} may code chunks of another shape better or worse"
