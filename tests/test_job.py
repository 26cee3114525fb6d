"""A job: lazy, a Dask collection, and what it says of itself, and what it leaves."""

from __future__ import annotations

import dataclasses
import io
import pickle
import re
import shutil
import tempfile
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dask
import dask.threaded
import numpy as np
import pytest
import zarr
from dask.diagnostics import ProgressBar
from zarr.storage import MemoryStore, WrapperStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, UnsupportedError
from tests.pairs import pairs
from tests.seams import RECHUNK_METHODS, UNFINISHED_MARK, ProgressState, phase_seconds, progress_lines, seconds_outside
from tests.small import CODECS, DATA, MIB, each_method, make, plan

pytestmark = pytest.mark.long

# ---------------------------------------------------------------------- looking is free


class Watched(WrapperStore):
    """A store that remembers which keys it was asked for."""

    def __init__(self, store: Any, asked: list[str] | None = None) -> None:
        super().__init__(store)
        self.asked: list[str] = [] if asked is None else asked

    def _with_store(self, store: Any) -> Watched:
        return Watched(store, self.asked)

    async def get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(key)
        return await super().get(key, *args, **kwargs)

    async def set(self, key: str, *args: Any, **kwargs: Any) -> None:
        self.asked.append(key)
        await super().set(key, *args, **kwargs)


@each_method
def test_planning_reads_no_data_and_writes_nothing(tmp_path: Path, method: str) -> None:
    inner = MemoryStore()
    make(inner)
    source, target = Watched(inner), Watched(MemoryStore())
    job = plan(source, target, method, scratch=tmp_path)
    assert all([repr(job), job._repr_html_(), job.explain(), job.__dask_graph__(), dask.base.tokenize(job)])
    assert source.asked
    assert not [
        key for key in source.asked if not key.endswith(("zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"))
    ]
    assert target._store._store_dict == {}
    assert list(tmp_path.iterdir()) == []
    assert all(getattr(job.meter, name) == 0 for name in ("read_requests", "read_bytes", "write_requests", "messages"))
    job.run()
    assert any(key.startswith("c/") for key in source.asked), "the watch sees chunks when they are read"


def test_planning_starts_no_thread_and_makes_no_folder(source: Path, tmp_path: Path) -> None:
    before = threading.active_count()
    plan(source, tmp_path / "target.zarr", "staged")
    assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == [source]


# ---------------------------------------------------------------------- a Dask collection


def test_it_is_a_collection_of_one_key_in_a_plain_graph(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    assert dask.is_dask_collection(job)
    graph = job.__dask_graph__()
    assert isinstance(graph, dict)
    assert set(job.__dask_keys__()) <= set(graph)
    assert all(task.dependencies <= set(graph) for task in graph.values())
    assert callable(job.visualize)


@pytest.mark.sampled(2)
@each_method
@pytest.mark.parametrize("scheduler", [None, "threads", "synchronous"])
def test_compute_does_all_that_run_does(source: Path, tmp_path: Path, method: str, scheduler: str | None) -> None:
    (target,) = dask.compute(plan(source, tmp_path / "target.zarr", method), scheduler=scheduler)
    assert isinstance(target, ooc.OutOfCoreArray)
    assert target.chunks == (96, 10)
    np.testing.assert_array_equal(target, DATA)
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "target.zarr"), DATA)


def test_two_jobs_compute_side_by_side(source: Path, tmp_path: Path) -> None:
    a, b = dask.compute(plan(source, tmp_path / "a.zarr"), plan(source, tmp_path / "b.zarr", "two-phase"))
    np.testing.assert_array_equal(a, DATA)
    np.testing.assert_array_equal(b, DATA)


def test_persist_runs_it_once(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    done = job.persist()
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "target.zarr"), DATA)
    assert dask.is_dask_collection(done)
    assert len(done.__dask_graph__()) == 1
    shutil.rmtree(source)
    np.testing.assert_array_equal(done.compute(), DATA)


def test_dask_progress_bar_shows_it(source: Path, tmp_path: Path) -> None:
    out = io.StringIO()
    with ProgressBar(out=out):
        plan(source, tmp_path / "target.zarr").compute()
    assert "100% Completed" in out.getvalue()


