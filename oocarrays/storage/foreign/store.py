"""Read-only Zarr stores of byte ranges: in files of another format, in those of kerchunk's references, in zip files.
    a.nc  ─►  zarr.json             created from the file's metadata
              air/zarr.json
              air/c/0/0/0           bytes 4016 … 9120 of a.nc

Local ranges are read by ``pread`` or mapped like chunk files: see `blobs`. Other data are read by the format's library,
a chunk at a time, and returned as plain elements.

    refs.json   "air/0.0": ["/data/a.nc", 4016, 5104]   ─►  pread of /data/a.nc, if all chunks of an array are local
                "lat/0": "base64:…"                      ─►  by fsspec, as for any store
    a.zip       entry c/0/1 │ entry c/0/2 │ … │ index    ─►  byte ranges of the object; the index is read on opening
"""

from __future__ import annotations

import asyncio
import json
import struct
import zipfile
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
from numcodecs.vlen import VLenUTF8
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore

from oocarrays.errors import NotFoundError, StoreFailure, UnsupportedError, plural
from oocarrays.storage.foreign.arrays import Contents, ForeignArray
from oocarrays.storage.foreign.facts import Facts, document, whole_chunk
from oocarrays.storage.foreign.files import Files, Place, RangeBlobs
from oocarrays.storage.local.fs import METADATA, SAYING, chunk_index, chunk_keys
from oocarrays.storage.stores.joined import ReadOnlyStore, part_of, span

MOST_ROWS = 40
"""Maximum arrays listed in a summary."""


