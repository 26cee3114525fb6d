"""A read-only Zarr store of byte ranges in files of another format.

    a.nc  ─►  zarr.json             created from the file's metadata
              air/zarr.json
              air/c/0/0/0           bytes 4016 … 9120 of a.nc

Local ranges are read by ``pread`` or mapped like chunk files: see `blobs`. Other data are read by the format's library,
a chunk at a time, and returned as plain elements.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.section import Section
from oocarrays.storage.foreign.arrays import Contents, ForeignArray, made_section
from oocarrays.storage.foreign.facts import ChunkTable, Facts, document, whole_chunk
from oocarrays.storage.foreign.files import Files, Place, RangeBlobs
from oocarrays.storage.foreign.filters import codec_of
from oocarrays.storage.foreign.numpy_files import Raw
from oocarrays.storage.local.cache import Cache
from oocarrays.storage.local.names import METADATA, chunk_index, chunk_keys
from oocarrays.storage.stores.joined import OnlyRead, part_of, span

KEPT_TABLES = 4096
"""Maximum chunk tables cached by a store in one process."""
MOST_ROWS = 40
"""Maximum arrays listed in a summary."""


class ForeignStore(OnlyRead):
    """Files of another format as a Zarr store."""

    why = "it is not a Zarr store and is read-only"
    is_foreign = True

    def __init__(self, contents: Contents, url: str) -> None:
        super().__init__(url)
        self._contents = contents
        self._tables = Cache[tuple[str, int], ChunkTable](KEPT_TABLES)

    # ----------------------------------------------------------------------------------------------- properties

    @property
    def source_files(self) -> Files:
        return self._contents.files

    @property
    def folders(self) -> tuple[str, ...]:
        """Folder of the files, if they are local."""
        root = self.source_files.root
        return (root,) if isinstance(root, str) else ()

    def files(self, prefix: str, *, past_cache: bool = False) -> RangeBlobs | None:
        """Return the chunks of an array as ranges of local files; None if they are remote or assembled."""
        path = prefix.strip("/")
        if not self.source_files.local or path not in self._contents.names:
            return None
        return (
            None
            if self._contents.array(path).made
            else RangeBlobs(self.source_files, partial(self.place, path), str(self))
        )

    def stored_bytes(self, path: str) -> int:
        """Return the stored bytes of an array in all files."""
        array, reader = self._contents.array(path), self._contents.reader
        if isinstance(self._contents.format, Raw):
            return array.facts.nbytes
        parts = range(len(array.bounds) - 1)
        return sum(reader.stored_bytes(self.source_files.readable(part), array.name) for part in parts)

    def skipped(self, path: str) -> dict[str, str]:
        """Return the reasons why arrays in a group are left out, by relative path."""
        before = f"{path}/" if path else ""
        return {n.removeprefix(before): why for n, why in self._contents.skipped.items() if n.startswith(before)}

    def summary(self) -> str:
        """Return a table of files, joined axis and arrays, with shape and type of opened ones."""
        files, names = self.source_files, self._contents.names
        count = len(files.names)
        ends = f" to {files.path(count - 1)}" if count > 1 else ""
        rows = [(f"{count} file{'s' * (count > 1)}", f"{files.path(0)}{ends}")]
        if self._contents.dim is not None:
            rows.append(("joined along", f"{self._contents.dim}{', a new axis' * bool(self._contents.stacked)}"))
        rows += [(name or "array", self._described(name)) for name in names[:MOST_ROWS]]
        rows += [("…", f"{len(names) - MOST_ROWS} more arrays")] * (len(names) > MOST_ROWS)
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:{width}}  {text}" for label, text in rows)

    def _described(self, name: str) -> str:
        known = self._contents.known.get(name)
        if known is None:  # no reads here: Zarr formats its errors in the event loop
            return "not opened yet"
        facts = known.facts
        return f"{facts.shape}  {'text' if facts.dtype == 'O' else np.dtype(facts.dtype)}"

    def facts(self, path: str) -> Facts | None:
        """Return the facts of an array; None for any other path."""
        return self._contents.array(path).facts if path in self._contents.names else None

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return all files with their sizes and versions."""
        return self.source_files.details(prefix)

    def _identity(self) -> Any:
        return self.url, self.source_files

    def __repr__(self) -> str:
        return f"ForeignStore({self.url!r})"

    def __reduce__(self) -> Any:
        return ForeignStore, (self._contents, self._url)

    # ----------------------------------------------------------------------------------------------- locations

    def place(self, path: str, key: str) -> Place | None:
        """Return the place of a mapped array's chunk; None if it is not stored."""
        array = self._contents.array(path)
        part, index = array.place(tuple(map(int, key.split("/")[1:])))
        found = self.table(array, part).place(index)
        return None if found is None else (part, *found)

    def table(self, array: ForeignArray, part: int) -> ChunkTable:
        """Return the locations of an array's chunks in one file, cached per process."""
        key = array.name, part
        found = self._tables.get(key)
        if found is None:
            found = self._contents.reader.table(self.source_files.readable(part), array.name, array.part_facts(part))
            self._tables.keep(key, found)
        return found

    # ------------------------------------------------------------------------------------------------------ reading

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the document or chunk under ``key``; None if it does not exist."""
        data = await self._data(key, byte_range)
        return None if data is None else prototype.buffer.from_array_like(data)

    async def _data(self, key: str, byte_range: ByteRequest | None) -> np.ndarray | None:
        path, name = _parted(key)
        if name == METADATA:
            said = await asyncio.to_thread(self._document, path)
            return None if said is None else part_of(np.frombuffer(said, np.uint8), byte_range)
        if not name.startswith("c") or path not in self._contents.names:
            return None
        array = await asyncio.to_thread(self._contents.array, path)
        index = chunk_index(name, array.grid.counts)
        if index is None:
            return None
        if array.made:
            return part_of(await asyncio.to_thread(self._made_chunk, array, index), byte_range)
        return await self._range(path, name, byte_range)

    def _document(self, path: str) -> bytes | None:
        self.source_files.check_all()
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

    async def _range(self, path: str, name: str, byte_range: ByteRequest | None) -> np.ndarray | None:
        found = await asyncio.to_thread(self.place, path, name)
        if found is None:
            return None
        number, offset, nbytes = found
        start, stop = span(byte_range, nbytes)
        data = await self.source_files.range(number, offset + start, offset + stop)
        return whole_chunk(data, (stop - start,), 0)  # zeros beyond the end of the file

    def _made_chunk(self, array: ForeignArray, index: tuple[int, ...]) -> np.ndarray:
        """Return a whole chunk as plain elements, zero beyond the array; strings in Zarr's encoding."""
        section = array.grid.section(index)
        data = made_section(array, section, lambda part, there: self._elements(array, part, there))
        if array.facts.dtype == "O":
            return np.frombuffer(VLenUTF8().encode(whole_chunk(data, array.facts.chunks, "")), np.uint8)
        return whole_chunk(data, array.facts.chunks, 0).reshape(-1).view(np.uint8)

    def _elements(self, array: ForeignArray, part: int, there: Section) -> np.ndarray:
        """Read stored elements of one file."""
        facts = array.part_facts(part)
        if facts.library is not None:
            return self._contents.reader.read(self.source_files.readable(part), array.name, there.slices)
        table, grid = self.table(array, part), ChunkGrid.of(facts.shape, facts.chunks)
        out = np.empty(there.shape, facts.dtype)
        for index, place, inside in grid.placed(there.axes):
            out[place] = self._chunk(table, part, index, facts)[inside]
        return out

    def _chunk(self, table: ChunkTable, part: int, index: tuple[int, ...], facts: Facts) -> np.ndarray:
        """Read and decode a whole chunk of one file."""
        found, dtype = table.place(index), np.dtype(facts.dtype)
        if found is None:
            return np.full(facts.chunks, 0 if facts.fill is None else facts.fill, dtype)
        data = self.source_files.read(part, found[0], sum(found))
        codec = codec_of(facts.filters, None)
        out = np.empty(int(np.prod(facts.chunks, dtype=np.int64)) * dtype.itemsize, np.uint8)
        if codec is None:
            out[: len(data)] = data
        else:
            codec.decode(data, out=out)
        return _as_stored(out.view(dtype), facts)

    async def exists(self, key: str) -> bool:
        path, name = _parted(key)
        if name == METADATA:
            return path in self._contents.names or path in self._contents.groups
        if path not in self._contents.names:
            return False
        array = await asyncio.to_thread(self._contents.array, path)
        if chunk_index(name, array.grid.counts) is None:
            return False
        return array.made or await asyncio.to_thread(self.place, path, name) is not None

    # ------------------------------------------------------------------------------------------------------ listing

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
            await asyncio.to_thread(self._contents.look_at, [n for n in self._contents.names if n.startswith(path)])
            yield METADATA
            above = f"{path}/" if path else ""
            below = [each for each in (*self._contents.groups, *self._contents.names) if each.startswith(above)]
            names = (each.removeprefix(above).partition("/")[0] for each in below if each != path)
            for name in dict.fromkeys(names):
                yield name


def _parted(key: str) -> tuple[str, str]:
    """Split a key into the path of its array and the rest."""
    parts = key.split("/")
    if parts[-1] == METADATA:
        return "/".join(parts[:-1]), METADATA
    at = len(parts)
    while at and parts[at - 1].isdigit():
        at -= 1
    at = at - 1 if at and parts[at - 1] == "c" else at
    return "/".join(parts[:at]), "/".join(parts[at:])


def _as_stored(elements: np.ndarray, facts: Facts) -> np.ndarray:
    """Return a chunk's elements in the order of the array's axes."""
    if facts.order is None:
        return elements.reshape(facts.chunks)
    lying = elements.reshape([facts.chunks[axis] for axis in facts.order])
    return lying.transpose(np.argsort(facts.order))