def test_our_progress_bar_ends_at_the_end(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    plan(source, tmp_path / "target.zarr").run(progress=True)
    assert "100 %" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_gets_a_line_each_tenth_and_a_terminal_one_that_changes(
    terminal: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: terminal)
    monkeypatch.setattr("sys.stderr", out)
    plan(source, tmp_path / "target.zarr").run(progress=True)
    shown = out.getvalue()
    assert ("\r" in shown) == terminal
    shares = [int(share) for share in re.findall(r"(\d+) %", shown)]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert shown.endswith("\n")
    assert terminal or len(shown.splitlines()) == len(shares) <= 11


def test_a_log_of_a_slow_run_gets_a_line_each_minute() -> None:
    out = io.StringIO()
    write = progress_lines(out)
    for second in range(0, 301):
        write(ProgressState(float(second), 1e6, float(second)), False)
    assert re.findall(r"(\d+)\.0 s,", out.getvalue()) == ["60", "120", "180", "240", "300"]


def test_processes_are_refused_in_one_line(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    with pytest.raises(UnsupportedError, match="threads") as caught:
        job.compute(scheduler="processes", num_workers=2)
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "target.zarr").exists()


def test_jobs_have_names_of_their_own(source: Path, tmp_path: Path) -> None:
    one, two = plan(source, tmp_path / "target.zarr"), plan(source, tmp_path / "target.zarr")
    assert dask.base.tokenize(one) != dask.base.tokenize(two)
    assert not set(one.__dask_graph__()) & set(two.__dask_graph__())
    assert one.run_id != two.run_id
    assert len({key[0].rpartition("-")[2] for key in one.__dask_graph__()}) == 1


# ---------------------------------------------------------------------- what it says


class Text(HTMLParser):
    """The text of a page, cell by cell."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


@each_method
def test_repr_and_html_state_the_plan(source: Path, tmp_path: Path, method: str) -> None:
    job = plan(source, tmp_path / "target.zarr", method)
    of, title, *lines = job.plan, *repr(job).splitlines()
    rows = dict(re.split("  +", line.strip(), maxsplit=1) for line in lines)
    assert title == f"<oocarrays.RechunkJob rechunk {source} → {tmp_path}/target.zarr>"
    stated = {
        "strategy": method,
        "chunks": "8 × 80 → 96 × 10",
        "reads": f"{of.read_requests} requests, {dask.utils.format_bytes(of.traffic.read_bytes)}",
        "writes": f"{of.write_requests} requests, {dask.utils.format_bytes(of.traffic.written_bytes)}",
        "tasks": str(of.tasks),
        "peak memory": f"{dask.utils.format_bytes(of.peak_bytes)} of 128.00 MiB",
        "predicted": dask.utils.format_time(of.seconds),
    }
    assert {name: rows[name] for name in stated} == stated
    cells = Text(job._repr_html_()).cells
    assert {name: cells[cells.index(name) + 1] for name in stated} == stated


def test_html_is_escaped(source: Path, tmp_path: Path) -> None:
    (tmp_path / "<b>bold<").mkdir()  # the name of the target has a slash
    page = plan(source, tmp_path / "<b>bold</b>.zarr")._repr_html_()
    assert "<b>" not in page
    assert "<b>bold</b>.zarr" in "".join(Text(page).cells)


@pytest.mark.parametrize(
    ("memory", "chunks"), [("64MiB", (96, 10)), ("27MiB", (96, 1)), ("1GiB", (8, 80))], ids=["some", "little", "alike"]
)
def test_explain_names_every_strategy_and_why_not(
    source: Path, tmp_path: Path, memory: str, chunks: tuple[int, int]
) -> None:
    job = plan(source, tmp_path / "target.zarr", memory=memory, chunks=chunks)
    rows = [line.split() for line in job.explain().partition("considered\n")[2].splitlines()]
    for name in RECHUNK_METHODS:
        assert any(row[0].startswith(name) for row in rows), f"{name} is not named"
    reasons = [considered.reason for considered in job.plan.alternatives]
    assert all(reasons)
    assert reasons.count("taken") == 1
    for considered in job.plan.alternatives:
        assert considered.reason in job.explain()
        if considered.seconds is None and "not counted" not in considered.reason:
            assert "needs" in considered.reason
            assert considered.peak_bytes > job.plan.budget


def test_explain_says_what_is_held_term_by_term(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    held = job.explain().partition("held at one time, at most\n")[2].partition("\n\n")[0]
    rows = dict(line.split(maxsplit=1) for line in held.splitlines())
    assert rows.keys() == {name for name, nbytes in job.plan.memory.terms if nbytes}
    assert rows["stacks"] == f"{3 + job.plan.ranks / 2:.2f} MiB"


def test_explain_sets_what_was_measured_beside_what_was_planned(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    assert "measured" not in job.explain()
    job.run()
    last = job.explain().partition("last run")[2]
    assert re.search(r"write requests +8 +8\n", last)
    assert re.search(rf"read requests +{job.plan.read_requests} +{job.meter.read_requests}\n", last)


@each_method
def test_plan_is_frozen_and_travels(source: Path, tmp_path: Path, method: str) -> None:
    found = plan(source, tmp_path / "target.zarr", method).plan
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.budget = 0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(found)) == found
    assert hash(found) == hash(pickle.loads(pickle.dumps(found)))


@pytest.mark.parametrize(*pairs(method=RECHUNK_METHODS, ranks=[1, 2, 3, 4, 5], memory=["48MiB", "512MiB"]))
def test_graph_has_as_many_tasks_as_the_plan_says(
    source: Path, tmp_path: Path, method: str, ranks: int, memory: str
) -> None:
    job = plan(source, tmp_path / "target.zarr", method, ranks=ranks, memory=memory)
    assert len(job.__dask_graph__()) == job.plan.tasks


@pytest.mark.sampled(2)
@pytest.mark.parametrize(*pairs(method=RECHUNK_METHODS, ranks=[None, 2, 3], codec=["plain", "zstd"]))
def test_the_least_budget_that_is_named_fits_and_little_less_does(
    tmp_path: Path, codec: str, method: str, ranks: int | None
) -> None:
    source = tmp_path / "source.zarr"
    zarr.create_array(source, shape=(2048, 2048), chunks=(32, 2048), dtype="f4", compressors=CODECS[codec])

    def least(memory: int) -> int | None:
        options = {"chunks": (2048, 32), "memory": memory, "method": method, "ranks": ranks}
        try:
            plan(source, tmp_path / "target.zarr", **options)
        except BudgetError as error:
            return error.least
        return None

    named = least(MIB)
    assert named is not None
    assert least(named) is None, "it fits"
    less = {named - near * MIB for near in (3, 4, 5)} | set(range(MIB, named - 3 * MIB, 5 * MIB))
    assert not [memory for memory in less if memory > 0 and least(memory) is None], f"{named} is named as the least"


# ---------------------------------------------------------------------- after it


@pytest.mark.parametrize("options", [{"ranks": 0}, {"method": "magic"}, {"memory": -1}, {"memory": "much"}], ids=str)
def test_wrong_options_are_refused_before_anything_is_made(source: Path, tmp_path: Path, options: dict) -> None:
    with pytest.raises(InputError):
        plan(source, tmp_path / "target.zarr", **options)
    assert list(tmp_path.iterdir()) == [source]


def test_a_job_that_was_never_run_leaves_nothing(source: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan(source, Path(folder, "target.zarr"), "staged", scratch=folder)
        assert list(Path(folder).iterdir()) == []


def test_the_target_opens_elsewhere(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    job.run()
    assert UNFINISHED_MARK not in zarr.open_array(tmp_path / "target.zarr", mode="r").attrs
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "target.zarr").to_dask().compute(), DATA)


def test_every_second_of_a_run_counts_in_a_phase_or_outside_of_all(tmp_path: Path) -> None:
    z = zarr.create_array(tmp_path / "a", data=np.arange(64.0).reshape(8, 8), chunks=(2, 8))
    job = ooc.rechunk(z, tmp_path / "b", chunks=(8, 2), memory="64MiB", scheduler="threads")
    job.run()
    phases = job._run.program.phases
    counted = sum(phase_seconds(job.meter, phases).values()) + seconds_outside(job.meter, phases)
    assert counted == pytest.approx(sum(job.meter.seconds.values()))
    assert seconds_outside(job.meter, phases) > 0
    assert "begin and end, all ranks" in job.explain()