class ForeignStore(ReadOnlyStore):
    """Files of another format as a Zarr store."""

    why = "it is not a Zarr store and is read-only"
    is_foreign = True

    def __init__(self, inner: Contents, url: str) -> None:
        super().__init__(inner, url)
        self._contents = inner

    @property
    def source_files(self) -> Files:
        return self._contents.files

    @property
    def folders(self) -> tuple[str, ...]:
        root = self.source_files.root
        return (root,) if isinstance(root, str) else ()

    def files(self, prefix: str, *, past_cache: bool = False) -> RangeBlobs | None:
        path = prefix.strip("/")
        if not self.source_files.local or path not in self._contents.names:
            return None
        made = self._contents.array(path).made
        return None if made else RangeBlobs(self.source_files, partial(self.place, path), str(self))

    def stored_bytes(self, path: str) -> int:
        array, look = self._contents.array(path), self._contents.format.facts
        parts = map(self.source_files.readable, range(len(array.bounds) - 1))
        each = (look(part, (array.name,), brief=True, located=True)[0] for part in parts)
        return sum(facts.nbytes if facts.stored is None else facts.stored for facts in each)

    def skipped(self, path: str) -> dict[str, str]:
        """Return the reasons why arrays in a group are left out, by relative path."""
        before = f"{path}/" if path else ""
        return {n.removeprefix(before): why for n, why in self._contents.skipped.items() if n.startswith(before)}

    def summary(self) -> list[tuple[str, str]]:
        """Return rows of files, joined axis and arrays, with shape and type of opened ones."""
        files, names = self.source_files, self._contents.names
        count = len(files.found)
        ends = f" to {files.path(count - 1)}" if count > 1 else ""
        rows = [(plural(count, "file"), f"{files.path(0)}{ends}")]
        if self._contents.dim is not None:
            rows.append(("joined along", f"{self._contents.dim}{', a new axis' * bool(self._contents.stacked)}"))
        rows += [(name or "array", self._described(name)) for name in names[:MOST_ROWS]]
        return rows + [("…", f"{len(names) - MOST_ROWS} more arrays")] * (len(names) > MOST_ROWS)

    def _described(self, name: str) -> str:
        known = self._contents.known.get(name)
        if known is None:  # no reads here: Zarr formats its errors in the event loop
            return "not opened yet"
        facts = known.facts
        return f"{facts.shape}  {'text' if facts.dtype == 'O' else np.dtype(facts.dtype)}"

    def facts(self, path: str) -> Facts | None:
        return self._contents.array(path).facts if path in self._contents.names else None

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        return self.source_files.details(prefix)

    def _identity(self) -> Any:
        return self.url, self.source_files

    def __repr__(self) -> str:
        return f"ForeignStore({self.url!r})"

    def place(self, path: str, key: str) -> Place | None:
        array = self._contents.array(path)
        part, index = array.place(tuple(map(int, key.split("/")[1:])))
        found = self._contents.table(array.name, part).place(index)
        return None if found is None else (part, *found)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        data = await self._data(key, byte_range)
        return None if data is None else prototype.buffer.from_array_like(data)

    async def _data(self, key: str, byte_range: ByteRequest | None) -> np.ndarray | None:
        path, name = _parted(key)
        if name == METADATA:
            said = await asyncio.to_thread(self._document, path)
            return None if said is None else part_of(np.frombuffer(said, np.uint8), byte_range)
        found = await self._chunk_at(path, name)
        if found is None:
            return None
        if found[0].made:
            return part_of(await asyncio.to_thread(self._made_chunk, *found), byte_range)
        place = await asyncio.to_thread(self.place, path, name)
        if place is None:
            return None
        number, offset, nbytes = place
        start, stop = span(byte_range, nbytes)
        data = await self.source_files.range(number, offset + start, offset + stop)
        return whole_chunk(data, (stop - start,), 0)  # zeros beyond the end of the file

    async def _chunk_at(self, path: str, name: str) -> tuple[ForeignArray, tuple[int, ...]] | None:
        """Return an array and the index of a chunk of it, stored or not; None for other keys."""
        if path not in self._contents.names:
            return None
        array = await asyncio.to_thread(self._contents.array, path)
        index = chunk_index(name, array.grid.counts)
        return None if index is None else (array, index)

    def _document(self, path: str) -> bytes | None:
        self.source_files.check_all(range(len(self.source_files.found)))
        if path in self._contents.names:
            return json.dumps(document(self._contents.array(path).facts)).encode()
        if path in self._contents.skipped:
            raise UnsupportedError(
                f"{path} in {self.url} {self._contents.skipped[path]}, which Zarr does not have; "
                "open the other arrays by name"
            )
        attributes = self._contents.groups.get(path)
        if attributes is None:
            return None
        return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()

    def _made_chunk(self, array: ForeignArray, index: tuple[int, ...]) -> np.ndarray:
        """Return a whole chunk as plain elements, zero beyond the array; strings in Zarr's encoding."""
        data = self._contents.section(array, array.grid.section(index))
        if array.facts.dtype == "O":
            return np.frombuffer(VLenUTF8().encode(whole_chunk(data, array.facts.chunks, "")), np.uint8)
        return whole_chunk(data, array.facts.chunks, 0).reshape(-1).view(np.uint8)

    async def exists(self, key: str) -> bool:
        path, name = _parted(key)
        if name == METADATA:
            return path in self._contents.names or path in self._contents.groups
        found = await self._chunk_at(path, name)
        return found is not None and (found[0].made or await asyncio.to_thread(self.place, path, name) is not None)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        for path in (*self._contents.groups, *self._contents.names):
            above = f"{path}/" if path else ""
            if (above + METADATA).startswith(prefix):
                yield above + METADATA
            if path in self._contents.names and (above.startswith(prefix) or prefix.startswith(f"{above}c/")):
                array = await asyncio.to_thread(self._contents.array, path)
                for key in chunk_keys(array.grid.counts):
                    if f"{above}{key}".startswith(prefix) and await self.exists(above + key):
                        yield above + key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the names directly below ``prefix``; the chunks of an array appear as "c" only."""
        path = prefix.strip("/")
        if path in self._contents.names:
            yield METADATA
            yield "c"
            if self._contents.names != ("",):
                return
        if path in self._contents.groups:
            await asyncio.to_thread(self._contents.prepare, path)
            yield METADATA
            above = f"{path}/" if path else ""
            below = [each for each in (*self._contents.groups, *self._contents.names) if each.startswith(above)]
            names = (each.removeprefix(above).partition("/")[0] for each in below if each != path)
            for name in dict.fromkeys(names):
                yield name


def _parted(key: str) -> tuple[str, str]:
    parts = key.split("/")
    if parts[-1] == METADATA:
        return "/".join(parts[:-1]), METADATA
    at = len(parts)
    while at and parts[at - 1].isdigit():
        at -= 1
    at = at - 1 if at and parts[at - 1] == "c" else at
    return "/".join(parts[:at]), "/".join(parts[at:])


# ---------------------------------------------------------------------- indexed stores

HEADER_BYTES = 30
"""Bytes of a local entry header before its name; the index lacks the lengths of the fields that follow."""


class ReferenceStore(ReadOnlyStore):
    """References of fsspec, read directly as byte ranges of local files where possible."""

    is_what, why = "are references, and have", "references are only read"

    def __init__(self, inner: FsspecStore, url: str) -> None:
        super().__init__(inner, url)
        self._fsspec: FsspecStore = inner
        self._known: dict[str, tuple[Files, dict[str, Place]] | None] = {}

    def files(self, prefix: str, *, past_cache: bool = False) -> RangeBlobs | None:
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
        with suppress(OSError):  # fsspec reports missing files, and missing bytes
            files = Files.on_disk(list(numbers), "/")
            there = all(start + nbytes <= files.found[number].size for number, start, nbytes in places.values())
            return (files, places) if numbers and there else None
        return None

    def _references(self) -> Any:
        """Return fsspec's references: a dict, or a reader of tables of them."""
        fs = self._fsspec.fs
        return fs.references if hasattr(fs, "references") else fs.sync_fs.references

    def _prefix(self, path: str) -> str:
        whole = "/".join(filter(None, (self._fsspec.path.strip("/"), path)))
        return f"{whole}/" if whole else ""

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        found = self._found(prefix.strip("/"))
        return None if found is None else found[0].details(prefix)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._fsspec.get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._fsspec.exists(key)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Iterate over the keys with a prefix, from the references: fsspec lists none of the files'."""
        root = self._prefix("")
        for key in self._references():
            if key.startswith(root + prefix):
                yield key.removeprefix(root)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._fsspec.list_dir(prefix)


def references(store: Store, url: str) -> ReferenceStore | None:
    if not isinstance(store, FsspecStore):
        return None
    protocols = (store.fs.protocol,) if isinstance(store.fs.protocol, str) else store.fs.protocol
    return ReferenceStore(store, url) if "reference" in protocols else None


def _local(url: Any) -> str | None:
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
