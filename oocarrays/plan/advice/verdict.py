"""What is advised of each array: its chunks, how each block reads it, what that saves, and what speaks against it.

    units of the graph ──► priced ──► chosen ──► a verdict for each array and producer

The verdicts are data: `oocarrays.advice` shows them, and lets them be applied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan.advice.candidates import MOST_BYTES, SIZES, candidates
from oocarrays.plan.advice.choice import LEAST_COPY, BlockReader, Choice, ChoiceUnit, Priced, choose, priced
from oocarrays.plan.advice.graph import CommunicationGraph, Reference
from oocarrays.plan.advice.price import METHODS, Prices, Use
from oocarrays.plan.limits import within_budget
from oocarrays.plan.resources import Resources

MANY_OBJECTS = 100_000
"""More chunks than that are a burden to whoever lists, copies or deletes them."""
LARGE_CHUNK = 2**27
"""Bytes of a chunk that whoever reads little of it decodes in vain."""
SMALL_CHUNK = 2**17
"""Bytes of a chunk for which a request takes longer than what it brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedLoad:
    """Requests, bytes and seconds of all runs together, with weights."""

    requests: float = 0.0
    """Calls that read or write."""
    nbytes: float = 0.0
    """Stored bytes that they bring or take: an estimate where chunks are coded."""
    seconds: float = 0.0
    """Predicted by the clock."""

    def __add__(self, other: WeightedLoad) -> WeightedLoad:
        return WeightedLoad(
            requests=self.requests + other.requests,
            nbytes=self.nbytes + other.nbytes,
            seconds=self.seconds + other.seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockVerdict:
    """How one block reads or writes an array."""

    block: str
    """Its name."""
    writes: bool
    """Whether it writes it."""
    weight: float
    """Times that this happens, in all."""
    method: str
    """``"independent"`` or ``"two-phase"``, as `read_sections` takes it."""
    today_method: str
    """The same for today's chunks."""
    chunks: tuple[int, ...]
    """The layout that it finds."""
    uses: tuple[Use, ...]
    """What it reads or writes."""
    today: WeightedLoad
    """In today's chunks, in the cheapest way."""
    advised: WeightedLoad
    """In these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Verdict on an array that one block makes, or that was there before."""

    array: str
    """Its name."""
    producer: str | None
    """The block that makes it."""
    stored: Stored
    """As it is today."""
    made: tuple[int, ...]
    """Chunks that it should be made in: today's, where it is not made anew."""
    copied: tuple[int, ...]
    """Chunks that it is then rewritten in; the same where it is not."""
    saving: float
    """The share of today's seconds that is saved, what rewriting takes included."""
    rewriting: float
    """Seconds of rewriting it once."""
    blocks: tuple[BlockVerdict, ...]
    """Who writes and reads it."""
    against: tuple[str, ...]
    """What speaks against the chunks that are advised."""

    @property
    def kept(self) -> bool:
        """Whether it stays as it is."""
        return self.made == self.copied == self.stored.grid.chunks

    @property
    def chunks(self) -> tuple[int, ...]:
        """The chunks that it should have in the end."""
        return self.copied

    @property
    def copies(self) -> bool:
        """Whether two layouts are read, each by some blocks."""
        return len({each.chunks for each in self.blocks if not each.writes}) > 1

    @property
    def today(self) -> WeightedLoad:
        """Seconds that all blocks take in today's chunks."""
        return sum((each.today for each in self.blocks), WeightedLoad())

    @property
    def advised(self) -> WeightedLoad:
        """Seconds that all blocks take in the chunks that are advised, without rewriting."""
        return sum((each.advised for each in self.blocks), WeightedLoad())

    @property
    def runs_to_pay(self) -> float:
        """Share of the traced runs after which rewriting has paid for itself; infinite where it never does."""
        gained = self.today.seconds - self.advised.seconds
        return self.rewriting / gained if gained > 0 else math.inf


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class SeenSummary:
    """Summary of what was seen of a block's reads or writes of an array."""

    block: str
    """Its name."""
    array: str
    """Its name."""
    use: Use
    """The sections."""
    count: float = 1.0
    """Times that this happens."""


def verdicts(
    arrays: Mapping[str, Stored],
    seen: Iterable[SeenSummary],
    resources: Resources,
    *,
    weights: Mapping[tuple[str | None, str], float] | None = None,
    fixed: Callable[[str], bool] = lambda name: False,
    copies: bool = True,
) -> tuple[Verdict, ...]:
    """Decide every array and producer."""
    seen = tuple(seen)
    references = [
        Reference(block=s.block, dataset=s.array, pattern=s.use, writes=s.use.writes, count=s.count) for s in seen
    ]
    graph = CommunicationGraph.of(references, weights)
    uses = graph.uses()
    units = []
    for each in graph.subgraphs:
        readers = [
            BlockReader(block=block, weight=weight, uses=_weighed(uses.get((block, each.dataset, False), ())))
            for block, weight in each.consumers
        ]
        writing = _weighed(uses.get((each.producer or "", each.dataset, True), ()))
        stored, keep = arrays[each.dataset], fixed(each.dataset)
        every = [use for reader in readers for use, _ in reader.uses] + [use for use, _ in writing]
        most = min(MOST_BYTES, max(resources.budget // 4, min(SIZES)))  # smaller ones save no memory to speak of
        shapes = candidates(stored, [] if keep else every, most)
        unit = ChoiceUnit(
            array=each.dataset, producer=each.producer, stored=stored, shapes=shapes, readers=tuple(readers),
            writing=writing, fixed=keep,
        )  # fmt: skip
        units.append(unit)
    costed: list[Priced] = within_budget([partial(priced, unit, resources) for unit in units])
    least_copy = LEAST_COPY if copies else math.inf
    return tuple(verdict(costs, choose(costs, least_copy=least_copy)) for costs in costed)


def _weighed(references: Sequence[Reference]) -> tuple[tuple[Use, float], ...]:
    return tuple((each.pattern, each.count) for each in references if isinstance(each.pattern, Use))


def verdict(costs: Priced, choice: Choice) -> Verdict:
    """Say what a choice means."""
    unit = costs.unit
    layout = [tuple(shape) for shape in unit.shapes.tolist()]
    blocks = []
    if unit.producer is not None:
        blocks.append(_of_block(unit.producer, 1.0, unit.writing, costs.written, layout, choice.made, choice.writes))
    for reader, details, (at, method) in zip(unit.readers, costs.details, choice.ways, strict=True):
        blocks.append(_of_block(reader.block, reader.weight, reader.uses, details, layout, at, method))
    times = sum(count for _, count in unit.writing) if unit.writing else 1.0
    rewriting = float(costs.rewriting[choice.made, choice.copied])
    return Verdict(
        array=unit.array,
        producer=unit.producer,
        stored=unit.stored,
        made=layout[choice.made],
        copied=layout[choice.copied],
        saving=choice.saving,
        rewriting=rewriting / times if times else rewriting,
        blocks=tuple(blocks),
        against=() if choice.kept else (*_against_copy(costs, choice), *_against(unit, layout[choice.copied])),
    )


def _against_copy(costs: Priced, choice: Choice) -> Iterable[str]:
    """Say what a second copy takes, and what one layout would."""
    if len({layout for layout, _ in choice.ways}) > 1:
        one = choose(costs, least_copy=math.inf)
        chunks = " × ".join(map(str, costs.unit.shapes[one.copied].tolist()))
        yield (
            f"a second copy of {costs.unit.stored.nbytes / 2**20:.0f} MiB; one layout (copies=False), {chunks}, takes "
            f"{one.seconds:.3g} s where both take {choice.seconds:.3g} s"
        )


def _of_block(
    block: str,
    weight: float,
    uses: tuple[tuple[Use, float], ...],
    details: tuple[Prices, ...],
    layout: Sequence[tuple[int, ...]],
    at: int,
    method: int,
) -> BlockVerdict:
    priced = zip(uses, details, strict=True)
    total = sum((count * each.seconds[:, 0] for (_, count), each in priced if count), np.zeros(2))
    counts, today = [weight * count for _, count in uses], int(np.argmin(total))
    return BlockVerdict(
        block=block,
        writes=any(use.writes for use, _ in uses),
        weight=sum(counts),
        method=METHODS[method],
        today_method=METHODS[today],
        chunks=layout[at],
        uses=tuple(use for use, _ in uses),
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


def _against(unit: ChoiceUnit, chunks: tuple[int, ...]) -> Iterable[str]:
    """Say what speaks against some chunks."""
    stored = unit.stored
    uses = [use for reader in unit.readers for use, _ in reader.uses]
    others = sorted({name for use in uses for each in use.repeats for name in each.of})
    if others:
        yield f"its requests depend on the chunks of {', '.join(others)}: they are counted for those of today"
    count = math.prod(map(ceil_div, stored.grid.shape, chunks))
    nbytes = math.prod(chunks) * stored.itemsize
    if count > MANY_OBJECTS and not stored.shards:
        yield f"{count} objects, today {stored.grid.count}: put chunks in shards"
    if nbytes > LARGE_CHUNK:
        yield f"chunks of {nbytes // 2**20} MiB: who reads one element decodes as much"
    if nbytes < SMALL_CHUNK and stored.nbytes > SMALL_CHUNK:
        yield f"chunks of {nbytes / 2**10:.0f} KiB: a request takes longer than what it brings"
    padded = math.prod(ceil_div(n, c) * c for n, c in zip(stored.grid.shape, chunks, strict=True)) * stored.itemsize
    if padded > 1.25 * stored.nbytes and not stored.coded:
        yield f"chunks at the edge are stored whole: {padded / max(stored.nbytes, 1):.2f} times the bytes"
    if stored.coded:
        yield f"{stored.codec} may code chunks of another shape better or worse"
