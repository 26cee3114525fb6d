"""Chunks as ranges of local files, accessed like chunk files: opened, checked, read and closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np

from oocarrays.errors import StoreFailure
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.local.blobs import LocalBlob, LocalBlobs, MissingBlob
from oocarrays.storage.local.direct_io import Piece
from oocarrays.storage.stores.store_blobs import PartBlob


class Ranges(Protocol):
    """Object with the locations of chunks in files."""

    @property
    def source_files(self) -> Files:
        """Source files."""

    def place(self, path: str, key: str) -> tuple[int, int, int] | None:
        """Return the file number, offset and size in bytes of a chunk; None if it is not stored."""


class RangeBlob(PartBlob):
    """A chunk in a file, with zeros beyond the end of the file."""

    def __init__(self, blob: LocalBlob, offset: int, nbytes: int, file_bytes: int) -> None:
        super().__init__(blob, offset, nbytes)
        self._there = min(nbytes, max(file_bytes - offset, 0))

    def read_into(self, offset: int, out: memoryview) -> None:
        there = max(min(len(out), self._there - offset), 0)
        if there:
            super().read_into(offset, out[:there])
        if there < len(out):
            np.frombuffer(out, np.uint8)[there:] = 0

    def read_runs(self, offsets: np.ndarray, out: np.ndarray) -> None:
        if self._there == self.size:
            super().read_runs(offsets, out)
            return
        for offset, row in zip(offsets.tolist(), out, strict=True):
            self.read_into(offset, row.data)

    def pages(self) -> np.ndarray:
        """Return all bytes, mapped if none is beyond the end of the file."""
        return super().pages() if self._there == self.size else self.read_all()


class RangeBlobs(LocalBlobs):
    """Chunks of an array in local files of another format."""

    def __init__(self, store: Ranges, path: str) -> None:
        super().__init__(str(store.source_files.root))
        self._store, self._array = store, path

    def range_of(self, key: str) -> tuple[str, int, int]:
        """Return the path of a chunk's file, its offset there, and its size in bytes."""
        found = self._store.place(self._array, key)
        if found is None:
            raise MissingBlob(key)
        number, offset, nbytes = found
        return self._store.source_files.path(number), offset, nbytes

    def check_file(self, key: str, file: int) -> None:
        """Raise if the file of a chunk has changed since it was found."""
        found = self._store.place(self._array, key)
        if found is not None:
            self._store.source_files.check(found[0], file)

    def path(self, key: str) -> str:
        return self.range_of(key)[0]

    def open(self, key: str, read_ahead: bool = False) -> Any:
        path, offset, nbytes = self.range_of(key)
        try:
            blob = LocalBlob(path, read_ahead=False)
        except MissingBlob:
            raise StoreFailure(f"cannot open {path}: it has gone") from None
        try:
            self.check_file(key, blob.number)
            if read_ahead:
                blob.want(offset, nbytes)
            return RangeBlob(blob, offset, nbytes, blob.size)
        except BaseException:
            blob.close()
            raise

    def exists(self, key: str) -> bool:
        return self._store.place(self._array, key) is not None

    def announce(self, keys: Iterable[str]) -> None:
        """Do nothing: files of other formats have no read-ahead."""

    def put(self, key: str, data: memoryview) -> None:
        """Raise, because files of other formats are read-only."""
        raise self._refusal(key)

    def put_pieces(self, key: str, pieces: Iterator[Piece]) -> bool:
        """Raise, because files of other formats are read-only."""
        raise self._refusal(key)

    def change(self, key: str, pieces: Iterable[Piece]) -> None:
        """Raise, because files of other formats are read-only."""
        raise self._refusal(key)

    def remove(self, key: str) -> None:
        """Raise, because files of other formats are read-only."""
        raise self._refusal(key)

    def _refusal(self, key: str) -> StoreFailure:
        return StoreFailure(f"cannot write {key} of {self._store}: it is no Zarr store, and is only read")
