"""A journal beside its target: whole entries, no other plan's, and no second run beside a living one."""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore, LoggingStore, MemoryStore

from oocarrays.errors import DiskFullError, JournalError, NotFoundError, StoreFailure, TargetError
from oocarrays.storage.journal import entries, journal, lock
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import FOLDER
from oocarrays.storage.local import durable
from tests.dying import Child, Server
from tests.small import DATA, make

pytestmark = [pytest.mark.long, pytest.mark.sampled(1)]

CONTENT = {"plan": {"chunks": (4, 5), "seconds": 0.5, "none": None}, "source": "a.zarr"}
AS_READ = json.loads(json.dumps(CONTENT))


class Wrapped(zarr.storage.WrapperStore):
    """A store that is not a local folder, though it writes to one."""


@pytest.fixture(params=["path", "text", "local store", "memory", "wrapped", "fsspec"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return {
        "path": lambda: tmp_path / "a.zarr",
        "text": lambda: str(tmp_path / "a.zarr"),
        "local store": lambda: LocalStore(tmp_path / "a.zarr"),
        "memory": MemoryStore,
        "wrapped": lambda: Wrapped(LocalStore(tmp_path / "a.zarr")),
        "fsspec": lambda: f"memory://{tmp_path.name}/a.zarr",
    }[request.param]()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a.zarr"


def begun(store: Any, run: str = "c0ffee", content: Any = CONTENT) -> Journal:
    made = Journal(store)
    made.begin(run, content)
    return made


def test_what_is_recorded_is_read_by_another(store: Any) -> None:
    mine, other = begun(store), Journal(store)
    parts = {(), (0,), (0, 12, 3), (7, 0), (10**12,)}
    assert mine.parts() == set()
    for part in parts:
        assert not other.has(part)
        mine.record(part)
        assert mine.has(part)
        assert other.has(part)
    assert other.read() == Journal(store).read() == ("c0ffee", AS_READ)
    assert mine.parts() == other.parts() == parts


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


def test_what_is_forgotten_is_not_there(store: Any) -> None:
    mine = begun(store)
    for i in range(5):
        mine.record((i,))
    mine.forget((i,) for i in (1, 3, 9))
    assert mine.parts() == {(0,), (2,), (4,)}
    assert not mine.has((1,))
    mine.record((1,))
    assert Journal(store).has((1,))


def test_begin_is_exclusive(store: Any) -> None:
    begun(store).record((1,))
    for run in ("c0ffee", "beef"):
        with pytest.raises(TargetError, match=r"a\.zarr has a journal already|^memory:.* has a journal already"):
            Journal(store).begin(run, {})
    assert Journal(store).read() == ("c0ffee", AS_READ)
    assert Journal(store).parts() == {(1,)}


def test_of_two_that_begin_at_once_one_does(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Journal(store)
    for kind in (entries.LocalEntries, entries.StoreEntries):

        def too_late(self: Any, key: str, data: bytes, create: Any = kind.create, **how: Any) -> None:
            monkeypatch.undo()
            other.begin("beef", {})
            create(self, key, data, **how)

        monkeypatch.setattr(kind, "create", too_late)
    with pytest.raises(TargetError, match="has a journal already"):
        begun(store)
    assert other.read() == Journal(store).read() == ("beef", {})


def test_begin_clears_what_a_removal_cut_short_has_left(store: Any) -> None:
    first = begun(store)
    first.record((1,))
    first._entries.delete(["plan.json"])
    assert begun(store, "beef").parts() == set()


def test_what_json_does_not_hold_is_not_begun(store: Any) -> None:
    with pytest.raises(TypeError):
        begun(store, content={"a": object()})
    with pytest.raises(NotFoundError):
        Journal(store).read()


def test_removed_it_is_gone(store: Any) -> None:
    mine = begun(store)
    mine.record((1,))
    mine.remove()
    mine.remove()
    Journal(store).remove()
    assert mine._entries.entries("done") == {}
    assert mine._entries.get("plan.json") is None
    begun(store, "beef")
    assert not mine.has((1,))


def test_nothing_is_made_before_it_is_begun(folder: Path) -> None:
    for each in (Journal(folder), pickle.loads(pickle.dumps(Journal(str(folder))))):
        each.remove()
        each.release()
        assert not each.join()
    assert not folder.exists()


VERBS: dict[str, Callable[[Journal], Any]] = {
    "read": lambda j: j.read(),
    "record": lambda j: j.record((1,)),
    "has": lambda j: j.has((1,)),
    "parts": lambda j: j.parts(),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_without_a_journal_there_is_nothing_to_resume(store: Any, verb: Callable[[Journal], Any]) -> None:
    with pytest.raises(NotFoundError, match="has no journal: nothing to resume"):
        verb(Journal(store))


def test_a_straggler_does_not_bring_a_removed_journal_back(folder: Path) -> None:
    begun(folder)
    straggler = Journal(folder)
    straggler.record((1,))
    Journal(folder).remove()
    with pytest.raises(NotFoundError, match="nothing to resume"):
        straggler.record((2,))
    assert not straggler.join()
    assert not (folder / FOLDER).exists()


def test_a_copy_without_empty_folders_can_be_recorded_in(folder: Path) -> None:
    begun(folder)
    (folder / FOLDER / "done").rmdir()
    assert Journal(folder).parts() == set()
    Journal(folder).record((1,))
    assert Journal(folder).parts() == {(1,)}


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
    "cut short": lambda text: text[:-5],
    "empty": lambda _: b"",
    "no JSON": lambda _: b"\xff\xfe",
    "another thing": lambda _: b"[1, 2]",
    "a text": lambda _: b'"plan"',
    "no digest": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "digest"}).encode(),
    "another run": lambda text: text.replace(b"c0ffee", b"c0ffef"),
    "another plan": lambda text: text.replace(b"[4, 5]", b"[4, 6]"),
    "another digest": lambda text: json.dumps(json.loads(text) | {"digest": "0" * 64}).encode(),
    "a content that is none": lambda text: json.dumps(json.loads(text) | {"content": 3}).encode(),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_a_changed_plan_is_noticed(
    folder: Path, edit: Callable[[bytes], bytes], verb: Callable[[Journal], Any]
) -> None:
    begun(folder).record((1,))
    text = (folder / PLAN).read_bytes()
    assert edit(text) != text
    (folder / PLAN).write_bytes(edit(text))
    with pytest.raises(JournalError, match=r"plan\.json in the journal of .*a\.zarr (is cut short|has been changed)"):
        verb(Journal(folder))


def test_a_plan_written_otherwise_is_the_same_plan(folder: Path) -> None:
    begun(folder).record((1,))
    data = json.loads((folder / PLAN).read_bytes())
    (folder / PLAN).write_text(json.dumps(data, indent=4, sort_keys=True))
    assert Journal(folder).read() == ("c0ffee", AS_READ)
    assert Journal(folder).parts() == {(1,)}


def test_an_entry_of_another_plan_is_noticed(store: Any) -> None:
    begun(store).record((1,))
    mine = Journal(store)
    mine._entries.delete(["done/1"])
    mine._entries.create("done/1", b"0" * 64)
    for verb in (lambda: mine.has((1,)), mine.parts):
        with pytest.raises(JournalError, match=r"1 in the journal of .* was finished by a run of another plan"):
            verb()


@pytest.mark.parametrize("name", ["one", "1.", ".1", "01", "1..2", "-1", "1.2.tmp", "١", " 1", "--"])
def test_an_entry_with_a_silly_name_is_noticed(store: Any, name: str) -> None:
    mine = begun(store)
    mine._entries.create(f"done/{name}", mine._known_digest().encode())
    with pytest.raises(JournalError, match="is not the name of a part"):
        mine.parts()


def test_what_was_being_written_is_no_entry(folder: Path) -> None:
    mine = begun(folder)
    (folder / FOLDER / "done" / f"3.{'0' * 32}.partial").write_bytes(b"")
    assert mine.parts() == set()


# the device

UNREADY = {"full": (errno.ENOSPC, DiskFullError), "broken": (errno.EIO, StoreFailure)}


@pytest.mark.parametrize(("number", "kind"), UNREADY.values(), ids=UNREADY)
def test_what_the_device_says_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    mine = begun(folder)
    monkeypatch.setattr(durable, "write_all", refuse)
    for verb in (lambda: mine.record((1,)), lambda: begun(folder.parent / "b.zarr")):
        with pytest.raises(kind, match=r"the journal of .*\.zarr"):
            verb()
    monkeypatch.undo()
    assert not mine.has((1,))
    assert not os.listdir(folder / FOLDER / "done")


def test_a_journal_that_cannot_be_read_is_told(folder: Path) -> None:
    begun(folder)
    (folder / PLAN).unlink()
    (folder / PLAN).mkdir()
    with pytest.raises(StoreFailure, match=r"cannot read the journal of .*a\.zarr"):
        Journal(folder).read()


def test_a_file_system_without_hard_links(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr(os, "link", refuse)
    mine = begun(folder)
    mine.record((1,))
    mine.record((1,))
    assert Journal(folder).parts() == {(1,)}
    with pytest.raises(TargetError):
        begun(folder)


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


def test_the_array_in_a_store_is_as_without_a_journal() -> None:
    store = MemoryStore()
    make(store)
    keys = set(store._store_dict)
    begun(store).record((1,))
    np.testing.assert_array_equal(zarr.open_array(store)[...], DATA)
    assert {key.split("/")[0] for key in set(store._store_dict) - keys} == {FOLDER}
    Journal(store).remove()
    assert set(store._store_dict) == keys


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


def test_a_living_run_keeps_others_away_and_a_killed_one_does_not(folder: Path, runs: Server) -> None:
    begun(folder)
    with process(runs, folder, "claim") as (holder, said):
        assert said is True
        with pytest.raises(TargetError, match=r"another run is at work on .*a\.zarr"):
            Journal(folder).claim()
        with process(runs, folder, "claim") as (_, refused):
            assert refused == f"TargetError another run is at work on {folder}"
        holder.kill()
        mine = Journal(folder)
        assert mine.claim()
        assert mine.read() == ("c0ffee", AS_READ)


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


def test_a_file_system_without_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(lock.fcntl, "flock", refuse)
    first = begun(folder)
    assert not first.claim()
    assert not first.join()
    assert not Journal(folder).claim()
    first.release()
    first.record((1,))
    assert first.parts() == {(1,)}


def test_a_store_has_no_locks() -> None:
    store = MemoryStore()
    first = begun(store)
    assert [first.claim(), first.join(), Journal(store).claim()] == [False] * 3
    first.release()
    assert first.read()[0] == "c0ffee"


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreFailure, match="cannot write the journal of"):
        Journal(tmp_path / "file").claim()


def test_no_file_stays_open(folder: Path) -> None:
    begun(folder)
    before = len(os.listdir("/proc/self/fd"))
    first, second = Journal(folder), Journal(folder)
    for _ in range(5):
        assert first.claim()
        with pytest.raises(TargetError):
            second.claim()
        first.record((1,))
        first.release()
    assert len(os.listdir("/proc/self/fd")) == before


def test_names_are_as_the_drawing_says(folder: Path) -> None:
    mine = begun(folder)
    assert mine.claim()
    mine.record((0, 3, 1))
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        ".oocarrays/done/0.3.1",
        ".oocarrays/lock",
        ".oocarrays/plan.json",
    ]
    assert all(name in (journal.__doc__ or "") for name in ("plan.json", "done/0.3.1", "lock"))
