"""Receipts: number of bytes stored under each key, and their checksum, for later verification.

c/0/0   [16384, 3829138921]    stored: bytes, and their checksum
c/0/1   [16384]                stored by other code, which does not expose the bytes
c/0/2   []                     stored, length unknown
c/0/3   null                   not stored: it holds only the fill value
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

from oocarrays.storage.files.places import StoreLike, local_folder, prefix_of, store_path
from oocarrays.storage.local.blobs import FOLDED_ABOVE, checksum
from oocarrays.storage.local.fs import ABSENT, size_of, translated
from oocarrays.storage.stores.remote import RemoteStore

Receipt = list[int] | None
"""Receipt of one key: known bytes and checksum; None if nothing is stored."""


def contents(data: Any) -> int | None:
    """Return a checksum of an array's elements in C order, or of a dict of arrays; None for arrays of objects."""
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
    """Receipts that are discarded, for work that cannot be resumed."""

    def put(self, key: str, data: Any) -> None:
        """Record the checksum and length of ``data`` stored under ``key``."""

    def stored(self, key: str, *nbytes: int) -> None:
        """Record that other code stored ``nbytes`` bytes, or an unknown number, under ``key``."""

    def absent(self, key: str) -> None:
        """Record that nothing is stored under ``key``."""

    def stays(self, key: str) -> bool:
        """Return whether the object under ``key`` must not be stored again."""
        return False


class Receipts(Unkept):
    """Receipts recorded from many threads."""

    def __init__(self, there: Container[str] = ()) -> None:
        self.kept: dict[str, Receipt] = {}
        self._there = there

    def stays(self, key: str) -> bool:
        return key in self._there

    def put(self, key: str, data: Any) -> None:
        self.kept[key] = [len(data), checksum(data)]

    def stored(self, key: str, *nbytes: int) -> None:
        self.kept[key] = list(nbytes)

    def absent(self, key: str) -> None:
        self.kept[key] = None


UNKEPT = Unkept()


class Store:
    """Objects stored in a location, compared with receipts."""

    def __init__(self, place: StoreLike) -> None:
        self._folder = local_folder(place)
        self._place = store_path(place) if self._folder is None else None
        self._listed: dict[str, int] | None = None

    def receipts(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Return receipts of the objects currently stored: sizes, where the store reports them, without checksums."""
        return {key: None if size is None else [size][: size >= 0] for key, size in self._sizes(list(keys)).items()}

    def unlike(self, receipts: Mapping[str, Sequence[Receipt]], verify: bool) -> list[str]:
        """Return the keys that match none of their receipts."""
        sizes = self._sizes(list(receipts))
        fitting = {key: [each for each in all if _fits(sizes[key], each)] for key, all in receipts.items()}
        odd = [key for key, left in fitting.items() if not left]
        stored = {key: left for key, left in fitting.items() if left and None not in left}
        return odd + (self._unread(stored) if verify else [])

    def _sizes(self, keys: list[str]) -> dict[str, int | None]:
        """Return the size of each key in bytes; None if it does not exist, -1 if the store does not report sizes."""
        if self._folder is not None:
            return {key: size_of(os.path.join(self._folder, key)) for key in keys}
        assert self._place is not None, "what is in no folder is in a store"
        listed = self._all(self._place)
        if listed is not None:
            return {key: listed.get(key) for key in keys}
        return dict(zip(keys, sync(_store_sizes(self._place, keys)), strict=True))

    def _all(self, place: StorePath) -> dict[str, int] | None:
        """List all keys with their sizes, once; return None if the store has no such listing."""
        if self._listed is None and isinstance(place.store, RemoteStore):
            prefix = prefix_of(place)
            found = sync(place.store.details(prefix))
            self._listed = None if found is None else {key.removeprefix(prefix): size for key, size, _ in found}
        return self._listed

    def _unread(self, receipts: Mapping[str, Sequence[Receipt]]) -> list[str]:
        """Return the keys that match no checksum in their receipts, or have none to compare."""
        sums = {key: {each[1] for each in all if each and len(each) == 2} for key, all in receipts.items()}
        known = [key for key, each in sums.items() if each]
        with ThreadPoolExecutor(4, "verify") as pool:
            found = pool.map(self._checksum, known)
            bad = [key for key, there in zip(known, found, strict=True) if there not in sums[key]]
        return bad + [key for key, each in sums.items() if not each]

    def _checksum(self, key: str) -> int | None:
        if self._folder is not None:
            path = os.path.join(self._folder, key)
            with suppress(*ABSENT), translated("read", path, but=ABSENT):
                return checksum(np.fromfile(path, np.uint8).data)
            return None
        assert self._place is not None, "what is in no folder is in a store"
        buffer = sync((self._place / key).get())
        return None if buffer is None else checksum(buffer.to_bytes())


def _fits(size: int | None, receipt: Receipt) -> bool:
    """Return whether the size of a stored object matches a receipt."""
    if receipt is None or size is None:
        return receipt is None and size is None
    return not receipt or size in (receipt[0], -1)


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
