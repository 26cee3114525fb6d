"""Runs go on with other memory, ranks or workers: what has been written stays, whoever wrote it by whatever plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from distributed import Client

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import BudgetError, DiskFullError, JournalError, KernelError, RunError
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import cluster, within
from tests.seams import JOURNAL_FOLDER, Journal
from tests.small import each_method
from tests.sweeping import jacobi
from tests.unfinished import (
    CHUNKS,
    FIELD,
    check_finished,
    check_unfinished,
    fail,
    left_behind,
    options_of,
    recorded,
    stamps,
)

pytestmark = pytest.mark.long

COUNT = FIELD.size // int(np.prod(CHUNKS))
"""Chunks of the target."""
HALF, DOUBLE, TWICE = "64MiB", "128MiB", "256MiB"
"""Memory of runs that had the second of them."""


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(2) as made:
        yield made


def fail_on(client: Client, job: Any, after: int, step: str = "put file") -> None:
    """Run a job on workers, each of which fails after some chunks."""

    def full() -> None:
        from itertools import count

        from oocarrays.errors import DiskFullError
        from tests import seams

        calls, before = count(), seams.step(step)

        def put(self: Any, key: str, data: Any) -> Any:
            if next(calls) >= after:
                raise DiskFullError(f"no space left on the device for {key}")
            return before(self, key, data)

        seams.replace_step(seams.PROCESS, step, put)

    def mend() -> None:
        from tests import seams

        seams.PROCESS.undo()

    client.run(full)
    try:
        with pytest.raises(DiskFullError):
            within(job.run)
    finally:
        client.run(mend)


def kept(target: Path) -> dict[str, tuple[int, int]]:
    """The chunks of which the journal says that they are written, by this plan or by those before it."""
    journal = Journal(target)
    parts = [receipts or {} for receipts in journal.stored().values()]
    keys = {key for receipts in [*parts, journal.kept()] for chunks in receipts.values() for key in chunks}
    return {path: stamp for path, stamp in stamps(target).items() if str(Path(path).relative_to(target)) in keys}


def check_rest(job: Any, target: Path, before: dict[str, tuple[int, int]], data: np.ndarray = FIELD) -> None:
    """All is right, and no chunk is written again."""
    assert before
    assert job.left == pytest.approx(1 - len(before) / COUNT)
    within(job.run)
    check_finished(target, data)
    assert {path: stamp for path, stamp in stamps(target).items() if path in before} == before
    assert job.meter.write_requests >= COUNT - len(before)


# ---------------------------------------------------------------------- rechunk

OTHERWISE: dict[str, dict[str, Any]] = {
    "half": {"memory": HALF},
    "twice": {"memory": TWICE},
    "one rank": {"ranks": 1},
    "three ranks": {"ranks": 3, "memory": DOUBLE},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("other", OTHERWISE.values(), ids=OTHERWISE)
@pytest.mark.parametrize("method", ["independent", "two-phase"])
def test_a_killed_rechunk_goes_on_otherwise(
    field: Path, target: Path, runs: Server, method: str, other: dict[str, Any]
) -> None:
    options = options_of(method) | ({} if "ranks" in other else {"memory": DOUBLE})
    runs.run("rechunk", field, target, at="entry", after=4 if "ranks" in other else 1, **options)
    before = kept(target)
    job = flat(ooc.resume, target, **other)
    assert {"memory": job.plan.budget, "ranks": job.plan.ranks}.items() >= {
        name: int(str(value).removesuffix("MiB")) * (2**20 if name == "memory" else 1) for name, value in other.items()
    }.items()
    check_rest(job, target, before)


@pytest.mark.parametrize("method", ["staged", "assembled"])
def test_what_is_on_its_way_is_done_again(field: Path, target: Path, runs: Server, method: str) -> None:
    plan = runs.run("rechunk", field, target, at="entry", after=6, **options_of(method)).plan
    last = len(plan.passes) - 1
    job = ooc.resume(target, memory=TWICE, resources=ooc.Resources(ranks=2))
    staged = any(part[0] < last for part in recorded(target))
    assert any("staged in scratch is of another plan: it is done again" in notice for notice in job.notices) == staged
    before = kept(target) if last == 0 else {}
    job.run()
    check_finished(target)
    assert before.items() <= stamps(target).items()


@each_method
def test_other_plans_are_killed_again_and_again(field: Path, target: Path, runs: Server, method: str) -> None:
    """Each one keeps what all before it have written; at last the plan of the journal is gone on with."""
    runs.run("rechunk", field, target, at="entry", after=2, **options_of(method))
    for ranks in (1, 3, 2):
        child = runs.start("resume", target, at="entry", after=2, ranks=ranks, memory=DOUBLE)
        if child.wait() == 0:
            break
        check_unfinished(target)
        before = kept(target)
    else:
        job = ooc.resume(target)
        assert (job.plan.ranks, job.plan.strategy) == (child.plan.ranks, child.plan.strategy)
        check_rest(job, target, before)
    check_finished(target)


def test_a_run_killed_as_its_plan_is_replaced_keeps_what_it_has(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, **options_of("independent"))
    before = kept(target)
    runs.run("resume", target, at="replaced", ranks=1)
    assert kept(target) == before
    check_rest(ooc.resume(target, memory=DOUBLE, resources=ooc.Resources(ranks=3)), target, before)


def test_kept_chunks_that_are_lost_are_written_again(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, **options_of("independent"))
    runs.run("resume", target, at="replaced", ranks=1)
    before = kept(target)
    gone = next(iter(before))
    Path(gone).unlink()
    with pytest.warns(RuntimeWarning, match="1 of .* are not as they were"):
        job = ooc.resume(target)
    del before[gone]
    check_rest(job, target, before)


def test_a_journal_that_lost_what_is_kept_is_refused(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, **options_of("independent"))
    runs.run("resume", target, at="replaced", ranks=1)
    (entry,) = (target / JOURNAL_FOLDER).glob("done-*/kept")
    entry.unlink()
    with pytest.raises(JournalError, match="kept in the journal"):
        ooc.resume(target)


def test_looking_at_another_plan_is_free(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, **options_of("independent"))
    before = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    first, second = ooc.resume(target, resources=ooc.Resources(ranks=1)), ooc.resume(target)
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == before
    assert "planned anew" in first.explain()
    with pytest.raises(BudgetError):
        ooc.resume(target, memory="1MiB")
    fail(first, after=1)
    with pytest.raises(RunError, match="has changed since run"):
        second.run()
    ooc.resume(target).run()
    check_finished(target)


def test_the_command_goes_on_otherwise(
    field: Path, target: Path, runs: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, **options_of("independent"))
    before = kept(target)
    assert main(["resume", str(target), "--memory", TWICE, "--ranks", "1", "--scheduler", "threads"]) == 0
    assert f"planned anew: {len(before)} of {COUNT} chunks" in capsys.readouterr().out
    check_finished(target)
    assert before.items() <= stamps(target).items()


def test_from_threads_to_workers_and_back(field: Path, target: Path, runs: Server, client: Client) -> None:
    runs.run("rechunk", field, target, at="entry", after=4, scheduler="threads", **options_of("two-phase"))
    before = kept(target)
    job = ooc.resume(target, scheduler=client, memory=DOUBLE)
    assert job.plan.processes == 2
    with client.as_current():
        assert ooc.resume(target).plan.processes is None, "by default as it was planned"
    fail_on(client, job, after=2)
    again = kept(target)
    assert before.items() <= again.items()
    back = ooc.resume(target, scheduler="threads", memory=DOUBLE, resources=ooc.Resources(ranks=3))
    assert back.plan.processes is None
    check_rest(back, target, again)


# ---------------------------------------------------------------------- groups


def test_a_killed_group_goes_on_otherwise(tmp_path: Path, target: Path, runs: Server, client: Client) -> None:
    """One array is finished, one begun, a third one copied; on workers, and on threads again."""
    root = zarr.create_group(tmp_path / "group")
    for number, name in enumerate(("one", "two")):
        root.create_array(name, data=FIELD + number, chunks=(64, 1024), compressors=None)
    root.create_array("axis", data=np.arange(1024), chunks=(100,))
    options = options_of("independent") | {"chunks": dict.fromkeys(("one", "two"), CHUNKS), "scheduler": "threads"}
    runs.run("rechunk", tmp_path / "group", target, at="mark", after=2, **options)
    before = {path: stamp for name in ("one", "two", "axis") for path, stamp in stamps(target / name).items()}
    journal = {path: stamp for path, stamp in before.items() if "/axis/" not in path or stamp}
    (target / "two" / JOURNAL_FOLDER / "done" / "0.0.0").unlink()
    job = ooc.resume(target, scheduler=client, memory=DOUBLE)
    assert (job.plan.processes, [name for name, _ in job.plan.members]) == (2, ["two"])
    within(job.run)
    for number, name in enumerate(("one", "two")):
        np.testing.assert_array_equal(zarr.open_array(target / name, mode="r")[...], FIELD + number)
    np.testing.assert_array_equal(zarr.open_array(target / "axis", mode="r")[...], np.arange(1024))
    after = {path: stamp for name in ("one", "two", "axis") for path, stamp in stamps(target / name).items()}
    changed = {Path(path).parent.parent for path, stamp in after.items() if journal.get(path) != stamp}
    assert changed == {target / "two" / "c"}
    assert 0 < job.meter.write_requests < COUNT
    assert not left_behind(target.parent)


def test_a_group_goes_on_in_other_memory(tmp_path: Path, target: Path, runs: Server) -> None:
    root = zarr.create_group(tmp_path / "group")
    root.create_array("one", data=FIELD, chunks=(64, 1024), compressors=None)
    root.create_array("axis", data=np.arange(1024), chunks=(100,))
    options = options_of("two-phase") | {"chunks": {"one": CHUNKS}}
    runs.run("rechunk", tmp_path / "group", target, at="entry", after=6, **options)
    before = kept(target / "one")
    runs.run("resume", target, at="entry", after=1, memory=DOUBLE)
    again = kept(target / "one")
    assert before.items() <= again.items()
    ooc.resume(target, memory=TWICE, resources=ooc.Resources(ranks=1)).run()
    np.testing.assert_array_equal(zarr.open_array(target / "one", mode="r")[...], FIELD)
    np.testing.assert_array_equal(zarr.open_array(target / "axis", mode="r")[...], np.arange(1024))
    assert again.items() <= stamps(target / "one").items()


# ---------------------------------------------------------------------- kernels


def least(call: Any) -> int:
    """The least memory of a call."""
    with pytest.raises(BudgetError) as caught:
        call(memory=1)
    return caught.value.least


@pytest.mark.parametrize("places", ["threads", "workers", "workers and back"])
def test_slabs_are_cut_anew_where_memory_is_less(
    field: Path, target: Path, runs: Server, request: pytest.FixtureRequest, places: str
) -> None:
    options: dict[str, Any] = {"depth": 1, "boundary": "nearest", "axis": 0, "ranks": 1, "scheduler": "threads"}

    def job(**other: Any) -> Any:
        return flat(ooc.map_slabs, np.negative, field, target, **(options | other))

    little = least(partial(job, height=384)) * 3 // 4  # nor do windows of that height fit
    options |= {"overwrite": True}
    runs.run("map_slabs", "numpy:negative", field, target, at="entry", memory=TWICE, height=384, **options)
    before = kept(target)
    assert 0 < len(before) < 16
    if places == "threads":
        small = job(memory=little, resume=True)
    else:
        small = job(memory=little, resume=True, scheduler=request.getfixturevalue("client"))
    assert small.plan.height < 384
    if places == "workers and back":
        fail_on(request.getfixturevalue("client"), small, after=0, step="put pieces")
        assert before.items() <= kept(target).items()
        small = job(memory=TWICE, resume=True)
    within(small.run)
    check_finished(target, -FIELD)
    assert before.items() <= stamps(target).items()
    assert small.meter.write_requests == 16 - len(before)


BROKEN: list[bool] = []
"""Anything where the kernel below fails."""


def doubled(block: np.ndarray) -> np.ndarray:
    if BROKEN:
        raise ValueError("broken")
    return 2 * block


def test_a_kernel_that_fails_in_slabs_cut_anew_removes_nothing(field: Path, target: Path, runs: Server) -> None:
    options: dict[str, Any] = {"depth": 1, "boundary": "nearest", "axis": 0, "ranks": 1, "scheduler": "threads"}

    def job(**other: Any) -> Any:
        return flat(ooc.map_slabs, doubled, field, target, **(options | other))

    little = least(partial(job, height=384)) * 3 // 4
    call = ("map_slabs", "tests.test_resume_otherwise:doubled", field, target)
    runs.run(*call, at="entry", memory=TWICE, height=384, **options)
    before, small = kept(target), job(memory=little, resume=True)
    BROKEN.append(True)
    try:
        with pytest.raises(KernelError, match="broken"):
            small.run()
    finally:
        BROKEN.clear()
    assert before
    assert before.items() <= kept(target).items()
    job(memory=little, resume=True).run()
    check_finished(target, 2 * FIELD)
    assert before.items() <= stamps(target).items()


@pytest.mark.parametrize("after", [1, 3])
def test_sweeps_are_cut_anew_where_memory_is_less(field: Path, target: Path, runs: Server, after: int) -> None:
    """In the first pass, which writes to scratch, and in the last."""
    options: dict[str, Any] = {"sweeps": 4, "fuse": 2, "axis": 0, "ranks": 1, "scheduler": "threads"}

    def job(**other: Any) -> Any:
        return flat(ooc.iterate, jacobi, field, target, **(options | other))

    little = least(partial(job, height=512)) * 3 // 4
    want = job(memory=TWICE).run()[...]
    runs.run("iterate", "tests.sweeping:jacobi", field, target, at="entry", after=after, memory=TWICE, height=512,
        overwrite=True, **options)  # fmt: skip
    before = {path: stamp for path, stamp in kept(target).items() if after == 3 and int(Path(path).parent.name) < 8}
    assert len(before) == (8 if after == 3 else 0)
    small = job(memory=little, resume=True)
    assert small.plan.passes[0].height < 512
    assert "planned anew: 8 chunks that have been written stay as they are" in small.notices
    small.run()
    check_finished(target, want)
    assert before.items() <= stamps(target).items()
    assert small.meter.write_requests == (24 if after == 1 else 8)


def test_sweeps_that_were_cut_anew_are_killed_in_a_later_pass(field: Path, target: Path, runs: Server) -> None:
    """What was kept of the first pass has been used, and is gone."""
    options: dict[str, Any] = {"sweeps": 6, "fuse": 2, "axis": 0, "ranks": 1, "scheduler": "threads"}

    def job(**other: Any) -> Any:
        return flat(ooc.iterate, jacobi, field, target, **(options | other))

    little = least(partial(job, height=512)) * 3 // 4
    want = job(memory=TWICE).run()[...]
    options |= {"overwrite": True}
    call = ("iterate", "tests.sweeping:jacobi", field, target)
    runs.run(*call, at="entry", memory=TWICE, height=512, **options)
    plan, done = (small := job(memory=little, resume=True)).plan, small._course.recovered.done
    each = plan.passes[0].count
    after = 2 * each - len(done) + 1
    runs.run(*call, at="entry", after=after, memory=little, resume=True, **options)
    rest = job(memory=little, resume=True)
    rest.run()
    check_finished(target, want)
    assert rest.meter.write_requests < 16, "only the last pass is left"
