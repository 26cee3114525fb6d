"""Layout of a striped store: the disk of each key, the descriptors on the disks that state it, and split values.

    c/0/3.striped                      the head: generation, bytes, block, disks        on the disk of the chunk
    c/0/3.<generation>.striped         the blocks of one disk, consecutive              on each

Values larger than a block are split. The blocks of a new generation are written first, then the head: an interrupted
write leaves only unused blocks. An unsplit value is under its own key and takes precedence while it exists, so that
either kind replaces the other atomically.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import Any

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer

from oocarrays.errors import CorruptChunkError, DescriptorError, InputError, OocError
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import PARTIAL
from oocarrays.storage.stores.joined import span
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import joined_url
from oocarrays.storage.striped.descriptor import (
    DiskDescriptor,
    FoundDescriptor,
    announced,
    descriptors_in,
    in_order,
    newest_of,
)
from oocarrays.storage.striped.disks import DOCUMENT, HIDDEN, PROTOTYPE, FolderStore, label_of
from oocarrays.storage.striped.layout import runs, turn_of


class DiskLayout:
    """Layout of a striped store over its disks."""

    def __init__(
        self, *, parts: dict[int, Store], cycle: tuple[int, ...], before: tuple[int, ...], block: int | None, made: bool
    ) -> None:
        self.parts, self.cycle, self.before, self.block, self.made = parts, cycle, before, block, made

    def number_of(self, key: str, cycle: Sequence[int] = ()) -> int:
        """Return the disk number of a key; keys that are not chunks belong to the first disk."""
        cycle = cycle or self.cycle
        return cycle[(turn_of(key) or 0) % len(cycle)]

    def part_of(self, key: str) -> Store:
        return self.parts[self.number_of(key)]

    def places(self, key: str) -> list[Store]:
        """Return the disks that may hold a key: the current one and, during a move, the previous one."""
        here = self.part_of(key)
        there = self.parts[self.number_of(key, self.before)] if self.before else here
        return [here] if there is here else [here, there]


def _announced(name: str) -> Any:
    """Return a method of `LocalBlobs` that announces a writer before its first change."""
    change = getattr(LocalBlobs, name)

    @wraps(change)
    def call(self: StripedBlobs, *given: Any, **how: Any) -> Any:
        if not self._begun:
            self._begin()
            self._begun = True
        return change(self, *given, **how)

    return call


class StripedBlobs(LocalBlobs):
    """Chunks of one array in the folders of several disks."""

    def __init__(
        self, layout: DiskLayout, prefix: str, *, begin: Callable[[], object], past_cache: bool = False
    ) -> None:
        self._layout, self._begin, self._begun = layout, begin, False
        self._roots = [str(layout.parts[number].root) for number in layout.cycle]  # type: ignore[attr-defined]
        super().__init__(os.path.join(self._roots[0], prefix) if prefix else self._roots[0], past_cache=past_cache)
        self._prefix = prefix

    def root_of(self, key: str) -> str:
        return self._roots[(turn_of(key) or 0) % len(self._roots)]

    def path(self, key: str) -> str:
        return os.path.join(self.root_of(key), self._prefix, key)

    def range_of(self, key: str) -> tuple[str, int, int | None]:
        return self.path(key), 0, None

    put, put_pieces, change, remove = map(_announced, ("put", "put_pieces", "change", "remove"))

    def check(self) -> None:
        super().check()
        for root in dict.fromkeys(self._roots):
            LocalBlobs(root).check()


class DiskCatalog:
    """Descriptors of one striped store, reread until a writer has created them."""

    def __init__(self, parts: Sequence[Store], block: int | None) -> None:
        self.parts = parts
        self.url = joined_url([part if isinstance(part, RemoteStore) else label_of(part) for part in parts])
        self._block = block
        self._layout: DiskLayout | None = None
        self._announced = False
        self._id = uuid.uuid4().hex

    @property
    def made(self) -> DiskLayout | None:
        """The layout; None until descriptors exist on the disks."""
        return self._layout if self._layout is not None and self._layout.made else None

    def forget(self) -> None:
        self._layout, self._announced = None, False

    async def known(self, *, anew: bool = False) -> DiskLayout:
        """Return the layout; read it again until descriptors exist."""
        if self._layout is None or not self._layout.made or anew:
            self._layout = await self._read_layout()
        return self._layout

    async def _read_layout(self) -> DiskLayout:
        what, found, order = f"striped store {self.url}", await self._found(), None
        try:
            order = in_order(what, found)
        except DescriptorError:
            if not await self._is_bare(found):  # unless another process created the store since the first look
                found = await self._found()
                order = in_order(what, found)
        if order is None:
            for part in self.parts:
                if isinstance(part, FolderStore):
                    part.check_disk()
            members = tuple(range(len(self.parts)))
            parts = dict(enumerate(self.parts))
            return DiskLayout(parts=parts, cycle=members, before=(), block=self._block, made=False)
        newest = newest_of(found)
        if self._block not in (None, newest.block):
            raise InputError(f"block={self._block}: {what} has {newest.block or 'chunks that are not split'}")
        numbered = [(d.number, self.parts[place]) for place in order if (d := found[place].descriptor) is not None]
        return DiskLayout(parts=dict(numbered), cycle=newest.cycle, before=newest.before, block=newest.block, made=True)

    async def _found(self) -> list[FoundDescriptor]:
        await asyncio.gather(*(part._ensure_open() for part in self.parts))
        texts = await asyncio.gather(*(part.get(DOCUMENT, PROTOTYPE) for part in self.parts))
        documents = (None if text is None else text.to_bytes() for text in texts)
        return descriptors_in(documents, map(label_of, self.parts), DOCUMENT, "store")

    async def _is_bare(self, found: Sequence[FoundDescriptor]) -> bool:
        """Return whether the disks hold only some descriptors, left by an interrupted creation or removal."""
        if all(each.descriptor is not None for each in found):
            return False
        for part in self.parts:
            async for key in part.list():
                if key != DOCUMENT and not PARTIAL.search(key):  # a concurrent writer has only partial files so far
                    return False
        return True

    async def make(self) -> DiskLayout:
        """Write missing descriptors on all disks; the first disk decides between concurrent creators."""
        layout = await self.known()
        if layout.made:
            return layout
        members = tuple(layout.parts)
        of = DiskDescriptor(
            name=self.url, id=self._id, kind="store", disks=len(members), block=self._block, number=0, closed=False,
            phase="open", cycle=members,
        )  # fmt: skip
        first = layout.parts[0]
        await first.set_if_not_exists(DOCUMENT, _buffer(of.to_json()))
        there = await first.get(DOCUMENT, PROTOTYPE)
        text = of.to_json() if there is None else there.to_bytes()
        made = DiskDescriptor.from_json(text, f"{label_of(first)}/{DOCUMENT}", "store")
        await _put(layout.parts, [replace(made, number=number) for number in layout.parts if number])
        return await self.known(anew=True)

    async def begin(self) -> DiskLayout:
        """Announce a writer on all disks before its first write, and return the layout."""
        layout = await self.make()
        if not self._announced:
            present = await self.descriptors()
            if any(each.closed or each.phase == "opening" for each in present):
                for descriptors in announced(present):
                    await _put(layout.parts, descriptors)
            self._announced = True
        return layout

    async def close(self) -> int:
        """Mark the store closed on all disks, and return the generation that ends."""
        layout, (newest, *_) = await self.known(anew=True), await self.descriptors()
        await self.write(layout.parts, replace(newest, closed=True, phase=""))
        return newest.generation

    async def descriptors(self) -> list[DiskDescriptor]:
        found = [d for each in await self._found() if (d := each.descriptor) is not None]
        return sorted(found, key=lambda each: (-each.generation, not each.closed))

    async def write(self, parts: Mapping[int, Store], descriptor: DiskDescriptor) -> None:
        """Write a descriptor to disks by their numbers, one after the other."""
        for number in parts:
            await _put(parts, [replace(descriptor, number=number)])
        self.forget()

    async def check_disk(self, part: Store) -> None:
        """Raise if a disk has lost its descriptor, so that its values do not count as missing."""
        if await part.get(DOCUMENT, PROTOTYPE) is None:
            raise DescriptorError(f"disk {label_of(part)} of striped store {self.url} is empty or missing")


def _buffer(data: bytes) -> Buffer:
    return PROTOTYPE.buffer.from_bytes(data)


async def _put(parts: Mapping[int, Store], descriptors: Iterable[DiskDescriptor]) -> None:
    await asyncio.gather(*(parts[each.number].set(DOCUMENT, _buffer(each.to_json())) for each in descriptors))


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
        return f"{key}.{self.generation}{HEAD}"

    def pieces(self, start: int, nbytes: int) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        """Return the pieces of a range: turn, begin and end on the disk, and positions of its blocks in the range."""
        disks = len(self.disks)
        each = ((turn, *run) for turn in range(disks) for run in runs(start, nbytes, self.block, disks, turn, 2**40))
        return [(turn, begin, begin + sum(stop - low for low, stop in cuts), cuts) for turn, begin, cuts in each]


async def head_on(part: Store, key: str) -> Head | None:
    text = await part.get(key + HEAD, PROTOTYPE)
    return None if text is None else Head.from_json(text.to_bytes(), key)


async def read_split(layout: DiskLayout, head: Head, key: str, byte_range: ByteRequest | None) -> Any:
    """Read a range of a split value; None if its blocks have been replaced."""
    start, stop = span(byte_range, head.length)
    out, pieces, name = np.empty(stop - start, np.uint8), head.pieces(start, stop - start), head.key(key)
    parts = ((layout.parts[head.disks[turn]], RangeByteRequest(low, high)) for turn, low, high, _ in pieces)
    come = await asyncio.gather(*(part.get(name, PROTOTYPE, wanted) for part, wanted in parts))
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
    disks = sorted(set(layout.cycle))
    turn = disks.index(layout.number_of(key))
    head = Head.new(len(data), layout.block, (*disks[turn:], *disks[:turn]))
    puts = []
    for turn, low, high, cuts in head.pieces(0, len(data)):
        part = np.concatenate([data[begin:end] for begin, end in cuts])
        assert (low, high) == (0, len(part)), "a disk has all its blocks in one"
        puts.append(layout.parts[head.disks[turn]].set(head.key(key), PROTOTYPE.buffer.from_array_like(part)))
    await all_of(puts)
    await home.set(key + HEAD, _buffer(head.to_json()))
    await home.delete(key)  # an unsplit value takes precedence until it is deleted
    if before is not None:
        await _drop(layout, before, key)


async def unsplit(layout: DiskLayout, home: Store, key: str) -> None:
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
