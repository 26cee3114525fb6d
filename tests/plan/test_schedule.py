from __future__ import annotations

import csv
from pathlib import Path

import pytest

from oocarrays.plan.schedule import complete_exchange, gen, pex

PRINTED = Path(__file__).parents[1] / "data" / "pex_on_8_processors.csv"


def test_pex_on_8_ranks_is_the_printed_table() -> None:
    """Thakur 1995, Table 4.1."""
    with PRINTED.open() as file:
        printed = {(int(row["step"]), int(row["a"]), int(row["b"])) for row in csv.DictReader(file)}
    ours = {
        (step, rank, partner)
        for step, partners in enumerate(pex(8).destinations)
        for rank, partner in enumerate(partners)
        if rank < partner
    }
    assert ours == printed


@pytest.mark.parametrize("ranks", range(1, 34))
def test_every_rank_meets_every_other_once_and_one_at_a_time(ranks: int) -> None:
    schedule = complete_exchange(ranks)
    everyone = set(range(ranks))
    for step in schedule.destinations:
        assert set(step) == everyone, "one receiver for each sender"
    for rank in range(ranks):
        assert {step[rank] for step in schedule.destinations} == everyone
    assert schedule.steps == ranks


@pytest.mark.parametrize("ranks", range(1, 17))
def test_sources_are_destinations_seen_from_the_other_side(ranks: int) -> None:
    schedule = complete_exchange(ranks)
    for to, sources in zip(schedule.destinations, schedule.sources, strict=True):
        assert [to[source] for source in sources] == list(range(ranks))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 16])
def test_pex_pairs_exchange_with_each_other(ranks: int) -> None:
    schedule = pex(ranks)
    assert schedule.sources == schedule.destinations


def test_gen_sends_i_ranks_on_in_step_i() -> None:
    """Thakur 1995, Figure 4.13."""
    assert gen(5).destinations[3] == (3, 4, 0, 1, 2)
