"""Striped files that others own, change or left half made, against what a plain file would give."""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import oocarrays as ooc
from oocarrays.errors import DescriptorError, InputError, OocError, StoreFailure, TargetError
from oocarrays.testing import SlowDisk, Station
from tests.seams import FolderDisk, FolderPart


def make(disks: list[str], data: bytes = bytes(range(90)), block: int = 10) -> None:
    with ooc.disks.open_striped("x", "w", disks=disks, block=block) as file:
        file.write(data)


def read(disks: list[str]) -> bytes:
    with ooc.disks.open_striped("x", disks=disks) as file:
        return bytes(file.read())


# --------------------------------------------------------------------------------------- what is not ours


@pytest.mark.parametrize("mode", ["w", "w+", "a", "x"])
def test_a_plain_file_on_a_disk_that_joins_is_not_touched(disks: list[str], mode: str) -> None:
    make(disks[:2])
    foreign = Path(disks[2], "x")
    foreign.write_bytes(b"thesis")
    with pytest.raises(OocError):
        ooc.disks.open_striped("x", mode, disks=disks)
    assert foreign.read_bytes() == b"thesis"
    assert read(disks[:2]) == bytes(range(90))


@pytest.mark.parametrize("mode", ["w", "w+"])
def test_what_is_no_file_on_a_disk_that_joins_changes_no_other_disk(disks: list[str], mode: str) -> None:
    make(disks[:2])
    os.mkfifo(Path(disks[2], "x"))
    with pytest.raises(OocError):
        ooc.disks.open_striped("x", mode, disks=disks)
    assert os.listdir(disks[2]) == ["x"]
    assert read(disks[:2]) == bytes(range(90))


def test_a_plain_file_is_named(disks: list[str]) -> None:
    make(disks[:2])
    Path(disks[2], "x").write_bytes(b"thesis")
    with pytest.raises(TargetError, match=f"x on {disks[2]} is no part of a striped file: it is not overwritten"):
        ooc.disks.open_striped("x", "w", disks=disks)


@pytest.mark.parametrize("block", [10, 7])
def test_more_disks_take_the_place_of_fewer(disks: list[str], block: int) -> None:
    make(disks[:2])
    make(disks, b"new" * 20, block)
    assert read(disks) == b"new" * 20


# --------------------------------------------------------------------------------------- appending


