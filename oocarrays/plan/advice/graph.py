"""Weighted communication graph: code blocks, the datasets that they write and read, and how often.

    b0 ──3──► b2        a dataset that b0 writes and b2 reads makes an edge; its weight says how often b2 runs after b0
    b1 ──1──► b2
    b0 ─► {b2: 3, …}    the producer-consumer subgraph of a dataset and one of its producers

A code block is a part of a program that can keep datasets in memory; between blocks they are stored.
Memik, Kandemir and Choudhary 2000, section 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from oocarrays.errors import InputError
from oocarrays.plan.advice.trace import checked_weight

Edge = tuple[str | None, str]
"""Producer and consumer; the producer is None if the dataset existed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One access of a code block to a dataset."""

    block: str
    """Name of the code block."""
    dataset: str
    """Name of the dataset."""
    pattern: Hashable
    """Access pattern: ``"row"``, ``"column"``, ``"block"``, or any sections over ranks or tasks."""
    writes: bool = False
    """True for a write, False for a read."""
    count: float = 1.0
    """Number of accesses in one run of the block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """One producer of a dataset and all readers of its output (producer-consumer subgraph, PCS)."""

    dataset: str
    """Name of the dataset."""
    producer: str | None
    """Code block that writes the dataset; None if the dataset existed before."""
    consumers: tuple[tuple[str, float], ...]
    """Code blocks that read the dataset, with the weights of their edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationGraph:
    """Code blocks and the datasets that connect them (weighted communication graph, WCG)."""

    references: tuple[Reference, ...]
    """All accesses of blocks to datasets."""
    subgraphs: tuple[Subgraph, ...]
    """Subgraphs, one per dataset and producer."""

    @classmethod
    def of(
        cls, references: Iterable[Reference], weights: Mapping[tuple[str | None, str], float] | None = None
    ) -> CommunicationGraph:
        """Return the graph of the given references."""
        references, weights = tuple(references), _checked_edges(weights)
        for each in references:
            checked_weight(each.count, f"the count of {each.block!r} for {each.dataset!r}")
        for edge, weight in weights.items():
            checked_weight(weight, f"the weight of {_named(edge)}")
        writers, readers = _blocks(references, writes=True), _blocks(references, writes=False)
        subgraphs = tuple(
            Subgraph(dataset=name, producer=producer, consumers=_consumers(producer, readers[name], given, weights))
            for name in dict.fromkeys(each.dataset for each in references)
            for given in [writers[name] or [None]]
            for producer in given
        )
        _refuse_other_edges(weights, subgraphs)
        _refuse_cycles(subgraphs)
        return cls(references=references, subgraphs=subgraphs)

    @property
    def edges(self) -> dict[Edge, float]:
        """Weight of every edge (producer, consumer)."""
        return {(each.producer, block): weight for each in self.subgraphs for block, weight in each.consumers}

    def uses(self) -> dict[tuple[str, str, bool], tuple[Reference, ...]]:
        """Return the references by block, dataset and direction (True for writes)."""
        found = defaultdict(list)
        for each in self.references:
            found[each.block, each.dataset, each.writes].append(each)
        return {key: tuple(references) for key, references in found.items()}


def _checked_edges(weights: Any) -> dict[Edge, Any]:
    """Return the weights by edge; raise if they are not a mapping from pairs."""
    edges = {} if weights is None else weights
    if not isinstance(edges, Mapping) or not all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges):
        raise InputError(f"weights={weights!r} is not a mapping from pairs of blocks, such as {{('make', 'plot'): 10}}")
    return dict(edges)


def _named(edge: Edge) -> str:
    return f"{edge[0] or 'what was there before'} → {edge[1]}"


def _blocks(references: Iterable[Reference], *, writes: bool) -> dict[str, list[str | None]]:
    """Return the blocks that write (or read) each dataset, each once."""
    found: dict[str, dict[str | None, None]] = defaultdict(dict)
    for each in references:
        if each.writes == writes:
            found[each.dataset][each.block] = None
    return defaultdict(list, {name: list(blocks) for name, blocks in found.items()})


def _consumers(
    producer: str | None,
    readers: Iterable[str | None],
    producers: list[str | None],
    weights: Mapping[tuple[str | None, str], float],
) -> tuple[tuple[str, float], ...]:
    """Return the blocks that read a producer's output, with the weights of their edges."""
    found = []
    for block in filter(None, readers):
        given = any((each, block) in weights for each in producers)
        weight = weights.get((producer, block), 0.0 if given else 1 / len(producers))
        if weight or not given:
            found.append((block, float(weight)))
    return tuple(found)


def _refuse_other_edges(weights: Mapping[tuple[str | None, str], float], subgraphs: Iterable[Subgraph]) -> None:
    """Raise if a weighted edge has no dataset."""
    there = {(each.producer, block) for each in subgraphs for block, _ in each.consumers}
    for edge, weight in weights.items():
        if weight and edge not in there:
            raise InputError(
                f"{_named(edge)} has weight {weight}, but no array is written by one and read by the other"
            )


def _refuse_cycles(subgraphs: Iterable[Subgraph]) -> None:
    """Raise if blocks depend on each other's output in a cycle."""
    before: dict[str, set[str]] = defaultdict(set)
    for each in subgraphs:
        for block, _ in each.consumers:
            if each.producer not in (None, block):
                before[block].add(str(each.producer))
    try:
        TopologicalSorter(before).prepare()
    except CycleError as error:
        circle = " → ".join(error.args[1])
        raise InputError(
            f"blocks depend on each other in a cycle: {circle}; give each version of an array its own name"
        ) from None
