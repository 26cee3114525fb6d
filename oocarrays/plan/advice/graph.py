"""The weighted communication graph: code blocks, what they make and use of stored arrays, and how often.

    b0 ──3──► b2        a dataset that b0 writes and b2 reads makes an edge; its weight says how often b2 runs after b0
    b1 ──1──► b2
    b0 ─► {b2: 3, …}    the producer-consumer subgraph of a dataset and one of its producers

A code block is a part of a program during which datasets can be kept in memory; between blocks they are stored.
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
"""Producer and consumer; no producer where the dataset was there before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One way in which a code block reads or writes a dataset."""

    block: str
    """Name of the code block."""
    dataset: str
    """Name of what is read or written."""
    pattern: Hashable
    """How: ``"row"``, ``"column"``, ``"block"``, or any sections over ranks or tasks."""
    writes: bool = False
    """Whether it is written, not read."""
    count: float = 1.0
    """Times that this happens in one run of the block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subgraph:
    """A producer of a dataset and all who read what it makes (PCS)."""

    dataset: str
    """What is made and read."""
    producer: str | None
    """The code block that writes it; None where it was there before."""
    consumers: tuple[tuple[str, float], ...]
    """Code blocks that read it, with the weights of their edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationGraph:
    """Code blocks and what flows between them (WCG)."""

    references: tuple[Reference, ...]
    """Every way in which a block reads or writes a dataset."""
    subgraphs: tuple[Subgraph, ...]
    """One for each dataset and each of its producers."""

    @classmethod
    def of(
        cls, references: Iterable[Reference], weights: Mapping[tuple[str | None, str], float] | None = None
    ) -> CommunicationGraph:
        """Return the graph of some references."""
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
        """The weight of every edge: producer and consumer."""
        return {(each.producer, block): weight for each in self.subgraphs for block, weight in each.consumers}

    def uses(self) -> dict[tuple[str, str, bool], tuple[Reference, ...]]:
        """References by block, dataset, and whether it is written."""
        found = defaultdict(list)
        for each in self.references:
            found[each.block, each.dataset, each.writes].append(each)
        return {key: tuple(references) for key, references in found.items()}


def _checked_edges(weights: Any) -> dict[Edge, Any]:
    """Return the weights of edges, by producer and consumer."""
    edges = {} if weights is None else weights
    if not isinstance(edges, Mapping) or not all(isinstance(edge, tuple) and len(edge) == 2 for edge in edges):
        raise InputError(f"weights={weights!r} is not a mapping from pairs of blocks, such as {{('make', 'plot'): 10}}")
    return dict(edges)


def _named(edge: Edge) -> str:
    return f"{edge[0] or 'what was there before'} → {edge[1]}"


def _blocks(references: Iterable[Reference], *, writes: bool) -> dict[str, list[str | None]]:
    """The blocks that write each dataset, or read it, each once."""
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
    """Who reads what a producer makes, and how often after it."""
    found = []
    for block in filter(None, readers):
        given = any((each, block) in weights for each in producers)
        weight = weights.get((producer, block), 0.0 if given else 1 / len(producers))
        if weight or not given:
            found.append((block, float(weight)))
    return tuple(found)


def _refuse_other_edges(weights: Mapping[tuple[str | None, str], float], subgraphs: Iterable[Subgraph]) -> None:
    """Refuse weights of edges that no dataset makes."""
    there = {(each.producer, block) for each in subgraphs for block, _ in each.consumers}
    for edge, weight in weights.items():
        if weight and edge not in there:
            raise InputError(
                f"{_named(edge)} has weight {weight}, and no array is written by the one and read by the other"
            )


def _refuse_cycles(subgraphs: Iterable[Subgraph]) -> None:
    """Refuse blocks that each wait for what the next one makes."""
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
            f"blocks make each other's input in a cycle: {circle}; name each version of an array"
        ) from None