class Held(Station):
    """A station that serves its first request last."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def reserve(self, seconds: float, after: float | None = None) -> float:
        assert self.may.wait(60), "the others were not served"
        return super().reserve(seconds, after)


def test_what_is_appended_without_waiting_lies_in_the_order_of_the_calls(disks: list[str]) -> None:
    words = [bytes([65 + n]) * (n + 3) for n in range(12)]
    slow, held = [SlowDisk(disk) for disk in disks], Held()
    slow[0].station = held
    with ooc.disks.open_striped("x", "a", disks=slow, block=4) as file:
        started = [file.writestart(word) for word in words]
        held.may.set()
        assert [file.writeend(each) for each in started] == list(map(len, words))
        assert file.tell() == sum(map(len, words))
        file.write(b"end")
    assert read(disks) == b"".join(words) + b"end"


def test_what_is_appended_begins_where_another_handle_has_cut_the_file(disks: list[str]) -> None:
    make(disks)
    with ooc.disks.open_striped("x", "a", disks=disks) as file, ooc.disks.open_striped("x", "r+", disks=disks) as other:
        file.write(b"12345")
        other.truncate(50)
        file.write(b"67890")
    assert read(disks) == bytes(range(50)) + b"67890"


def test_without_a_number_the_most_recent_request_is_ended(disks: list[str]) -> None:
    make(disks)
    with ooc.disks.open_striped("x", "r+", disks=disks) as file:
        first, _ = file.readstart(10, 0), file.readstart(10, 20)
        assert file.readend() == bytes(range(20, 30))
        assert file.readend(first) == bytes(range(10))
        with pytest.raises(InputError, match="no read is under way"):
            file.readend()
        file.writestart(b"later", 3)
        assert file.writeend() == 5
        with pytest.raises(InputError, match="no write is under way"):
            file.writeend()


@pytest.mark.parametrize("wrong", [1.5, "1", None])
def test_a_position_is_a_whole_number(disks: list[str], wrong: Any) -> None:
    make(disks)
    with ooc.disks.open_striped("x", disks=disks) as file:
        with pytest.raises(InputError, match="offset"):
            file.seek(wrong)
        with pytest.raises(InputError, match="offset"):
            file.pread(5, wrong)
        assert file.tell() == 0


# --------------------------------------------------------------------------------------- others write meanwhile


@pytest.mark.parametrize("opened_first", [True, False])
def test_beyond_an_end_that_another_handle_has_set_nothing_is_read(disks: list[str], opened_first: bool) -> None:
    make(disks)
    with ooc.disks.open_striped("x", "r+", disks=disks) as other:
        if not opened_first:
            other.pwrite(b"!", 0)
        with ooc.disks.open_striped("x", disks=disks) as file:
            assert file.pread(90, 0)[1:] == bytes(range(1, 90))
            other.truncate(33)
            assert file.pread(80, 1) == bytes(range(1, 33))
            assert file.pread(20, 33) == b""
            assert file.pread(20, 40) == b""
            assert file.readend(file.readstart(60, 20)) == bytes(range(20, 33))
            buffer = bytearray(40)
            assert file.preadinto(buffer, 10) == 23
            file.seek(30)
            assert file.read(50) == bytes(range(30, 33))
            assert file.read(50) == b""


def test_a_hole_that_another_handle_leaves_is_zeros_and_no_fault_of_a_disk(disks: list[str]) -> None:
    make(disks)
    with ooc.disks.open_striped("x", disks=disks) as file:
        assert file.pread(90, 0) == bytes(range(90))
        with ooc.disks.open_striped("x", "r+", disks=disks) as other:
            other.pwrite(b"end", 200)
            assert file.pread(300, 80) == bytes(range(80, 90)) + bytes(110) + b"end"
        assert file.pread(300, 80) == bytes(range(80, 90)) + bytes(110) + b"end"


def test_a_part_that_lost_bytes_is_still_a_fault(disks: list[str]) -> None:
    make(disks)
    with ooc.disks.open_striped("x", disks=disks) as file:
        os.truncate(f"{disks[1]}/x", 5)
        with pytest.raises(StoreFailure, match=f"disk {disks[1]} has fewer bytes"):
            file.pread(90, 0)


# --------------------------------------------------------------------------------------- old copies


def copied(disk: str) -> dict[str, bytes]:
    return {name: Path(disk, name).read_bytes() for name in ("x", "x.striped")}


def put_back(disk: str, copy: dict[str, bytes]) -> None:
    for name, data in copy.items():
        Path(disk, name).write_bytes(data)


@pytest.mark.parametrize("stale", range(3))
def test_a_closed_copy_is_old_after_a_crash_too(disks: list[str], stale: int, monkeypatch: pytest.MonkeyPatch) -> None:
    make(disks)
    copy = copied(disks[stale])
    file = ooc.disks.open_striped("x", "r+", disks=disks)
    file.pwrite(bytes(90), 0)
    monkeypatch.setattr(file._parts, "end_writing", lambda: None)  # as of a process that died
    file.close()
    put_back(disks[stale], copy)
    with pytest.raises(DescriptorError, match=f"{disks[stale]} has generation 1 .* others have 2: it is an old copy"):
        read(disks)


class Dies(Exception):
    """The end of a process."""


class DyingDisk(FolderDisk):
    """A folder of a process that dies before its n-th change of any disk."""

    left = 0

    def _change(self) -> None:
        if DyingDisk.left <= 0:
            raise Dies
        DyingDisk.left -= 1

    def put_document(self, name: str, data: bytes) -> None:
        self._change()
        super().put_document(name, data)

    def remove(self, name: str) -> None:
        self._change()
        super().remove(name)

    def open_part(self, name: str, flags: int) -> FolderPart:
        if flags & os.O_TRUNC or (flags & os.O_CREAT and not os.path.exists(self._path(name))):
            self._change()
        part, change = super().open_part(name, flags), self._change

        class Part(FolderPart):
            def __init__(self) -> None:
                vars(self).update(vars(part))

            def truncate(self, nbytes: int) -> None:
                change()
                super().truncate(nbytes)

        return Part()


def died(disks: list[str], changes: int, mode: str, **options: Any) -> bool:
    """Whether a process died that opened the file and could make so many changes."""
    DyingDisk.left = changes
    try:
        ooc.disks.open_striped("x", mode, disks=[DyingDisk(disk) for disk in disks], **options).close()
    except Dies:
        return True
    return False


def read_or_error(disks: list[str]) -> bytes | None:
    """Read the file; None where it is refused in a line."""
    with suppress(OocError):
        return read(disks)
    return None


@pytest.mark.parametrize("before", ["nothing", "the same disks", "fewer disks"])
@pytest.mark.parametrize("mode", ["w", "a"])
def test_killed_at_any_change_a_file_is_made_by_the_same_call_again(
    disks: list[str], tmp_path: Path, before: str, mode: str
) -> None:
    changes, ends = 0, False
    while not ends:
        for disk in disks:
            shutil.rmtree(disk)
            os.mkdir(disk)
        if before != "nothing":
            make(disks if before == "the same disks" else disks[:2])
        ends = not died(disks, changes, "w", block=7)
        if not ends:
            assert read_or_error(disks) in (b"", bytes(range(90)), None)
        untouched = before == "fewer disks" and changes == 0  # "a" wants all disks of the file, and no other
        if mode == "w" or not (ends or untouched):
            with ooc.disks.open_striped("x", mode, disks=disks) as file:
                file.write(b"new" * 30)
            assert read(disks)[-90:] == b"new" * 30
        changes += 1
    assert changes > 6


def test_a_disk_of_another_file_is_not_taken_for_one_that_is_being_made(disks: list[str]) -> None:
    make(disks)
    assert died(disks, 1, "w", block=7)
    other = Path(disks[2], "y")
    with ooc.disks.open_striped("y", "w", disks=[disks[2]], block=10) as file:
        file.write(b"other")
    (Path(disks[2]) / "y.striped").rename(Path(disks[2]) / "x.striped")
    other.rename(Path(disks[2]) / "x")
    with pytest.raises(DescriptorError, match=f"{disks[2]} has a part of another striped file"):
        ooc.disks.open_striped("x", "w", disks=disks)
    assert Path(disks[2], "x").read_bytes() == b"other"


def test_descriptors_of_before_are_read(disks: list[str]) -> None:
    """Generations that 0.5.0 left, of a writer that died between two disks."""
    make(disks)
    for disk in disks[:2]:
        path = Path(disk, "x.striped")
        said = json.loads(path.read_text())
        path.write_text(json.dumps(said | {"generation": 2, "closed": False}))
    assert read(disks) == bytes(range(90))
