"""Weighted communication graph of a trace, and the cheapest layout of each array and read method of each block.

    b0 ──3──► b2        a dataset that b0 writes and b2 reads makes an edge; its weight says how often b2 runs after b0
    b1 ──1──► b2
    b0 ─► {b2: 3, …}    the producer-consumer subgraph of a dataset and one of its producers

A code block is a part of a program that can keep datasets in memory; between blocks they are stored.

    producer ──► layout c ──────────────────► consumer 1, alone or together
                    └── rewrite ──► layout c′ ──► consumer 2, alone or together

    seconds(c, c′) = w · write(c) + w · rewrite(c, c′) + Σ weight · min(read(c), read(c′))

Each pair of an array and a producer is decided independently, as in the paper: no array's cost depends on the layout of
another. The separate minima therefore give the global minimum, and cost grows linearly with the graph. Memik, Kandemir
and Choudhary 2000, sections 3 and 3.2, with seconds in place of counts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import Stored
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.price import METHODS, Prices, prices, rewriting_seconds
from oocarrays.plan.advice.trace import checked_weight
from oocarrays.plan.plan import Resources

LEAST_COPY = 2**26
"""Minimum bytes of an array for which a second copy may be advised."""
Edge = tuple[str | None, str]
"""Producer and consumer; the producer is None if the dataset existed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReader:
    """Code block that reads a dataset."""

    block: str
    weight: float
    """Weight of its edge: number of runs after each run of the producer."""
    uses: tuple[Access, ...]
    """Its reads of the dataset; their weights are their counts in one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """One producer of a dataset and all readers of its output (producer-consumer subgraph, PCS)."""

    dataset: str
    producer: str | None
    """Code block that writes the dataset; None if the dataset existed before."""
    readers: tuple[BlockReader, ...]
    writing: tuple[Access, ...] = ()
    """Writes of the producer; their weights are their counts in one run."""

    @property
    def blocks(self) -> tuple[tuple[str | None, float, tuple[Access, ...]], ...]:
        """Producer, and readers: name, weight, and accesses in one run."""
        return (self.producer, 1.0, self.writing), *((each.block, each.weight, each.uses) for each in self.readers)

    @property
    def times(self) -> float:
        """Number of times that the producer writes the dataset in one run; 1 if it existed before."""
        return sum(each.weight for each in self.writing) if self.writing else 1.0


def subgraphs_of(accesses: Iterable[Access], weights: Mapping[Edge, float] | None = None) -> tuple[Subgraph, ...]:
    """Return a subgraph for each dataset and producer; weights of accesses are counts in a run of their block."""
    edges: Mapping[Edge, Any] = {} if weights is None else weights
    if not isinstance(edges, Mapping) or not all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges):
        raise InputError(f"weights={weights!r} is not a mapping from pairs of blocks, such as {{('make', 'plot'): 10}}")
    writers: dict[str, dict[str | None, list[Access]]] = {}
    readers: dict[str, dict[str, list[Access]]] = {}
    for each in accesses:
        checked_weight(each.weight, f"the count of {each.block!r} for {each.dataset!r}")
        written, read = writers.setdefault(each.dataset, {}), readers.setdefault(each.dataset, {})
        (written if each.writes else read).setdefault(each.block, []).append(each)
    for edge, weight in edges.items():
        checked_weight(weight, f"the weight of {_named(edge)}")
    found = tuple(
        Subgraph(
            dataset=name,
            producer=producer,
            readers=tuple(_readers(producer, readers[name], list(producers), edges)),
            writing=tuple(writing),
        )
        for name, given in writers.items()
        for producers in [given or {None: []}]
        for producer, writing in producers.items()
    )
    there = {(each.producer, reader.block) for each in found for reader in each.readers}
    for edge, weight in edges.items():
        if weight and edge not in there:
            raise InputError(
                f"{_named(edge)} has weight {weight}, but no array is written by one and read by the other"
            )
    _refuse_cycles(found)
    return found


def _named(edge: Edge) -> str:
    return f"{edge[0] or 'what was there before'} → {edge[1]}"


def _readers(
    producer: str | None, uses: Mapping[str, list[Access]], producers: list[str | None], edges: Mapping[Edge, Any]
) -> Iterator[BlockReader]:
    for block, some in uses.items():
        given = any((each, block) in edges for each in producers)
        weight = edges.get((producer, block), 0.0 if given else 1 / len(producers))
        if weight or not given:
            yield BlockReader(block=block, weight=float(weight), uses=tuple(some))


def _refuse_cycles(subgraphs: Iterable[Subgraph]) -> None:
    before: dict[str, set[str]] = defaultdict(set)
    for each in subgraphs:
        for reader in each.readers:
            if each.producer not in (None, reader.block):
                before[reader.block].add(str(each.producer))
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise InputError(
            f"blocks depend on each other in a cycle: {circle}; give each version of an array its own name"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceUnit:
    """Unit of decision: an array, one of its producers, and the blocks that read the result."""

    flow: Subgraph
    """The producer and its readers, with their accesses as they are priced."""
    stored: Stored
    """Array as stored today."""
    shapes: np.ndarray
    """Candidate chunk shapes, one per row; the first is today's."""
    fixed: bool = False


