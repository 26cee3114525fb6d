"""The paper's algorithm by hand, and graphs that cannot be."""

from __future__ import annotations

import math

import pytest

from benchmarks.peers.classification import reference, representative, select
from oocarrays.errors import InputError
from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.choice import Subgraph, subgraphs_of

pytestmark = pytest.mark.once


def ref(block: str, dataset: str, pattern: str, count: float = 1, *, writes: bool = False) -> Access:
    return reference(block, dataset, pattern, count, writes=writes)


def edges(graph: tuple[Subgraph, ...]) -> dict[tuple[str | None, str], float]:
    """The weight of every producer and consumer."""
    return {(each.producer, reader.block): reader.weight for each in graph for reader in each.readers}


def test_a_block_has_the_pattern_of_which_the_counts_add_up_highest() -> None:
    nest = [ref("b", "u", "row", 40), ref("b", "u", "column", 50), ref("b", "u", "row", 20)]
    found = representative(nest)
    assert found is not None
    assert (found.pattern, dict(found.counts), found.tied) == ("row", {"row": 60, "column": 50}, ())


def test_a_tie_is_decided_by_cost_and_said() -> None:
    use = [ref("p", "x", "row", writes=True), ref("a", "x", "row"), ref("b", "x", "column")]
    (found,) = select(subgraphs_of(use), {"row": 3.0, "column": 2.0}.__getitem__)
    assert found.storage is not None
    assert (found.storage.pattern, found.storage.tied) == ("column", ("row", "column"))


def test_a_producer_stores_as_most_of_its_consumers_read() -> None:
    use = [
        ref("p", "x", "row", writes=True),
        ref("a", "x", "row"),
        ref("b", "x", "column", 100),  # a count decides within a block, a weight between blocks
        ref("c", "x", "block"),
        ref("d", "x", "column"),
    ]
    weights = {("p", "a"): 4.0, ("p", "b"): 3.0, ("p", "c"): 1.0, ("p", "d"): 2.0}
    (found,) = select(subgraphs_of(use, weights))
    assert found.storage is not None
    assert (found.storage.pattern, dict(found.storage.counts)) == ("column", {"row": 4, "column": 5, "block": 1})
    assert found.strategies == {"a": "collective", "b": "independent", "c": "collective", "d": "independent"}


def test_each_producer_of_a_dataset_stores_for_its_own_consumers() -> None:
    use = [
        ref("p", "x", "row", writes=True),
        ref("q", "x", "row", writes=True),
        ref("a", "x", "row"),
        ref("b", "x", "column"),
    ]
    graph = subgraphs_of(use, {("p", "a"): 5, ("p", "b"): 1, ("q", "a"): 1, ("q", "b"): 5})
    found = {each.subgraph.producer: each for each in select(graph)}
    assert {name: each.storage and each.storage.pattern for name, each in found.items()} == {"p": "row", "q": "column"}
    assert found["p"].strategies["b"] == "collective"
    assert found["q"].strategies["b"] == "independent"


def test_without_weights_a_consumer_follows_each_producer_equally_often() -> None:
    use = [ref("p", "x", "row", writes=True), ref("q", "x", "row", writes=True), ref("a", "x", "row")]
    assert edges(subgraphs_of(use)) == {("p", "a"): 0.5, ("q", "a"): 0.5}


def test_what_was_there_before_has_no_producer() -> None:
    (found,) = subgraphs_of([ref("a", "x", "row")])
    assert (found.producer, [(each.block, each.weight) for each in found.readers]) == (None, [("a", 1.0)])


def test_a_cycle_of_producers_is_refused() -> None:
    use = [
        ref("a", "x", "row", writes=True),
        ref("b", "x", "row"),
        ref("b", "y", "row", writes=True),
        ref("a", "y", "row"),
    ]
    with pytest.raises(InputError, match=r"in a cycle: [ab] → [ab] → [ab]"):
        subgraphs_of(use)


def test_a_block_may_read_again_what_it_has_written() -> None:
    use = [ref("a", "x", "row", writes=True), ref("a", "x", "column")]
    assert edges(subgraphs_of(use)) == {("a", "a"): 1.0}


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, None, "many"])
def test_weights_are_finite_and_not_negative(weight: object) -> None:
    use = [ref("p", "x", "row", writes=True), ref("a", "x", "row")]
    with pytest.raises(InputError, match=r"the weight of p → a is .*: it must be a finite number, at least 0"):
        subgraphs_of(use, {("p", "a"): weight})  # type: ignore[dict-item]
    with pytest.raises(InputError, match="the count of 'a' for 'x'"):
        subgraphs_of([ref("a", "x", "row", weight)])  # type: ignore[arg-type]


def test_a_weight_of_no_edge_is_refused() -> None:
    with pytest.raises(InputError, match="a → b has weight 2"):
        subgraphs_of([ref("a", "x", "row")], {("a", "b"): 2})
