"""A job: lazy, a Dask collection, and a graph whose edges bound memory and order the exchange."""

from __future__ import annotations

import dataclasses
import io
import itertools
import pickle
import re
import shutil
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import dask
import dask.threaded
import numpy as np
import pytest
import zarr
from dask.diagnostics import ProgressBar
from hypothesis import given, settings
from hypothesis import strategies as st
from oocarrays.graphs.rechunk import build_graph
from oocarrays.graphs.rechunk_tasks import RechunkRun
from zarr.storage import MemoryStore, WrapperStore

import oocarrays as ooc
from oocarrays.api import RechunkJob
from oocarrays.errors import BudgetError, InputError, UnsupportedError
from oocarrays.plan.passes import Pass
from oocarrays.storage import array_file
from oocarrays.storage.access import ChunkReader, ChunkWriter

DATA = np.random.default_rng(0).random((96, 80), dtype="f4")
CODECS = {"plain": None, "zstd": zarr.codecs.ZstdCodec(), "crc": zarr.codecs.Crc32cCodec()}
MIB = 2**20
METHODS = ("independent", "two-phase", "kept", "staged")
each_method = pytest.mark.parametrize("method", METHODS)


def make(store: Any, data: np.ndarray = DATA, **options: Any) -> zarr.Array:
    return zarr.create_array(store, data=data, **({"chunks": (8, data.shape[1]), "compressors": None} | options))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make(tmp_path / "source.zarr")
    return tmp_path / "source.zarr"


def plan(source: Any, target: Any, method: str = "auto", **options: Any) -> ooc.RechunkJob:
    return ooc.rechunk(source, target, **({"chunks": (96, 10), "memory": "128MiB", "method": method} | options))


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
    assert not [key for key in source.asked if not key.endswith(("zarr.json", ".zarray", ".zgroup", ".zattrs"))]
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
    assert all(one.run_id in key[0] for key in one.__dask_graph__())


# ---------------------------------------------------------------------- what it says

LABELS = ("strategy", "pass 1", "reads", "writes", "messages", "tasks", "peak memory", "predicted")


