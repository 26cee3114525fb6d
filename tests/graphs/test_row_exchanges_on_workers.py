"""Exchanges of rows over the workers of a cluster: every schedule, messages as they are counted, workers that die."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from tests.graphs.clusters import until, within
from tests.seams import known_workers

RANKS = 4
COUNTS = np.array([[2, 0, 5, 1], [3, 3, 0, 0], [0, 1, 1, 4], [0, 0, 0, 0]])
PARTS = [np.arange(3 * n).reshape(n, 3) + 100 * rank for rank, n in enumerate([8, 7, 6, 0])]
SCHEDULES = ("lex", "pex", "rex", "bex", "pex-gen", "pex-gen-shift", "gen", "ipex", "coloring", "auto")


def expected() -> list[np.ndarray]:
    first = np.cumsum(COUNTS, axis=1) - COUNTS
    return [
        np.concatenate([PARTS[s][first[s, t] : first[s, t] + COUNTS[s, t]] for s in range(RANKS)]) for t in range(RANKS)
    ]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_come_where_they_are_to_come(two: Client, schedule: str) -> None:
    made = ooc.ranks.exchange(PARTS, COUNTS, schedule=schedule, scheduler=two)
    for part, right in zip(within(made.compute), expected(), strict=True):
        np.testing.assert_array_equal(part, right, strict=True)
    if made.plan.schedule.forwards:
        return
    until(lambda: made.meter.sent_bytes >= made.plan.sent_bytes, 10)
    assert (made.meter.messages, made.meter.sent_bytes) == (made.plan.messages, made.plan.sent_bytes) == (5, 14 * 24)


def test_they_stay_with_ranks_and_go_back(two: Client) -> None:
    kept = ooc.ranks.exchange(PARTS, COUNTS, scheduler=two).persist()
    assert len(set(kept.placement.values())) == 2
    back = within(ooc.ranks.exchange(kept, COUNTS.T).compute)
    first = np.cumsum(COUNTS, axis=1) - COUNTS
    sent = [max(first[rank] + COUNTS[rank]) for rank in range(RANKS)]
    for part, was, n in zip(back, PARTS, sent, strict=True):
        np.testing.assert_array_equal(part, was[:n])


def test_a_worker_dies(two: Client) -> None:
    two.wait_for_workers(2, timeout=60)
    first = ooc.ranks.exchange(PARTS, COUNTS, scheduler=two).persist()
    victim = first.placement[0]
    pid = two.run(os.getpid, workers=[victim])[victim]
    within(first.compute)
    os.kill(pid, signal.SIGKILL)
    until(lambda: victim not in known_workers(two))
    for part, right in zip(within(first.compute), expected(), strict=True):
        np.testing.assert_array_equal(part, right, strict=True)
