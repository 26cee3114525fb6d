"""Striped files against bytearrays, and against disks that fail."""

from __future__ import annotations

import io
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import oocarrays as ooc
from oocarrays.errors import InputError, NotFoundError, OocError, StoreFailure, TargetError
from oocarrays.testing import SlowDisk, Station
from tests.graphs.clusters import until
from tests.profiles import examples
from tests.seams import FolderDisk, FolderPart


class StripedFiles(RuleBasedStateMachine):
    """Any reads, writes, seeks and truncations; opened again with disks in any order; moved to other D and B."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="striped-"))
        self.file: Any = None
        self.bytes = bytearray()
        self.position = 0

    @initialize(disks=st.integers(1, 4), block=st.integers(1, 9), buffers=st.integers(1, 3))
    def make(self, disks: int, block: int, buffers: int) -> None:
        self.disks = [self.root / str(number) for number in range(disks)]
        for disk in self.disks:
            disk.mkdir(exist_ok=True)
        self.file = ooc.disks.open_striped("x", "w+", disks=list(map(str, self.disks)), block=block, buffers=buffers)
        self.file.write(self.bytes)

    @rule(disks=st.integers(1, 4), block=st.integers(1, 9), buffers=st.integers(1, 3))
    def make_anew(self, disks: int, block: int, buffers: int) -> None:
        assert self.file.pread(1000, 0) == self.bytes
        self.file.close()
        for disk in self.disks:
            shutil.rmtree(disk)
        self.make(disks, block, buffers)
        self.file.seek(self.position)

    @rule(order=st.randoms(use_true_random=False), mode=st.sampled_from(["r+", "a+"]))
    def open_again(self, order: Random, mode: str) -> None:
        self.file.close()
        disks = list(map(str, self.disks))
        order.shuffle(disks)
        self.file = ooc.disks.open_striped("x", mode, disks=disks)
        self.position = len(self.bytes) if mode == "a+" else 0

    @rule(data=st.binary(max_size=40))
    def write(self, data: bytes) -> None:
        at = len(self.bytes) if self.file.mode == "a+" else self.position
        assert self.file.write(data) == len(data)
        self._put(data, at)
        self.position = at + len(data)

    @rule(data=st.binary(max_size=40), at=st.integers(0, 80), later=st.booleans())
    def pwrite(self, data: bytes, at: int, later: bool) -> None:
        if later:
            assert self.file.writeend(self.file.writestart(data, at)) == len(data)
        else:
            assert self.file.pwrite(data, at) == len(data)
        self._put(data, at)

    def _put(self, data: bytes, at: int) -> None:
        if data:
            self.bytes += bytes(max(at + len(data) - len(self.bytes), 0))
            self.bytes[at : at + len(data)] = data

    @rule(size=st.integers(-1, 50), later=st.booleans())
    def read(self, size: int, later: bool) -> None:
        expected = bytes(self.bytes[self.position :] if size < 0 else self.bytes[self.position : self.position + size])
        found = self.file.readend(self.file.readstart(size)) if later and size >= 0 else self.file.read(size)
        assert found == expected
        self.position += len(expected)

    @rule(size=st.integers(0, 50), at=st.integers(0, 80))
    def pread(self, size: int, at: int) -> None:
        assert self.file.pread(size, at) == self.bytes[at : at + size]

    @rule(offset=st.integers(-20, 80), whence=st.sampled_from([0, 1, 2]))
    def seek(self, offset: int, whence: int) -> None:
        to = offset + (0, self.position, len(self.bytes))[whence]
        if to < 0:
            with pytest.raises(InputError, match="before the beginning"):
                self.file.seek(offset, whence)
        else:
            assert self.file.seek(offset, whence) == self.file.tell() == to
            self.position = to

    @rule(size=st.integers(0, 80))
    def truncate(self, size: int) -> None:
        assert self.file.truncate(size) == size
        self.bytes[size:] = b""
        self.bytes += bytes(size - len(self.bytes))

    @precondition(lambda self: self.file is not None)
    @invariant()
    def is_as_long(self) -> None:
        with ooc.disks.open_striped("x", disks=list(map(str, self.disks))) as other:
            assert other.seek(0, os.SEEK_END) == len(self.bytes)

    def teardown(self) -> None:
        if self.file is not None:
            assert self.file.pread(1000, 0) == self.bytes
            self.file.close()
        shutil.rmtree(self.root)


TestStripedFiles = StripedFiles.TestCase
TestStripedFiles.settings = examples(40, stateful_step_count=25)


def test_a_hundred_threads_share_one_file(disks: list[str]) -> None:
    data, failed = os.urandom(300_000), []
    with ooc.disks.open_striped("x", "w+", disks=disks, block=777) as file:

        def work(number: int) -> None:
            low = number * 3000
            try:
                file.pwrite(data[low : low + 3000], low)
                assert file.pread(3000, low) == data[low : low + 3000]
            except BaseException as error:  # noqa: BLE001
                failed.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert file.pread(len(data) + 5, 0) == data
    with ooc.disks.open_striped("x", disks=disks[::-1]) as file:
        assert file.read() == data


def test_threads_take_turns_at_the_position(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "w+", disks=disks, block=10) as file:
        words = [f"{number:05}".encode() for number in range(100)]
        threads = [threading.Thread(target=file.write, args=(word,)) for word in words]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        text = file.pread(500, 0)
    assert sorted(text[at : at + 5] for at in range(0, 500, 5)) == words


@pytest.mark.parametrize("buffers", [1, 2, 4])
def test_at_most_so_many_requests_of_a_disk_are_under_way(
    disks: list[str], buffers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from oocarrays import testing

    now = dict.fromkeys(disks, 0)
    most, lock = dict.fromkeys(disks, 0), threading.Lock()
    read = testing.SlowPart.read

    def counted(self: Any, *args: Any) -> int:
        label = self._disk.label
        with lock:
            now[label] += 1
            most[label] = max(most[label], now[label])
        try:
            return read(self, *args)
        finally:
            with lock:
                now[label] -= 1

    monkeypatch.setattr(testing.SlowPart, "read", counted)
    slow_disks = [SlowDisk(disk, seconds=0.01) for disk in disks]
    with ooc.disks.open_striped("x", "w+", disks=slow_disks, block=10, buffers=buffers) as file:
        file.write(bytes(10 * 3 * 12))
        assert file.pread(10 * 3 * 12, 0) == bytes(360)
    assert most == dict.fromkeys(disks, buffers)


class Held(Station):
    """What serves nobody until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = threading.Event()

    def reserve(self, seconds: float, after: float | None = None) -> float:
        assert self.may.wait(60), "others wait for it"
        return super().reserve(seconds, after)


