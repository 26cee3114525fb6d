"""Storage patterns and strategies, exactly as the paper finds them: counts added up, the highest wins.

    in a block         row 10, column 3          ─► the block's access pattern is row
    in a subgraph      row 5 + 1, column 4       ─► the producer stores by rows
    a consumer         row: independent          column: collective

Memik, Kandemir and Choudhary 2000, sections 3.1 (access patterns) and 3.2 (storage patterns).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.choice import Subgraph

Strategy = Literal["independent", "collective"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preferred:
    """The pattern that most speaks for."""

    pattern: Hashable
    """The one with the highest count; where several have it, the one of least cost."""
    counts: tuple[tuple[Hashable, float], ...]
    """What speaks for each pattern."""
    tied: tuple[Hashable, ...] = ()
    """All that have the highest count, where cost had to decide."""


def preferred(
    counted: Iterable[tuple[Hashable, float]], cost: Callable[[Hashable], float] | None = None
) -> Preferred | None:
    """Add up counts by pattern and choose the highest; None where there are no patterns.

    Examples
    --------
    >>> preferred([("row", 2), ("column", 3), ("row", 2)]).pattern
    'row'
    >>> preferred([("row", 2), ("column", 2)], cost={"row": 5.0, "column": 1.0}.get)
    Preferred(pattern='column', counts=(('row', 2.0), ('column', 2.0)), tied=('row', 'column'))
    """
    counts: dict[Hashable, float] = {}
    for pattern, count in counted:
        counts[pattern] = counts.get(pattern, 0.0) + count
    if not counts:
        return None
    highest = max(counts.values())
    tied = tuple(pattern for pattern, count in counts.items() if count == highest)
    chosen = tied[0] if cost is None else min(tied, key=cost)
    return Preferred(pattern=chosen, counts=tuple(counts.items()), tied=tied if len(tied) > 1 else ())


def reference(block: str, dataset: str, pattern: Hashable, count: float = 1, *, writes: bool = False) -> Access:
    """Return an access of the paper's kind, with the name of a pattern in place of its sections."""
    patterns: Any = (pattern,)
    return Access(block=block, dataset=dataset, patterns=patterns, weight=count, writes=writes)


def representative(references: Iterable[Access]) -> Preferred | None:
    """Return the access pattern that a block has most often: the conflict resolution of section 3.1."""
    return preferred((each.patterns[0], each.weight) for each in references)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """Decision of the paper's compiler for a dataset and one of its producers."""

    subgraph: Subgraph
    """The dataset, its producer and its consumers."""
    storage: Preferred | None
    """How the producer stores it; None where nobody reads it."""
    access: tuple[tuple[str, Hashable], ...]
    """The representative access pattern of each consumer."""

    @property
    def strategies(self) -> dict[str, Strategy]:
        """How each consumer reads: independently where its pattern is the stored one, collectively where it is not."""
        stored = self.storage.pattern if self.storage else None
        return {block: "independent" if pattern == stored else "collective" for block, pattern in self.access}


def select(graph: Iterable[Subgraph], cost: Callable[[Hashable], float] | None = None) -> tuple[Selected, ...]:
    """Choose the storage pattern of each dataset once for each of its producers, and each consumer's strategy.

    Examples
    --------
    >>> from oocarrays.plan.advice.choice import subgraphs_of
    >>> use = [
    ...     reference("make", "x", "row", writes=True),
    ...     reference("sum", "x", "column", 7),
    ...     reference("plot", "x", "row"),
    ... ]
    >>> (chosen,) = select(subgraphs_of(use, {("make", "sum"): 1, ("make", "plot"): 4}))
    >>> chosen.storage.pattern, chosen.strategies
    ('row', {'sum': 'collective', 'plot': 'independent'})
    """
    found = []
    for subgraph in graph:
        seen = [(reader.block, reader.weight, representative(reader.uses)) for reader in subgraph.readers]
        access = [(block, weight, each.pattern) for block, weight, each in seen if each]
        storage = preferred(((pattern, weight) for _, weight, pattern in access), cost)
        found.append(
            Selected(subgraph=subgraph, storage=storage, access=tuple((block, pattern) for block, _, pattern in access))
        )
    return tuple(found)
