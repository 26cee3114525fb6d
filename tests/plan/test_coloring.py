"""Steps for the messages that there are: each goes once, one from and one to a rank in a step, and steps are fewest."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.plan.exchange.ordering import Exchange, colored, is_worth_coloring, partners
from tests.profiles import examples
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.long


@examples(200)
@given(st.integers(1, 24), st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_every_message_goes_once_and_steps_are_as_many_as_the_busiest_rank_has_partners(
    ranks: int, share: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 100, (ranks, ranks)) * (random.random((ranks, ranks)) < share)
    schedule = colored(sizes)
    assert len(schedule) == partners(sizes)
    went = [pair for step in schedule for pair in step.pairs]
    assert sorted(went) == [(s, t) for s, t in np.argwhere(sizes).tolist() if s != t]
    for step in schedule:
        targets = [target for _, target in step.pairs]
        assert len(targets) == len(set(targets))
    exchange = Exchange.of(schedule, sizes)
    assert exchange.messages == len(went)
    assert exchange.sent_bytes == sum(int(sizes[pair]) for pair in went)
    assert exchange.buffer_bytes == 0


def test_a_thousand_ranks_with_many_partners_are_coloured_in_little_work() -> None:
    random = np.random.default_rng(0)
    sizes = random.integers(1, 100, (1000, 1000)) * (random.random((1000, 1000)) < 0.3)
    assert is_worth_coloring(sizes)
    with counted() as work:
        schedule = colored(sizes)
    assert len(schedule) == partners(sizes)
    assert work.calls < CALLS_A_SECOND
