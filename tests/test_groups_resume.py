"""A group whose run was killed is gone on with: what is finished stays, what was begun goes on, the rest is begun."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import DiskFullError, JournalError, NotFoundError, TargetError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.groups import as_stored, objects
from tests.seams import find_leftovers, is_finished, set_constants
from tests.unfinished import CHUNKS, FIELD, break_disk, fail, left_behind, options_of, stamps

pytestmark = pytest.mark.long

NAMES = ["one", "deep/two"]


@pytest.fixture
def group(tmp_path: Path) -> Path:
    """Two arrays to rewrite, and two others, one of which is in the way of nobody."""
    root = zarr.create_group(tmp_path / "group", attributes={"title": "fields"})
    for number, name in enumerate(NAMES):
        root.create_array(name, data=FIELD + number, chunks=(64, 1024), compressors=None)
    root.create_array("axis", data=np.arange(1024), chunks=(100,))
    root.create_array("deep/words", data=np.array(["a", "long word"], dtype=np.dtypes.StringDType()))
    return tmp_path / "group"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def options(method: str) -> dict[str, Any]:
    return options_of(method) | {"chunks": dict.fromkeys(NAMES, CHUNKS)}


def check_finished(group: Path, target: Path) -> None:
    """All values are right, what is copied is the same, and nothing is left."""
    for number, name in enumerate(NAMES):
        array = zarr.open_array(target / name, mode="r")
        np.testing.assert_array_equal(array[...], FIELD + number)
        assert array.chunks == CHUNKS
    for name in ("axis", "deep/words"):
        assert objects(group / name) == as_stored(target / name)
    assert ooc.open_group(target).attrs == {"title": "fields"}
    assert left_behind(target.parent) == []
    assert "oocarrays" not in "".join(path.read_text() for path in target.rglob("zarr.json"))


STOPS = [
    ("copied", 5), ("entry", 1), ("partial", 3), ("mark", 1), ("finished", 1), ("mark", 2), ("consolidated", 1),
]  # fmt: skip
CASES = [("independent", *stop) for stop in STOPS]
CASES += [("staged", "entry", 4), ("staged", "finished", 1), ("staged", "partial", 40)]
CASES += [("assembled", at, after) for at, after in (("partial", 3), ("named", 2), ("entry", 2), ("unrecorded", 1))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("method", "at", "after"), CASES)
def test_a_killed_run_goes_on(group: Path, target: Path, runs: Server, method: str, at: str, after: int) -> None:
    runs.run("rechunk", group, target, at=at, after=after, **options(method))
    with pytest.raises(UnfinishedError, match="resume"):
        ooc.open_group(target)
    finished = {name: stamps(target / name) for name in NAMES if is_finished(target / name)}
    job = ooc.resume(target)
    assert isinstance(job, ooc.Job)
    assert [name for name, _ in job.plan.members] == [name for name in NAMES if name not in finished]
    assert len(job.__dask_graph__()) <= job.plan.tasks
    assert job.left <= 1 - len(finished) / len(NAMES)
    assert set(job.run()) == {*NAMES, "axis", "deep/words"}
    check_finished(group, target)
    for name, before in finished.items():
        assert stamps(target / name) == before, "what was finished is not written again"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("at", "after"), [("entry", 1), ("partial", 3), ("mark", 1), ("finished", 2), ("mark", 3), ("consolidated", 1)]
)
def test_a_killed_run_goes_on_to_another_format(group: Path, target: Path, runs: Server, at: str, after: int) -> None:
    runs.run("rechunk", group, target, at=at, after=after, zarr_format=2, **options("independent"))
    with pytest.raises(UnfinishedError, match="resume"):
        ooc.open_group(target)
    ooc.resume(target).run()
    made = zarr.open_group(target, mode="r")
    for number, name in enumerate(NAMES):
        np.testing.assert_array_equal(made[name][...], FIELD + number)
        assert made[name].chunks == CHUNKS
    np.testing.assert_array_equal(made["axis"][...], np.arange(1024))
    assert list(made["deep/words"][...]) == ["a", "long word"]
    assert {node.metadata.zarr_format for _, node in made.members(max_depth=None)} == {2}
    assert left_behind(target.parent) == []


def test_killed_again_and_again(group: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", group, target, at="entry", after=2, **options("staged"))
    for point in ("partial", "entry", "finished", "entry"):
        runs.run("resume", target, at=point, after=1)
    ooc.resume(target).run()
    check_finished(group, target)


def test_killed_at_its_beginning_or_end(group: Path, target: Path, runs: Server) -> None:
    """Before all arrays are made nothing has been written; after the mark is gone nothing is left to do."""
    for at, after, over in (("begun", 1, False), ("journal", 2, True)):
        runs.run("rechunk", group, target, at=at, after=after, overwrite=over, **options("independent"))
        with pytest.raises(JournalError, match=r"before it had created all arrays; start over: .* overwrite=True"):
            ooc.resume(target)
    runs.run("rechunk", group, target, at="group", after=1, overwrite=True, **options("independent"))
    assert [each.kind for each in ooc.clean(target.parent)] == ["journal"]
    with pytest.raises(NotFoundError, match="nothing to resume"):
        ooc.resume(target)
    assert not ooc.clean(target.parent), "whoever looks at the journal in vain removes it"
    check_finished(group, target)


def test_an_interrupted_command_says_how_to_go_on(
    group: Path, target: Path, runs: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    runs.run("rechunk", group, target, at="mark", after=2, **options("independent"))
    assert main(["resume", str(target), "--dry-run"]) == 0
    assert main(["resume", str(target)]) == 0
    out = capsys.readouterr().out
    assert f"100 % of {target} is done" in out or f"50 % of {target} is done" in out
    check_finished(group, target)
    assert main(["resume", str(target)]) == 2
    assert "nothing to resume" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["run", "compute"])
def test_a_run_that_failed_is_gone_on_with_in_the_same_process(group: Path, target: Path, how: str) -> None:
    job = flat(ooc.rechunk, group, target, **options("independent"))
    if how == "run":
        fail(job, after=20)
    else:
        with pytest.MonkeyPatch.context() as patch:
            break_disk(patch, 20)
            with pytest.raises(DiskFullError):
                dask.compute(job)
    ooc.resume(target).run()
    check_finished(group, target)


def test_a_job_that_failed_can_be_run_again(group: Path, target: Path) -> None:
    job = flat(ooc.rechunk, group, target, **options("independent"))
    fail(job, after=20)
    job.run()
    check_finished(group, target)


def test_while_a_run_lives_others_are_refused(
    group: Path, target: Path, runs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_constants(monkeypatch, claim_seconds=0.1)
    child = runs.start("rechunk", group, target, at="entry", after=3, wait=True, **options("independent"))
    child.until_there()
    for job in (ooc.resume(target), flat(ooc.rechunk, group, target, overwrite=True, **options("independent"))):
        with pytest.raises(TargetError, match="another run is writing"):
            job.run()
    (left,) = find_leftovers(target.parent)
    assert (left.kind, left.path, left.alive) == ("unfinished", str(target), True)
    assert ooc.clean(target.parent, unfinished=True) == []
    assert child.go_on() == 0, child.err
    check_finished(group, target)


def test_clean_knows_unfinished_groups(group: Path, target: Path, runs: Server) -> None:
    """Another rank may have been writing when the run was killed: its partial file is there, and goes at once."""
    runs.run("rechunk", group, target, at="entry", after=3, **options("staged"))
    assert kinds(ooc.clean(target.parent, dry_run=True, unfinished=True)) - {"partial"} == {"unfinished", "scratch"}
    assert kinds(ooc.clean(target.parent)) <= {"partial"}, "all else can be gone on with"
    assert kinds(ooc.clean(target.parent, unfinished=True)) == {"unfinished", "scratch"}
    assert os.listdir(target.parent) == ["group"]


def test_clean_removes_partial_files_of_unfinished_groups(group: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", group, target, at="partial", after=3, **options("independent"))
    assert kinds(ooc.clean(target.parent)) == {"partial"}
    ooc.resume(target).run()
    check_finished(group, target)


def kinds(found: list[Any]) -> set[str]:
    return {each.kind for each in found}


def test_a_source_that_has_changed_is_refused(group: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", group, target, at="entry", after=2, **options("independent"))
    zarr.open_array(group / "deep/two", mode="r+").attrs["changed"] = True
    with pytest.raises(JournalError, match="does not belong to"):
        ooc.resume(target)
    shutil.rmtree(group / "deep" / "two")
    with pytest.raises(JournalError, match="no longer has"):
        ooc.resume(target)
