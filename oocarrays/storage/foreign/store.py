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

from oocarrays.errors import UnsupportedError, plural
from oocarrays.storage.foreign.arrays import Contents, ForeignArray
from oocarrays.storage.foreign.facts import Facts, document, whole_chunk
from oocarrays.storage.foreign.files import Files, Place, RangeBlobs
from oocarrays.storage.local.fs import METADATA, chunk_index, chunk_keys
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
        made = self._contents.array(path).made
        return None if made else RangeBlobs(self.source_files, partial(self.place, path), str(self))

    def stored_bytes(self, path: str) -> int:
        """Return the stored bytes of an array in all files."""
        array, look = self._contents.array(path), self._contents.format.facts
        parts = map(self.source_files.readable, range(len(array.bounds) - 1))
        each = (look(part, (array.name,), brief=True, located=True)[0] for part in parts)
        return sum(facts.nbytes if facts.stored is None else facts.stored for facts in each)

    def skipped(self, path: str) -> dict[str, str]:
        """Return the reasons why arrays in a group are left out, by relative path."""
        before = f"{path}/" if path else ""
        return {n.removeprefix(before): why for n, why in self._contents.skipped.items() if n.startswith(before)}

    def summary(self) -> str:
        """Return a table of files, joined axis and arrays, with shape and type of opened ones."""
        files, names = self.source_files, self._contents.names
        count = len(files.found)
        ends = f" to {files.path(count - 1)}" if count > 1 else ""
        rows = [(plural(count, "file"), f"{files.path(0)}{ends}")]
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

    # ----------------------------------------------------------------------------------------------- locations

    def place(self, path: str, key: str) -> Place | None:
        """Return the place of a mapped array's chunk; None if it is not stored."""
        array = self._contents.array(path)
        part, index = array.place(tuple(map(int, key.split("/")[1:])))
        found = self._contents.table(array.name, part).place(index)
        return None if found is None else (part, *found)

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
        found = await self._chunk_at(path, name)
        if found is None:
            return None
        if found[0].made:
            return part_of(await asyncio.to_thread(self._made_chunk, *found), byte_range)
        return await self._range(path, name, byte_range)

    async def _chunk_at(self, path: str, name: str) -> tuple[ForeignArray, tuple[int, ...]] | None:
        """Return an array and the index of a chunk of it, stored or not; None for other keys."""
        if path not in self._contents.names:
            return None
        array = await asyncio.to_thread(self._contents.array, path)
        index = chunk_index(name, array.grid.counts)
        return None if index is None else (array, index)

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
            await asyncio.to_thread(self._contents.prepare, path)
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
