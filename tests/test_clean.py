"""Leftovers of dead runs go when asked; what lives, what can be resumed, and what is the user's stays."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import NotFoundError
from tests.dying import Server
from tests.flat import flat
from tests.seams import YOUNG_SECONDS, find_leftovers
from tests.small import each_method
from tests.unfinished import check_finished, check_unfinished, fail, make_field, options_of

pytestmark = pytest.mark.long

WITH_SCRATCH = ["staged"]
leaves_scratch = pytest.mark.parametrize("method", WITH_SCRATCH)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that holds a field, and something of the user's."""
    folder = tmp_path / "my data"
    folder.mkdir()
    make_field(folder)
    (folder / "thesis.txt").write_text("three years of work")
    return folder


def kill(runs: Server, place: Path, method: str, at: str = "entry", after: int = 6) -> Path:
    runs.run("rechunk", place / "source.zarr", place / "target.zarr", at=at, after=after, **options_of(method))
    return place / "target.zarr"


def mine(place: Path) -> list[str]:
    """Names in a folder, but for what no run has made."""
    names = sorted(path.name for path in place.iterdir())
    assert {"source.zarr", "thesis.txt"} <= set(names)
    return [name for name in names if name not in ("source.zarr", "thesis.txt")]


def kinds(found: list) -> list[str]:
    """The kinds of what was found; a run leaves one partial file, or one for each rank."""
    partial = [each.kind for each in found if each.kind == "partial"]
    return sorted([*partial[:1], *(each.kind for each in found if each.kind != "partial")])


def whole(folder: Path) -> set[Path]:
    """All that is not partial."""
    return {path for path in folder.rglob("*") if path.suffix != ".partial"}


def age(folder: Path) -> None:
    """As if nothing had been written for some time."""
    written = time.time() - 2 * YOUNG_SECONDS
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (written, written), follow_symlinks=False)


# ---------------------------------------------------------------------- what can be gone on with


@each_method
def test_what_a_run_can_go_on_with_stays(place: Path, runs: Server, method: str) -> None:
    target = kill(runs, place, method)
    before = whole(target), mine(place)
    assert set(kinds(ooc.clean(place))) <= {"partial"}, "another rank may have been writing"
    assert (whole(target), mine(place)) == before
    ooc.resume(target).run()
    check_finished(target)


@each_method
def test_unfinished_targets_go_with_their_scratch_where_it_is_asked_for(place: Path, runs: Server, method: str) -> None:
    kill(runs, place, method, "partial", 8)
    removed = ooc.clean(place, unfinished=True)
    expected = ["partial", "scratch", "unfinished"] if method in WITH_SCRATCH else ["partial", "unfinished"]
    if method == "assembled":  # what is in unfinished chunks is gone on with: they go with the array
        expected = ["unfinished"]
    assert kinds(removed) == expected
    assert mine(place) == []
    assert ooc.clean(place, unfinished=True) == []


def test_partial_files_go_and_the_run_goes_on(place: Path, runs: Server) -> None:
    target = kill(runs, place, "two-phase", "partial", 4)
    found = sorted(map(str, target.joinpath("c").rglob("*.partial")))
    assert [each.path for each in ooc.clean(target)] == found != []
    assert list(target.joinpath("c").rglob("*.partial")) == []
    check_unfinished(target)
    ooc.resume(target).run()
    check_finished(target)


# ---------------------------------------------------------------------- what is of no use


@leaves_scratch
@pytest.mark.parametrize("what", ["removed", "written anew"])
def test_scratch_without_its_target_goes(place: Path, runs: Server, method: str, what: str) -> None:
    target = kill(runs, place, method)
    if what == "removed":
        shutil.rmtree(target)
    else:
        ooc.rechunk(place / "source.zarr", target, chunks=(512, 64), memory="64MiB", overwrite=True).run()
    if what == "written anew":
        assert mine(place) == ["target.zarr"], "the new run has removed it"
        check_finished(target)
        return
    (scratch,) = place.glob(".oocarrays-*")
    nbytes = sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
    (removed,) = ooc.clean(place)
    assert (removed.path, removed.kind, removed.nbytes) == (str(scratch), "scratch", nbytes)
    assert mine(place) == []


@leaves_scratch
def test_a_run_that_died_when_all_was_done_leaves_nothing_of_use(place: Path, runs: Server, method: str) -> None:
    target = kill(runs, place, method, "finished", 1)
    in_cache = method == "staged"  # goes before all that was written is synced
    assert kinds(ooc.clean(place)) == (["journal"] if in_cache else ["journal", "scratch"])
    check_finished(target)


