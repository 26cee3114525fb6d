"""Values larger than a block: split into blocks over the disks, replaced atomically.

    c/0/3.striped                      the head: generation, bytes, block, disks        on the disk of the chunk
    c/0/3.<generation>.striped         the blocks of one disk, consecutive              on each

The blocks of a new generation are written first, then the head: an interrupted write leaves only unused blocks. An
unsplit value is under its own key and takes precedence while it exists, so that either kind replaces the other
atomically.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Awaitable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer

from oocarrays.errors import CorruptChunkError, OocError
from oocarrays.storage.stores.joined import span
from oocarrays.storage.striped.catalog import DiskLayout
from oocarrays.storage.striped.disks import HIDDEN, PROTOTYPE
from oocarrays.storage.striped.layout import runs

HEAD = ".striped"
"""Suffix of heads."""
BLOCKS = re.compile(r"\.[0-9a-f]{32}\.striped$")
"""Pattern of the suffix of blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Head of a split value, with the locations of its blocks."""

    generation: str
    """Random id in the names of the blocks."""
    length: int
    """Bytes of the value."""
    block: int
    """Bytes of a block."""
    disks: tuple[int, ...]
    """Disk number of each block, in turn."""

    @classmethod
    def new(cls, length: int, block: int, disks: tuple[int, ...]) -> Head:
        """Return the head of a new value, on at most as many disks as it has blocks."""
        return cls(generation=uuid.uuid4().hex, length=length, block=block, disks=disks[: max(-(-length // block), 1)])

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes, key: str) -> Head:
        try:
            fields = json.loads(text)
            return cls(**{**fields, "disks": tuple(fields["disks"])})
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptChunkError(f"{key}{HEAD} is damaged: it is no head of a split chunk") from error

    def key(self, key: str) -> str:
        """Return the key of the blocks on each disk."""
        return f"{key}.{self.generation}{HEAD}"

    def asked(self, byte_range: ByteRequest | None) -> tuple[int, int]:
        """Return the start and length of a requested range."""
        start, stop = span(byte_range, self.length)
        return start, stop - start

    def pieces(self, start: int, nbytes: int) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        """Return the pieces of a range by disk: turn, begin and end on the disk, and positions of its blocks in the
        range."""
        found = []
        for turn in range(len(self.disks)):
            for begin, cuts in runs(start, nbytes, self.block, len(self.disks), turn, 2**40):
                found.append((turn, begin, begin + sum(stop - low for low, stop in cuts), cuts))
        return found


async def head_on(part: Store, key: str) -> Head | None:
    """Return the head of a value on one disk; None if there is none."""
    text = await part.get(key + HEAD, PROTOTYPE)
    return None if text is None else Head.from_json(text.to_bytes(), key)


async def read_split(layout: DiskLayout, head: Head, key: str, byte_range: ByteRequest | None) -> Any:
    """Read a range of a split value; None if its blocks have been replaced."""
    start, nbytes = head.asked(byte_range)
    out, pieces = np.empty(nbytes, np.uint8), head.pieces(start, nbytes)
    come = await asyncio.gather(
        *(
            layout.parts[head.disks[turn]].get(head.key(key), PROTOTYPE, RangeByteRequest(low, high))
            for turn, low, high, _ in pieces
        )
    )
    for (_, low, high, cuts), buffer in zip(pieces, come, strict=True):
        if buffer is None or len(buffer) != high - low:
            return None
        data, at = np.frombuffer(buffer.as_buffer_like(), np.uint8), 0
        for begin, end in cuts:
            out[begin:end] = data[at : at + end - begin]
            at += end - begin
    return out


async def put_split(layout: DiskLayout, home: Store, key: str, value: Buffer) -> None:
    """Replace the value under ``key``, with its head on disk ``home``, by blocks on all disks."""
    before = await head_on(home, key)
    assert layout.block is not None, "what is split is larger than a block"
    data = np.frombuffer(value.as_buffer_like(), np.uint8)
    head = Head.new(len(data), layout.block, layout.from_turn(key))
    puts = []
    for turn, low, high, cuts in head.pieces(0, len(data)):
        part = np.concatenate([data[begin:end] for begin, end in cuts])
        assert (low, high) == (0, len(part)), "a disk has all its blocks in one"
        puts.append(layout.parts[head.disks[turn]].set(head.key(key), PROTOTYPE.buffer.from_array_like(part)))
    await all_of(puts)
    await home.set(key + HEAD, PROTOTYPE.buffer.from_bytes(head.to_json()))
    await home.delete(key)  # an unsplit value takes precedence until it is deleted
    if before is not None:
        await _drop(layout, before, key)


async def unsplit(layout: DiskLayout, home: Store, key: str) -> None:
    """Remove the head and blocks of a value that is no longer split."""
    head = await head_on(home, key)
    if head is not None:
        await home.delete(key + HEAD)
        await _drop(layout, head, key)


async def _drop(layout: DiskLayout, head: Head, key: str) -> None:
    await all_of([layout.parts[n].delete(head.key(key)) for n in dict.fromkeys(head.disks) if n in layout.parts])


async def all_of(work: Iterable[Awaitable[Any]]) -> None:
    """Await all work, then raise the first failure, an `OocError` before others."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failed = [each for each in results if isinstance(each, BaseException)]
    if failed:
        raise next((each for each in failed if isinstance(each, OocError)), failed[0])


def key_of(name: str) -> str | None:
    """Return the key of a name on a disk; None if it stands for no key."""
    if name in HIDDEN or (name.endswith(HEAD) and BLOCKS.search(name)):
        return None
    return name.removesuffix(HEAD)