@dataclass(frozen=True, eq=False)
class Priced:
    """Predicted costs of a unit in each of its layouts."""

    unit: ChoiceUnit
    seconds: tuple[np.ndarray, ...]
    """Weighted seconds of the producer and each reader: one row per method, one column per layout."""
    rewriting: np.ndarray
    """Weighted seconds of rewriting from each layout (row) to each other (column)."""
    prices: tuple[tuple[Prices, ...], ...]
    """Prices of one run of the producer and each reader, one per use."""

    @property
    def starts(self) -> np.ndarray:
        """Indices of the layouts in which the array can be produced; only today's if it existed before or is fixed."""
        here = self.unit.flow.producer is None or self.unit.fixed
        return np.arange(1 if here else len(self.unit.shapes))

    @cached_property
    def table(self) -> np.ndarray:
        """Total seconds: one row per produced layout, one column per rewritten layout; diagonal: no rewrite."""
        total = self._made
        for each in self._best[1:]:
            total = total + np.minimum(each[self.starts, None], each[None, :])
        return total

    @cached_property
    def single(self) -> np.ndarray:
        """Total seconds, indexed as `table`, if all readers use the rewritten layout."""
        return np.asarray(self._made + sum(self._best[1:], np.zeros(len(self.unit.shapes))))

    @cached_property
    def _best(self) -> list[np.ndarray]:
        return [each.min(axis=0) for each in self.seconds]

    @cached_property
    def _made(self) -> np.ndarray:
        return np.asarray(self._best[0][self.starts, None] + self.rewriting[self.starts])


def priced(unit: ChoiceUnit, resources: Resources) -> Priced:
    flow, layouts = unit.flow, len(unit.shapes)
    look = layouts, unit.shapes.astype(np.int64).tobytes()
    found = [[_alike(use.plain, unit.stored, *look, resources) for use in uses] for *_, uses in flow.blocks]
    held = ([some.held[np.isfinite(some.seconds)], some.held] for each in found for some in each)
    least = max((math.ceil(float(next(filter(len, some)).min())) for some in held), default=0)
    if least > resources.budget:
        raise BudgetError(resources.budget, least, f"array {flow.dataset!r} in any chunks")
    within = tuple(tuple(each.within(resources.budget) for each in some) for some in found)
    blocks = zip(flow.blocks, within, strict=True)
    seconds = tuple(weighed(weight, _sum(each, uses, layouts)) for (_, weight, uses), each in blocks)
    rewriting = flow.times * _rewriting(unit.stored, *look, resources)
    if unit.fixed:
        rewriting = np.where(np.eye(layouts, dtype=bool), 0.0, math.inf)
    return Priced(unit, seconds, rewriting, within)


@lru_cache(maxsize=256)
def _alike(use: Access, stored: Stored, shapes: int, chunks: bytes, resources: Resources) -> Prices:
    """Price a use; equal uses of equal arrays are priced once."""
    return prices(use, stored, np.frombuffer(chunks, np.int64).reshape(shapes, len(stored.grid.chunks)), resources)


