"""Plans of arrays that nobody could go through chunk by chunk: made by counting, in little work and memory.

Arrays are described and hold nothing, so each is planned as a user would plan it.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import BudgetError
from tests.flat import flat
from tests.pairs import pairs
from tests.strategies import MIB
from tests.work import CALLS_A_SECOND, counted

pytestmark = pytest.mark.long

HOURLY = (262800, 721, 1440)
RECHUNKS = {
    "1000 to 999": ((10**15,), (1000,), (999,)),
    "unchanged": ((2**31, 2**31), (2**15, 2**15), (2**15, 2**15)),
    "threefold": ((10**15,), (10**6,), (3 * 10**6,)),
    "cubes to sheets": ((10**5,) * 3, (100,) * 3, (1, 1000, 1000)),
    "tiles to rows": ((10**6,) * 2, (1000,) * 2, (1, 10**6)),
    "maps to series": (HOURLY, (1, 721, 1440), (262800, 1, 1)),
    "days to tiles": (HOURLY, (24, 721, 1440), (8760, 10, 10)),
}
PASSES = {
    "a million a side": ((10**6, 10**6), (1000, 1000)),
    "more along one": ((10**8, 10**7), (10**4, 10**4)),
    "three axes": ((10**5,) * 3, (100,) * 3),
    "four axes": ((3000,) * 4, (30,) * 4),
    "maps": (HOURLY, (1, 721, 1440)),
}
MANY_AXES = {
    "4-D": ((200, 100, 721, 1440), (1, 1, 721, 1440), (200, 1, 20, 20)),
    "5-D": ((100,) * 5, (1, 10, 10, 100, 100), (100, 100, 10, 10, 1)),
    "6-D": ((30,) * 6, (1, 3, 5, 7, 30, 30), (30, 30, 7, 5, 3, 1)),
    "6-D, in turn": ((64,) * 6, (4,) * 6, (64, 1) * 3),
    "8-D": ((16,) * 8, (2,) * 8, (16, 1) * 4),
}


def described(
    folder: Path, shape: tuple[int, ...], chunks: tuple[int, ...], coded: bool = False, dtype: str = "f4"
) -> Path:
    codecs = "auto" if coded else None
    zarr.create_array(folder / "source", shape=shape, chunks=chunks, dtype=dtype, compressors=codecs)
    return folder / "source"


def on(workers: int | None, memory: int) -> dict[str, Any]:
    """Threads of this machine, or a cluster that is only planned for."""
    if workers is None:
        return {"memory": memory, "scheduler": "threads"}
    return {"scheduler": ooc.networks.planned_cluster(workers=workers, memory=memory)}


def plan_in_little(plan: Callable[[], Any]) -> Any:
    """Plan in the calls of a second and, once more, in 50 MiB."""
    with counted() as work:
        plan()
    assert work.calls < CALLS_A_SECOND
    tracemalloc.start()
    try:
        made = plan()
        assert tracemalloc.get_traced_memory()[1] < 50 * MIB
    finally:
        tracemalloc.stop()
    return made


@pytest.mark.parametrize("coded", [False, True], ids=["plain", "coded"])
@pytest.mark.parametrize("case", RECHUNKS)
def test_rechunks_are_planned_in_little(tmp_path: Path, case: str, coded: bool) -> None:
    shape, source, target = RECHUNKS[case]
    array = described(tmp_path, shape, source, coded)
    how = {"chunks": target, "ranks": 4, "memory": 2**37, "scheduler": "threads"}
    plan = plan_in_little(lambda: flat(ooc.rechunk, array, tmp_path / "target", **how)).plan
    assert plan.tasks > 0 < plan.peak_bytes <= 2**37


@pytest.mark.parametrize(*pairs(case=PASSES, memory=[MIB, 4096 * MIB], workers=[None, 4]))
def test_passes_are_planned_or_refused_in_little(tmp_path: Path, case: str, memory: int, workers: int | None) -> None:
    array, plans = described(tmp_path, *PASSES[case]), []
    how = {"depth": 1, "dtype": "f4", "ranks": 64} | on(workers, memory)

    def plan() -> None:
        with suppress(BudgetError):
            plans.append(flat(ooc.map_slabs, np.negative, array, tmp_path / "target", **how).plan)

    with counted() as work:
        plan()
    assert work.calls < CALLS_A_SECOND
    assert all(made.tasks > 0 < made.traffic.read_bytes for made in plans)


def test_many_sweeps_are_planned_in_little(tmp_path: Path) -> None:
    array = described(tmp_path, (1000, 3 * 10**5, 3 * 10**5), (100, 1000, 1000), dtype="f8")
    how = {"sweeps": 40, "depth": 1, "ranks": 2, "memory": 2**37, "scheduler": "threads"}
    with counted() as work:
        plan = flat(ooc.iterate, np.negative, array, tmp_path / "target", **how).plan
    assert work.calls < CALLS_A_SECOND
    assert 1 < plan.fuse < 40


@pytest.mark.parametrize(*pairs(case=MANY_AXES, memory=[MIB, 64 * MIB, 2**30], workers=[None, 4], coded=[False, True]))
def test_many_axes_are_planned_or_refused_in_little(
    tmp_path: Path, case: str, memory: int, workers: int | None, coded: bool
) -> None:
    shape, source, target = MANY_AXES[case]
    array = described(tmp_path, shape, source, coded)
    with counted() as work, suppress(BudgetError):
        flat(ooc.rechunk, array, tmp_path / "target", chunks=target, **on(workers, memory))
    assert work.calls < 4 * CALLS_A_SECOND
