"""Striped files as closed networks: the law of the speed-up, the least buffers, the best block."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import InputError
from oocarrays.plan.queueing.striping import (
    BlockTimes,
    best_block,
    least_buffers,
    most_rate,
    speed_up,
    striped_network,
    striped_rate,
)
from tests.profiles import examples

pytestmark = pytest.mark.once

SECONDS = st.floats(1e-5, 0.05)
TIMES = st.builds(
    BlockTimes,
    block=st.just(4096),
    disks=st.lists(SECONDS, min_size=1, max_size=4).map(tuple),
    cpu=SECONDS,
    network=SECONDS,
    shared=st.just(0.0) | SECONDS,
)


@examples(60)
@given(TIMES, st.integers(1, 3), st.integers(1, 4))
def test_no_rate_surpasses_its_slowest_station(times: BlockTimes, buffers: int, routings: int) -> None:
    rates = [striped_rate(times, c, routings).rate for c in (buffers, buffers + 1)]
    assert rates[0] <= rates[1] * (1 + 1e-9)
    assert rates[1] <= most_rate(times, routings)[0] * (1 + 1e-9)


@examples(30)
@given(TIMES, st.integers(1, 2))
def test_the_speed_up_is_at_most_the_disks_and_what_they_share(times: BlockTimes, buffers: int) -> None:
    alike = BlockTimes(block=4096, disks=(times.disks[0],) * 4, cpu=times.cpu)
    whole = times.disks[0] + times.cpu
    for disks in range(1, 5):
        found = speed_up(replace(alike, disks=alike.disks[:disks]), buffers)
        assert found <= min(disks * buffers, whole / times.cpu, disks * whole / times.disks[0]) * (1 + 1e-9)


def test_disks_that_share_nothing_are_as_fast_as_they_are_many() -> None:
    for disks in range(1, 9):
        assert speed_up(BlockTimes(block=1, disks=(0.02,) * disks), 1) == pytest.approx(disks)
        assert speed_up(BlockTimes(block=1, disks=(0.0,) * disks, shared=0.02), 1) == pytest.approx(1)


def test_the_slowest_disk_sets_the_pace() -> None:
    """Blocks lie on disks in turn: a disk of half the speed makes two of half the speed."""
    assert striped_rate(BlockTimes(block=100, disks=(0.01, 0.02)), 2).rate == pytest.approx(2 * 100 / 0.02)


def test_the_least_buffers_are_the_first_that_saturate() -> None:
    times = BlockTimes(block=16384, cpu=1.807e-3, network=7.384e-3, disks=(20.5e-3,) * 8)
    for share in (0.5, 0.85, 0.95):
        found = least_buffers(times, 8, share=share)
        rates = [striped_rate(times, c, 8).rate / most_rate(times, 8)[0] for c in range(1, found + 1)]
        assert rates[-1] >= share
        assert all(rate < share for rate in rates[:-1])
    assert least_buffers(times, 8, share=1.0, most=3) == 3


def test_the_best_block_of_the_paper() -> None:
    """16 Kbyte blocks, double buffers, at least four routings: more than 5 Mbytes a second."""
    tried = [
        BlockTimes(block=4096, cpu=0.800e-3, network=1.854e-3, disks=(17.3e-3,) * 8),
        BlockTimes(block=8192, cpu=1.065e-3, network=3.697e-3, disks=(19.5e-3,) * 8),
        BlockTimes(block=16384, cpu=1.807e-3, network=7.384e-3, disks=(20.5e-3,) * 8),
    ]
    best = best_block(tried, 4, memory=2**18)
    assert (best.times.block, best.buffers) == (16384, 2)
    assert best.rate > 5 * 2**20
    assert best.seconds(2**21) == pytest.approx(2**21 / best.rate)
    with pytest.raises(InputError, match="memory=1000 does not hold a block of each disk: at least 32768"):
        best_block(tried, memory=1000)


def test_routings_that_are_none_are_refused() -> None:
    times = BlockTimes(block=1, disks=(1.0, 1.0))
    with pytest.raises(InputError, match="routings=0"):
        striped_network(times, 1, 0)
    with pytest.raises(InputError, match="buffers=0"):
        striped_network(times, 0)
    with pytest.raises(InputError, match="one disk at least"):
        striped_network(BlockTimes(block=1, disks=()), 1)
