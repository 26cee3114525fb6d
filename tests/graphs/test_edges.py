"""The edges of a graph prove that memory is bounded, the exchange goes in steps, and nothing is done twice."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import dask
import dask.threaded
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oocarrays as ooc
from oocarrays.graphs.rechunk import in_place
from oocarrays.graphs.rechunk.graph import build_graph
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.storage.chunks.assembling import Assembler
from tests.graphs.edges import Edges, run_of
from tests.profiles import examples
from tests.seams import replace_step, step
from tests.small import CODECS, DATA, each_method, make, plan
from tests.strategies import orders

pytestmark = pytest.mark.long


@st.composite
def two_phase(draw: st.DrawFn, step: Pass) -> Pass:
    """The pass with any schedule, region, slab, depth and number of ranks."""
    counts = step.target.grid.counts
    ranks, depth = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    region = tuple(draw(st.integers(1, n)) for n in counts)
    split, slab = draw(st.integers(0, len(counts) - 1)), draw(st.integers(1, 4))
    return dataclasses.replace(
        step,
        ranks=ranks,
        exchange=draw(orders(ranks, direct=True)),
        depth=depth,
        region=region,
        split=split,
        slab=slab,
        slabs=draw(st.integers(1, 3)),
    )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ooc.RechunkJob:
    """A two-phase job of several target chunks in both axes, over chunks that do not divide the shape."""
    folder = tmp_path_factory.mktemp("edges")
    make(folder / "source.zarr", DATA[:50, :33], chunks=(6, 20))
    return plan(folder / "source.zarr", folder / "target.zarr", "two-phase", chunks=(17, 7), overwrite=True)


edges_of_any_pass = examples(40)


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_no_more_slabs_than_planned(job: ooc.RechunkJob, data: st.DataObject) -> None:
    """A read comes after every exchange that takes a slab ``slabs`` or more rounds older of that rank."""
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
            assert {key[-1] for key in takers[read]} == set(range(step.ranks))
            assert len(takers[read]) == step.ranks
            for old in reads[: max(new - step.slabs + 1, 0)]:
                assert takers[old] <= edges.before[read], f"{read} may begin while {old} is held"
            if new >= step.slabs:
                assert reads[new - step.slabs] in edges.direct[read], "the buffer is handed on"


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_holds_at_most_depth_regions(job: ooc.RechunkJob, data: st.DataObject) -> None:
    """The first exchange into a region comes after the writes of the regions ``depth`` or more partitions older."""
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    for rank in range(step.ranks):
        writes = [key for key in edges.named("write", 0) if key[3] == rank]
        assert [key[2] for key in writes] == list(range(step.units))
        for unit in range(step.units):
            first = ("exchange", 0, unit, 0, 0, rank)
            if unit >= step.depth:
                assert writes[unit - step.depth] in edges.direct[first], "the buffer is handed on"
            assert set(writes[: max(unit - step.depth + 1, 0)]) <= edges.before[first]
            into = {first} | {key for key in edges.named("exchange", 0) if key[2] == unit and key[5] == rank}
            assert into <= edges.before[writes[unit]], "a region is written when all of it is there"


@given(data=st.data())
@edges_of_any_pass
def test_a_rank_takes_from_its_partners_of_the_step(job: ooc.RechunkJob, data: st.DataObject) -> None:
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    found = defaultdict(set)
    for exchange in edges.named("exchange", 0):
        _, _, unit, turn, stage, rank = exchange
        slabs = {key for key in edges.direct[exchange] if key[0] == "read" and key[2:4] == (unit, turn)}
        found[unit, turn, stage] |= {(slab[4], rank) for slab in slabs}
    pairs = {stage: set(each) for stage, each in stages_of(step)}
    assert all(found[key] == pairs[key[2]] for key in found)
    assert len(found) == len({key[:2] for key in found}) * sum(1 for each in pairs.values() if each)


def stages_of(step: Pass) -> list[tuple[int, list[tuple[int, int]]]]:
    """Each stage: its number, sources and destinations; in the first each rank takes from itself."""
    own = [(rank, rank) for rank in range(step.ranks)]
    return list(enumerate([own, *(each.pairs for each in step.schedule)]))


@pytest.mark.parametrize("within", [True, False], ids=["in a partition", "from one partition to the next"])
@given(data=st.data())
@edges_of_any_pass
def test_a_step_waits_for_received_and_for_mine_was_taken(
    job: ooc.RechunkJob, within: bool, data: st.DataObject
) -> None:
    """So a rank never has two partners at once (DESIGN, promise 4)."""
    step = data.draw(two_phase(job.plan.passes[0]))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    received: dict[int, tuple] = {}
    taken: dict[int, tuple] = {}
    for unit, turn, (stage, pairs) in (
        (u, t, s) for u in range(step.units) for t in range(step.rounds(u)) for s in stages_of(step)
    ):
        for _, rank in pairs:
            before = edges.before["exchange", 0, unit, turn, stage, rank]
            formers = [key for key in (received.get(rank), taken.get(rank)) if key and (key[2] == unit) == within]
            assert set(formers) <= before, "I have received, and mine was taken"
        for source, rank in pairs:
            received[rank] = taken[source] = ("exchange", 0, unit, turn, stage, rank)


@given(data=st.data())
@examples(25)
def test_any_pass_gives_the_right_answer(job: ooc.RechunkJob, data: st.DataObject) -> None:
    step = data.draw(two_phase(job.plan.passes[0]))
    graph, key = build_graph(run_of(job, step))
    target = ooc.open_array(dask.threaded.get(graph, key, num_workers=step.ranks * step.depth))
    np.testing.assert_array_equal(target, DATA[:50, :33])


@each_method
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_pass_begins_when_the_one_before_is_done(source: Path, tmp_path: Path, method: str, ranks: int) -> None:
    job = plan(source, tmp_path / "target.zarr", method, ranks=ranks)
    edges = Edges.of(job.__dask_graph__())
    assert set(edges.direct) - {("finish", 0)} == edges.before["finish", 0]
    for number in range(len(job.plan.passes)):
        of_former = {key for key in edges.direct if key[0] in ("create", "start") or key[1:2] == (number - 1,)}
        of_former = {key for key in of_former if key[0] == "create" or (key[0] != "finish" and key[1] < number)}
        assert of_former <= edges.before["start", number, 0]
        verbs = [key for key in edges.direct if key[1:2] == (number,) and key[0] not in ("create", "start", "finish")]
        assert all(("start", number, 0) in edges.before[key] for key in verbs)
    assert (len(job.plan.passes) > 1) == (method == "staged")


def test_an_independent_rank_works_through_one_region_after_the_other(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr", "independent", ranks=2)
    step = dataclasses.replace(job.plan.passes[0], batch=1, region=(1, 1))
    edges = Edges.of(build_graph(run_of(job, step))[0])
    for rank in range(2):
        copies = [key for key in edges.named("copy", 0) if key[3] == rank]
        assert len(copies) == 4
        assert all(a in edges.direct[b] for a, b in itertools.pairwise(copies))


# ---------------------------------------------------------------------- read once, one writer a chunk


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter]:
    """Counts of chunks read whole, by file and partition, and of chunks written, by file."""
    now, counts = threading.local(), {"read": Counter(), "written": Counter()}
    read, whole = in_place.VERBS["read"], step("read chunk")

    def spy_read(run: Any, number: int, unit: int, *args: Any) -> Any:
        now.unit = unit
        return read(run, number, unit, *args)

    def spy_whole(self: Any, indices: Any, chunks: Any) -> Any:
        wanted = list(indices)
        counts["read"].update((self.file.name, now.unit, index) for index in wanted)
        return whole(self, iter(wanted), chunks)

    monkeypatch.setitem(in_place.VERBS, "read", spy_read)
    replace_step(monkeypatch, "read chunk", spy_whole)
    count_written(counts["written"], monkeypatch)
    return counts


def count_written(written: Counter, patch: pytest.MonkeyPatch) -> None:
    """Count chunks written, by file and index; those that are assembled when they get their names."""
    write_all, finish = step("write chunks"), Assembler.finish

    def named(self: Any, index: tuple[int, ...]) -> bool:
        written[self.file.name, index] += 1
        return finish(self, index)

    patch.setattr(Assembler, "finish", named)

    def spy(self: Any, chunks: Any, *more: Any) -> None:
        kept = list(chunks)
        written.update((self.file.name, index) for index, _ in kept)
        write_all(self, kept, *more)

    replace_step(patch, "write chunks", spy)


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
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr", "two-phase", chunks=(20, 9), ranks=ranks)
    shape = {"depth": depth, "slab": slab, "region": region, "split": split}
    step = dataclasses.replace(job.plan.passes[0], **shape)
    run = run_of(job, step)
    target = ooc.open_array(dask.threaded.get(*build_graph(run)))
    np.testing.assert_array_equal(target.zarr[...], DATA)
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