@lru_cache(maxsize=256)
def _rewriting(stored: Stored, shapes: int, chunks: bytes, resources: Resources) -> np.ndarray:
    every = np.frombuffer(chunks, np.int64).reshape(shapes, len(stored.grid.chunks))
    return rewriting_seconds(stored, every, every, resources)


def _sum(each: Sequence[Prices], uses: Sequence[Access], layouts: int) -> np.ndarray:
    """Return the seconds of several uses, one row per method; all uses of a block share one method."""
    pairs = zip(uses, each, strict=True)
    return sum((weighed(use.weight, one.seconds) for use, one in pairs), np.zeros((len(METHODS), layouts)))


def weighed(weight: float, seconds: np.ndarray) -> np.ndarray:
    """Multiply seconds by a weight, keeping infinity even for weight 0."""
    return np.multiply(seconds, weight, where=np.isfinite(seconds), out=np.full(seconds.shape, math.inf))


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Chosen layout of one producer's output, its rewritten copy, and each reader's method."""

    made: int
    """Index of the layout in which the array is produced or already stored."""
    copied: int
    """Index of the layout of the rewritten copy; equal to `made` without a rewrite."""
    seconds: float
    """Predicted seconds of all runs, weighted: writing, rewriting and reading."""
    today: float
    """Predicted seconds of all runs in today's chunks, each block with its cheapest method."""
    ways: tuple[tuple[int, int], ...]
    """Layout and method (row of `METHODS`) of the producer and each reader."""

    @property
    def kept(self) -> bool:
        return self.made == self.copied == 0

    @property
    def saving(self) -> float:
        """Fraction of today's seconds saved."""
        return 1 - self.seconds / self.today if 0 < self.today < math.inf else 0.0


def choose(priced: Priced, worth: float = 0.9, worth_a_copy: float = 0.9, least_copy: float = LEAST_COPY) -> Choice:
    """Choose the cheapest layouts and methods; prefer today's or a single layout if nearly as fast.

    A layout that takes more than the fraction ``worth`` of today's seconds is not advised, because predictions are no
    more accurate; neither is a second copy that takes more than ``worth_a_copy`` of one layout's seconds.

    Where Dask cuts its tasks by chunks, layouts of nearly equal seconds count as equal, and the one with the fewest
    chunks is chosen: the tasks' computation is not priced, and fewer tasks compute the same.
    """
    one, both = priced.single, priced.table
    may_copy = priced.unit.stored.nbytes >= least_copy
    best = both if may_copy and both.min() < worth_a_copy * one.min() else one
    made, copied = _cheapest(priced, best)
    if not best[made, copied] <= worth * one[0, 0]:
        made, copied = 0, 0
    layouts = [made]
    for each in priced.seconds[1:]:
        layouts.append(made if best is both and each[:, made].min() <= each[:, copied].min() else copied)
    ways = tuple((at, int(np.argmin(each[:, at]))) for at, each in zip(layouts, priced.seconds, strict=True))
    seconds, today = float(best[made, copied]), float(one[0, 0])
    return Choice(made=made, copied=copied, seconds=seconds, today=today, ways=ways)


def _cheapest(priced: Priced, seconds: np.ndarray) -> tuple[int, int]:
    """Return the layouts with the least seconds; for Dask tasks, the fewest chunks among those within a twentieth."""
    unit = priced.unit
    places = np.argwhere(seconds <= 1.05 * seconds.min())
    is_cut = any(use.cut_by_chunks for *_, uses in unit.flow.blocks for use in uses)
    if not (is_cut and np.isfinite(seconds.min())):
        places = np.array([np.unravel_index(int(np.argmin(seconds)), seconds.shape)])
    chunks = np.prod(-(-np.array(unit.stored.grid.shape) // unit.shapes), axis=1, dtype=float)
    made, copied = min(places.tolist(), key=lambda place: (chunks[place].sum(), seconds[tuple(place)]))
    return made, copied
