"""References (kerchunk's, by fsspec): where all chunks of an array are ranges of local files, these are read as such.

refs.json   "air/0.0": ["/data/a.nc", 4016, 5104]   ─►  pread of /data/a.nc      not a request by fsspec each
            "lat/0": "base64:…"                      ─►  by fsspec, as any store
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore

from oocarrays.storage.foreign.blobs import RangeBlobs
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.stores.joined import SAYING, OnlyRead


class ReferenceStore(OnlyRead):
    """References as fsspec has them, which are read by the bytes of their files where these are on this machine.

    Parameters
    ----------
    inner : FsspecStore
        What answers all else.
    url : str
        What a person calls it.
    """

    is_what, why = "are references, and have", "references are only read"

    def __init__(self, inner: FsspecStore, url: str) -> None:
        super().__init__(url)
        self._inner = inner
        self._known: dict[str, Files | None] = {}
        self._places: dict[str, tuple[int, int, int]] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> Any:
        return ReferenceStore, (self._inner, self._url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceStore) and self._inner == other._inner

    __hash__ = None  # type: ignore[assignment]

    # -------------------------------------------------------------------------------------------------- what it is

    def files(self, prefix: str, *, past_cache: bool = False) -> RangeBlobs | None:
        """Return the chunks of an array as ranges of local files; None where one of them is none."""
        path = prefix.strip("/")
        found = self._found(path)
        return None if found is None else RangeBlobs(_Ranges(self, found), path)

    def _found(self, path: str) -> Files | None:
        with self._lock:
            if path not in self._known:
                self._known[path] = self._looked_at(path)
            return self._known[path]

    def _looked_at(self, path: str) -> Files | None:
        """Look at all references of an array: those that are kept in tables of their own are left to fsspec."""
        references, prefix = self._references(), self._prefix(path)
        if not isinstance(references, dict):
            return None
        numbers: dict[str, int] = {}
        for key in [key for key in references if key.startswith(prefix)]:
            name, said = key.removeprefix(prefix), references[key]
            if name in SAYING:
                continue
            file = _local(said[0]) if isinstance(said, list | tuple) and len(said) == 3 else None
            if file is None:
                return None
            number = numbers.setdefault(file, len(numbers))
            self._places[key] = number, int(said[1]), int(said[2])
        try:
            status = [os.stat(file) for file in numbers]
        except OSError:
            return None  # fsspec says what it does not find
        if not numbers:
            return None
        return Files(
            root="/",
            names=tuple(file.lstrip("/") for file in numbers),
            sizes=tuple(each.st_size for each in status),
            versions=tuple(str(each.st_mtime_ns) for each in status),
        )

    def _references(self) -> Any:
        """Return fsspec's references: a dict, or a reader of tables of them."""
        fs = self._inner.fs
        return fs.references if hasattr(fs, "references") else fs.sync_fs.references

    def _prefix(self, path: str) -> str:
        whole = "/".join(filter(None, (self._inner.path.strip("/"), path)))
        return f"{whole}/" if whole else ""

    def place(self, path: str, key: str) -> tuple[int, int, int] | None:
        """Number of the file, offset and bytes of a chunk; None where there is no reference."""
        return self._places.get(self._prefix(path) + key)

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return the files of an array, their bytes, and what changes with each writing; None where nobody knows."""
        found = self._found(prefix.strip("/"))
        if found is None:
            return None
        listed = zip(found.names, found.sizes, found.versions, strict=True)
        return [(f"{prefix}{name}", size, version) for name, size, version in listed]

    # ------------------------------------------------------------------------------------------- as fsspec has it

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under a key."""
        return await self._inner.get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Get many."""
        return await self._inner.get_partial_values(prototype, key_ranges)

    async def exists(self, key: str) -> bool:
        """Return whether there is anything under a key."""
        return await self._inner.exists(key)

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        async for key in self.list_prefix(""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with ``prefix``, as references have them: fsspec lists none of those of files."""
        root = self._prefix("")
        for key in self._references():
            if key.startswith(root + prefix):
                yield key.removeprefix(root)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below ``prefix``."""
        return self._inner.list_dir(prefix)


class _Ranges:
    """The files of one array of references."""

    def __init__(self, store: ReferenceStore, files: Files) -> None:
        self._store, self.source_files = store, files

    def place(self, path: str, key: str) -> tuple[int, int, int] | None:
        """Where a chunk lies."""
        return self._store.place(path, key)

    def __str__(self) -> str:
        return str(self._store)


def references(store: Store, url: str) -> ReferenceStore | None:
    """Return a store of fsspec's references that reads local files by itself; None of any other store."""
    is_one = isinstance(store, FsspecStore) and "reference" in _protocols(store.fs)
    return ReferenceStore(store, url) if is_one and isinstance(store, FsspecStore) else None


def _protocols(fs: Any) -> tuple[str, ...]:
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _local(url: Any) -> str | None:
    """The path of a reference; None of one to another machine."""
    text = str(url)
    if text.startswith(("file://", "local://")):
        return unquote(urlsplit(text).path)
    return text if text.startswith("/") else None
