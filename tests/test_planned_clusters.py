"""Clusters that are not there: jobs on them are planned, explained and drawn, and cannot be run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import BudgetError, InputError, ScheduleError, UnsupportedError


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """An array of 4 GiB of which no chunk is there."""
    store = str(tmp_path / "rows.zarr")
    zarr.create_array(store, shape=(2**15, 2**15), chunks=(2**7, 2**15), dtype="f4", compressors=None)
    return store


def test_a_job_is_planned_for_workers_that_are_not_there(rows: str, tmp_path: Path) -> None:
    cluster = ooc.networks.planned_cluster(workers=64, memory="1GiB", threads=2, network="fat-tree")
    job = ooc.rechunk(rows, tmp_path / "columns.zarr", chunks=(2**15, 2**7), scheduler=cluster)
    assert "64" in job.explain().splitlines()[0]
    assert job.plan.seconds > 0
    assert 0 < job.plan.peak_bytes <= job.plan.budget < 2**30
    for run in (job.run, lambda: dask.compute(job)):
        with pytest.raises(UnsupportedError, match="this cluster is for planning only"):
            run()
    assert os.listdir(tmp_path) == ["rows.zarr"]


def test_networks_storage_and_memory_change_what_is_predicted(rows: str, tmp_path: Path) -> None:
    def seconds(method: str = "two-phase", **how: object) -> float:
        cluster = ooc.networks.planned_cluster(**({"workers": 16, "memory": "1GiB"} | how))
        job = ooc.rechunk(rows, tmp_path / "c.zarr", chunks=(2**15, 2**7), scheduler=cluster, method=method)  # type: ignore[call-overload]
        return float(job.plan.seconds)

    slow, fast = (seconds(network="flat", constants=f"startup=1ms,exchange={byte}") for byte in ("1us", "0.1ns"))
    assert slow > 2 * fast
    assert seconds(network="mesh:1x16", constants="startup=1ms,exchange=10ns,saturated=10ns") > seconds(
        network="hypercube", constants="startup=1ms,exchange=10ns,saturated=10ns"
    )
    assert seconds(storage="10MB") > 5 * seconds(storage="10GB")
    with pytest.raises(BudgetError):
        seconds(memory="160MB")


def test_a_redistribution_is_planned_for_them_too() -> None:
    x = ooc.ranks.distribute(np.arange(64.0), "block", scheduler=ooc.networks.planned_cluster(workers=4, memory="1GiB"))
    y = x.redistribute("cyclic")
    assert y.ranks == 4
    assert y.seconds > 0
    assert "block-to-cyclic" in y.explain()
    with pytest.raises(UnsupportedError, match="planning only"):
        y.compute()


@pytest.mark.parametrize(
    ("wrong", "error", "what"),
    [
        ({"workers": 0}, InputError, "workers=0"),
        ({"workers": 10**6}, InputError, "exceeds"),
        ({"memory": "much"}, InputError, "memory='much'"),
        ({"threads": 0}, InputError, "threads=0"),
        ({"network": "mesh:2x3"}, ScheduleError, "not one for each of 4 ranks"),
        ({"storage": "fast"}, InputError, "storage='fast'"),
    ],
)
def test_clusters_that_there_cannot_be(wrong: dict, error: type[Exception], what: str) -> None:
    with pytest.raises(error, match=what):
        ooc.networks.planned_cluster(**({"workers": 4, "memory": "1GiB"} | wrong))


def test_the_command_line_plans_for_them(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["rechunk", rows, str(tmp_path / "c.zarr"), "--chunks", "32768,128", "--workers", "64"]
    assert main([*line, "--worker-memory", "4GiB", "--dry-run"]) == 0
    assert "64 ranks" in capsys.readouterr().out.splitlines()[0]
    for more, what in (
        (["--worker-memory", "4GiB"], "add --dry-run"),
        (["--dry-run"], "needs --worker-memory"),
        (["--dry-run", "--worker-memory", "4GiB", "--scheduler", "tcp://127.0.0.1:8786"], ": give one"),
    ):
        assert main([*line, *more]) == 2
        assert what in capsys.readouterr().err


def test_a_sweep_is_a_table_and_a_picture(rows: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["plan", rows, str(tmp_path / "c.zarr"), "--chunks", "32768,128", "--sweep", "workers=4,16"]
    assert main([*line, "--sweep", "memory=160MB,1GiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["plans"]
    assert [(each["workers"], each["memory"]) for each in found] == [
        (4, "160MB"), (4, "1GiB"), (16, "160MB"), (16, "1GiB"),
    ]  # fmt: skip
    assert [each["strategy"] is None for each in found] == [True, False, True, False]
    assert all(each["tasks"] > 0 and each["seconds"] > 0 for each in found if each["strategy"])
    picture = tmp_path / "sweep.png"
    assert main([*line, "--worker-memory", "1GiB", "--draw", str(picture)]) == 0
    text = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in text[:3]] == ["workers", "4", "16"]
    assert picture.stat().st_size > 0
    for more, what in (
        ([], "--sweep needs the memory of the clusters"),
        (["--sweep", "disks=3"], "is not one of workers, memory, threads"),
        (["--sweep", "threads=two"], "are whole numbers"),
        (["--sweep", f"threads={','.join(map(str, range(1, 200)))}", "--worker-memory", "1GiB"], "more than 256"),
    ):
        assert main([*line, *more]) == 2
        assert what in capsys.readouterr().err