def test_a_slow_disk_holds_up_nobody_else(disks: list[str]) -> None:
    mixed, held = [SlowDisk(disk) for disk in disks], Held()
    mixed[0].station = held
    with ooc.disks.open_striped("x", "w+", disks=mixed, block=10, buffers=1) as file:
        started = file.writestart(bytes(10 * 3 * 4))
        until(lambda: all(disk.station.served == 4 for disk in mixed[1:]))
        assert held.served == 0
        held.may.set()
        file.writeend(started)
    assert held.served == 4


class MeetingPart(FolderPart):
    """A part that is on its device when all others are being put there."""

    meeting = threading.Barrier(3)

    def sync(self) -> None:
        self.meeting.wait(60)
        super().sync()


class MeetingDisk(FolderDisk):
    def open_part(self, name: str, flags: int) -> FolderPart:
        return MeetingPart(self._path(name), flags)


def test_all_disks_put_what_was_written_on_their_devices_at_one_time(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "w+", disks=[MeetingDisk(disk) for disk in disks], block=10) as file:
        file.write(bytes(90))
        file.sync()


# ------------------------------------------------------------------------------------------------- what goes wrong


def test_a_disk_that_fails_is_named_and_nothing_hangs(disks: list[str]) -> None:
    data = os.urandom(900)
    with ooc.disks.open_striped("x", "w", disks=disks, block=10) as file:
        file.write(data)
    failing = [SlowDisk(disks[0]), SlowDisk(disks[1], fails_after=5), SlowDisk(disks[2])]
    with ooc.disks.open_striped("x", disks=failing) as file:
        with pytest.raises(StoreFailure, match=f"cannot read {disks[1]}/x: Input/output error"):
            file.read()
        assert file.tell() == 0
    with ooc.disks.open_striped("x", disks=disks) as file:
        assert file.read() == data


