"""What a scheduler knows of a run, and the page of its dashboard, as a browser is given it."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import oocarrays as ooc
from oocarrays.graphs.dashboard.page import SeenRun, courses, serve
from tests.seams import small
from tests.small import make

pytestmark = pytest.mark.long

FIELD = np.random.default_rng(2).random((96, 80))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    options = {"processes": False, "threads_per_worker": 1, "memory_limit": 0}
    with LocalCluster(n_workers=3, dashboard_address="127.0.0.1:0", **options) as made, Client(made):
        yield made


def all_seen(cluster: LocalCluster) -> list[SeenRun]:
    return list(courses(cluster.scheduler).values())


def latest(cluster: LocalCluster) -> SeenRun:
    return all_seen(cluster)[-1]


@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled", "staged"])
def test_a_scheduler_counts_what_the_job_counts(cluster: LocalCluster, tmp_path: Path, method: str) -> None:
    make(tmp_path / "a.zarr", FIELD)
    job = ooc.rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=(96, 10), memory="64MiB", method=method)
    job.run()
    course = latest(cluster)
    assert course.told.title == f"Rechunk → {tmp_path / 'b.zarr'}"
    assert course.told.budget == 64 * 2**20
    for name in ("read_requests", "read_bytes", "write_requests", "written_bytes", "sent_bytes", "messages"):
        assert course.counted[name] == getattr(job.meter, name), name
    assert (course.share(), course.left()) == (1.0, None)
    assert {rank for _, rank in course.awaited} <= set(course.homes) == set(range(job.plan.ranks))
    shown = [(column, rank) for column in course.columns() for rank in course.ranks()]
    assert {course.cell(column, rank) for column, rank in shown} <= {1.0, None}
    if method == "two-phase":
        assert course.columns() == ["read", "exchange round", "write"]
        assert course.counted["sent_bytes"] > 0


def test_a_job_that_is_run_again_is_another_run_and_the_oldest_are_forgotten(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    make(tmp_path / "a.zarr", FIELD)
    job = ooc.rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=(96, 10), memory="64MiB", overwrite=True)
    job.run()
    first, kept = latest(cluster), []
    with small(seen_runs=3):
        for _ in range(3):
            job.run()
            kept.append(latest(cluster))
    assert first not in kept
    assert all_seen(cluster) == kept, "the last three"
    assert {course.share() for course in kept} == {1.0}


def test_a_run_that_fails_stays_unfinished(cluster: LocalCluster, tmp_path: Path) -> None:
    def fails(block: np.ndarray) -> np.ndarray:
        if block.flat[0] == FIELD[48, 0]:
            raise ValueError("not this one")
        return block

    make(tmp_path / "a.zarr", FIELD)
    job = ooc.map_slabs(fails, tmp_path / "a.zarr", tmp_path / "b.zarr", memory="64MiB", window=(8, None))
    with pytest.raises(ooc.errors.KernelError, match="not this one"):
        job.run()
    assert latest(cluster).over is None
    assert latest(cluster).share() < 1


def test_without_a_dashboard_there_is_no_page_and_runs_are_counted(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a.zarr", data=FIELD, chunks=(8, 80))
    options = {"processes": False, "threads_per_worker": 1, "memory_limit": 0, "dashboard_address": ":0"}
    with LocalCluster(n_workers=2, scheduler_kwargs={"dashboard": False}, **options) as made, Client(made):
        ooc.rechunk(tmp_path / "a.zarr", tmp_path / "b.zarr", chunks=(96, 10), memory="64MiB").run()
        assert serve(made.scheduler) is False
        assert latest(made).share() == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Bokeh's client makes its loop as older Pythons did
def test_the_page_shows_ranks_steps_bytes_and_memory(cluster: LocalCluster, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    from bokeh.client import pull_session

    make(tmp_path / "a<b.zarr", FIELD)
    job = ooc.rechunk(tmp_path / "a<b.zarr", tmp_path / "c<d.zarr", chunks=(96, 10), memory="64MiB", method="two-phase")
    job.run()
    address = f"http://127.0.0.1:{cluster.scheduler.http_server.port}"
    for page in ("status", "oocarrays"):
        with urllib.request.urlopen(f"{address}/{page}") as answer:
            assert answer.status == 200
    with pull_session(url=f"{address}/oocarrays") as session:
        text, grid, memory = session.document.roots[0].children
        assert "c&lt;d.zarr" in text.text
        assert "100 %, done in" in text.text
        assert f"sent in {job.meter.messages} messages" in text.text
        (cells,) = (each.data_source.data for each in grid.renderers)
        course = latest(cluster)
        assert {(c, int(r)) for c, r in zip(cells["column"], cells["rank"], strict=True)} == {
            (c, r) for c in course.columns() for r in course.ranks() if course.cell(c, r) is not None
        }
        assert set(cells["share"]) == {1.0}
        assert memory.y_range.factors == ["2", "1", "0"]
        assert "planned" in memory.title.text
    applications = cluster.scheduler.http_application.applications
    assert sum("/oocarrays" in getattr(each, "app_paths", ()) for each in applications) == 1
