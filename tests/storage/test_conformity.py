"""Every store of ours under Zarr's own tests of stores, and byte ranges of stores that are only read."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import pytest
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import Buffer, cpu, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore, ZipStore
from zarr.testing.store import StoreTests

import oocarrays as ooc
from oocarrays.errors import TargetError
from oocarrays.storage.chunks.places import CountingStore
from oocarrays.storage.local.syncing import DocumentStore
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import layers
from oocarrays.storage.stores.remote import Patience, RemoteStore
from oocarrays.storage.stores.sessions import SessionStore
from oocarrays.storage.striped.disks import FolderStore
from oocarrays.testing import SlowDisk

pytestmark = pytest.mark.long

PROTOTYPE = default_buffer_prototype()


class Conforming(StoreTests[Any, cpu.Buffer]):
    """Zarr's tests of a store that is local, or wraps another one."""

    buffer_cls = cpu.Buffer

    async def set(self, store: Any, key: str, value: Buffer) -> None:
        *_, inside = layers(store)
        await inside.set(getattr(store, "prefix", "") + key, value)

    async def get(self, store: Any, key: str) -> Buffer:
        *_, inside = layers(store)
        found = await inside.get(getattr(store, "prefix", "") + key, PROTOTYPE)
        assert found is not None
        return found

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> Any:
        return asyncio.run(self.store_cls.open(**store_kwargs))

    @pytest.fixture
    def store_not_open(self, store_kwargs: dict[str, Any]) -> Any:
        return self.store_cls(**store_kwargs)

    def test_store_supports_writes(self, store: Any) -> None:
        assert store.supports_writes

    def test_store_supports_listing(self, store: Any) -> None:
        assert store.supports_listing

    def test_store_repr(self, store: Any) -> None:
        assert "Store" in repr(store) or "Disk" in repr(store)


class TestFolderStore(Conforming):
    store_cls: ClassVar = FolderStore

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"root": str(tmp_path / "x.zarr")}


class TestDocumentStore(Conforming):
    store_cls: ClassVar = DocumentStore

    @pytest.fixture
    def store_kwargs(self, tmp_path: Path) -> dict[str, Any]:
        return {"root": str(tmp_path)}


class Wrapping(Conforming):
    """Zarr's tests of a wrapper of a store in memory, which is open when that is."""

    wrapped = "store"
    arguments: ClassVar[dict[str, Any]] = {}

    @pytest.fixture
    def store_kwargs(self) -> dict[str, Any]:
        return {self.wrapped: MemoryStore(), **self.arguments}

    @pytest.fixture
    def store(self, store_kwargs: dict[str, Any]) -> Any:
        return self.store_cls(**store_kwargs)

    @pytest.fixture
    def open_kwargs(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        async def opened(cls: Any, read_only: bool = False) -> Any:
            inside = await MemoryStore.open(read_only=read_only)
            return cls(**{self.wrapped: inside}, **self.arguments)

        monkeypatch.setattr(self.store_cls, "open", classmethod(opened))
        return {}


class TestRemoteStore(Wrapping):
    store_cls: ClassVar = RemoteStore
    arguments: ClassVar = {"name": "memory://x", "patience": Patience(), "prefix": "below/"}


class TestCountingStore(Wrapping):
    store_cls: ClassVar = CountingStore
    arguments: ClassVar = {"meter": Meter()}


class TestTracedStore(Wrapping):
    store_cls: ClassVar = type(ooc.advise.traced(MemoryStore()))


class TestSessionStore(Wrapping):
    store_cls: ClassVar = SessionStore

    async def test_serializable_store(self, store: Any) -> None:
        with pytest.raises(TargetError, match="which workers can use only during"):
            pickle.dumps(store)


class TestSlowDisk(Wrapping):
    store_cls: ClassVar = SlowDisk
    wrapped = "place"


# ------------------------------------------------------------------------------------------- what only reads


DATA = np.arange(64 * 64, dtype="i4").reshape(64, 64)
RANGES: list[tuple[Any, Callable[[bytes], bytes]]] = [
    (None, lambda data: data),
    (RangeByteRequest(3, 9), lambda data: data[3:9]),
    (RangeByteRequest(3, 10**6), lambda data: data[3:]),
    (OffsetByteRequest(5), lambda data: data[5:]),
    (OffsetByteRequest(10**6), lambda data: b""),
    (SuffixByteRequest(4), lambda data: data[-4:]),
    (SuffixByteRequest(0), lambda data: b""),
    (SuffixByteRequest(10**6), lambda data: data),
]


def netcdf(folder: Path) -> Any:
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("a", data=DATA, chunks=(16, 32))
    return f"{folder}/x.h5/a", "c/1/1"


def uneven(folder: Path) -> Any:
    with zarr.config.set({"array.rectilinear_chunks": True}):
        zarr.create_array(folder / "x.zarr", data=DATA, chunks=[[16, 48], [64]])
    return str(folder / "x.zarr"), "c/1/0"


def zipped(folder: Path) -> Any:
    with ZipStore(folder / "x.zip", mode="w") as store:
        zarr.create_array(store, data=DATA, chunks=(16, 32), compressors=None)
    return str(folder / "x.zip"), "c/1/1"


def striped(folder: Path) -> Any:
    disks = [str(folder / name) for name in "ab"]
    for disk in disks:
        Path(disk).mkdir()
    store = ooc.disks.StripedStore(disks, block=1000)
    zarr.create_array(store, data=DATA, chunks=(16, 32), compressors=None)
    return store, "c/1/1"


@pytest.mark.parametrize("made", [netcdf, uneven, zipped, striped])
def test_a_range_of_a_chunk_is_a_part_of_it(tmp_path: Path, made: Any) -> None:
    if made is uneven and not hasattr(zarr.Array, "read_chunk_sizes"):
        pytest.skip("this Zarr knows no chunks of unequal lengths")
    where, key = made(tmp_path)
    place = ooc.open_array(where).zarr.store_path
    key = (place / key).path

    async def look() -> None:
        await place.store._ensure_open()
        whole = (await place.store.get(key, PROTOTYPE)).to_bytes()
        assert len(whole) > 100
        for part, taken in RANGES:
            found = await place.store.get(key, PROTOTYPE, part)
            assert found.to_bytes() == taken(whole), part
        for wrong in ((0, 2), 3, "all"):
            with pytest.raises((ValueError, TypeError), match="Unexpected byte_range"):
                await place.store.get(key, PROTOTYPE, wrong)

    sync(look())


@pytest.mark.parametrize("format", [2, 3])
def test_what_zarr_reads_through_a_prefix_is_below_it(format: int) -> None:
    """Newer versions of Zarr read shards by requests that a wrapper forwards past its own methods."""
    outside = MemoryStore()
    store = RemoteStore(outside, "memory://x", Patience(), "below/")
    shards = {"shards": (32, 32)} if format == 3 else {}
    zarr.create_array(store, data=DATA, chunks=(4, 4), zarr_format=format, **shards)
    assert (zarr.open_array(store)[3:9, 5:20] == DATA[3:9, 5:20]).all()
    traced = ooc.advise.traced(store)
    assert (zarr.open_array(traced)[3:9, 5:20] == DATA[3:9, 5:20]).all()
    outside._store_dict["beside"] = cpu.Buffer.from_bytes(b"1")
    asyncio.run(store.clear())
    assert list(outside._store_dict) == ["beside"]
