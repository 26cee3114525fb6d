"""The edges of a graph prove that memory is bounded, the exchange goes in steps, and nothing is done twice."""

from __future__ import annotations

import threading
from collections import Counter
from functools import wraps
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.graphs.rechunk import tasks
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.storage.chunks.assembling import Assembler
from tests.flat import flat
from tests.profiles import examples
from tests.seams import replace_step, step
from tests.small import CODECS, DATA, each_method, make, plan

pytestmark = pytest.mark.long


CELLS = np.arange(200 * 132).reshape(200, 132).astype("c16")
"""So large that the least memory makes several partitions of it."""


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Chunks that do not divide the shape."""
    folder = tmp_path_factory.mktemp("edges")
    make(folder / "source.zarr", CELLS, chunks=(24, 80))
    return folder / "source.zarr"


Spans = dict[tuple[Any, ...], tuple[float, float]]


def ran(source: Path, more: float, **options: Any) -> tuple[Pass, Spans]:
    """Rechunk on threads in the least memory, or more, and say when each task began and stopped."""
    how = {"overwrite": True, "method": "two-phase", "scheduler": "threads"} | options
    with pytest.raises(BudgetError) as caught:
        flat(ooc.rechunk, source, source.parent / "target", memory=1, **how)
    job = flat(ooc.rechunk, source, source.parent / "target", memory=int(more * caught.value.least), **how)
    np.testing.assert_array_equal(job.run(), CELLS)
    return job.plan.passes[0], {(span.phase, *span.args[1:]): (span.start, span.stop) for span in job.meter.spans}


def stages_of(step: Pass) -> list[tuple[int, list[tuple[int, int]]]]:
    """Each stage: its number, sources and destinations; in the first each rank takes from itself."""
    own = [(rank, rank) for rank in range(step.ranks)]
    return list(enumerate([own, *(each.pairs for each in step.schedule)]))


@examples(15, phases=[Phase.explicit, Phase.generate])
@given(
    ranks=st.integers(1, 5),
    schedule=st.sampled_from(["gen", "lex", "pex-gen", "pex-gen-shift", "auto"]),
    more=st.sampled_from([1.0, 1.1, 1.3, 2.0]),
    chunks=st.tuples(st.integers(50, 120), st.integers(30, 60)),
)
def test_what_a_run_did_was_bounded_and_in_steps(
    cells: Path, ranks: int, schedule: str, more: float, chunks: tuple[int, int]
) -> None:
    """Read back from when tasks began and stopped (DESIGN, promises 1 and 4): slabs, regions and partners."""
    step, at = ran(cells, more, ranks=ranks, schedule=schedule, chunks=chunks)
    rounds = [(unit, turn) for unit in range(step.units) for turn in range(step.rounds(unit))]
    takes = {key for key in at if key[0] == "exchange"}
    assert takes == {
        ("exchange", *where, stage, rank) for where in rounds for stage, pairs in stages_of(step) for _, rank in pairs
    }
    taken = {
        (*where, rank): max(
            at["exchange", *where, stage, to][1]
            for stage, pairs in stages_of(step)
            for source, to in pairs
            if source == rank
        )
        for where, rank in product(rounds, range(step.ranks))
    }
    received: dict[int, float] = {}
    for number, where in enumerate(rounds):
        for rank in range(step.ranks):
            began, _ = at["read", *where, rank]
            if number >= step.slabs:
                assert taken[*rounds[number - step.slabs], rank] <= began, "no more slabs are held than planned"
        for stage, pairs in stages_of(step):
            for _, rank in pairs:
                began, _ = at["exchange", *where, stage, rank]
                assert received.get(rank, 0) <= began, "received, and mine was taken"
            for source, rank in pairs:
                for end in (source, rank):
                    received[end] = max(received.get(end, 0), at["exchange", *where, stage, rank][1])
    for unit, rank in product(range(step.units), range(step.ranks)):
        into = [
            at["exchange", unit, turn, stage, rank]
            for turn in range(step.rounds(unit))
            for stage, pairs in stages_of(step)
            for _, to in pairs
            if to == rank
        ]
        began, _ = at["write", unit, rank]
        assert max(stop for _, stop in into) <= began, "a region is written when all of it is there"
        if unit >= step.depth:
            _, written = at["write", unit - step.depth, rank]
            assert written <= min(start for start, _ in into), "no more regions are held than planned"


@each_method
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_pass_begins_when_the_one_before_is_done(source: Path, tmp_path: Path, method: str, ranks: int) -> None:
    """Read back from when tasks began and stopped."""
    job = plan(source, tmp_path / "target.zarr", method, ranks=ranks)
    np.testing.assert_array_equal(job.run(), DATA)
    spans, passes = list(job.meter.spans), range(len(job.plan.passes))
    starts = [span for span in spans if span.phase == "start"]
    assert {span.args[0] for span in starts} == set(passes)
    for begun in starts:
        others = [span for span in spans if span.phase not in ("probe", "create", "start", "finish")]
        assert others
        assert all(span.stop <= begun.start or begun.stop <= span.start for span in others), "nothing is under way"
        before = [span for span in others if span.stop <= begun.start]
        assert bool(before) == (begun.args[0] > 0)
    assert (len(passes) > 1) == (method == "staged")


# ---------------------------------------------------------------------- read once, one writer a chunk


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter]:
    """Counts of chunks read whole, by file and partition, and of chunks written, by file."""
    now, counts = threading.local(), {"read": Counter(), "written": Counter()}
    read, whole = tasks.read, step("read chunk")

    @wraps(read)
    def spy_read(live: Any, number: int, unit: int, *args: Any) -> Any:
        now.unit = unit
        try:
            return read(live, number, unit, *args)
        finally:
            del now.unit

    def spy_whole(self: Any, indices: Any, chunks: Any) -> Any:
        wanted = list(indices)
        if hasattr(now, "unit"):  # else the result is read
            counts["read"].update((self.file.name, now.unit, index) for index in wanted)
        return whole(self, iter(wanted), chunks)

    monkeypatch.setattr(tasks, "read", spy_read)
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_each_chunk_is_read_once_in_a_partition_and_written_once(
    tmp_path: Path, seen: dict, codec: str, ranks: int
) -> None:
    make(tmp_path / "source.zarr", CELLS, chunks=(7, 30), compressors=CODECS[codec])
    step, _ = ran(tmp_path / "source.zarr", 1.0, chunks=(50, 33), ranks=ranks)
    name = str(tmp_path / "source.zarr")
    touched = Counter(
        (name, unit, index)
        for unit in range(step.units)
        for index in step.source.grid.indices(step.section(step.chunk_box(unit)))
    )
    assert step.units > 1
    assert seen["read"] == touched
    assert set(touched.values()) == {1}
    assert set(seen["written"].values()) == {1}
    assert len(seen["written"]) == step.target.grid.count


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
