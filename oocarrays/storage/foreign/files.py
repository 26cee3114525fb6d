"""Source files of an array, with their locations and versions, and the chunks in them.

/data/*.nc          local     size and modification time, at each opening; chunks are ranges, accessed like chunk files
s3://bucket/*.nc    remote    size and ETag from a listing; byte ranges, some of them cached
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from fsspec.spec import AbstractBufferedFile
from zarr.abc.store import RangeByteRequest
from zarr.core.sync import sync

from oocarrays.errors import NotFoundError, RunError, StoreFailure
from oocarrays.storage.foreign.facts import Readable
from oocarrays.storage.local.blobs import LocalBlobs, MissingBlob
from oocarrays.storage.local.fs import Version, open_regular, read_into, translated
from oocarrays.storage.stores.remote import Details, RemoteStore
from oocarrays.storage.stores.underway import got

PAGE_BYTES = 2**18
"""Bytes of a page of a remote file, fetched at a time for libraries that search for metadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files in a folder, or below a prefix of a store, in order."""

    root: str | RemoteStore
    """The folder, or the store."""
    found: tuple[Version, ...]
    """Names of the files below the root, with their sizes and versions when found."""

    @classmethod
    def on_disk(cls, paths: Sequence[str], root: str) -> Files:
        """Return local files below a folder, with their current sizes and versions; raise as ``os.stat``."""
        each = ((os.path.relpath(path, root), os.stat(path)) for path in paths)
        return cls(root=root, found=tuple(Version(name, at.st_size, str(at.st_mtime_ns)) for name, at in each))

    @property
    def local(self) -> bool:
        return isinstance(self.root, str)

    def details(self, prefix: str) -> Details:
        """Return the names with a prefix, sizes and versions of all files with a known version."""
        return [(f"{prefix}{each.key}", each.size, each.tag) for each in self.found if each.tag]

    def path(self, number: int) -> str:
        root = self.root if isinstance(self.root, str) else self.root.name
        return os.path.join(root, self.found[number].key)

    def readable(self, number: int) -> Readable:
        """Return a file as an argument for libraries, after checking its version."""
        self.check_all([number])
        if isinstance(self.root, str):
            return self.path(number)
        reader: Any = RemoteFile(self.root, self.found[number].key, self.found[number].size)
        return reader

    def check(self, number: int, file: int | str) -> None:
        """Raise if a local file, given by path or descriptor, has changed since it was found."""
        with translated("read", self.path(number)):
            status = os.stat(file)
        if (status.st_size, str(status.st_mtime_ns)) != self.found[number][1:3]:
            raise RunError(f"{self.path(number)} has changed since it was opened: open it again")

    def check_all(self, numbers: Sequence[int]) -> None:
        """Raise if some files have changed since they were found."""
        store = self.root
        if isinstance(store, str):
            for number in numbers:
                self.check(number, self.path(number))
            return
        keys = [self.found[number].key for number in numbers]
        if len(keys) > 8:  # one listing takes less time than requests one by one
            listed = {key: (size, version) for key, size, version in sync(store.details("")) or ()}
            now = [listed.get(key) for key in keys]
        else:
            now = [sync(store.detail(key)) for key in keys]
        for number, each in zip(numbers, now, strict=True):
            _, size, version, _ = self.found[number]
            if each is None or each != (size, version if each[1] else ""):
                raise RunError(f"{self.path(number)} was removed or has changed since it was opened: open it again")

    async def range(self, number: int, start: int, stop: int) -> np.ndarray:
        if isinstance(self.root, str):
            return self.read(number, start, stop)
        key, size, *_ = self.found[number]
        data = await got(self.root, key, RangeByteRequest(start, min(stop, size)))
        if data is None or len(data) != min(stop, size) - start:
            raise RunError(f"{self.path(number)} was removed or has changed since it was opened")
        return data

    def read(self, number: int, start: int, stop: int) -> np.ndarray:
        """Return the same bytes, blocking the calling thread."""
        if not self.local:
            return sync(self.range(number, start, stop))
        path, out = self.path(number), np.empty(max(min(stop, self.found[number].size) - start, 0), np.uint8)
        with translated("read", path):
            file = open_regular(path)
            try:
                self.check(number, file)
                return out[: len(out) - read_into(file, start, out.data)]
            finally:
                os.close(file)


class RemoteFile(AbstractBufferedFile):  # type: ignore[misc]
    """A remote file read by pages, because libraries search for metadata in many small reads."""

    def __init__(self, store: RemoteStore, key: str, size: int) -> None:
        self._store, self._key = store, key
        how = {"cache_type": "blockcache", "cache_options": {"maxblocks": 64}}
        super().__init__(None, key, block_size=PAGE_BYTES, size=size, **how)

    def _fetch_range(self, start: int, end: int) -> bytes:
        data = sync(got(self._store, self._key, RangeByteRequest(start, end)))
        if data is None:
            raise StoreFailure(f"cannot read {self._key} of {self._store}: it was removed")
        return data.tobytes()


def local_files(pattern: str) -> Files:
    found = [pattern] if os.path.isfile(pattern) else sorted(filter(os.path.isfile, glob.glob(pattern)))
    return listed_files(found, pattern)


def listed_files(paths: Sequence[str], pattern: str) -> Files:
    if not paths:
        raise NotFoundError(f"no file is named {pattern}")
    paths = [os.path.abspath(path) for path in paths]
    root = os.path.commonpath([os.path.dirname(path) for path in paths])
    try:
        return Files.on_disk(paths, root)
    except OSError as error:
        raise NotFoundError(f"no such file: {error.filename}") from None


def remote_files(store: RemoteStore, pattern: str) -> Files:
    if "*" not in pattern:
        one = sync(store.detail(pattern))
        listed = [] if one is None else [(pattern, *one)]
    else:
        folder = pattern.partition("*")[0].rpartition("/")[0]
        below = sync(store.details(f"{folder}/" if folder else ""))
        listed = below or []
    found = sorted(each for each in listed if each[0] == pattern or fnmatchcase(each[0], pattern))
    if not found:
        raise NotFoundError(f"no file is named {store.name}/{pattern}")
    return Files(root=store, found=tuple(Version(*each) for each in found))


Place = tuple[int, int, int]
"""Number of a chunk's file, and its offset and size there in bytes."""


class RangeBlobs(LocalBlobs):
    """Chunks of an array in local files of another format."""

    def __init__(self, files: Files, place: Callable[[str], Place | None], name: str) -> None:
        super().__init__(str(files.root))
        self._files, self._place, self._name = files, place, name

    def range_of(self, key: str) -> tuple[str, int, int]:
        found = self._place(key)
        if found is None:
            raise MissingBlob(key)
        number, offset, nbytes = found
        return self._files.path(number), offset, nbytes

    def check_file(self, key: str, file: int) -> None:
        found = self._place(key)
        if found is not None:
            self._files.check(found[0], file)

    def path(self, key: str) -> str:
        return self.range_of(key)[0]

    def exists(self, key: str) -> bool:
        return self._place(key) is not None

    def announce(self, keys: Iterable[str]) -> None:
        """Do nothing: files of other formats have no read-ahead."""

    def _refuse(self, key: str, *_: Any, **__: Any) -> Any:
        raise StoreFailure(f"cannot write {key} of {self._name}: it is not a Zarr store and is read-only")

    put = put_pieces = change = remove = _refuse