def test_a_full_disk_is_named(disks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    with ooc.disks.open_striped("x", "w+", disks=disks, block=10) as file:
        file.write(b"before")

        def full(handle: int, views: Any, offset: int) -> int:
            if os.readlink(f"/proc/self/fd/{handle}").startswith(disks[2]):
                raise OSError(28, "No space left on device")
            return real(handle, views, offset)

        monkeypatch.setattr(os, "pwritev", full)
        with pytest.raises(ooc.errors.DiskFullError, match=f"no space left on the device for {disks[2]}/x"):
            file.pwrite(bytes(100), 0)
        monkeypatch.undo()
        file.pwrite(b"after!", 0)
    with ooc.disks.open_striped("x", disks=disks) as file:
        assert file.pread(6, 0) == b"after!"


def broken(disks: list[str], how: str) -> list[str]:
    first, second, _third = map(Path, disks)
    if how == "missing":
        return disks[:2]
    if how == "empty":
        (second / "x.striped").unlink()
        (second / "x").unlink()
    if how == "lost its part":
        (second / "x").unlink()
    if how == "truncated":
        os.truncate(second / "x", 3)
    if how == "listed twice":
        return [*disks, f"{disks[0]}/."]
    if how == "another's":
        with ooc.disks.open_striped("y", "w", disks=[disks[1]], block=10) as file:
            file.write(b"other")
        (second / "y.striped").rename(second / "x.striped")
    if how == "copied over":
        shutil.copy(first / "x.striped", second / "x.striped")
    if how == "old":
        before = (second / "x.striped").read_bytes()
        for _ in range(2):
            with ooc.disks.open_striped("x", "r+", disks=disks) as file:
                file.write(b"newer")
        (second / "x.striped").write_bytes(before)
    if how == "damaged":
        (second / "x.striped").write_text("{")
    if how == "one too many":
        (first.parent / "d").mkdir()
        return [*disks, str(first.parent / "d")]
    return disks


WRONG = {
    "missing": "striped file 'x' has 3 disks, and 2 are given: number 2 is missing",
    "empty": "striped file 'x' has 3 disks, and .*/b has no part of it: number 1 is missing",
    "lost its part": ".*/b has lost its part of striped file 'x', number 1",
    "truncated": ".*/b has 3 of the 30 bytes of its part of striped file 'x'",
    "listed twice": "disk .*/a is named twice",
    "another's": ".*/b has a part of another striped file, 'y', and not of striped file 'x'",
    "copied over": ".*/a and .*/b both have number 0 of striped file 'x': give each disk once",
    "old": ".*/b has generation 1 of its part of striped file 'x', and others have 3: it is an old copy",
    "damaged": ".*/b/x.striped is no descriptor of a striped file or store",
    "one too many": "striped file 'x' has 3 disks, and .*/d has no part of it: leave it out",
}


@pytest.mark.parametrize(("how", "said"), WRONG.items(), ids=WRONG)
def test_wrong_disks_are_named_in_one_line(disks: list[str], how: str, said: str) -> None:
    with ooc.disks.open_striped("x", "w", disks=disks, block=10) as file:
        file.write(bytes(90))
    given = broken(disks, how)
    for mode in ("r", "r+", "a"):
        with pytest.raises(InputError, match=f"^{said}$"):
            ooc.disks.open_striped("x", mode, disks=given)
    if how not in ("listed twice",):
        with pytest.raises(OocError):
            ooc.disks.open_striped("x", "x", disks=given)


def test_a_part_that_shrinks_under_a_reader_is_no_hole(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "w", disks=disks, block=10) as file:
        file.write(b"1" * 90)
    with ooc.disks.open_striped("x", disks=disks) as file:
        assert file.read(90) == b"1" * 90
        os.truncate(f"{disks[1]}/x", 5)
        with pytest.raises(StoreFailure, match="has fewer bytes of striped file 'x' than when it was opened"):
            file.pread(90, 0)


def test_holes_are_zeros_and_take_no_room(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "w+", disks=disks, block=2**16) as file:
        file.pwrite(b"end", 2**26)
        assert file.pread(2**16, 2**20) == bytes(2**16)
    assert sum(os.stat(f"{disk}/x").st_blocks for disk in disks) * 512 < 2**20
    with ooc.disks.open_striped("x", disks=disks) as file:
        assert len(data := file.read()) == 2**26 + 3
        assert data[-3:] == b"end"
        assert not any(data[:-3])


def test_modes_are_those_of_open(disks: list[str]) -> None:
    with pytest.raises(NotFoundError, match="no striped file 'x' on"):
        ooc.disks.open_striped("x", disks=disks)
    with ooc.disks.open_striped("x", "x", disks=disks, block=4) as file:
        file.write(b"0123456789")
        with pytest.raises(io.UnsupportedOperation):
            file.read(1)
    with pytest.raises(ValueError, match="is closed"):
        file.tell()
    with pytest.raises(TargetError, match="exists"):
        ooc.disks.open_striped("x", "x", disks=disks)
    with ooc.disks.open_striped("x", "rb", disks=disks) as file, pytest.raises(io.UnsupportedOperation):
        file.write(b"")
    with pytest.raises(InputError, match="block=8: striped file 'x' has blocks of 4 bytes"):
        ooc.disks.open_striped("x", "r", disks=disks, block=8)
    with ooc.disks.open_striped("x", "w", disks=disks, block=8) as file:
        assert file.block == 8
    (Path(disks[1]) / "mine").write_text("a person's own")
    with pytest.raises(TargetError, match="no part of a striped file: it is not overwritten"):
        ooc.disks.open_striped("mine", "w", disks=disks)
    for wrong in ("", "rw", "rbt", "q", "++r", 3):
        with pytest.raises(InputError, match="mode="):
            ooc.disks.open_striped("x", wrong, disks=disks)  # type: ignore[arg-type]
    for name in ("", "a/b", "..", None):
        with pytest.raises(InputError, match="name="):
            ooc.disks.open_striped(name, disks=disks)  # type: ignore[arg-type]
    for given in ([], "a", [None], [str(Path(disks[0]) / "gone")]):
        with pytest.raises(InputError, match="disk"):
            ooc.disks.open_striped("x", disks=given)
    for wrong in ({"buffers": 0}, {"block": 0}, {"encoding": "utf-8"}):
        with pytest.raises(InputError):
            ooc.disks.open_striped("x", disks=disks, **wrong)


def test_layers_of_io_lie_over_it(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "wt", disks=disks, block=3, encoding="utf-8") as text:
        text.write("Bäche\nund Flüsse\n" * 1000)
    with ooc.disks.open_striped("x", "rt", disks=disks, encoding="utf-8") as text:
        assert [line.rstrip() for line in text][:3] == ["Bäche", "und Flüsse", "Bäche"]
    with ooc.disks.open_striped("x", "r+", disks=disks, buffering=1) as buffered:
        assert isinstance(buffered, io.BufferedRandom)
        assert buffered.readline() == "Bäche\n".encode()
        buffered.seek(0)
        buffered.write(b"X")
    with ooc.disks.open_striped("x", disks=disks) as raw:
        assert raw.read(1) == b"X"


def write_for_ever(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "r+", disks=disks) as file:
        for number in range(10**9):
            file.pwrite(bytes([number % 251]) * 20_000, 0)


def test_who_is_killed_leaves_a_file_that_can_be_opened(disks: list[str]) -> None:
    with ooc.disks.open_striped("x", "w", disks=disks, block=100) as file:
        file.write(bytes(20_000) + b"tail")
    context = multiprocessing.get_context("forkserver")
    for _ in range(2):
        process = context.Process(target=write_for_ever, args=(disks,))
        process.start()
        while json.loads(Path(disks[2], "x.striped").read_text())["closed"]:
            time.sleep(0.005)
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        with ooc.disks.open_striped("x", "r+", disks=disks[::-1]) as file:
            data = file.read()
            assert len(data) == 20_004
            assert data.endswith(b"tail")
            file.pwrite(bytes(20_000), 0)
        assert json.loads(Path(disks[2], "x.striped").read_text())["closed"]
