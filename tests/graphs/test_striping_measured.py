"""Disks measured: what slow disks take comes out of the measurement, and what a model advises is what a trial takes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import dask
import pytest

import oocarrays as ooc
from oocarrays.testing import SlowDisk, Station

pytestmark = pytest.mark.long


def folders(tmp_path: Path, many: int) -> list[str]:
    paths = [tmp_path / f"disk{number}" for number in range(many)]
    for path in paths:
        path.mkdir()
    return list(map(str, paths))


@pytest.mark.parametrize("mode", ["read", "write"])
def test_disks_that_share_nothing(tmp_path: Path, mode: str) -> None:
    places = folders(tmp_path, 4)
    disks = [SlowDisk(place, seconds=0.01, bytes_per_second=5e6) for place in places]
    plan = ooc.disks.plan_striping(disks, mode=mode, blocks=[2**14, 2**16], seconds=0.1)
    small, large = plan.measured
    for seen in (small, large):
        for took in seen.alone:
            assert took > 0.9 * (0.01 + seen.block / 5e6)
    assert plan.block == 2**16, "a request takes ten milliseconds, so larger blocks are faster"
    assert plan.ranks == 1
    assert plan.trial is not None
    at_least = 0.9 * plan.trial.nbytes / 4 / 2**16 * (0.01 + 2**16 / 5e6)
    assert min(plan.trial.seconds, plan.trial.predicted) > at_least, "as fast as four are, and no faster"
    assert all(os.listdir(place) == [] for place in places)


def test_disks_behind_one_bus_share_it(tmp_path: Path) -> None:
    bus = Station()
    disks = [SlowDisk(p, seconds=0.002, through=[(bus, 0.02)]) for p in folders(tmp_path, 4)]
    plan = ooc.disks.plan_striping(disks, blocks=[2**14], seconds=0.2, trial=False)
    (seen,) = plan.measured
    assert seen.together < 1.01 * 2**14 / 0.02
    assert seen.times.shared > 0.01


def test_folders_of_this_machine(tmp_path: Path) -> None:
    plan = ooc.disks.plan_striping(folders(tmp_path, 2), blocks=["1MiB"], seconds=0.02)
    assert plan.block == 2**20
    assert plan.bytes_per_second > 0
    assert plan.trial is not None
    assert plan.unsure >= 0


@pytest.mark.parametrize(
    ("wrong", "what"),
    [({"mode": "append"}, "mode='append'"), ({"blocks": ["none"]}, "blocks='none'"), ({"disks": []}, "disks=")],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, wrong: dict, what: str) -> None:
    with pytest.raises(ooc.OocError, match=what):
        ooc.disks.plan_striping(**({"disks": folders(tmp_path, 2)} | wrong))


def advised(disks: list[str], together: float) -> Any:
    """Advice on four disks that take 10 ms each for a block of 1000 bytes, alone, by what they do together."""
    measured = [[1000, 1e-4, [0.01] * 4, [0.0] * 4, together]]
    with dask.config.set({"oocarrays.disks": [{"disks": disks, "mode": "read", "measured": measured}]}):
        return ooc.disks.plan_striping(disks, kept=True, trial=False)


def test_what_is_shared_makes_the_model_s_rate_the_measured_one(tmp_path: Path) -> None:
    plan = advised(folders(tmp_path, 4), 150e3)
    (seen,) = plan.measured
    assert seen.times.shared == pytest.approx(1000 / 150e3, rel=0.1), "nothing is faster than what all go through"
    assert plan.bytes_per_second == pytest.approx(150e3, rel=1e-6)
    assert plan.unsure == 0


def test_disks_that_are_faster_together_were_kept_waiting_while_they_were_alone(tmp_path: Path) -> None:
    plan = advised(folders(tmp_path, 4), 600e3)
    (seen,) = plan.measured
    assert seen.times.shared == 0
    assert max(seen.times.disks) == pytest.approx(4 * 1000 / 600e3, rel=0.05), "four blocks in the time of one"