def test_an_error_leaves_no_scratch_and_a_target_that_can_be_gone_on_with(place: Path) -> None:
    fail(flat(ooc.rechunk, place / "source.zarr", place / "target.zarr", **options_of("staged")), 9)
    assert ooc.clean(place) == []
    assert mine(place) == ["target.zarr"]
    assert kinds(ooc.clean(place, unfinished=True)) == ["unfinished"]
    assert mine(place) == []


def test_folders_below_are_looked_into(place: Path, runs: Server) -> None:
    deep = place / "a" / "b"
    deep.mkdir(parents=True)
    make_field(deep)
    (deep / "thesis.txt").touch()
    kill(runs, deep, "staged", "partial", 8)
    assert kinds(ooc.clean(place, unfinished=True)) == ["partial", "scratch", "unfinished"]
    assert mine(deep) == []


def test_a_dry_run_removes_nothing(place: Path, runs: Server) -> None:
    kill(runs, place, "staged", "partial", 8)
    before = sorted(place.rglob("*"))
    assert kinds(ooc.clean(place, dry_run=True)) == ["partial"]
    would = ooc.clean(place, dry_run=True, unfinished=True)
    assert sorted(place.rglob("*")) == before
    assert ooc.clean(place, unfinished=True) == would


def test_without_a_lock_to_ask_what_is_young_lives(place: Path, runs: Server) -> None:
    target = kill(runs, place, "independent", "begun", 1)
    (target / ".oocarrays/lock").unlink()
    assert ooc.clean(place, unfinished=True) == []
    age(target)
    assert kinds(ooc.clean(place, unfinished=True)) == ["unfinished"]


# ---------------------------------------------------------------------- what lives


@each_method
def test_what_a_living_run_uses_stays(place: Path, runs: Server, method: str, capsys: pytest.CaptureFixture) -> None:
    options = options_of(method)
    alive = runs.start(
        "rechunk", place / "source.zarr", place / "target.zarr", at="entry", after=6, wait=True, **options
    )
    alive.until_there()
    before = mine(place)
    assert before[-1] == "target.zarr"
    assert ooc.clean(place, unfinished=True) == []
    assert main(["clean", str(place), "--unfinished"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[0] for line in lines) == ["scratch"] * (method in WITH_SCRATCH) + ["unfinished"]
    assert all("kept: a run is at work on it" in line for line in lines)
    assert mine(place) == before
    assert alive.go_on() == 0, alive.err
    check_finished(place / "target.zarr")
    assert find_leftovers(place) == []


# ---------------------------------------------------------------------- as it is typed


def test_clean_says_what_it_removed_and_what_it_kept(place: Path, runs: Server, capsys: pytest.CaptureFixture) -> None:
    target = kill(runs, place, "staged", "partial", 8)
    (scratch,), partial = place.glob(".oocarrays-*"), list(target.joinpath("c").rglob("*.partial"))
    kept = dict.fromkeys([target, scratch], "kept: resume it, or pass --unfinished")
    for options, words in [
        (["--dry-run"], kept | dict.fromkeys(partial, "to be removed")),
        (["--dry-run", "--unfinished"], dict.fromkeys([target, scratch, *partial], "to be removed")),
        ([], kept | dict.fromkeys(partial, "removed")),
        (["--unfinished"], dict.fromkeys([target, scratch], "removed")),
    ]:
        assert main(["clean", str(place), *options]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        told = {path: line for line in out.splitlines() for path in words if line.endswith(str(path))}
        assert len(told) == len(words) == len(out.splitlines()), out
        for path, word in words.items():
            assert word in told[path]
            assert "B" in told[path], "and how large it was"
    assert mine(place) == []


def test_where_nothing_was_left_it_says_so(place: Path, capsys: pytest.CaptureFixture) -> None:
    before = sorted(place.rglob("*"))
    for options in ([], ["--unfinished"], ["--dry-run"]):
        assert main(["clean", str(place), *options]) == 0
        assert capsys.readouterr() == (f"nothing was left in {place}\n", "")
    assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("name", ["nowhere", "thesis.txt", "thesis.txt/nowhere"])
def test_where_there_is_no_such_folder_it_says_so(place: Path, name: str, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(NotFoundError, match=f"no such folder: .*{name}"):
        ooc.clean(place / name)
    assert main(["clean", str(place / name)]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"oocarrays: no such folder: {place / name}\n")


def test_a_group_of_arrays_is_cleaned_in_place(place: Path, runs: Server) -> None:
    group = zarr.create_group(place / "group.zarr")
    group.create_array("other", shape=(4,), chunks=(2,), dtype="i4")
    target = place / "group.zarr" / "target"
    runs.run("rechunk", place / "source.zarr", target, at="partial", after=8, **options_of("staged"))
    assert kinds(ooc.clean(place / "group.zarr", unfinished=True)) == ["partial", "scratch", "unfinished"]
    assert list(zarr.open_group(place / "group.zarr", mode="r")) == ["other"]
