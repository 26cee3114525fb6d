"""A journal beside its target: whole entries, no other plan's, and no second run beside a living one."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import pickle
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, LoggingStore, MemoryStore, StorePath

import oocarrays as ooc
from oocarrays.errors import DiskFullError, JournalError, NotFoundError, StoreFailure, TargetError
from oocarrays.storage.files import entries
from oocarrays.storage.journal import lock
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.local import fs
from tests.dying import Child, Server
from tests.flat import flat
from tests.seams import JOURNAL_FOLDER as FOLDER, begin, set_constants, small
from tests.small import DATA, make
from tests.unfinished import FIELD, STORE_MORE, check_finished, fail, options_of

pytestmark = [pytest.mark.long, pytest.mark.sampled(1)]

CONTENT = {"plan": {"chunks": (4, 5), "seconds": 0.5, "none": None}, "source": "a.zarr"}
AS_READ = json.loads(json.dumps(CONTENT))


class Wrapped(zarr.storage.WrapperStore):
    """A store that is not a local folder, though it writes to one."""


@pytest.fixture(params=["path", "text", "local store", "location", "memory", "wrapped", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {
        "path": lambda: tmp_path / "a.zarr",
        "text": lambda: str(tmp_path / "a.zarr"),
        "local store": lambda: LocalStore(tmp_path / "a.zarr"),
        "location": lambda: StorePath(LocalStore(tmp_path), "a.zarr"),
        "memory": MemoryStore,
        "wrapped": lambda: Wrapped(LocalStore(tmp_path / "a.zarr")),
        "fsspec": lambda: f"memory://{tmp_path.name}/a.zarr",
    }[request.param]()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a.zarr"


@pytest.fixture
def left(field: Path, target: Path) -> Path:
    """An array that lacks parts, beside the journal of the run that failed."""
    fail(job_of(field, target), after=6)
    return target


def job_of(source: Path, target: Any, **options: Any) -> ooc.Job:
    """A rechunk in which each chunk is a part."""
    with small(batch_bytes=1):
        return flat(ooc.rechunk, source, target, **(options_of("independent") | options))


def begun(store: Any, run: str = "c0ffee", content: Any = CONTENT) -> Journal:
    made = Journal(store)
    made.begin(run, content)
    return made


def test_recording_twice_and_by_two_is_fine(store: Any) -> None:
    twins = [begun(store), Journal(store)]
    for _ in range(2):
        for twin in twins:
            twin.record((1, 2))
    assert twins[0].parts() == {(1, 2)}


def test_many_threads_record_at_once(store: Any) -> None:
    begun(store)
    shared = Journal(store)
    parts = [(i, i % 3) for i in range(40)]
    threads = [threading.Thread(target=lambda s: list(map(shared.record, s)), args=(parts[i::3],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Journal(store).parts() == set(parts)


def test_of_two_that_begin_at_once_one_does(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Journal(store)
    for kind in (entries.LocalEntries, entries.StoreEntries):

        def too_late(self: Any, key: str, data: bytes, create: Any = kind.create, **how: Any) -> None:
            monkeypatch.undo()
            other.begin("beef", {})
            create(self, key, data, **how)

        monkeypatch.setattr(kind, "create", too_late)
    with pytest.raises(TargetError, match="already has a journal"):
        begun(store)
    assert other.read() == Journal(store).read() == ("beef", {})


def test_what_json_does_not_hold_is_not_begun(store: Any) -> None:
    with pytest.raises(TypeError):
        begun(store, content={"a": object()})
    with pytest.raises(NotFoundError):
        Journal(store).read()


def test_nothing_is_made_before_it_is_begun(folder: Path) -> None:
    for each in (Journal(folder), pickle.loads(pickle.dumps(Journal(str(folder))))):
        each.remove()
        each.release()
        assert not each.join()
    assert not folder.exists()


def test_a_straggler_does_not_bring_a_removed_journal_back(folder: Path) -> None:
    begun(folder)
    straggler = Journal(folder)
    straggler.record((1,))
    Journal(folder).remove()
    with pytest.raises(NotFoundError, match="nothing to resume"):
        straggler.record((2,))
    assert not straggler.join()
    assert not (folder / FOLDER).exists()


def test_a_copy_without_empty_folders_can_be_recorded_in(field: Path, target: Path) -> None:
    begin(job_of(field, target))
    (target / FOLDER / "done").rmdir()
    ooc.resume(target).run()
    check_finished(target)


def test_pickled_it_is_of_the_same_target(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir()
    monkeypatch.chdir(folder.parent)
    mine = Journal("a.zarr")
    monkeypatch.chdir("/")
    mine.begin("c0ffee", CONTENT)
    mine.record((1,))
    assert mine.claim()
    copy = pickle.loads(pickle.dumps(mine))
    assert copy.read() == mine.read()
    assert copy.parts() == {(1,)}
    mine.release()
    assert Journal(folder).claim()


# a journal that does not belong to what it stands beside

PLAN = f"{FOLDER}/plan.json"
EDITS: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda text: text[:-5],
    "empty": lambda _: b"",
    "no JSON": lambda _: b"\xff\xfe",
    "another thing": lambda _: b"[1, 2]",
    "a text": lambda _: b'"plan"',
    "no digest": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "digest"}).encode(),
    "another run": lambda text: json.dumps(json.loads(text) | {"run": "c0ffeec0ffee"}).encode(),
    "another plan": lambda text: text.replace(b"[1024, 64]", b"[1024, 32]"),
    "another digest": lambda text: json.dumps(json.loads(text) | {"digest": "0" * 64}).encode(),
    "a content that is none": lambda text: json.dumps(json.loads(text) | {"content": 3}).encode(),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_changed_plan_is_noticed(left: Path, edit: Callable[[bytes], bytes]) -> None:
    text = (left / PLAN).read_bytes()
    assert edit(text) != text
    (left / PLAN).write_bytes(edit(text))
    with pytest.raises(JournalError, match=r"plan\.json in the journal of .*\.zarr (is truncated|has been modified)"):
        ooc.resume(left)


def test_a_plan_written_otherwise_is_the_same_plan(left: Path) -> None:
    data = json.loads((left / PLAN).read_bytes())
    (left / PLAN).write_text(json.dumps(data, indent=4, sort_keys=True))
    job = ooc.resume(left)
    assert job.left < 1
    job.run()
    check_finished(left)


@pytest.mark.parametrize("name", ["one", "1.", ".1", "01", "1..2", "-1", "1.2.tmp", "١", " 1", "--"])
def test_an_entry_with_a_silly_name_is_noticed(left: Path, name: str) -> None:
    (left / FOLDER / "done" / name).write_text(json.loads((left / PLAN).read_bytes())["digest"])
    with pytest.raises(JournalError, match="is not the name of a part"):
        ooc.resume(left)


def test_what_was_being_written_is_no_entry(left: Path) -> None:
    before = ooc.resume(left).left
    (left / FOLDER / "done" / f"0.0.0.{'0' * 32}.partial").write_bytes(b"")
    job = ooc.resume(left)
    assert job.left == before
    job.run()
    check_finished(left)


def test_what_a_removal_cut_short_has_left_is_no_part_of_another_run(field: Path, left: Path) -> None:
    (left / PLAN).unlink()
    fail(job_of(field, left, overwrite=True), after=1)
    ooc.resume(left).run()
    check_finished(left)


# the device

UNREADY = {"full": (errno.ENOSPC, DiskFullError), "broken": (errno.EIO, StoreFailure)}


@pytest.mark.parametrize(("number", "kind"), UNREADY.values(), ids=UNREADY)
def test_what_the_device_says_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    mine = begun(folder)
    monkeypatch.setattr(fs, "write_all", refuse)
    for verb in (lambda: mine.record((1,)), lambda: begun(folder.parent / "b.zarr")):
        with pytest.raises(kind, match=r"the journal of .*\.zarr"):
            verb()
    monkeypatch.undo()
    assert not mine.has((1,))
    assert not os.listdir(folder / FOLDER / "done")


def test_without_a_journal_there_is_nothing_to_resume(left: Path) -> None:
    (left / PLAN).unlink()
    with pytest.raises(NotFoundError, match="has no journal: nothing to resume"):
        ooc.resume(left)


def test_a_journal_that_cannot_be_read_is_told(left: Path) -> None:
    (left / PLAN).unlink()
    (left / PLAN).mkdir()
    with pytest.raises(StoreFailure, match=r"cannot read the journal of .*\.zarr"):
        ooc.resume(left)


@pytest.mark.parametrize("call", ["hard links", "locks"])
def test_a_file_system_without(field: Path, target: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM if call == "hard links" else errno.ENOLCK, f"no {call}")

    monkeypatch.setattr(*((os, "link") if call == "hard links" else (fcntl, "flock")), refuse)
    fail(job_of(field, target), after=6)
    with pytest.raises(TargetError, match=r"already exists|is unfinished"):
        job_of(field, target)
    job = ooc.resume(target)
    assert job.left < 1
    job.run()
    check_finished(target)


# the array beside it


def test_the_array_is_as_without_a_journal(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "g.zarr", mode="w")
    array = group.create_array("a", data=DATA, chunks=(8, 80))
    members, chunks = list(group.members()), array.nchunks_initialized
    mine = begun(tmp_path / "g.zarr" / "a")
    mine.record((1,))
    assert mine.claim()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "g.zarr" / "a")[...], DATA)
    again = zarr.open_group(tmp_path / "g.zarr")
    assert list(again.members(max_depth=None)) == members
    assert again["a"].nchunks_initialized == chunks


def test_an_array_in_a_store_has_nothing_of_a_run_when_it_is_finished(field: Path) -> None:
    store = MemoryStore()
    fail(job_of(field, store, memory=options_of("independent")["memory"] + STORE_MORE), after=12)
    assert {key.split("/")[0] for key in store._store_dict} == {FOLDER, "c"}
    job = ooc.resume(store, source=field)
    assert job.left < 1, "what is recorded is not done again"
    job.run()
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], FIELD)
    assert {key.split("/")[0] for key in store._store_dict} == {"c", "zarr.json"}


def test_what_a_store_is_asked_for() -> None:
    store = LoggingStore(MemoryStore(), log_level="CRITICAL")
    mine = begun(store)
    store.counter.clear()
    mine.record((1,))
    assert dict(store.counter) == {"set_if_not_exists": 1}
    assert mine.has((1,))
    assert dict(store.counter) == {"set_if_not_exists": 1}


# one run at a time


@contextmanager
def process(runs: Server, folder: Path, verb: str) -> Iterator[tuple[Child, Any]]:
    """Another process that claims or joins, and what it says."""
    child = runs.start("tests.storage.holders:journal", folder, verb, wait=True)
    child.until_there()
    try:
        yield child, child.told
    finally:
        child.kill()


def test_a_run_lives_as_long_as_any_of_its_processes(folder: Path, runs: Server) -> None:
    first = begun(folder)
    assert first.claim()
    with process(runs, folder, "join") as (worker, said):
        assert said is True
        first.release()
        with pytest.raises(TargetError):
            Journal(folder).claim()
        worker.kill()
        assert Journal(folder).claim()


def test_who_waits_gets_it_when_the_other_ends(folder: Path) -> None:
    first, second = begun(folder), Journal(folder)
    assert first.claim()
    ends = threading.Timer(0.3, first.release)
    ends.start()
    assert second.claim(wait=20)
    assert ends.finished.is_set(), "not before"
    with pytest.raises(TargetError):
        first.claim(wait=0.1)


def test_of_many_claims_at_once_one_is_granted(folder: Path) -> None:
    begun(folder)
    journals = [Journal(folder) for _ in range(20)]
    granted = []

    def claim(each: Journal) -> None:
        try:
            granted.append(each.claim())
        except TargetError:
            granted.append(False)

    threads = [threading.Thread(target=claim, args=(each,)) for each in journals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(granted) == [False] * 19 + [True]


def test_whoever_joined_or_claimed_claims_again(folder: Path) -> None:
    first, worker = begun(folder), Journal(folder)
    assert [first.claim(), first.claim(), first.join(), worker.join(), worker.claim()] == [True] * 5
    worker.release()
    worker.release()
    with pytest.raises(TargetError):
        worker.claim()


def test_a_journal_that_is_collected_lets_go(folder: Path) -> None:
    first = begun(folder)
    assert first.claim()
    del first
    gc.collect()
    assert Journal(folder).claim()


def test_a_claim_with_which_nothing_is_begun_leaves_nothing(folder: Path) -> None:
    make(folder)
    before = sorted(folder.rglob("*"))
    first = Journal(folder)
    assert first.claim()
    with pytest.raises(TargetError):
        Journal(folder).claim()
    Journal(folder).release()
    assert (folder / FOLDER).exists()
    first.release()
    assert sorted(folder.rglob("*")) == before


def test_a_lock_that_is_removed_with_its_array_is_nobody_s(folder: Path) -> None:
    make(folder)
    old, new = Journal(folder), Journal(folder)
    assert old.claim()
    make(folder, overwrite=True)
    assert new.claim()
    with pytest.raises(TargetError):
        old.claim()
    with pytest.raises(TargetError):
        Journal(folder).claim()


def test_a_lock_that_is_removed_while_another_gets_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(folder)
    flock = fcntl.flock

    def remove_first(file: int, how: int) -> None:
        monkeypatch.undo()
        shutil.rmtree(folder)
        flock(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", remove_first)
    first = Journal(folder)
    assert first.claim()
    with pytest.raises(TargetError):
        Journal(folder).claim()


def test_a_claim_comes_before_the_array(folder: Path) -> None:
    first = Journal(folder)
    assert first.claim()
    make(folder)
    first.begin("c0ffee", {})
    with pytest.raises(TargetError):
        Journal(folder).claim()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailure, match="cannot write the journal of"):
        Journal(tmp_path / "file").claim()


def test_no_file_stays_open(field: Path, target: Path, runs: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    set_constants(monkeypatch, claim_seconds=0.1)
    alive = runs.start("rechunk", field, target, at="entry", after=2, wait=True, **options_of("independent"))
    alive.until_there()
    counts = []
    for _ in range(6):
        with pytest.raises(TargetError, match="another run is writing"):
            ooc.resume(target).run()
        gc.collect()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[0]
    assert alive.go_on() == 0, alive.err


def test_names_are_as_the_drawing_says(left: Path) -> None:
    names = {str(path.relative_to(left / FOLDER)) for path in (left / FOLDER).rglob("*") if path.is_file()}
    assert {name for name in names if not name.startswith("done/")} == {"draft.zarr.json", "lock", "plan.json"}
    assert any(re.fullmatch(r"done/\d+\.\d+\.\d+", name) for name in names)


def test_a_location_in_a_local_store_is_its_folder(tmp_path: Path) -> None:
    """A target that is given as one is locked, and its files are synced, as if its path were given."""
    mine, other = Journal(StorePath(LocalStore(tmp_path), "a.zarr")), Journal(tmp_path / "a.zarr")
    assert mine.claim()
    with pytest.raises(TargetError, match="another run is writing to"):
        other.claim()
    mine.release()
    assert not list((tmp_path / "a.zarr").iterdir())
