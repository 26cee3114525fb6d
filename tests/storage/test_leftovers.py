"""Leftovers of dead runs are found and removed; what lives, and what is the user's, stays."""

from __future__ import annotations

import errno
import fcntl
import gc
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import zarr
from zarr.storage import LocalStore, _local

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import DiskFullError, NotFoundError, StoreFailure, TargetError
from oocarrays.storage.journal import lock
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import hold
from tests.dying import Child, Server
from tests.seams import JOURNAL_FOLDER as FOLDER, UNFINISHED_MARK as MARK
from tests.small import make

HEX = "0123456789abcdef" * 2
SCRATCH = ".oocarrays-0123456789ab"


def age(folder: Path, seconds: float = 3600) -> None:
    """As if nothing had been written for an hour."""
    for path in (folder, *folder.rglob("*")):
        written = path.lstat().st_mtime - seconds
        os.utime(path, (written, written), follow_symlinks=False)


def unfinished(folder: Path) -> Journal:
    """An array whose run has begun, and does not live."""
    make(folder, attributes={MARK: "c0ffee"})
    journal = Journal(folder)
    journal.begin("c0ffee", {})
    assert journal.claim()
    journal.record((1,))
    journal.release()
    return journal


def scratch(folder: Path, name: str = SCRATCH) -> Path:
    (folder / name / "kept").mkdir(parents=True)
    (folder / name / "kept" / "0-1").write_bytes(bytes(1000))
    (folder / name / "1").write_bytes(bytes(10))
    return folder / name


def partial(array: Path, key: str = "c/0/0", seconds: float = 3600) -> Path:
    path = array / f"{key}.{HEX}.partial"
    path.write_bytes(bytes(7))
    os.utime(path, (path.stat().st_mtime - seconds,) * 2)
    return path


