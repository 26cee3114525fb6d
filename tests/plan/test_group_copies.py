"""Tasks that copy the arrays of a group as they are."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.group import GroupPlan, ToCopy, plan_copies
from tests.profiles import examples

pytestmark = pytest.mark.once


@examples(60)
@given(
    sizes=st.lists(st.integers(0, 2**30), max_size=12),
    lanes=st.integers(1, 8),
    at_once=st.integers(1, 16),
    shared=st.booleans(),
    local=st.booleans(),
)
def test_copies_are_few_tasks_within_the_budget(
    sizes: list[int], lanes: int, at_once: int, shared: bool, local: bool
) -> None:
    arrays = [ToCopy(name=str(i), nbytes=n, object_bytes=min(n, 2**22)) for i, n in enumerate(sizes)]
    budget = 2**24
    there = {"threads": lanes} if shared else {"workers": lanes}
    plan = plan_copies(arrays, Resources(budget=budget, **there), at_once=at_once, local=local)
    pieces = [(p.name, p.part, p.parts) for batch in plan.batches for p in batch]
    assert len(set(pieces)) == len(pieces)
    assert {(n, part) for n, part, _ in pieces} == {(n, i) for n, _, parts in pieces for i in range(parts)}
    assert {n for n, _, _ in pieces} == {array.name for array in arrays}
    assert len(plan.batches) <= max(sum(sizes) / 2**26 * 2, 0) + len(sizes) / 2 + 2
    assert plan.peak_bytes <= budget
    assert GroupPlan(members=(), copies=plan, budget=budget, processes=None).peak_bytes == plan.peak_bytes
    assert sorted(batch for lane in range(plan.lanes) for batch in plan.lane(lane)) == list(range(len(plan.batches)))
    assert 1 <= plan.at_once <= max(at_once, 1)
