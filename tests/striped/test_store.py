"""Striped stores under Zarr's own tests of stores, and what they promise beyond."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.storage import LocalStore, MemoryStore, WrapperStore
from zarr.testing.store import StoreTests

import oocarrays as ooc
from oocarrays.disks import StripedStore
from oocarrays.errors import DescriptorError, DiskFullError, InputError, NotFoundError, OocError
from oocarrays.testing import SlowDisk
from tests.seams import add_disk, disk_of, empty_disk, lay_out_on_disks, verify_disks

PROTOTYPE = default_buffer_prototype()


def part_with(store: StripedStore, key: str) -> Any:
    return store.parts[disk_of(key, len(store.parts))]


class TestStripedStore(StoreTests[StripedStore, cpu.Buffer]):
    store_cls = StripedStore
    buffer_cls = cpu.Buffer

    async def set(self, store: StripedStore, key: str, value: Buffer) -> None:
        if store.catalog.made is None:
            await store.set("first", self.buffer_cls.from_bytes(b"1"))
            await store.delete("first")
        await part_with(store, key).set(key, value)

    async def get(self, store: StripedStore, key: str) -> Buffer:
        found = await part_with(store, key).get(key, PROTOTYPE)
        assert found is not None
        return found

    @pytest.fixture
    def store_kwargs(self, disks: list[str]) -> dict[str, Any]:
        return {"disks": [f"{disk}/x.zarr" for disk in disks]}

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> StripedStore:
        return asyncio.run(self.store_cls.open(**store_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> StripedStore:
        return self.store_cls(**store_kwargs)

    def test_store_repr(self, store: StripedStore) -> None:
        assert repr(store) == f"StripedStore({list(store.disks)!r})"

    def test_store_supports_writes(self, store: StripedStore) -> None:
        assert store.supports_writes
        assert store.supports_deletes

    def test_store_supports_listing(self, store: StripedStore) -> None:
        assert store.supports_listing


class TestStripedStoreOfBlocks(TestStripedStore):
    @pytest.fixture
    def store_kwargs(self, disks: list[str]) -> dict[str, Any]:
        return {"disks": [f"{disk}/x.zarr" for disk in disks], "block": 100_000}


class TestStripedStoreOfStores(TestStripedStore):
    @pytest.fixture
    def store_kwargs(self, disks: list[str]) -> dict[str, Any]:
        return {"disks": [SlowDisk(disk) for disk in disks]}


# ------------------------------------------------------------------------------------------------------ blocks


@pytest.mark.parametrize("nbytes", [0, 1, 9, 10, 11, 30, 31, 95])
def test_ranges_of_split_values_are_those_of_the_whole(nbytes: int) -> None:
    async def look() -> None:
        store, data = StripedStore([MemoryStore() for _ in range(3)], block=10), os.urandom(nbytes)
        await store.set("c/1", PROTOTYPE.buffer.from_bytes(data))
        assert await store.getsize("c/1") == nbytes
        assert [key async for key in store.list()] == ["c/1"]
        for low in range(0, nbytes, 7):
            for high in range(low, nbytes + 1, 9):
                for request, there in (
                    (RangeByteRequest(low, high), data[low:high]),
                    (OffsetByteRequest(low), data[low:]),
                    (SuffixByteRequest(high), data[nbytes - high :]),
                ):
                    got = await store.get("c/1", PROTOTYPE, request)
                    assert got is not None
                    assert got.to_bytes() == there
        await store.delete("c/1")
        assert not await store.exists("c/1")
        assert [len(part._store_dict) for part in store.parts] == [1, 1, 1]  # type: ignore[attr-defined]

    asyncio.run(look())


def test_split_values_and_whole_ones_take_each_others_place() -> None:
    async def look() -> None:
        store = StripedStore([MemoryStore() for _ in range(3)], block=10)
        for nbytes in (5, 50, 40, 3, 100, 0, 11):
            await store.set("c/1", PROTOTYPE.buffer.from_bytes(bytes([nbytes]) * nbytes))
            got = await store.get("c/1", PROTOTYPE)
            assert got is not None
            assert got.to_bytes() == bytes([nbytes]) * nbytes
        names = [name for part in store.parts for name in part._store_dict]  # type: ignore[attr-defined]
        assert len(names) == 3 + 1 + 2, names

    asyncio.run(look())


class Stopped(Exception):
    pass


class Dying(MemoryStore):
    """A store of a process that dies before its n-th change."""

    changes: ClassVar[list[int]] = [0]
    last: ClassVar[int] = 10**9

    def change(self) -> None:
        self.changes[0] += 1
        if self.changes[0] > self.last:
            raise Stopped

    async def set(self, key: str, value: Buffer, byte_range: Any = None) -> None:
        self.change()
        await super().set(key, value, byte_range)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self.change()
        await super().set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        self.change()
        await super().delete(key)


SIZES = (None, 4, 25, 60)


@pytest.mark.parametrize("before", SIZES)
@pytest.mark.parametrize("after", SIZES)
def test_killed_at_any_moment_a_value_is_old_or_new(before: int | None, after: int | None) -> None:
    """Whatever was left by one who died, the next change is seen, too."""
    old, new = (None if n is None else name * n for n, name in ((before, b"o"), (after, b"n")))

    async def put(store: StripedStore, data: bytes | None) -> None:
        if data is None:
            await store.delete("c/1")
        else:
            await store.set("c/1", PROTOTYPE.buffer.from_bytes(data))

    async def now(store: StripedStore) -> bytes | None:
        got = await store.get("c/1", PROTOTYPE)
        return None if got is None else got.to_bytes()

    async def look(last: int) -> bool:
        parts = [Dying() for _ in range(3)]
        Dying.last = 10**9
        store = StripedStore(parts, block=10)
        await store.set("zarr.json", PROTOTYPE.buffer.from_bytes(b"{}"))
        await put(store, old)
        Dying.changes[0], Dying.last = 0, last
        try:
            await put(store, new)
            ended = True
        except Stopped:
            ended = False
        Dying.last = 10**9
        again = StripedStore(parts)
        found = await now(again)
        assert found in (old, new)
        assert not ended or found == new
        for size in SIZES:
            data = None if size is None else b"x" * size
            await put(again, data)
            assert await now(again) == data
        return ended

    last = 0
    while not asyncio.run(look(last)):
        last += 1
    Dying.last = 10**9


# ------------------------------------------------------------------------------------------------------ disks


@pytest.fixture
def array(disks: list[str]) -> np.ndarray:
    data = np.arange(48 * 40, dtype="i4").reshape(48, 40)
    zarr.create_array(url(disks)[0], data=data, chunks=(6, 5), compressors=None)
    return data


def url(disks: list[str], name: str = "x.zarr") -> tuple[Any, str]:
    text = f"striped://{','.join(disks)}!{name}"
    return StripedStore([f"{disk}/{name}" for disk in disks]), text


def broken(disks: list[str], how: str) -> list[str]:
    second = Path(disks[1], "x.zarr")
    if how == "empty":
        shutil.rmtree(second)
    if how == "missing":
        return disks[:2]
    if how == "twice":
        return [*disks, disks[0] + "/../a"]
    if how == "foreign":
        shutil.rmtree(second)
        zarr.create_array(StripedStore([str(second)]), data=np.zeros(3))
    if how == "copied":
        shutil.copy(Path(disks[0], "x.zarr", ".striped.json"), second / ".striped.json")
    if how == "not mounted":
        os.rename(disks[1], disks[1] + "-away")
    return disks


WRONG = {
    "empty": "has 3 disks, and .*/b/x.zarr has no part of it: number 1 is missing",
    "missing": "has 3 disks, and 2 are given: number 2 is missing",
    "twice": "disk .*/a/x.zarr is named twice",
    "foreign": ".*/b/x.zarr has a part of another striped store",
    "copied": ".*/a/x.zarr and .*/b/x.zarr both have number 0",
    "not mounted": "has 3 disks, and .*/b/x.zarr has no part of it: number 1 is missing",
}


@pytest.mark.parametrize(("how", "said"), WRONG.items(), ids=WRONG)
def test_wrong_disks_are_named_in_one_line(disks: list[str], array: np.ndarray, how: str, said: str) -> None:
    opened = ooc.open_array(url(disks)[1])
    given = broken(disks, how)
    for read in (lambda: ooc.open_array(url(given)[1])[...], lambda: zarr.open_array(url(given)[0])[...]):
        with pytest.raises(InputError, match=said) as told:
            read()
        assert "\n" not in str(told.value)
    if how in ("empty", "not mounted"):
        with pytest.raises(OocError, match="no part of it"):
            opened[...]
    if how == "not mounted":
        with pytest.raises(NotFoundError, match=f"no such disk: {disks[1]} is not a folder"):
            zarr.create_array(url(disks, "y.zarr")[0], data=array, chunks=(6, 5))


def test_disks_are_found_in_any_order(disks: list[str], array: np.ndarray) -> None:
    for order in (disks, disks[::-1], [disks[1], disks[0], disks[2]]):
        assert (ooc.open_array(url(order)[1])[...] == array).all()
    store = pickle.loads(pickle.dumps(url(disks)[0]))
    assert (zarr.open_array(store)[...] == array).all()
    assert verify_disks(store).faults == ()


@pytest.mark.long
@pytest.mark.parametrize("block", [None, 50])
def test_a_disk_joins_and_another_leaves_and_nothing_moves_that_need_not(
    disks: list[str], array: np.ndarray, tmp_path: Path, block: int | None
) -> None:
    (tmp_path / "d").mkdir()
    source, store = tmp_path / "y.zarr", StripedStore([f"{disk}/y.zarr" for disk in disks], block=block)
    zarr.create_array(source, data=array, chunks=(6, 5), compressors=None)
    assert lay_out_on_disks(str(source), store).keys == 65
    with pytest.raises(InputError, match="exists"):
        lay_out_on_disks(str(source), store)
    names = {disk: set(os.listdir(f"{disk}/y.zarr")) for disk in disks}
    moved = add_disk(store, tmp_path / "d" / "y.zarr")
    assert moved.keys == pytest.approx(16, abs=2)
    assert names
    all_disks = [*disks, str(tmp_path / "d")]
    for left, gone in ((all_disks, None), (all_disks[1:], all_disks[0])):
        if gone:
            assert empty_disk(url([*left, gone], "y.zarr")[0], f"{gone}/y.zarr").keys >= 16
            assert not os.path.exists(f"{gone}/y.zarr")
        found = url(left, "y.zarr")
        assert verify_disks(found[0]).faults == verify_disks(found[0]).left == ()
        assert (ooc.open_array(found[1])[...] == array).all()
    with pytest.raises(DescriptorError, match="leave it out"):
        ooc.open_array(url(all_disks, "y.zarr")[1])


def join_slowly(disks: list[str], new: str) -> None:
    add_disk(StripedStore([SlowDisk(f"{disk}/x.zarr", seconds=0.005) for disk in disks]), SlowDisk(new, seconds=0.005))


def test_who_is_killed_while_a_disk_joins_loses_nothing(disks: list[str], array: np.ndarray, tmp_path: Path) -> None:
    new = tmp_path / "d" / "x.zarr"
    new.mkdir(parents=True)
    context = multiprocessing.get_context("forkserver")
    process = context.Process(target=join_slowly, args=(disks, str(new)))
    process.start()
    while not list(new.glob("c/*/*")):
        time.sleep(0.001)
    os.kill(process.pid or 0, signal.SIGKILL)
    process.join()
    every = StripedStore([*(f"{disk}/x.zarr" for disk in disks), str(new)])
    a = ooc.open_array(every, mode="r+")
    assert (a[...] == array).all()
    a[:7] = array[:7] = -1
    assert add_disk(every, str(new)).keys <= 16
    assert verify_disks(every).faults == ()
    assert (ooc.open_array(every)[...] == array).all()


def test_a_chunk_on_the_wrong_disk_is_found(disks: list[str], array: np.ndarray) -> None:
    (Path(disks[1]) / "x.zarr/c/0").mkdir(exist_ok=True)
    shutil.copy(f"{disks[0]}/x.zarr/c/0/0", f"{disks[1]}/x.zarr/c/0/0")
    found = verify_disks(url(disks)[0])
    assert found.keys == 65
    assert len(found.faults) == 1
    assert "b/x.zarr/c/0/0 is on the wrong disk" in found.faults[0]


def test_a_store_that_another_is_making_is_not_taken_for_one_that_lacks_disks(disks: list[str]) -> None:
    asyncio.run(StripedStore(disks).set("zarr.json", PROTOTYPE.buffer.from_bytes(b"{}")))
    for disk in disks[1:]:
        Path(disk, ".striped.json").rename(Path(disk, f".striped.{32 * 'f'}.partial"))  # as it is at first
    Path(disks[0], "zarr.json").unlink()
    store = StripedStore(disks)
    assert not store.layout().made
    asyncio.run(store.set("zarr.json", PROTOTYPE.buffer.from_bytes(b"{}")))
    assert store.layout().made


class Full(WrapperStore[LocalStore]):
    """A folder on a device that has no room left."""

    async def set(self, key: str, value: Buffer) -> None:
        raise OSError(28, "No space left on device")


def test_a_full_disk_is_one_line_and_each_chunk_is_old_or_new(disks: list[str], array: np.ndarray) -> None:
    parts: list[Any] = [f"{disk}/x.zarr" for disk in disks]
    parts[1] = Full(LocalStore(parts[1]))
    opened = ooc.open_array(StripedStore(parts), mode="r+")
    with pytest.raises(DiskFullError) as told:
        opened[...] = array + 1000
    assert f"{disks[1]}/x.zarr" in str(told.value)
    assert "\n" not in str(told.value)
    found = ooc.open_array(url(disks)[1])[...]
    for row in range(0, 48, 6):
        for column in range(0, 40, 5):
            here = np.s_[row : row + 6, column : column + 5]
            assert (found[here] == array[here]).all() or (found[here] == array[here] + 1000).all()
    ooc.open_array(url(disks)[1], mode="r+")[...] = array + 1000
    assert (zarr.open_array(url(disks)[0])[...] == array + 1000).all()


@pytest.mark.long
@pytest.mark.parametrize("block", [None, 50])
def test_a_hundred_threads_share_one_store(disks: list[str], block: int | None) -> None:
    data, failed = np.arange(100 * 40, dtype="i4").reshape(100, 40), []
    store = StripedStore(disks, block=block).below("y.zarr")
    shared = zarr.create_array(store, shape=data.shape, dtype="i4", chunks=(1, 40), compressors=None)

    def work(row: int) -> None:
        try:
            shared[row] = data[row]
            assert (shared[row] == data[row]).all()
        except BaseException as error:  # noqa: BLE001  told by the test
            failed.append(error)

    threads = [threading.Thread(target=work, args=(row,)) for row in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (ooc.open_array(url(disks, "y.zarr")[1])[...] == data).all()
