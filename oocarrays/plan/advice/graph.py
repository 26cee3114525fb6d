"""Weighted communication graph: code blocks, the datasets that they write and read, and how often.

    b0 ──3──► b2        a dataset that b0 writes and b2 reads makes an edge; its weight says how often b2 runs after b0
    b1 ──1──► b2
    b0 ─► {b2: 3, …}    the producer-consumer subgraph of a dataset and one of its producers

A code block is a part of a program that can keep datasets in memory; between blocks they are stored.
Memik, Kandemir and Choudhary 2000, section 3.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

from oocarrays.errors import InputError
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.trace import checked_weight

Edge = tuple[str | None, str]
"""Producer and consumer; the producer is None if the dataset existed before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockReader:
    """Code block that reads a dataset."""

    block: str
    """Name of the code block."""
    weight: float
    """Weight of its edge: number of runs after each run of the producer."""
    uses: tuple[Access, ...]
    """Its reads of the dataset; their weights are their counts in one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """One producer of a dataset and all readers of its output (producer-consumer subgraph, PCS)."""

    dataset: str
    """Name of the dataset."""
    producer: str | None
    """Code block that writes the dataset; None if the dataset existed before."""
    readers: tuple[BlockReader, ...]
    """Code blocks that read the dataset."""
    writing: tuple[Access, ...] = ()
    """Writes of the producer; their weights are their counts in one run."""

    @property
    def uses(self) -> tuple[tuple[Access, ...], ...]:
        """Accesses of the producer, and of each reader."""
        return self.writing, *(reader.uses for reader in self.readers)

    @property
    def times(self) -> float:
        """Number of times that the producer writes the dataset in one run; 1 if it existed before."""
        return sum(each.weight for each in self.writing) if self.writing else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationGraph:
    """Code blocks and the datasets that connect them (weighted communication graph, WCG)."""

    subgraphs: tuple[Subgraph, ...]
    """Subgraphs, one per dataset and producer."""

    @classmethod
    def of(
        cls, accesses: Iterable[Access], weights: Mapping[tuple[str | None, str], float] | None = None
    ) -> CommunicationGraph:
        """Return the graph of the given accesses; their weights are counts within a run of their block."""
        edges = _checked_edges(weights)
        writers: dict[str, dict[str | None, list[Access]]] = {}
        readers: dict[str, dict[str, list[Access]]] = {}
        for each in accesses:
            checked_weight(each.weight, f"the count of {each.block!r} for {each.dataset!r}")
            written, read = writers.setdefault(each.dataset, {}), readers.setdefault(each.dataset, {})
            (written if each.writes else read).setdefault(each.block, []).append(each)
        for edge, weight in edges.items():
            checked_weight(weight, f"the weight of {_named(edge)}")
        subgraphs = tuple(
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
        _refuse_other_edges(edges, subgraphs)
        _refuse_cycles(subgraphs)
        return cls(subgraphs=subgraphs)

    @property
    def edges(self) -> dict[Edge, float]:
        """Weight of every edge (producer, consumer)."""
        return {(each.producer, reader.block): reader.weight for each in self.subgraphs for reader in each.readers}


def _checked_edges(weights: Any) -> dict[Edge, Any]:
    """Return the weights by edge; raise if they are not a mapping from pairs."""
    edges = {} if weights is None else weights
    if not isinstance(edges, Mapping) or not all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges):
        raise InputError(f"weights={weights!r} is not a mapping from pairs of blocks, such as {{('make', 'plot'): 10}}")
    return dict(edges)


def _named(edge: Edge) -> str:
    return f"{edge[0] or 'what was there before'} → {edge[1]}"


def _readers(
    producer: str | None, uses: Mapping[str, list[Access]], producers: list[str | None], edges: Mapping[Edge, Any]
) -> Iterator[BlockReader]:
    """Yield the blocks that read a producer's output, with the weights of their edges."""
    for block, some in uses.items():
        given = any((each, block) in edges for each in producers)
        weight = edges.get((producer, block), 0.0 if given else 1 / len(producers))
        if weight or not given:
            yield BlockReader(block=block, weight=float(weight), uses=tuple(some))


def _refuse_other_edges(weights: Mapping[Edge, Any], subgraphs: Iterable[Subgraph]) -> None:
    """Raise if a weighted edge has no dataset."""
    there = {(each.producer, reader.block) for each in subgraphs for reader in each.readers}
    for edge, weight in weights.items():
        if weight and edge not in there:
            raise InputError(
                f"{_named(edge)} has weight {weight}, but no array is written by one and read by the other"
            )


def _refuse_cycles(subgraphs: Iterable[Subgraph]) -> None:
    """Raise if blocks depend on each other's output in a cycle."""
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
