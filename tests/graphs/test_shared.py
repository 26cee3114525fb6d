"""Rooms that other processes look at: used again when nobody looks any more, and gone with whoever is killed."""

from __future__ import annotations

import gc
import os
import resource
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from oocarrays.graphs.cluster import shared
from oocarrays.graphs.cluster.shared import RoomAddress, Rooms, Segment
from tests.dying import Child, Server

MIB = 2**20


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "_on", True)


class Looking:
    """Processes that look at rooms until they are killed."""

    def __init__(self, runs: Server) -> None:
        self._runs = runs
        self._begun: list[Child] = []

    def begin(self, *numbers: object) -> int:
        """What one more sees."""
        self._begun.append(self._runs.start("tests.graphs.looker:look", *numbers, wait=True))
        self._begun[-1].until_there()
        return int(self._begun[-1].told)

    def end(self) -> None:
        """Kill them."""
        while self._begun:
            assert self._begun.pop().kill() == -signal.SIGKILL


@pytest.fixture
def looking(runs: Server) -> Iterator[Looking]:
    """Processes that look at a room until the test has ended, or they are killed."""
    begun = Looking(runs)
    yield begun
    begun.end()


def look_at(room: np.ndarray, looking: Looking) -> int:
    """What another process sees in a room, and goes on to see."""
    found = shared.found(room)
    assert found is not None, "this system has files without names"
    (pid, file, owner, use), start = found
    return looking.begin(pid, file, owner.hex(), use.hex(), start, start + room.nbytes)


def test_another_process_sees_what_is_packed_and_changes_nothing(looking: Looking) -> None:
    room = Rooms().take(MIB)
    room[:] = 1
    assert look_at(room[5000:9000], looking) == 4000
    assert room.sum() == MIB


def test_a_room_is_used_again_only_when_nobody_looks_at_it(looking: Looking) -> None:
    rooms = Rooms()
    held = [rooms.take(MIB), rooms.take(MIB)]
    held[0][:] = 1
    one, other = map(file_of, held)
    assert look_at(held[0], looking) == MIB
    old = shared.found(held[0])
    held.clear()
    assert file_of(rooms.take(MIB)) == other
    looking.end()
    held = [rooms.take(MIB), rooms.take(MIB)]
    assert {*map(file_of, held)} == {one, other}
    assert old not in map(shared.found, held)


def test_a_room_that_others_look_at_does_not_count(looking: Looking) -> None:
    rooms = Rooms()
    room = rooms.take(MIB)
    room[:] = 1
    place = file_of(room)
    assert look_at(room, looking) == MIB
    del room
    assert file_of(rooms.take(MIB)) != place
    assert len(rooms._all) == 1


def test_what_is_passed_on_is_where_it_was_packed_until_the_last_has_done(
    looking: Looking,
) -> None:
    rooms = Rooms()
    room = rooms.take(2 * MIB)
    room[:MIB], room[MIB:] = 1, 2
    place, found = file_of(room), shared.found(room)
    assert found is not None, "this system has files without names"
    came = shared.look(found[0], found[1], found[1] + 2 * MIB)
    goes_on = rooms.forwarded(came[MIB:])
    assert not goes_on.flags.writeable, "what was written here would not be seen elsewhere"
    del room, came
    assert file_of(rooms.take(2 * MIB)) != place
    assert look_at(goes_on, looking) == 2 * MIB
    del goes_on
    assert file_of(rooms.take(2 * MIB)) != place, "another process looks at it"
    looking.end()
    gc.collect()


def test_what_goes_on_is_copied_where_no_more_files_can_be_open(monkeypatch: pytest.MonkeyPatch) -> None:
    rooms = Rooms()
    room = rooms.take(MIB)
    room[:] = 3
    found = shared.found(room)
    assert found is not None, "this system has files without names"
    came = shared.look(found[0], found[1], found[1] + MIB)
    monkeypatch.setattr(shared, "most_files", lambda: 0)
    goes_on = rooms.forwarded(came)
    assert not np.shares_memory(goes_on, came)
    assert goes_on.sum() == 3 * MIB


def file_of(room: np.ndarray) -> int:
    return os.fstat(shared._owner_of(room).file).st_ino


def test_what_is_used_for_something_else_is_gone() -> None:
    rooms = Rooms()
    room = rooms.take(MIB)
    found = shared.found(room)
    assert found is not None, "this system has files without names"
    del room
    again = rooms.take(MIB)
    with pytest.raises(ConnectionError, match="been reused"):
        shared.look(found[0], found[1], found[1] + 1)
    del again


def test_rooms_hold_no_more_than_was_in_use_at_one_time() -> None:
    rooms = Rooms()
    for size in (4, 1, 5, 2, 6):
        held = [rooms.take(size * MIB), rooms.take(size * MIB)]
        assert sum(shared._size(memory) for memory, _ in rooms._all) <= rooms._most <= 12 * MIB
        del held


def test_files_are_private_have_no_name_and_go_with_their_rooms() -> None:
    before = len(os.listdir("/proc/self/fd"))
    rooms = Rooms()
    room = rooms.take(MIB)
    segment = shared._owner_of(room)
    status = os.fstat(segment.file)
    assert (status.st_mode & 0o777, status.st_nlink) == (0o600, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.file, 0)  # who looks at it is never ended by a signal
    del rooms, room, segment
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("call", ["memfd_create", "posix_fallocate"])
def test_where_there_is_no_more_shared_memory_plain_memory_is_used(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, call, refuse)
    room = Rooms().take(MIB)
    assert shared.found(room) is None
    room[:] = 1
    assert len(os.listdir("/proc/self/fd")) == before


def test_few_files_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = len(shared._segments) + 2
    monkeypatch.setattr(shared, "most_files", lambda: limit)
    rooms, most = Rooms(), len(os.listdir("/proc/self/fd")) + 4
    held = [rooms.take(MIB) for _ in range(8)]
    assert len(os.listdir("/proc/self/fd")) <= most
    monkeypatch.setattr(shared, "most_files", lambda: 0)
    seen = [shared.look(where, start, start + MIB) for where, start in filter(None, map(shared.found, held))]
    assert seen, "some are shared"
    assert not any(isinstance(shared._owner_of(each), shared.Look) for each in seen)
    assert len(os.listdir("/proc/self/fd")) <= most


def test_a_limit_on_files_leaves_room_for_others() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 3 * shared.most_files() < soft


def test_another_file_is_never_opened() -> None:
    with open(os.devnull) as other:
        where = RoomAddress(os.getpid(), other.fileno(), b"", b"")
        with pytest.raises(ConnectionError, match="a different file"):
            shared.look(where, 0, 1)


def test_a_segment_is_of_the_size_that_is_asked_for() -> None:
    assert shared._size(Segment.of(12345)) == 12345
