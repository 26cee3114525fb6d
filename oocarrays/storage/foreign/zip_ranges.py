"""Zip files that are not on this machine, by byte ranges: the index when one is opened, entries when they are wanted.

a.zip    entry c/0/1 │ entry c/0/2 │ … │ index      get("c/0/1", 8 … 40) ─►  those bytes of the object, if it is
                                                                             stored there as it is
"""

from __future__ import annotations

import asyncio
import io
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from oocarrays.errors import NotFoundError, StoreFailure
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.stores.joined import OnlyRead, span

HEADER_BYTES = 30
"""Of an entry, before its name: what the index does not say is how long its name and more are there."""


class ZipRanges(OnlyRead):
    """A zip file that is read by ranges.

    Parameters
    ----------
    files : Files
        The one file.
    url : str
        The URL that opens it again.
    """

    why = "a zip file that is not on this machine is only read"

    def __init__(self, files: Files, url: str) -> None:
        super().__init__(url)
        self._files = files
        self._entries = _index(files, url)
        self._starts: dict[str, int] = {}

    def __reduce__(self) -> Any:
        return ZipRanges, (self._files, self._url)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZipRanges) and self._files == other._files

    __hash__ = None  # type: ignore[assignment]

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return the file, its bytes, and what changes with each writing."""
        return [(f"{prefix}{self._files.names[0]}", self._files.sizes[0], self._files.versions[0])]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under a key."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        start, stop = span(byte_range, entry.file_size)
        if entry.compress_type == zipfile.ZIP_STORED:
            first = await self._start(entry)
            data = await self._files.range(0, first + start, first + stop)
        else:
            data = (await asyncio.to_thread(_inflated, await self._coded(entry), str(self), key))[start:stop]
        return prototype.buffer.from_array_like(data)

    async def _start(self, entry: zipfile.ZipInfo) -> int:
        """Where the bytes of an entry begin."""
        if entry.filename not in self._starts:
            head = await self._files.range(0, entry.header_offset, entry.header_offset + HEADER_BYTES)
            more = int(head[26]) + 256 * int(head[27]) + int(head[28]) + 256 * int(head[29])
            self._starts[entry.filename] = entry.header_offset + HEADER_BYTES + more
        return self._starts[entry.filename]

    async def _coded(self, entry: zipfile.ZipInfo) -> np.ndarray:
        if entry.compress_type != zipfile.ZIP_DEFLATED:
            raise StoreFailure(
                f"{entry.filename} of {self} is compressed otherwise than by deflate: copy the file here"
            )
        first = await self._start(entry)
        return await self._files.range(0, first, first + entry.compress_size)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Get many, all at one time."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is anything under a key."""
        return key in self._entries

    async def list(self) -> AsyncIterator[str]:
        """All keys."""
        for key in self._entries:
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with a prefix."""
        for key in self._entries:
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix."""
        before = f"{prefix.rstrip('/')}/" if prefix else ""
        below = (key.removeprefix(before).partition("/")[0] for key in self._entries if key.startswith(before))
        for name in dict.fromkeys(below):
            yield name


def _index(files: Files, url: str) -> dict[str, zipfile.ZipInfo]:
    """All entries of a zip file, of several of one name the last."""
    file: Any = files.readable(0)
    assert isinstance(file, io.BufferedReader), "those on this machine are opened by Zarr"
    try:
        with zipfile.ZipFile(file) as opened:
            return {entry.filename: entry for entry in opened.infolist() if not entry.is_dir()}
    except zipfile.BadZipFile as error:
        raise NotFoundError(f"{url} cannot be opened as a zip file: {error}") from error


def _inflated(data: np.ndarray, url: str, key: str) -> np.ndarray:
    try:
        return np.frombuffer(zlib.decompress(data.data, -zlib.MAX_WBITS), np.uint8)
    except zlib.error as error:
        raise StoreFailure(f"{key} of {url} cannot be inflated: {error}") from error
