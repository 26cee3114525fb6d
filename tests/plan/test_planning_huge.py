"""Plans of arrays that nobody could go through chunk by chunk: made by counting, in little time and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Resources
from oocarrays.plan.rechunk.plan import plan_rechunk
from oocarrays.plan.slabs.iterate import SweepOptions, plan_iterate
from tests.strategies import MIB, stored
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.long

HOURLY = (262800, 721, 1440)
HUGE = {
    "1000 to 999": ((10**15,), (1000,), (999,)),
    "unchanged": ((2**31, 2**31), (2**15, 2**15), (2**15, 2**15)),
    "threefold": ((10**15,), (10**6,), (3 * 10**6,)),
    "cubes to sheets": ((10**5,) * 3, (100,) * 3, (1, 1000, 1000)),
    "tiles to rows": ((10**6,) * 2, (1000,) * 2, (1, 10**6)),
    "maps to series": (HOURLY, (1, 721, 1440), (262800, 1, 1)),
    "days to tiles": (HOURLY, (24, 721, 1440), (8760, 10, 10)),
}


def planning(case: str, coded: bool) -> Callable[[], None]:
    """Something that makes the plan, with memory for the largest of these chunks."""
    shape, *chunks = HUGE[case]
    source, target = (stored(ChunkGrid.of(shape, each), coded=coded) for each in chunks)

    def plan() -> None:
        made = plan_rechunk(source, target, Resources(budget=2**36, ranks=4, costs=Costs(cores=2)))
        assert made.tasks > 0 < made.peak_bytes <= 2**36

    return plan


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
@pytest.mark.parametrize("case", HUGE)
def test_a_plan_takes_a_second_and_little_memory(case: str, coded: bool) -> None:
    plan = planning(case, coded)
    with counted() as work:
        plan()
    assert work.calls < CALLS_A_SECOND
    tracemalloc.start()
    try:
        plan()
        assert tracemalloc.get_traced_memory()[1] < 50 * MIB
    finally:
        tracemalloc.stop()


def test_many_sweeps_are_planned_in_a_second() -> None:
    array = stored(ChunkGrid.of((1000, 3 * 10**5, 3 * 10**5), (100, 1000, 1000)))
    options = SweepOptions(budget=2**36, depth=1, ranks=2, sweeps=40)
    with counted() as work:
        plan = plan_iterate([array], [array], [array], options, costs=Costs(cores=2), threads=2)
    assert work.calls < CALLS_A_SECOND
    assert 1 < plan.fuse < 40
    assert plan.passes[0].slabs.fits
