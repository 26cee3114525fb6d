"""Stores with an index of key locations: references (kerchunk's, by fsspec), and remote zip files.

refs.json   "air/0.0": ["/data/a.nc", 4016, 5104]   ─►  pread of /data/a.nc, if all chunks of an array are local
            "lat/0": "base64:…"                      ─►  by fsspec, as for any store
a.zip       entry c/0/1 │ entry c/0/2 │ … │ index    ─►  byte ranges of the object; the index is read on opening
"""

from __future__ import annotations

import asyncio
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore

from oocarrays.errors import NotFoundError, StoreFailure
from oocarrays.storage.foreign.files import Files, Place, RangeBlobs
from oocarrays.storage.local.fs import SAYING
from oocarrays.storage.stores.joined import ReadOnlyStore, span

HEADER_BYTES = 30
"""Bytes of a local entry header before its name; the index lacks the lengths of the fields that follow."""


class ReferenceStore(ReadOnlyStore):
    """References of fsspec, read directly as byte ranges of local files where possible."""

    is_what, why = "are references, and have", "references are only read"

    def __init__(self, inner: FsspecStore, url: str) -> None:
        super().__init__(inner, url)
        self._fsspec: FsspecStore = inner
        self._known: dict[str, tuple[Files, dict[str, Place]] | None] = {}

    # ----------------------------------------------------------------------------------------------- local ranges

    def files(self, prefix: str, *, past_cache: bool = False) -> RangeBlobs | None:
        """Return the chunks of an array as ranges of local files; None unless all are."""
        found = self._found(prefix.strip("/"))
        return None if found is None else RangeBlobs(found[0], found[1].get, str(self))

    def _found(self, path: str) -> tuple[Files, dict[str, Place]] | None:
        """Return the files of all references of an array, and the places of its chunks; None unless all are local."""
        if path not in self._known:
            self._known[path] = self._looked_at(path)
        return self._known[path]

    def _looked_at(self, path: str) -> tuple[Files, dict[str, Place]] | None:
        references, prefix = self._references(), self._prefix(path)
        if not isinstance(references, dict):  # those in separate tables are left to fsspec
            return None
        numbers: dict[str, int] = {}
        places: dict[str, Place] = {}
        for key in [key for key in references if key.startswith(prefix)]:
            name, said = key.removeprefix(prefix), references[key]
            if name in SAYING:
                continue
            file = _local(said[0]) if isinstance(said, list | tuple) and len(said) == 3 else None
            if file is None:
                return None
            places[name] = numbers.setdefault(file, len(numbers)), int(said[1]), int(said[2])
        with suppress(OSError):  # fsspec reports missing files
            return (Files.on_disk(list(numbers), "/"), places) if numbers else None
        return None

    def _references(self) -> Any:
        """Return fsspec's references: a dict, or a reader of tables of them."""
        fs = self._fsspec.fs
        return fs.references if hasattr(fs, "references") else fs.sync_fs.references

    def _prefix(self, path: str) -> str:
        whole = "/".join(filter(None, (self._fsspec.path.strip("/"), path)))
        return f"{whole}/" if whole else ""

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return the files of an array with their sizes and versions; None unless all are local."""
        found = self._found(prefix.strip("/"))
        return None if found is None else found[0].details(prefix)

    # ------------------------------------------------------------------------------------------- through fsspec

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._fsspec.get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._fsspec.exists(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the keys that begin with ``prefix``, from the references, because fsspec lists none of the
        files'."""
        root = self._prefix("")
        for key in self._references():
            if key.startswith(root + prefix):
                yield key.removeprefix(root)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._fsspec.list_dir(prefix)


def references(store: Store, url: str) -> ReferenceStore | None:
    """Return a store of fsspec's references with direct reads of local files; None for any other store."""
    if not isinstance(store, FsspecStore):
        return None
    protocols = (store.fs.protocol,) if isinstance(store.fs.protocol, str) else store.fs.protocol
    return ReferenceStore(store, url) if "reference" in protocols else None


def _local(url: Any) -> str | None:
    """Return the path of a local reference; None for a remote one."""
    text = str(url)
    if text.startswith(("file://", "local://")):
        return unquote(urlsplit(text).path)
    return text if text.startswith("/") else None


class ZipRanges(ReadOnlyStore):
    """A remote zip file, read by byte ranges."""

    why = "a zip file that is not on this machine is only read"

    def __init__(self, inner: Files, url: str) -> None:
        super().__init__(inner, url)
        self._entries = _index(inner, url)
        self._starts: dict[str, int] = {}

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return the file with its size and version."""
        files: Files = self._inner
        return files.details(prefix)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        (start, stop), begin = span(byte_range, entry.file_size), await self._start(entry)
        if entry.compress_type == zipfile.ZIP_STORED:
            data = await self._inner.range(0, begin + start, begin + stop)
        else:
            coded = await self._inner.range(0, begin, begin + entry.compress_size)
            data = (await asyncio.to_thread(_inflated, coded, entry, str(self)))[start:stop]
        return prototype.buffer.from_array_like(data)

    async def _start(self, entry: zipfile.ZipInfo) -> int:
        if entry.filename not in self._starts:
            head = await self._inner.range(0, entry.header_offset, entry.header_offset + HEADER_BYTES)
            name, more = struct.unpack("<2H", head[26:].tobytes())
            self._starts[entry.filename] = entry.header_offset + HEADER_BYTES + name + more
        return self._starts[entry.filename]

    async def exists(self, key: str) -> bool:
        return key in self._entries

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for key in self._entries:
            if key.startswith(prefix):
                yield key


def _index(files: Files, url: str) -> dict[str, zipfile.ZipInfo]:
    """Return all entries of a zip file by name; the last one of duplicates applies."""
    file: Any = files.readable(0)
    try:
        with zipfile.ZipFile(file) as opened:
            return {entry.filename: entry for entry in opened.infolist() if not entry.is_dir()}
    except zipfile.BadZipFile as error:
        raise NotFoundError(f"{url} cannot be opened as a zip file: {error}") from error


def _inflated(data: np.ndarray, entry: zipfile.ZipInfo, url: str) -> np.ndarray:
    if entry.compress_type != zipfile.ZIP_DEFLATED:
        raise StoreFailure(f"{entry.filename} of {url} is compressed otherwise than by deflate: copy the file here")
    try:
        return np.frombuffer(zlib.decompress(data.data, -zlib.MAX_WBITS), np.uint8)
    except zlib.error as error:
        raise StoreFailure(f"{entry.filename} of {url} cannot be inflated: {error}") from error
