"""Disks that were measured and kept: striped files are advised by them, and collective requests choose who does I/O."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import dask
import dask.config
import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.plan.queueing.kept import KeptDisks, Measured, chunks_a_second, kept_times
from oocarrays.plan.queueing.striping import BlockTimes

pytestmark = pytest.mark.long

DATA = np.arange(512 * 64, dtype="f4").reshape(512, 64)


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    made = [tmp_path / name for name in "abc"]
    for each in made:
        each.mkdir()
    return list(map(str, made))


def kept(disks: list[str], mode: str, seconds: float) -> KeptDisks:
    """What would have been measured of disks that take as long for 64 KiB, and twice as long for 128 KiB."""
    each = len(disks)
    rows = [
        Measured(
            block=2**16 * times,
            cpu=1e-5,
            alone=(seconds * times,) * each,
            spread=(0.0,) * each,
            together=each * 2**16 / seconds,
        )
        for times in (1, 2)
    ]
    return KeptDisks(disks=tuple(disks), mode=mode, measured=tuple(rows))


def test_times_lie_between_those_that_were_measured(disks: list[str]) -> None:
    known = kept(disks, "read", 0.01)
    parts = [f"{disk}/x.zarr" for disk in (disks[2], disks[0])]
    for nbytes, seconds in ((2**16, 0.01), (3 * 2**15, 0.015), (2**18, 0.04), (1, 0.01)):
        times = kept_times([known], "read", parts, nbytes)
        assert times is not None
        assert times.disks == pytest.approx((seconds, seconds), rel=0.01)
    assert kept_times([known], "write", parts, 1) is None
    assert kept_times([known], "read", [*parts, "/elsewhere/x.zarr"], 1) is None
    newer = kept(disks, "read", 0.03)
    assert kept_times([known, newer], "read", parts, 2**16).disks[0] == pytest.approx(0.03, rel=0.01)  # type: ignore[union-attr]


@pytest.mark.parametrize("shared", [0.0, 0.004])
def test_more_under_way_is_never_slower_and_no_faster_than_what_is_slowest(shared: float) -> None:
    times = BlockTimes(block=4096, disks=(0.01, 0.02, 0.03), shared=shared)
    rates = [chunks_a_second(times, many) for many in range(1, 30)]
    assert all(after >= before * 0.999 for before, after in pairwise(rates))
    assert rates[-1] <= 3 / 0.03 + 1e-9
    assert rates[0] == pytest.approx(1 / (0.02 + shared))


def test_calibrate_keeps_disks_beside_what_is_there(
    disks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path / "config"))
    with dask.config.set({"oocarrays.disks": None}):
        with pytest.raises(ooc.OocError, match=r"no measurements of .*calibrate --disks"):
            ooc.disks.plan_striping(disks, kept=True)
        for some in (disks[:2], disks, disks):
            assert main(["calibrate", "--disks", *some]) == 0
        (file,) = (tmp_path / "config").iterdir()
        assert str(file) in capsys.readouterr().out
        read = next(iter(dask.config.collect_yaml([str(file)])))["oocarrays"]["disks"]
        assert [(len(each["disks"]), each["mode"]) for each in read] == [
            (2, "read"), (2, "write"), (3, "read"), (3, "write"),
        ]  # fmt: skip
        plan = ooc.disks.plan_striping(disks, kept=True, trial=False)
        measured = [[row.block, row.cpu, list(row.alone), list(row.spread), row.together] for row in plan.measured]
        assert measured == read[2]["measured"]
        assert main(["stripe", "--explain", "--kept", *disks]) == 0
        assert "a run of" not in capsys.readouterr().out
    assert all(os.listdir(disk) == [] for disk in disks)


@pytest.mark.parametrize("said", ["x", [3], [{"disks": ["/a"], "mode": "read", "measured": [[1, 1, [], [], 1]]}]])
def test_what_was_not_kept_is_refused(disks: list[str], said: object) -> None:
    with dask.config.set({"oocarrays.disks": said}), pytest.raises(ooc.OocError, match=r"oocarrays\.disks"):
        ooc.disks.plan_striping(disks, kept=True)


def test_aggregators_are_as_many_as_keep_disks_busy(disks: list[str]) -> None:
    """Of slow disks every one has an aggregator; of those that take no time fewer ranks are enough."""
    target = ooc.create_array(
        ooc.Target(ooc.disks.StripedStore(disks).below("t"), compressors=()),
        shape=DATA.shape,
        chunks=(32, 64),
        dtype="f4",
    )
    columns = [np.s_[:, 8 * rank : 8 * rank + 8] for rank in range(8)]
    parts = [DATA[each] for each in columns]
    jobs = {}
    for seconds in (0.02, 1e-9):
        said = [kept(disks, mode, seconds).to_json() for mode in ("read", "write")]
        with dask.config.set({"oocarrays.disks": said}, oocarrays__cost__cores=8):
            jobs[seconds] = ooc.ranks.write_sections(target, columns, parts, scheduler="threads")
    held_back, free = (job.plan for job in jobs.values())
    assert len(held_back.aggregators) >= 3
    assert len(free.aggregators) <= len(held_back.aggregators)
    chunks = DATA.shape[0] // 32
    by_ranks = {each.ranks: each.seconds for each in held_back.alternatives}
    assert by_ranks[1] == pytest.approx(chunks * 0.02, rel=0.2)
    assert by_ranks[3] == pytest.approx(chunks * 0.02 / 3, rel=0.25)
    assert (jobs[0.02].run()[...] == DATA).all()