def found(folder: Path) -> dict[str, tuple[str, bool]]:
    """The kind of each leftover, and whether a run is at work on it: as it is typed."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(["clean", "--dry-run", "--unfinished", str(folder)]) == 0
    rows = [] if out.getvalue().startswith("nothing was left") else out.getvalue().splitlines()
    return {os.path.relpath(row.split()[-1], folder): (row.split()[0], "at work" in row) for row in rows}


def tree(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def removable(folder: Path) -> list[Any]:
    """Leftovers that `clean` would remove."""
    return ooc.clean(folder, dry_run=True, unfinished=True)


def only(folder: Path) -> Any:
    (leftover,) = removable(folder)
    return leftover


def is_alive(folder: Path) -> bool:
    """Whether the one leftover in a folder is kept since a run is at work on it."""
    ((_, alive),) = found(folder).values()
    return alive


def test_where_nothing_is_left_nothing_is_found(tmp_path: Path) -> None:
    make(tmp_path / "a.zarr")
    zarr.open_group(tmp_path / "g.zarr", mode="w").create_array("x", shape=(4,), dtype="i4")
    assert found(tmp_path) == {}
    assert found(tmp_path / "a.zarr") == {}


def test_each_kind_is_found_where_it_lies_and_removed(tmp_path: Path) -> None:
    make(tmp_path / "whole.zarr")
    before = tree(tmp_path)
    scratch(tmp_path / "deep" / "er")
    scratch(tmp_path, ".oocarrays-calibrate-x_1")
    unfinished(tmp_path / "deep" / "half.zarr")
    journal(tmp_path / "whole.zarr")
    partial(tmp_path / "whole.zarr")
    age(tmp_path)
    assert found(tmp_path) == {
        ".oocarrays-calibrate-x_1": ("calibration", False),
        f"deep/er/{SCRATCH}": ("scratch", False),
        "deep/half.zarr": ("unfinished", False),
        "whole.zarr/.oocarrays": ("journal", False),
        f"whole.zarr/c/0/0.{HEX}.partial": ("partial", False),
    }
    listed = removable(tmp_path)
    assert [each.path for each in listed] == sorted(each.path for each in listed)
    for leftover in listed:
        leftover.remove()
        leftover.remove()
        assert not os.path.lexists(leftover.path)
    assert found(tmp_path) == {}
    assert tree(tmp_path) == sorted([*before, tmp_path / "deep", tmp_path / "deep" / "er"])


def test_a_folder_is_told_as_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    scratch(tmp_path / "real")
    age(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    assert only(Path("link")).path == str(tmp_path / "real" / SCRATCH)


@pytest.mark.parametrize("place", ["nowhere", "file"])
def test_where_there_is_no_folder(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotFoundError, match=f"no such folder: .*{place}"):
        ooc.clean(tmp_path / place)


def test_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    scratch(tmp_path)
    age(tmp_path)
    assert only(tmp_path).nbytes == 1010
    shutil.rmtree(tmp_path / SCRATCH)
    make(tmp_path / "a.zarr")
    path = partial(tmp_path / "a.zarr")
    assert only(tmp_path).nbytes == 7
    path.unlink()
    unfinished(tmp_path / "b.zarr")
    files = [path.stat().st_size for path in (tmp_path / "b.zarr").rglob("*") if path.is_file()]
    assert only(tmp_path).nbytes == sum(files)


# what is the user's

MINE = [
    ".oocarrays-mine",
    ".oocarrays-0123456789a",
    ".oocarrays-0123456789abc",
    ".oocarrays-0123456789AB",
    ".oocarrays",
]


@pytest.mark.parametrize("name", [*MINE, "x.oocarrays-0123456789ab", "oocarrays-calibrate-x"])
def test_folders_of_other_names_stay(tmp_path: Path, name: str) -> None:
    scratch(tmp_path, name)
    age(tmp_path)
    assert found(tmp_path) == {}


def test_files_and_links_with_our_names_stay(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    make(inside / "a.zarr")
    (inside / SCRATCH).touch()
    (outside / "journal").mkdir(parents=True)
    unfinished(outside / "b.zarr")
    (inside / ".oocarrays-ba9876543210").symlink_to(outside)
    (inside / "b.zarr").symlink_to(outside / "b.zarr")
    (inside / "a.zarr" / FOLDER).symlink_to(outside / "journal")
    (inside / "a.zarr" / "c" / "99").symlink_to(outside)
    (inside / "a.zarr" / "c" / f"98.{HEX}.partial").symlink_to(outside / "b.zarr" / "zarr.json")
    partial(outside / "b.zarr")
    age(tmp_path)
    assert found(inside) == {}


@pytest.mark.parametrize("name", ["0.partial", f"0.{HEX}x.partial", f"0.{HEX[1:]}.partial", f"0.{HEX}.partial.gz", HEX])
def test_files_of_other_names_stay(tmp_path: Path, name: str) -> None:
    make(tmp_path / "a.zarr")
    (tmp_path / "a.zarr" / "c" / name).touch()
    age(tmp_path)
    assert found(tmp_path) == {}


def test_a_download_outside_arrays_stays(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "g.zarr", mode="w")
    for folder in (tmp_path, tmp_path / "g.zarr"):
        (folder / f"film.{HEX}.partial").touch()
    age(tmp_path)
    assert found(tmp_path) == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff", '{"node_type": "group"}', '{"node_type": "array"}'])
def test_odd_metadata_is_no_unfinished_array(tmp_path: Path, text: str) -> None:
    (tmp_path / "zarr.json").write_text(text, encoding="latin-1")
    age(tmp_path)
    assert found(tmp_path) == {}


def test_what_may_not_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch(tmp_path)
    (tmp_path / "locked").mkdir()
    scandir = os.scandir

    def refuse(folder: str) -> Any:
        if folder.endswith("locked"):
            raise PermissionError(errno.EACCES, "no")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    assert found(tmp_path) == {SCRATCH: ("scratch", True)}


# what lives


@contextmanager
def process(runs: Server, kind: str, folder: Path) -> Iterator[Child]:
    """Another process that uses a folder."""
    used = ("scratch",) if kind == "scratch" else ("journal", "claim")
    child = runs.start(f"tests.storage.holders:{used[0]}", folder, *used[1:], wait=True)
    child.until_there()
    try:
        yield child
    finally:
        child.kill()


def journal(folder: Path) -> None:
    """The journal of a run that had finished its array when it died."""
    Journal(folder).begin("c0ffee", {})


def finished(folder: Path) -> None:
    make(folder)
    journal(folder)


USED: dict[str, Callable[[Path], Any]] = {"scratch": Path.mkdir, "unfinished": unfinished, "journal": finished}


@pytest.mark.parametrize("kind", USED)
def test_what_a_living_process_uses_is_never_removed(tmp_path: Path, runs: Server, kind: str) -> None:
    folder = tmp_path / SCRATCH
    USED[kind](folder)
    age(tmp_path)
    target = tmp_path / (SCRATCH if kind == "scratch" else "a.zarr")
    folder.rename(target)
    before = only(tmp_path)
    with process(runs, kind, target) as user:
        age(tmp_path)
        files = tree(tmp_path)
        assert found(tmp_path) == {target.name + "/.oocarrays" * (kind == "journal"): (kind, True)}
        assert ooc.clean(tmp_path, unfinished=True) == []
        with pytest.raises(TargetError, match="is not removed: a run is using it"):
            before.remove()
        assert tree(tmp_path) == files
        user.kill()
    only(tmp_path).remove()
    assert found(tmp_path) == {}


def test_a_hold_ends_when_it_is_closed_or_collected(tmp_path: Path) -> None:
    first, second = hold(str(tmp_path / SCRATCH)), hold(str(tmp_path / SCRATCH))
    assert is_alive(tmp_path)
    assert first.close()
    assert not first.close()
    assert is_alive(tmp_path)
    del second
    gc.collect()
    assert not is_alive(tmp_path)


def test_a_hold_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailure, match=r"cannot write .*file"):
        hold(str(tmp_path / "file"))

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(lock, "_open", full)
    with pytest.raises(DiskFullError):
        hold(str(tmp_path / SCRATCH))


@pytest.mark.parametrize("name", [SCRATCH, ".oocarrays-calibrate-x"])
def test_without_a_lock_what_was_just_written_to_is_alive(tmp_path: Path, name: str) -> None:
    folder = scratch(tmp_path, name)
    assert is_alive(tmp_path)
    age(tmp_path)
    dead = only(tmp_path)
    (folder / "kept" / "0-1").write_bytes(b"more")
    assert is_alive(tmp_path)
    with pytest.raises(TargetError, match="a run is using it"):
        dead.remove()


def test_an_unfinished_array_without_a_journal(tmp_path: Path) -> None:
    make(tmp_path / "a.zarr", attributes={MARK: "c0ffee"})
    assert found(tmp_path) == {"a.zarr": ("unfinished", True)}
    age(tmp_path)
    only(tmp_path).remove()
    assert tree(tmp_path) == []


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    hold(str(tmp_path / SCRATCH)).close()
    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not hold(str(tmp_path / SCRATCH)).close()
    assert is_alive(tmp_path)
    age(tmp_path)
    only(tmp_path).remove()
    assert tree(tmp_path) == []


def test_another_person_s_lock_is_asked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = hold(str(tmp_path / SCRATCH))
    age(tmp_path)
    really = os.open

    def refuse(path: str, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "no")
        return really(path, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    assert is_alive(tmp_path)
    monkeypatch.undo()
    held.close()


# what changes between looking and removing


def test_an_array_that_was_finished_meanwhile_stays(tmp_path: Path) -> None:
    unfinished(tmp_path / "a.zarr")
    leftover = only(tmp_path)
    array = zarr.open_array(tmp_path / "a.zarr")
    array.attrs.put({})
    with pytest.raises(TargetError, match="it has changed since it was listed"):
        leftover.remove()
    assert zarr.open_array(tmp_path / "a.zarr").nchunks_initialized == array.nchunks_initialized > 0


def test_a_journal_whose_array_was_written_anew_stays(tmp_path: Path) -> None:
    finished(tmp_path / "a.zarr")
    age(tmp_path)
    leftover = only(tmp_path)
    zarr.open_array(tmp_path / "a.zarr").attrs[MARK] = "c0ffee"
    with pytest.raises(TargetError, match="it has changed since it was listed"):
        leftover.remove()
    assert (tmp_path / "a.zarr" / FOLDER / "plan.json").exists()


def test_a_link_put_in_its_place_is_not_followed(tmp_path: Path) -> None:
    unfinished(tmp_path / "in" / "a.zarr")
    leftover = only(tmp_path / "in")
    (tmp_path / "in" / "a.zarr").rename(tmp_path / "b.zarr")
    (tmp_path / "in" / "a.zarr").symlink_to(tmp_path / "b.zarr")
    before = tree(tmp_path)
    with pytest.raises(TargetError, match="it has changed"):
        leftover.remove()
    assert tree(tmp_path) == before


def test_an_array_whose_removal_is_cut_short_stays_unfinished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished(tmp_path / "a.zarr")
    rmtree, gone = shutil.rmtree, []

    def once(folder: str) -> None:
        if gone:
            raise OSError(errno.EIO, "broken")
        rmtree(folder)
        gone.append(os.path.basename(folder))

    monkeypatch.setattr(shutil, "rmtree", once)
    with pytest.raises(StoreFailure, match=r"cannot remove .*a\.zarr: broken"):
        only(tmp_path).remove()
    monkeypatch.undo()
    assert gone == ["c"]
    assert found(tmp_path) == {"a.zarr": ("unfinished", False)}
    only(tmp_path).remove()
    assert tree(tmp_path) == []


# partial files


def test_partials_of_an_array_that_nobody_holds(tmp_path: Path) -> None:
    make(tmp_path / "a.zarr")
    old = [partial(tmp_path / "a.zarr", key) for key in ("c/3/0", "zarr", "c/extra")]
    partial(tmp_path / "a.zarr", "c/4/0", seconds=5)
    assert found(tmp_path) == {str(path.relative_to(tmp_path)): ("partial", False) for path in old}


def test_partials_of_a_run(tmp_path: Path) -> None:
    journal = unfinished(tmp_path / "a.zarr")
    name = os.path.relpath(partial(tmp_path / "a.zarr", seconds=0), tmp_path)
    assert found(tmp_path) == {"a.zarr": ("unfinished", False), name: ("partial", False)}
    assert journal.claim()
    assert found(tmp_path) == {"a.zarr": ("unfinished", True)}
    partial(tmp_path / "a.zarr")
    assert found(tmp_path)[name] == ("partial", True)
    assert ooc.clean(tmp_path, unfinished=True) == []
    journal.release()
    assert [each.kind for each in ooc.clean(tmp_path)] == ["partial"]
    assert journal.read()[0] == "c0ffee"
    assert found(tmp_path) == {"a.zarr": ("unfinished", False)}


@pytest.mark.parametrize("encoding", [{"name": "v2", "separator": "."}, {"name": "v2", "separator": "/"}])
def test_partials_of_an_array_with_other_keys(tmp_path: Path, encoding: dict[str, str]) -> None:
    make(tmp_path / "a.zarr", chunk_key_encoding=encoding)
    chunk = next(p for p in tree(tmp_path / "a.zarr") if p.is_file() and p.name != "zarr.json")
    path = partial(tmp_path / "a.zarr", os.path.relpath(chunk, tmp_path / "a.zarr"))
    leftover = only(tmp_path)
    assert (leftover.path, leftover.kind, leftover.nbytes, leftover.alive) == (str(path), "partial", 7, False)


def test_the_partials_that_zarr_and_we_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "a.zarr")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    ours = ooc.open_array(tmp_path / "a.zarr", mode="r+")
    monkeypatch.setattr(os, "replace", killed)
    monkeypatch.setattr(os, "unlink", lambda _: None)
    monkeypatch.setattr(_local.Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        ours[40:48] = 1  # the whole chunk c/5/0
    buffer = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(b"data")
    for key in ("a.zarr/c/6/0", "a.zarr/zarr.json"):
        with pytest.raises(KeyboardInterrupt):
            LocalStore(tmp_path).set_sync(key, buffer)
    monkeypatch.undo()
    age(tmp_path)
    kinds = {path.split(".")[1]: kind for path, (kind, _) in found(tmp_path).items()}
    assert kinds == dict.fromkeys(["zarr/c/5/0", "zarr/c/6/0", "zarr/zarr"], "partial")


def test_the_mark_is_where_zarr_keeps_it(tmp_path: Path) -> None:
    unfinished(tmp_path / "a.zarr")
    assert json.loads((tmp_path / "a.zarr" / "zarr.json").read_text())["attributes"] == {MARK: "c0ffee"}
