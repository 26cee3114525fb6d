"""Arrays laid out over the workers of a cluster: every schedule, both ways to assemble, workers that die."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, SchedulerPlugin, wait

import oocarrays as ooc
from oocarrays.errors import PlacementError
from tests.graphs.clusters import cluster, until, within
from tests.owners import numbered, part
from tests.seams import known_workers

pytestmark = pytest.mark.long

X = numbered((24, 30))
SCHEDULES = ("lex", "pex", "rex", "bex", "pex-gen", "pex-gen-shift", "gen", "ipex", None)
ASSEMBLIES = ("synchronous", "asynchronous")


@pytest.fixture(scope="module")
def four() -> Iterator[Client]:
    with cluster(4) as client:
        yield client


def assert_placed(y: ooc.ranks.DistributedArray, x: np.ndarray) -> None:
    kept = y.persist()
    for rank in range(y.ranks):
        np.testing.assert_array_equal(kept.local(rank).compute(), part(x, y.layout, rank), strict=True)
    np.testing.assert_array_equal(kept.compute(), x, strict=True)


@pytest.mark.sampled
@pytest.mark.parametrize("assembly", ASSEMBLIES)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_puts_every_element_with_its_rank(four: Client, schedule: str | None, assembly: str) -> None:
    y = ooc.ranks.distribute(X, "(cyclic(3), block)", grid=(2, 2), scheduler=four)
    assert_placed(y.redistribute("(*, cyclic(2))", ranks=4, schedule=schedule, assembly=assembly), X)


@pytest.mark.parametrize("assembly", ASSEMBLIES)
@pytest.mark.parametrize("ranks", [1, 7], ids=str)
def test_ranks_come_and_go(three: Client, ranks: int, assembly: str) -> None:
    y = ooc.ranks.distribute(X, "(block(7), *)", ranks=5, scheduler=three)  # the last holds nothing
    z = y.redistribute("(cyclic, block)", ranks=ranks, assembly=assembly)
    assert_placed(z, X)
    assert_placed(z.redistribute("(*, gen_block(0, 30))", assembly=assembly), X)


def test_a_dask_array_is_redistributed_and_goes_on_as_one(three: Client) -> None:
    x = da.from_array(X, chunks=((5, 19), (2, 28))) + 1
    y = ooc.ranks.distribute(x, "(cyclic, cyclic(4))", ranks=6)
    assert_placed(y, X + 1)
    np.testing.assert_array_equal((y.to_dask() * 2).sum(axis=0).compute(), ((X + 1) * 2).sum(axis=0))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("assembly", ASSEMBLIES)
@pytest.mark.parametrize(
    ("method", "source", "target"),
    [
        ("gcd", "cyclic(6)", "cyclic(4)"),
        ("lcm", "cyclic(6)", "cyclic(4)"),
        ("indirect", "(cyclic(3), cyclic) on 2 × 2", "(block, cyclic(4)) on 2 × 2"),
    ],
)
def test_several_transfers_are_exchanges_one_after_the_other(
    three: Client, method: str, source: str, target: str, assembly: str
) -> None:
    x = X if "," in source else X.ravel()
    y = ooc.ranks.distribute(x, source, ranks=4, scheduler=three)
    z = y.redistribute(target, method=method, assembly=assembly)
    assert z.plan is not None
    assert len(z.plan.transfers) == 2
    assert_placed(z, x)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("schedule", ["gen", "rex"])
@pytest.mark.parametrize("dtype", ["M8[s]", ">c16", np.dtype([("a", "u1"), ("b", "f8")], align=True)], ids=str)
def test_elements_of_any_fixed_size_travel(four: Client, dtype: object, schedule: str) -> None:
    x = np.arange(60).astype("M8[s]" if dtype == "M8[s]" else "f8").astype(dtype)
    y = ooc.ranks.distribute(x, "block", ranks=4, scheduler=four).redistribute("cyclic", schedule=schedule)
    np.testing.assert_array_equal(y.compute(), x, strict=True)


# ---------------------------------------------------------------------- where tasks run, and when


class Ran(SchedulerPlugin):
    """What ran where, in its order; and something that is done once, when a task of some name has been done."""

    def __init__(self, name: str = "none", then: Callable[[], None] = lambda: None) -> None:
        self.name = f"ran-{id(self)}"
        self.tasks: list[tuple[Any, str]] = []
        self._awaited, self._then = name, then

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        if (start, finish) == ("processing", "memory") and isinstance(key, tuple):
            self.tasks.append((key, kwargs["worker"]))
            if key[0].startswith(self._awaited):
                self._awaited = "none"
                self._then()


@contextmanager
def watched(client: Client, ran: Ran) -> Iterator[Ran]:
    scheduler = client.cluster.scheduler  # in this process
    client.sync(_added, scheduler, ran)
    yield ran
    scheduler.remove_plugin(ran.name)


async def _added(scheduler: Any, ran: Ran) -> None:
    scheduler.add_plugin(ran, name=ran.name)


@pytest.mark.parametrize("assembly", ASSEMBLIES)
def test_every_task_runs_where_its_rank_is(four: Client, assembly: str) -> None:
    y = ooc.ranks.distribute(X, "(block, *)", ranks=6, scheduler=four)
    z = y.redistribute("(*, cyclic)", ranks=9, assembly=assembly)
    assert len(set(z.placement.values())) == 4
    with watched(four, Ran()) as ran:
        for _ in range(2):  # the second time while the first one's tasks are forgotten
            np.testing.assert_array_equal(z.compute(), X)
    homes = z.tasks.homes
    mine = [(key, worker) for key, worker in ran.tasks if key[0].rpartition("-")[2] in homes]
    assert len(mine) > 2 * (6 + 9 + (6 * 8 if assembly == "synchronous" else 6 + 9))
    assert [each for each in mine if each[1] != homes[each[0][0].rpartition("-")[2]][each[0][-1]]] == []
    assert {(key[-1], worker) for key, worker in mine if key[0].startswith("part-")} == set(y.placement.items())


def test_ranks_are_where_they_are_asked_to_be(three: Client) -> None:
    chosen = sorted(known_workers(three))[1:]
    y = ooc.ranks.distribute(X, "(block, *)", resources=ooc.Resources(workers=chosen))
    assert set(y.placement.values()) == set(chosen)
    assert ooc.ranks.distribute(X, "(block, *)").ranks == 3
    with watched(three, Ran()) as ran:
        np.testing.assert_array_equal(dask.optimize(y.redistribute("(*, cyclic)"))[0].compute(), X)
        assert {worker for _, worker in ran.tasks} == set(chosen)
        ran.tasks.clear()
        np.testing.assert_array_equal(ooc.ranks.distribute(X, "(block, *)", scheduler="threads").compute(), X)
        assert ran.tasks == []
    with pytest.raises(PlacementError, match="nobody"):
        ooc.ranks.distribute(X, "(block, *)", resources=ooc.Resources(workers=["nobody"]))


@pytest.mark.parametrize("schedule", ["pex", "gen", "bex", "ipex"])
def test_ranks_have_one_partner_a_step(four: Client, schedule: str) -> None:
    y = ooc.ranks.distribute(X, "(block, *)", ranks=4, scheduler=four)
    with watched(four, Ran()) as ran:
        y.redistribute("(*, block)", schedule=schedule, assembly="synchronous").persist().compute()
    done = {(*key[0].split("-")[0].split(" step "), key[-1]): n for n, (key, _) in enumerate(ran.tasks)}
    steps = [step.destinations.tolist() for step in ooc.ranks.Schedule.of(schedule, 4)]
    assert len([key for key in done if key[0] == "send"]) == 4 * len(steps)
    for number, destinations in enumerate(steps[:-1], 1):
        for rank, partner in enumerate(destinations):
            received, taken = (done["taken", str(number), each] for each in (rank, partner))
            assert max(received, taken) < done["send", str(number + 1), rank]


def test_pins_leave_when_the_last_of_their_tasks_is_forgotten(three: Client) -> None:
    scheduler = three.cluster.scheduler

    def pins() -> list[str]:
        return [name for name in scheduler.plugins if "oocarrays" in name]

    until(lambda: pins() == [])
    y = ooc.ranks.distribute(X, "(block, *)", ranks=4, scheduler=three)
    kept = y.redistribute("(*, block)").persist()
    wait(list(kept.__dask_graph__().values()))
    assert len(pins()) == 2
    np.testing.assert_array_equal(y.compute(), X)
    assert len(pins()) == 2
    del kept
    until(lambda: pins() == [])


# ---------------------------------------------------------------------- workers that die


def killer(client: Client, address: str) -> Callable[[], None]:
    pid = client.run(os.getpid, workers=[address])[address]
    return lambda: os.kill(pid, signal.SIGKILL)


MOMENTS = {
    "synchronous": ("part", "receive step 3"),
    "asynchronous": ("send step 2", "receive step 3", "carry step 1"),
}
EXCHANGE = {"synchronous": "receive step 2", "asynchronous": "exchange round"}
"""A task in the middle of an exchange that forwards nothing."""


@pytest.mark.parametrize(("assembly", "moment"), [(a, moment) for a, moments in MOMENTS.items() for moment in moments])
def test_a_worker_dies_midway(three: Client, moment: str, assembly: str) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(0).random((256, 512))
    y = ooc.ranks.distribute(da.from_array(x, chunks=(100, 512)), "(cyclic(5), *)", ranks=4, scheduler=three)
    z = y.redistribute("(*, cyclic(7))", ranks=4, schedule="ipex", assembly=assembly)
    with watched(three, Ran(moment, killer(three, z.placement[1]))) as ran:
        np.testing.assert_array_equal(within(z.compute), x)
    assert ran._awaited == "none"
    there = set(known_workers(three))
    assert z.placement[1] not in there, "it died"
    assert len({worker for _, worker in ran.tasks} & there) > 1, "others did its work"


@pytest.mark.parametrize("assembly", ASSEMBLIES)
def test_a_worker_dies_in_a_graph_of_the_users_own_where_nothing_is_pinned(three: Client, assembly: str) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(2).random((96, 64))
    y = ooc.ranks.distribute(x, "(cyclic, *)", ranks=4, scheduler=three).redistribute("(*, block)", assembly=assembly)
    with watched(three, Ran(EXCHANGE[assembly], killer(three, y.placement[1]))) as ran:
        np.testing.assert_array_equal(within(((y.to_dask() + 1) * 2).compute), (x + 1) * 2)
    assert ran.tasks


@pytest.mark.parametrize("assembly", ASSEMBLIES)
def test_what_is_persisted_is_used_twice_and_made_again_when_its_worker_dies(three: Client, assembly: str) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(1).random((128, 96))
    y = ooc.ranks.distribute(x, "(block, *)", ranks=4, scheduler=three)
    kept = y.redistribute("(cyclic(3), cyclic)", ranks=6, assembly=assembly).persist()
    wait(list(kept.__dask_graph__().values()))
    with watched(three, Ran(EXCHANGE[assembly], killer(three, y.placement[0]))):
        first = within(kept.redistribute("(*, block)", ranks=6, assembly=assembly).compute)
    second = within(kept.redistribute("(block, *)", ranks=3, assembly=assembly).compute)
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, x)
    for rank in range(6):
        np.testing.assert_array_equal(within(kept.local(rank).compute), part(x, kept.layout, rank))
