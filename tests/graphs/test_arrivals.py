"""One task a rank that takes what others hold for it: elements, tasks, who is late, workers that die."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import dask.array as da
import numpy as np
import pytest
from distributed import Client, wait
from hypothesis import HealthCheck, given, strategies as st

import oocarrays as ooc
from oocarrays.graphs.cluster.pins import Pins
from oocarrays.graphs.exchange.between import Exchanges
from oocarrays.plan.exchange.ordering import CREDIT
from tests.graphs.clusters import until, within
from tests.graphs.test_redistribution_on_workers import Ran, assert_placed, killer, watched
from tests.graphs.test_whole_rounds import credit_used, inside, messages_seen
from tests.owners import numbered
from tests.padding import seen
from tests.profiles import examples

pytestmark = pytest.mark.long

X = numbered((48, 60))


@pytest.fixture(scope="module")
def here() -> Iterator[Client]:
    """The same in this process."""
    with inside(3) as client:
        yield client


def courses(dask_worker: Any) -> int:
    there = dask_worker.extensions.get(Exchanges.name)
    return len(there.courses) if there else 0


def test_workers_that_have_not_exchanged_yet_learn_later_who_is_lost(
    here: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, (one, other, _) = here.cluster.scheduler, here.cluster.workers.values()
    for worker in (one, other):
        monkeypatch.delitem(worker.extensions, Exchanges.name, raising=False)
        for name in [name for name in worker.handlers if name.startswith("oocarrays")]:
            monkeypatch.delitem(worker.handlers, name)
    pins = Pins("s", [one.address, other.address], "topic", patience=1)
    pins._scheduler, pins._together, pins._moved = scheduler, True, {0: one.address}
    exchanges = Exchanges.of(one)
    caplog.handler.setLevel(logging.WARNING)
    logging.getLogger("distributed.core").addHandler(caplog.handler)
    try:
        scheduler.loop.add_callback(pins._tell_workers, [one.address, other.address])
        until(lambda: exchanges.moved == {"s": {0: one.address}})
        here.run(int)  # both have been told
    finally:
        logging.getLogger("distributed.core").removeHandler(caplog.handler)
    assert caplog.text == ""
    assert Exchanges.name not in other.extensions
    late = Exchanges.of(other)
    here.sync(late.know, "s")
    assert late.moved == exchanges.moved


@pytest.mark.parametrize(("before", "after"), [(12, 12), (12, 5), (5, 12), (8, 1), (9, 20)])
def test_elements_where_ranks_come_and_go(three: Client, before: int, after: int) -> None:
    y = ooc.ranks.distribute(X, "(cyclic(3), *)", ranks=before, scheduler=three)
    assert_placed(y.redistribute("(*, cyclic(2))", ranks=after), X)


def test_tasks_grow_with_ranks_and_not_with_their_square(three: Client) -> None:
    def tasks(ranks: int, assembly: str) -> int:
        y = ooc.ranks.distribute(np.zeros((128, 128), "i1"), "(block, *)", ranks=ranks, scheduler=three)
        return len(y.redistribute("(*, block)", schedule="pex", assembly=assembly).tasks.graph)

    assert [tasks(ranks, "asynchronous") <= 6 * ranks + 10 for ranks in (4, 64)] == [True, True]
    assert tasks(64, "synchronous") > 64 * 63


def test_messages_are_counted(three: Client) -> None:
    z = ooc.ranks.distribute(X, "(block, *)", ranks=12, scheduler=three).redistribute("(*, block)")
    within(z.compute)
    until(lambda: z.meter.messages >= z.plan.price.messages, 10)
    assert (z.meter.messages, z.meter.sent_bytes) == (12 * 11, z.plan.price.moved_bytes)


def test_halos_and_rows(three: Client) -> None:
    y = ooc.ranks.distribute(X, "(block, *)", ranks=12, scheduler=three)
    for rank, block in enumerate(within(ooc.ranks.shift(y, (2, 0), boundary="periodic").compute)):
        np.testing.assert_array_equal(block, seen(X, y.layout, rank, (2, 0), "periodic"))
    counts = np.random.default_rng(0).integers(0, 3, (9, 9))
    parts = [np.arange(n) + 100 * rank for rank, n in enumerate(counts.sum(axis=1))]
    here = ooc.ranks.exchange(parts, counts, scheduler="threads").compute()
    for part, right in zip(within(ooc.ranks.exchange(parts, counts, scheduler=three).compute), here, strict=True):
        np.testing.assert_array_equal(part, right)


@pytest.mark.parametrize("boundary", ["once", "again"])
def test_a_graph_of_the_users_own_where_nothing_is_pinned(three: Client, boundary: str) -> None:
    y = ooc.ranks.distribute(X, "(block, *)", ranks=12, scheduler=three).redistribute("(*, cyclic)", ranks=9)
    if boundary == "again":
        within(y.compute)
    np.testing.assert_array_equal(within((y.to_dask() + 1).compute), X + 1)
    np.testing.assert_array_equal(within(y.local(4).compute), X[:, 4::9])


@examples(6, suppress_health_check=list(HealthCheck))
@given(late=st.lists(st.integers(0, 30), min_size=10, max_size=10), ranks=st.integers(1, 16))
def test_whoever_is_there_first(three: Client, late: list[int], ranks: int) -> None:
    x = da.from_array(X[:40], chunks=(4, 60)).map_blocks(slow, late, dtype=X.dtype)
    np.testing.assert_array_equal(within(ooc.ranks.distribute(x, "(*, cyclic(3))", ranks=ranks).compute), X[:40])


@examples(6, suppress_health_check=list(HealthCheck))
@given(ranks=st.integers(8, 16), after=st.integers(8, 16), words=st.sampled_from(["(*, block)", "(cyclic, cyclic)"]))
def test_no_more_comes_at_one_time_than_there_is_credit_for(here: Client, ranks: int, after: int, words: str) -> None:
    y = ooc.ranks.distribute(X, "(cyclic, *)", ranks=ranks, scheduler=here)
    with credit_used() as most:
        z = y.redistribute(words, ranks=after)
        np.testing.assert_array_equal(within(z.compute), X)
    assert bool(z.plan.price.messages) <= max(most.values(), default=0) <= CREDIT


def slow(block: np.ndarray, late: list[int], block_info: Any = None) -> np.ndarray:
    if block_info:
        time.sleep(late[block_info[0]["chunk-location"][0]] / 1000)
    return block


@pytest.mark.parametrize("ranks", [3, 4, 9])
def test_a_late_rank_delays_no_other_message(ranks: int) -> None:
    """Messages are unpacked in the order of arrival, for any number of ranks (Thakur 1995, section 3.4)."""
    others = ranks - 1
    AWAKE.clear()
    with inside(ranks) as client:
        y = ooc.ranks.distribute(X, "(cyclic, *)", ranks=ranks, scheduler=client)
        within(y.redistribute("(*, block)").compute)
        z = y.map_local(waiting, dtype=X.dtype).redistribute("(*, block)")
        unpacked = itertools.count(1)
        with messages_seen(lambda _: None, lambda _: next(unpacked) == others * (others - 1) and AWAKE.set()):
            np.testing.assert_array_equal(within(z.compute), X)
        until(lambda: sum(span.phase == "receive" for span in z.meter.spans) >= ranks * others)
    awake = next(span.start for span in z.meter.spans if span.phase == "hold" and span.args == (LATE,))
    early = Counter(span.args[-1] for span in z.meter.spans if span.phase == "receive" and span.stop < awake)
    assert early == dict.fromkeys(set(range(ranks)) - {LATE}, others - 1), "all messages but those of the late rank"


LATE = 2
"""The rank whose part is there last."""
AWAKE = threading.Event()
"""The late rank waits for it."""


def waiting(part: np.ndarray) -> np.ndarray:
    if part[0, 0] == X[LATE, 0]:
        assert AWAKE.wait(60), "the messages of others wait for it"
    return part


# ---------------------------------------------------------------------- workers that die


@pytest.mark.parametrize("moment", ["part", "hold", "exchange round", "gone"])
def test_a_worker_dies_midway(three: Client, moment: str) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(0).random((256, 512))
    y = ooc.ranks.distribute(da.from_array(x, chunks=(100, 512)), "(cyclic(5), *)", ranks=9, scheduler=three)
    z = y.redistribute("(*, cyclic(7))", ranks=9)
    with watched(three, Ran(moment, killer(three, z.placement[1]))):
        np.testing.assert_array_equal(within(z.compute), x)
    until(lambda: not any(three.run(courses).values()))
    wishes = three.cluster.scheduler.clients  # those of ranks are over, too
    until(lambda: not [name for name in wishes if name.startswith("oocarrays-")])


def test_a_worker_dies_where_nothing_is_pinned(three: Client) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(2).random((96, 64))
    y = ooc.ranks.distribute(x, "(cyclic, *)", ranks=9, scheduler=three).redistribute("(*, block)")
    with watched(three, Ran("exchange round", killer(three, y.placement[1]))) as ran:
        np.testing.assert_array_equal(within((y.to_dask() + 1).compute), x + 1)
    assert ran.tasks


def test_what_is_persisted_is_made_again_when_its_worker_dies(three: Client) -> None:
    three.wait_for_workers(3, timeout=60)
    x = np.random.default_rng(1).random((128, 96))
    kept = ooc.ranks.distribute(x, "(block, *)", ranks=9, scheduler=three).redistribute("(cyclic(3), *)").persist()
    wait(list(kept.__dask_graph__().values()))
    killer(three, kept.placement[0])()
    np.testing.assert_array_equal(within(kept.redistribute("(*, block)", ranks=12).compute), x)
    np.testing.assert_array_equal(within(kept.compute), x)


def test_a_part_that_cannot_be_made_ends_the_others(three: Client) -> None:
    three.wait_for_workers(3, timeout=60)
    y = ooc.ranks.distribute(X, "(block, *)", ranks=12, scheduler=three).map_local(broken, dtype=X.dtype)
    with pytest.raises(ooc.errors.KernelError, match="this part is broken"):
        within(y.redistribute("(*, block)").compute)
    until(lambda: not any(three.run(courses).values()))


def broken(part: np.ndarray) -> np.ndarray:
    if part[0, 0] == X[20, 0]:
        raise ValueError("this part is broken")
    return part
