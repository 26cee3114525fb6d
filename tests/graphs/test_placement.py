"""One placement of ranks: jobs and arrays agree, neighbours are together, and only messages leave a worker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import oocarrays as ooc
from oocarrays.graphs.cluster.placement import as_they_are, budget_of, workers_of
from oocarrays.graphs.layouts.exchanging import Moving, PartExchange, exchange_parts
from oocarrays.graphs.layouts.parts import parts_of_array
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import sides, spread
from tests.graphs.clusters import within
from tests.owners import numbered
from tests.pairs import pairs
from tests.seams import set_constants

X = numbered((24, 30))
MAY_LEAVE = ("send", "carry", "lend", "taken", "took", "over", "gone", "freed", "exchange")
"""Messages, what of them goes on, words that one was taken or let go, and what tasks do: no part."""


def test_workers_give_what_their_processes_do_not_hold_now(two: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not a second ago: the scheduler's word is of then, with what a job that has ended had mapped."""
    set_constants(monkeypatch, worker_idle_bytes=15 * 2**24)  # theirs have imported all that tests need
    known = [replace(worker, memory_limit=2**29) for worker in workers_of(two)]
    then = [replace(worker, memory=2**28) for worker in known]
    now = as_they_are(two, then)
    assert all(0 < worker.memory < 2**28 for worker in now)
    assert budget_of(then) < budget_of(now) == budget_of(known)


@pytest.mark.parametrize("places", [1, 2, 3, 7])
def test_ranks_are_shared_out_evenly_and_in_order(places: int) -> None:
    for ranks in range(1, 30):
        homes = spread(ranks, range(places))
        counts = [homes.count(place) for place in range(places)]
        assert list(homes) == sorted(homes)
        assert max(counts) == -(-ranks // places)
        assert max(counts) - min(counts) <= 1
        assert sides(ranks, ranks, range(places)) == (homes, homes)


@pytest.mark.parametrize(
    *pairs(
        ranks=[(4, 8), (8, 4), (8, 3), (5, 8), (8, 8), (1, 8)],
        workers=["ab", "abc", "abcdefgh"],
        schedule=["gen", "rex"],
        assembly=["synchronous", "asynchronous"],
    ),
    ids=str,
)
def test_only_messages_leave_a_worker(ranks: tuple[int, int], workers: str, schedule: str, assembly: str) -> None:
    before, after = ranks
    source, target = (
        ooc.Layout.of(X.shape, f"({axis}, *)", ranks=n) for axis, n in (("block", before), ("cyclic", after))
    )
    parts = parts_of_array(X, source, spread(before, workers))
    transfer = Transfer(source, target)
    order: Any = {"schedule": ooc.ranks.Schedule.of(schedule, 8), "assembly": assembly}
    program = PartExchange(plan=Moving(transfer=transfer), dtype=X.dtype, **order)
    made = exchange_parts(program, parts, after, workers)
    homes, tasks = made.homes, made.graph.layers[made.name]

    def home(key: tuple[object, ...]) -> str:
        return homes[str(key[0]).rpartition("-")[2]][key[-1]]  # type: ignore[index]

    assert [home(key) for key in made.keys] == list(spread(after, workers))
    for key, task in tasks.items():
        for other in task.dependencies:
            assert home(key) == home(other) or str(other[0]).startswith(MAY_LEAVE)
    more = sum(str(key[0]).startswith("lend") for key in tasks)
    assert more == 0 or (len(workers) < 8 and before != after)


def test_a_job_and_an_array_put_ranks_alike(two: Client, tmp_path: Path) -> None:
    a = ooc.create_array(tmp_path / "a.zarr", shape=X.shape, dtype=X.dtype, chunks=(6, 30))
    a[...] = X
    x = ooc.ranks.distribute(X, "(block, *)", ranks=4)
    local = tmp_path / "local.zarr"
    placements = [
        ooc.ranks.read_sections(a, "(block, *)", ranks=4).placement,
        ooc.ranks.shift(x, 1).placement,
        ooc.ranks.multicast(x, np.s_[2:9]).placement,
        ooc.ranks.write_sections(a, "(block, *)", x).placement,
        ooc.ranks.write_sections(a, "(block, *)", [X[rank * 6 : rank * 6 + 6] for rank in range(4)]).placement,
        ooc.rechunk(
            a, tmp_path / "b.zarr", chunks=(24, 5), method="two-phase", resources=ooc.Resources(ranks=4)
        ).placement,
        ooc.ranks.scatter_files(a, "(block, *)", local, ranks=4).placement,
    ]
    assert placements == [x.placement] * len(placements)
    first, second = sorted(set(x.placement.values()))
    assert list(x.placement.values()) == [first, first, second, second]
    y = x.redistribute("(*, cyclic)", ranks=7).redistribute("(block, *)", ranks=3)
    assert y.placement == ooc.ranks.distribute(X, "(block, *)", ranks=3).placement
    np.testing.assert_array_equal(within(y.compute), X)


@pytest.mark.parametrize("assembly", ["synchronous", "asynchronous"])
@pytest.mark.parametrize(("schedule", "before", "after"), [("gen", 5, 3), ("rex", 4, 8), ("rex", 8, 3), (None, 3, 7)])
def test_more_or_fewer_ranks_than_before(
    two: Client, schedule: str | None, before: int, after: int, assembly: str
) -> None:
    x = ooc.ranks.distribute(X, "(block, cyclic)", ranks=before)
    y = x.redistribute("(cyclic(2), block)", ranks=after, schedule=schedule, assembly=assembly)
    np.testing.assert_array_equal(within(y.compute), X)
