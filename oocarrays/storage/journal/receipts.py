"""Receipts: how many bytes were stored under each key, and their checksum, so that they can be looked at later.

c/0/0   [16384, 3829138921]    stored: bytes, and their checksum
c/0/1   [16384]                stored by others, who show their bytes to nobody
c/0/2   []                     stored, nobody knows how long
c/0/3   null                   not stored: it holds nothing but the fill value
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import google_crc32c
import numpy as np
import zarr
from zarr.core.common import concurrent_map
from zarr.core.sync import sync
from zarr.storage import StorePath

from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.local.blobs import FOLDED_ABOVE, checksum
from oocarrays.storage.local.fs import ABSENT, translated
from oocarrays.storage.stores.remote import RemoteStore

Receipt = list[int] | None
"""Of one key: bytes and checksum, as far as they are known; None where nothing is stored."""
AT_ONCE = 4
"""Chunks that are read to be verified at one time: so many are held."""


def contents(data: Any) -> int | None:
    """A checksum of the elements of an array, or of arrays by their names, in C order; None where they are objects."""
    arrays, found = list(data.values()) if isinstance(data, dict) else [data], 0
    for array in arrays:
        if not isinstance(array, np.ndarray | np.generic) or array.dtype.hasobject or array.dtype.kind == "T":
            return None
        pieces: Any = np.nditer(
            np.asarray(array), ("external_loop", "buffered", "zerosize_ok"), order="C", buffersize=FOLDED_ABOVE
        )
        for some in pieces:
            found = google_crc32c.extend(found, np.ascontiguousarray(some).view(np.uint8))
    return found


class Unkept:
    """Takes receipts and keeps none: for work that nobody goes on with."""

    def put(self, key: str, data: Any) -> None:
        """Bytes were stored under ``key``."""

    def stored(self, key: str, *nbytes: int) -> None:
        """So many bytes were stored under ``key``, or some, by others."""

    def absent(self, key: str) -> None:
        """Nothing is stored under ``key``."""

    def stays(self, key: str) -> bool:
        """Return whether what is stored under ``key`` is not stored again."""
        return False


class Receipts(Unkept):
    """Keeps receipts, of many threads at once."""

    def __init__(self, there: Container[str] = ()) -> None:
        self.kept: dict[str, Receipt] = {}
        self._there = there

    def stays(self, key: str) -> bool:
        """Return whether what is stored under ``key`` is not stored again."""
        return key in self._there

    def put(self, key: str, data: Any) -> None:
        """Bytes were stored under ``key``."""
        self.kept[key] = [len(data), checksum(data)]

    def stored(self, key: str, *nbytes: int) -> None:
        """So many bytes were stored under ``key``, or some, by others."""
        self.kept[key] = list(nbytes)

    def absent(self, key: str) -> None:
        """Nothing is stored under ``key``."""
        self.kept[key] = None


UNKEPT = Unkept()


class Store:
    """A place as it is now: what is stored below it is held against receipts."""

    def __init__(self, place: StoreLike) -> None:
        self._folder = local_folder(place)
        self._place = store_path(place) if self._folder is None else None
        self._listed: dict[str, int] | None = None

    def receipts(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Write receipts for what is there: its bytes, as far as the store tells them, and no checksums."""
        return {key: None if size is None else [size][: size >= 0] for key, size in self._sizes(list(keys)).items()}

    def unlike(self, receipts: Mapping[str, Sequence[Receipt]], verify: bool) -> list[str]:
        """The keys under which there is nothing that one of their receipts is of."""
        sizes = self._sizes(list(receipts))
        fitting = {key: [each for each in all if _fits(sizes[key], each)] for key, all in receipts.items()}
        odd = [key for key, left in fitting.items() if not left]
        stored = {key: left for key, left in fitting.items() if left and None not in left}
        return odd + (self._unread(stored) if verify else [])

    def _sizes(self, keys: list[str]) -> dict[str, int | None]:
        """Bytes under each key; None where there is nothing, -1 where a store does not tell."""
        if self._folder is not None:
            return {key: _size(os.path.join(self._folder, key)) for key in keys}
        assert self._place is not None, "what is in no folder is in a store"
        listed = self._all(self._place)
        if listed is not None:
            return {key: listed.get(key) for key in keys}
        return dict(zip(keys, sync(_store_sizes(self._place, keys)), strict=True))

    def _all(self, place: StorePath) -> dict[str, int] | None:
        """All keys and bytes, listed once; None where the store has no such list."""
        if self._listed is None and isinstance(place.store, RemoteStore):
            prefix = f"{place.path}/" if place.path else ""
            found = sync(place.store.details(prefix))
            self._listed = None if found is None else {key.removeprefix(prefix): size for key, size, _ in found}
        return self._listed

    def _unread(self, receipts: Mapping[str, Sequence[Receipt]]) -> list[str]:
        """The keys of which the bytes are not those of a receipt, or nobody knows."""
        sums = {key: {each[1] for each in all if each and len(each) == 2} for key, all in receipts.items()}
        known = [key for key, each in sums.items() if each]
        with ThreadPoolExecutor(AT_ONCE, "verify") as pool:
            found = pool.map(self._checksum, known)
            bad = [key for key, there in zip(known, found, strict=True) if there not in sums[key]]
        return bad + [key for key, each in sums.items() if not each]

    def _checksum(self, key: str) -> int | None:
        if self._folder is not None:
            return _file_checksum(os.path.join(self._folder, key))
        assert self._place is not None, "what is in no folder is in a store"
        buffer = sync((self._place / key).get())
        return None if buffer is None else checksum(buffer.to_bytes())


def _fits(size: int | None, receipt: Receipt) -> bool:
    """Whether what is there is as long as what was stored."""
    if receipt is None or size is None:
        return receipt is None and size is None
    return not receipt or size in (receipt[0], -1)


def _size(path: str) -> int | None:
    with suppress(*ABSENT), translated("look at", path, but=ABSENT):
        return os.stat(path).st_size
    return None


def _file_checksum(path: str) -> int | None:
    with suppress(FileNotFoundError), translated("read", path, but=(FileNotFoundError,)):
        return checksum(np.fromfile(path, np.uint8).data)
    return None


async def _store_sizes(place: StorePath, keys: Iterable[str]) -> list[int | None]:
    async def size(key: str) -> int | None:
        path = (place / key).path
        if not await place.store.exists(path):
            return None
        if isinstance(place.store, RemoteStore):
            return -1
        return await place.store.getsize(path)

    found: list[int | None] = await concurrent_map([(key,) for key in keys], size, zarr.config.get("async.concurrency"))
    return found
