"""The memory of a rank in an exchange, against an exchange that is played part by part."""

from __future__ import annotations

import numpy as np
import pytest

from oocarrays import Layout
from oocarrays.networks import FlatCluster
from oocarrays.plan.exchange.ordering import CREDIT
from oocarrays.plan.exchange.prediction import flat_constants
from oocarrays.plan.layouts.assembly import Messaging, held_elements
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import Costs
from oocarrays.ranks import Schedule
from tests.pairs import pairs
from tests.plan.schedules import predicted

pytestmark = pytest.mark.once

TRANSFERS = {
    "rows to columns": (Layout.of((8, 8), "(block, *)", ranks=4), Layout.of((8, 8), "(*, block)", ranks=4)),
    "to more ranks": (Layout.of((50,), "cyclic(3)", ranks=3), Layout.of((50,), "block", ranks=8)),
    "to fewer": (Layout.of((9, 7), "(cyclic, block)", grid=(4, 2)), Layout.of((9, 7), "(*, cyclic(2))", ranks=2)),
}
SCHEDULES = ("LEX", "PEX", "REX", "BEX", "PEX-GEN", "PEX-GEN-SHIFT", "GEN", "IPEX")


def played(transfer: Transfer, schedule: Schedule, assembly: str) -> list[int]:
    """The most that each rank holds: parts, what it packed, what came, what is for others."""
    sizes = {
        (origin, final): transfer.size(origin, final)
        for origin in range(transfer.source.ranks)
        for final in range(transfer.target.ranks)
        if origin != final
    }
    ranks = range(schedule.ranks)
    base = [
        sum(layout.local_size(rank) for layout in (transfer.source, transfer.target) if rank < layout.ranks)
        for rank in ranks
    ]
    if assembly == "asynchronous" and not schedule.forwards:  # as they come, with credit for some at one time
        sides = ([[size for pair, size in sizes.items() if pair[end] == rank] for rank in ranks] for end in (0, 1))
        return [
            base[r] + sum(sum(sorted(each)[-CREDIT:]) for each in both)
            for r, both in enumerate(zip(*sides, strict=True))
        ]
    if assembly == "unordered":  # whatever is sent, at any time
        return [base[r] + sum(size for pair, size in sizes.items() for end in pair if end == r) for r in ranks]
    waiting: list[set] = [set() for _ in ranks]
    inbox, out, came, carried = ([0] * schedule.ranks for _ in range(4))
    for number, step in enumerate(schedule):
        rides = [(s, t, [pair for pair in schedule.ride(number, s).pairs if pair in sizes]) for s, t in step.pairs]
        arriving = [0] * schedule.ranks
        for source, target, riding in rides:
            out[source] = max(out[source], sum(sizes[pair] for pair in riding))
            arriving[target] += sum(sizes[pair] for pair in riding)
            waiting[source] -= set(riding)
        for _, target, riding in rides:
            inbox[target] += sum(sizes[pair] for pair in riding if pair[1] == target)
            waiting[target] |= {pair for pair in riding if pair[1] != target}
        for rank in ranks:
            came[rank] = max(came[rank], arriving[rank])
            carried[rank] = max(carried[rank], sum(sizes[pair] for pair in waiting[rank]))
    within = inbox if assembly == "synchronous" else came
    return [base[rank] + out[rank] + within[rank] + carried[rank] for rank in ranks]


@pytest.mark.parametrize(
    *pairs(layouts=TRANSFERS, name=SCHEDULES, assembly=["synchronous", "asynchronous", "unordered"])
)
def test_what_ranks_hold_is_what_a_played_exchange_holds(layouts: str, name: str, assembly: str) -> None:
    transfer = Transfer(*TRANSFERS[layouts])
    ranks = max(transfer.source.ranks, transfer.target.ranks)
    schedule = Schedule.of(name, ranks)
    how = {"assembly": "synchronous", "ordered": False} if assembly == "unordered" else {"assembly": assembly}
    if assembly != "unordered" or not schedule.forwards:
        assert held_elements(transfer, schedule, **how).tolist() == played(transfer, schedule, assembly)


@pytest.mark.parametrize("startup", [1e-9, 1.0])
def test_auto_takes_the_least_predicted_time_of_each_transfer(startup: float) -> None:
    transfers, costs = (
        [Transfer(*each) for each in TRANSFERS.values()],
        Costs(exchange={**Costs().exchange, "startup": startup}),
    )
    messaging = Messaging.of(transfers, 8, schedule="auto", assembly="synchronous", costs=costs)
    for transfer, chosen in zip(transfers, messaging.schedules, strict=True):
        sizes = np.zeros((chosen.ranks, chosen.ranks), int)
        sizes[: transfer.source.ranks, : transfer.target.ranks] = transfer.sizes() * 8
        seconds = predicted(sizes, FlatCluster.of(chosen.ranks), flat_constants(costs))
        assert seconds[chosen] == min(seconds.values())
    held = [held_elements(*each, "synchronous").max() for each in zip(transfers, messaging.schedules, strict=True)]
    assert messaging.held(transfers) == max(held)
