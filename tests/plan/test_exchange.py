"""The bytes that an exchange sends and holds, beside those found by looking at every pair's data in turn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import ScheduleError
from oocarrays.plan.exchange.ordering import Exchange
from oocarrays.plan.exchange.schedule import schedules
from oocarrays.ranks import Schedule
from tests.profiles import examples

pytestmark = pytest.mark.once

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """A schedule, and a matrix of sizes of which any part may be empty."""
    ranks = draw(st.integers(1, 9) | st.sampled_from([8, 16]))
    columns = 1 << draw(st.integers(0, (ranks & -ranks).bit_length() - 1)) if ranks & (ranks - 1) == 0 else None
    schedule = draw(st.sampled_from(schedules(ranks, columns=columns)))
    random = np.random.default_rng(draw(SEEDS))
    full = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
    return Exchange.of(
        schedule, np.where(random.random((ranks, ranks)) < full, random.integers(1, 100, (ranks, ranks)), 0)
    )


@examples(200)
@given(exchanges())
def test_a_message_has_the_bytes_of_all_that_rides_in_it_and_is_sent_where_it_has_any(exchange: Exchange) -> None:
    schedule = exchange.schedule
    expected = []
    for number, step in enumerate(schedule):
        for source, to in step.pairs:
            nbytes = sum(exchange.sizes[pair] for pair in schedule.ride(number, source).pairs)
            if nbytes:
                expected.append((number, source, to, nbytes))
    turns = list(exchange)
    sent = [(t.number, *pair, size) for t in turns for pair, size in zip(t.step.pairs, t.sizes, strict=True)]
    assert sent == expected
    assert all(turn.step.pairs for turn in turns), "a step left empty has disappeared"


@examples(100)
@given(exchanges())
def test_the_buffer_is_what_a_rank_holds_above_its_source_and_its_target(exchange: Exchange) -> None:
    schedule, sizes = exchange.schedule, exchange.sizes
    at = {(origin, final): origin for origin in range(schedule.ranks) for final in range(schedule.ranks)}
    most = [0] * schedule.ranks
    for number, step in enumerate(schedule if schedule.forwards else []):
        held = [sum(int(sizes[pair]) for pair in at if at[pair] == rank) for rank in range(schedule.ranks)]
        moved = {pair: to for source, to in step.pairs for pair in schedule.ride(number, source).pairs}
        for rank in range(schedule.ranks):
            come = sum(int(sizes[pair]) for pair, to in moved.items() if to == rank)
            usual = max(int(sizes[rank].sum()), int(sizes[:, rank].sum()))
            most[rank] = max(most[rank], held[rank] + come - usual if come else 0)
        at |= moved
    assert exchange.buffer_bytes == max(most)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 8), (4, 4), (8, 2), (16, 32)])
def test_buffers_of_even_exchanges_are_those_of_the_thesis(rows: int, columns: int) -> None:
    """L·P/2 for REX, L·r for IPEX (4.3.7), and none where nothing is forwarded."""
    ranks = rows * columns
    buffers = {
        each.name: Exchange.of(each, 100).buffer_bytes
        for each in schedules(ranks, columns=columns, names=("REX", "IPEX", "PEX", "GEN"))
    }
    assert buffers == {"REX": 100 * ranks // 2, "IPEX": 100 * rows, "PEX": 0, "GEN": 0}


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        (np.ones((5, 4)), r"sizes of shape \(5, 4\) do not fit a schedule of 4 ranks"),
        (np.ones(4), r"sizes of shape \(4,\)"),
        (-1, "sizes hold -1 bytes"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(sizes: np.ndarray | int, says: str) -> None:
    with pytest.raises(ScheduleError, match=says):
        Exchange.of(Schedule.of("pex", 4), sizes)