class Text(HTMLParser):
    """The text of a page, cell by cell."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


@each_method
def test_repr_tells_the_plan(source: Path, tmp_path: Path, method: str) -> None:
    job = plan(source, tmp_path / "target.zarr", method)
    text, cells = repr(job), Text(job._repr_html_()).cells
    for label in LABELS:
        assert any(line.strip().startswith(label) for line in text.splitlines()), label
        assert label in cells
    for value in (method, f"{job.plan.read_requests} requests", f"{job.plan.write_requests} requests"):
        assert value in text
        assert any(value in cell for cell in cells)
    assert str(job.plan.tasks) in cells
    assert dask.utils.format_bytes(job.plan.peak_bytes) in text
    assert dask.utils.format_time(job.plan.seconds) in text
    assert "source.zarr" in text
    assert "target.zarr" in text


def test_html_is_escaped(source: Path, tmp_path: Path) -> None:
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
    for name in METHODS:
        assert any(row[0].startswith(name) for row in rows), f"{name} is not named"
    reasons = [considered.reason for considered in job.plan.considered]
    assert all(reasons)
    assert reasons.count("taken") == 1
    for considered in job.plan.considered:
        assert considered.reason in job.explain()
        if considered.seconds is None and "not counted" not in considered.reason:
            assert "needs" in considered.reason
            assert considered.peak_bytes > job.plan.budget


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


@each_method
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("memory", ["48MiB", "512MiB"])
def test_graph_has_as_many_tasks_as_the_plan_says(
    source: Path, tmp_path: Path, method: str, ranks: int, memory: str
) -> None:
    job = plan(source, tmp_path / "target.zarr", method, ranks=ranks, memory=memory)
    assert len(job.__dask_graph__()) == job.plan.tasks


@each_method
@pytest.mark.parametrize("codec", ["plain", "zstd"])
@pytest.mark.parametrize("ranks", [None, 2, 3], ids=["any ranks", "2 ranks", "3 ranks"])
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
    fitting = [memory for memory in range(named % MIB, named, MIB) if memory and least(memory) is None]
    assert not [memory for memory in fitting if memory < named - 2 * MIB], f"{named} is named as the least"


# ---------------------------------------------------------------------- what its edges prove


@dataclasses.dataclass(frozen=True)
class Edges:
    """The tasks of a graph by verb and arguments, and what each comes after."""

    direct: dict[tuple, frozenset]
    before: dict[tuple, set]

    @classmethod
    def of(cls, graph: dict) -> Edges:
        short = {key: (key[0].rpartition("-")[0].split()[0], *key[1:]) for key in graph}
        direct = {short[key]: frozenset(short[d] for d in task.dependencies) for key, task in graph.items()}
        assert len(direct) == len(graph)
        before: dict[tuple, set] = {}
        waiting = list(direct)
        while waiting:
            key = waiting.pop()
            if key in before:
                continue
            missing = [d for d in direct[key] if d not in before]
            if missing:
                waiting += [key, *missing]
            else:
                before[key] = set(direct[key]).union(*(before[d] for d in direct[key]))
        return cls(direct, before)

    def named(self, verb: str, number: int) -> list[tuple]:
        return sorted(key for key in self.direct if key[:2] == (verb, number))


@st.composite
def two_phase(draw: st.DrawFn, step: Pass) -> Pass:
    """The pass with any region, slab, depth and number of ranks, its messages kept or not."""
    counts = step.target.grid.counts
    ranks, depth = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    region = tuple(draw(st.integers(1, n)) for n in counts)
    split, slab = draw(st.integers(0, len(counts) - 1)), draw(st.integers(1, 4))
    method = draw(st.sampled_from(("two-phase", "kept")))
    return dataclasses.replace(step, method=method, ranks=ranks, depth=depth, region=region, split=split, slab=slab)


def run_of(job: ooc.RechunkJob, *passes: Pass) -> RechunkRun:
    """The run of a job whose plan has other passes."""
    old = job._run
    return RechunkRun(dataclasses.replace(old.plan, passes=passes), old.source, old.destination)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> RechunkJob:
    """A two-phase job of several target chunks in both axes, over chunks that do not divide the shape."""
    folder = tmp_path_factory.mktemp("edges")
    make(folder / "source.zarr", DATA[:50, :33], chunks=(6, 20))
    return plan(folder / "source.zarr", folder / "target.zarr", "two-phase", chunks=(17, 7), overwrite=True)


edges_of_any_pass = settings(max_examples=40, deadline=None)


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_at_most_depth_slabs(job: RechunkJob, data: st.DataObject) -> None:
    """A read comes after every exchange that takes a slab ``depth`` or more rounds older of that rank."""
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    takers = defaultdict(set)
    for exchange in edges.named("exchange", 0):
        for slab in edges.direct[exchange]:
            if slab[0] == "read":
                takers[slab].add(exchange)
    for rank in range(step.ranks):
        reads = [key for key in edges.named("read", 0) if key[4] == rank]
        assert len(reads) == sum(map(step.rounds, range(step.units)))
        for new, read in enumerate(reads):
            assert len(takers[read]) == step.ranks
            for old in reads[: max(new - step.depth + 1, 0)]:
                assert takers[old] <= edges.before[read], f"{read} may begin while {old} is held"
            if new >= step.depth:
                assert reads[new - step.depth] in edges.direct[read], "the buffer is handed on"


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_at_most_depth_regions(job: RechunkJob, data: st.DataObject) -> None:
    """The first exchange into a region comes after the writes of the regions ``depth`` or more partitions older."""
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    for rank in range(step.ranks):
        writes = [key for key in edges.named("write", 0) if key[3] == rank]
        assert [key[2] for key in writes] == list(range(step.units))
        for unit in range(step.units):
            first = ("take", 0, unit, rank) if step.kept and unit else ("exchange", 0, unit, 0, 0, rank)
            if unit >= step.depth:
                assert writes[unit - step.depth] in edges.direct[first], "the buffer is handed on"
            if not step.kept:
                assert set(writes[: max(unit - step.depth + 1, 0)]) <= edges.before[first]
            into = {first} | {key for key in edges.named("exchange", 0) if key[2] == unit and key[5] == rank}
            assert into <= edges.before[writes[unit]], "a region is written when all of it is there"


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_takes_what_it_kept_when_it_has_kept_it_all(job: RechunkJob, data: st.DataObject) -> None:
    step = dataclasses.replace(data.draw(two_phase(job.plan.passes[0])), method="kept")
    edges = Edges.of(build_graph(run_of(job, step))[0])
    keeping = edges.named("exchange", 0)
    for take in edges.named("take", 0):
        assert {key for key in keeping if key[5] == take[3]} <= edges.before[take]
    assert len(edges.named("take", 0)) == (step.units - 1) * step.ranks


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_has_one_partner_a_step(job: RechunkJob, data: st.DataObject) -> None:
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    sources = step.schedule.sources
    steps = defaultdict(list)
    for exchange in edges.named("exchange", 0):
        _, _, unit, turn, stage, rank = exchange
        (slab,) = (key for key in edges.direct[exchange] if key[0] == "read")
        assert slab == ("read", 0, unit, turn, sources[stage][rank])
        steps[unit, turn, stage].append(slab[4])
    assert all(sorted(taken) == list(range(step.ranks)) for taken in steps.values())
    assert {key[2] for key in steps} == set(range(step.ranks))


def after_each_step(step: Pass) -> Iterator[tuple[tuple[int, int, int], tuple[int, int, int], bool]]:
    """Pairs of steps that follow each other: unit, turn, stage; and whether they are of one partition."""
    order = [(u, t, s) for u in range(step.units) for t in range(step.rounds(u)) for s in range(step.ranks)]
    return ((a, b, a[0] == b[0]) for a, b in itertools.pairwise(order))


@pytest.mark.parametrize("within", [True, False], ids=["in a partition", "from one partition to the next"])
@given(data=st.data())
@edges_of_any_pass
def test_a_step_waits_for_received_and_for_mine_was_taken(job: RechunkJob, within: bool, data: st.DataObject) -> None:
    """So a rank never has two partners at once (DESIGN, promise 4)."""
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    sources = step.schedule.sources
    for former, latter, same in after_each_step(step):
        if same == within:
            for rank in range(step.ranks):
                before = edges.before["exchange", 0, *latter, rank]
                assert ("exchange", 0, *former, rank) in before, "I have received"
                assert ("exchange", 0, *former, sources[former[2]].index(rank)) in before, "mine was taken"


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_any_pass_gives_the_right_answer(job: RechunkJob, data: st.DataObject) -> None:
    step = data.draw(two_phase(job.plan.passes[0]))
    graph, key = build_graph(run_of(job, step))
    target = ooc.open_array(dask.threaded.get(graph, key, num_workers=step.ranks * step.depth))
    np.testing.assert_array_equal(target, DATA[:50, :33])


@each_method
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_pass_begins_when_the_one_before_is_done(source: Path, tmp_path: Path, method: str, ranks: int) -> None:
    job = plan(source, tmp_path / "target.zarr", method, ranks=ranks)
    edges = Edges.of(job.__dask_graph__())
    assert set(edges.direct) - {("finish",)} == edges.before["finish",]
    for number in range(len(job.plan.passes)):
        of_former = {key for key in edges.direct if key[0] in ("create", "start") or key[1:2] == (number - 1,)}
        of_former = {key for key in of_former if len(key) == 1 or key[1] < number}
        assert of_former <= edges.before["start", number]
        verbs = [key for key in edges.direct if key[1:2] == (number,) and key[0] != "start"]
        assert all(("start", number) in edges.before[key] for key in verbs)
    assert (len(job.plan.passes) > 1) == (method == "staged")


def test_an_independent_rank_works_through_one_region_after_the_other(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr", "independent", ranks=2)
    step = dataclasses.replace(job.plan.passes[0], batch=1, region=(1, 1))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    for rank in range(2):
        copies = [key for key in edges.named("copy", 0) if key[2] == rank]
        assert len(copies) == 4
        assert all(a in edges.direct[b] for a, b in itertools.pairwise(copies))


# ---------------------------------------------------------------------- read once, one writer a chunk


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter]:
    """Counts of chunks read whole, by file and partition, and of chunks written, by file."""
    now, counts = threading.local(), {"read": Counter(), "written": Counter()}
    read, whole = RechunkRun._read, ChunkReader.whole

    def spy_read(self: Any, number: int, unit: int, *args: Any) -> Any:
        now.unit = unit
        return read(self, number, unit, *args)

    def spy_whole(self: Any, indices: Any, chunks: Any) -> Any:
        wanted = list(indices)
        counts["read"].update((self.file.name, now.unit, index) for index in wanted)
        return whole(self, iter(wanted), chunks)

    monkeypatch.setattr(RechunkRun, "_read", spy_read)
    monkeypatch.setattr(ChunkReader, "whole", spy_whole)
    count_written(counts["written"], monkeypatch)
    return counts


def count_written(written: Counter, patch: pytest.MonkeyPatch) -> None:
    """Count chunks written, by file and index."""
    write_all = ChunkWriter.write_all

    def spy(self: Any, chunks: Any) -> None:
        kept = list(chunks)
        written.update((self.file.name, index) for index, _ in kept)
        write_all(self, kept)

    patch.setattr(ChunkWriter, "write_all", spy)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("ranks", "depth", "slab", "region", "split"),
    [(1, 1, 1, (1, 1), 0), (2, 2, 1, (2, 1), 0), (3, 1, 2, (1, 2), 1), (4, 2, 3, (3, 1), 1)],
    ids=["one rank", "two ranks, overlapping", "three ranks", "four ranks"],
)
def test_each_chunk_is_read_once_in_a_partition_and_written_once(
    tmp_path: Path, seen: dict, codec: str, ranks: int, depth: int, slab: int, region: tuple[int, int], split: int
) -> None:
    make(tmp_path / "source.zarr", chunks=(7, 30), compressors=CODECS[codec])
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr", "two-phase", chunks=(20, 9))
    shape = {"ranks": ranks, "depth": depth, "slab": slab, "region": region, "split": split}
    step = dataclasses.replace(job.plan.passes[0], **shape)
    run = run_of(job, step)
    np.testing.assert_array_equal(ooc.open_array(dask.threaded.get(*build_graph(run))), DATA)
    touched = Counter(
        (run.source.name, unit, index)
        for unit in range(step.units)
        for index in step.source.grid.indices(step.section(step.chunk_box(unit)))
    )
    assert seen["read"] == touched
    assert set(touched.values()) == {1}
    assert set(seen["written"].values()) == {1}
    assert len(seen["written"]) == step.target.grid.count
    assert run.meter.read_requests == len(touched)


@each_method
@pytest.mark.parametrize("codec", CODECS)
def test_no_chunk_of_target_or_scratch_is_written_twice(
    source: Path, tmp_path: Path, codec: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: Counter = Counter()
    count_written(written, monkeypatch)
    job = plan(source, tmp_path / "target.zarr", method, ranks=3, compressors=CODECS[codec] or ())
    np.testing.assert_array_equal(job.run(), DATA)
    assert set(written.values()) == {1}
    assert len(written) == sum(step.target.grid.count for step in job.plan.passes) == job.plan.write_requests


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
    assert array_file.MARK not in zarr.open_array(tmp_path / "target.zarr", mode="r").attrs
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "target.zarr").to_dask().compute(), DATA)
