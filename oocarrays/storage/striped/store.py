"""Striped stores: one Zarr store over many disks, chunk by chunk, and block by block where chunks are larger.

    StripedStore(["/mnt/a", "/mnt/b", "s3://bucket/c"])

    .striped.json   on each disk: which it is of how many, and whose turn is when
    a/zarr.json     documents, and all that is no chunk: on the first disk
    a/c/0/3         a chunk: on the disk whose turn it is, in a file or object of its own

Where all disks are folders and chunks stay whole, they are plain files, which we read and write as those of one folder.
"""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from oocarrays.errors import CorruptChunkError, DescriptorError, InputError, OocError
from oocarrays.mapping.given import whole
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.stores.joined import OPENERS, Joined
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import Ways, joined_url
from oocarrays.storage.striped.descriptor import Descriptor, Found, in_order, newest_of
from oocarrays.storage.striped.layout import PARTIAL, turn_of
from oocarrays.storage.striped.parts import DOCUMENT, FolderStore, label_of, part_below, parts_of
from oocarrays.storage.striped.split import BLOCKS, HEAD, Head

SCHEME = "striped"
PROTOTYPE = default_buffer_prototype()


class StripedStore(Joined):
    """A Zarr store whose chunks lie on several disks in turn: it is as fast as all of them together.

    Chunks that are neighbours along any axis are on different disks. Each disk has a small descriptor, so that disks
    may be given in any order, and one that is missing, empty, an old copy or another store's is named in one line.

    Parameters
    ----------
    disks : sequence of path, URL or store
        Folders, prefixes of object stores, or any Zarr stores, one a disk.
    block : int, optional
        Bytes: chunks of more are split into blocks that lie on the disks in turn. By default none is, and folders are
        then as fast as one folder.
    storage_options : mapping, optional
        How URLs are opened.

    Raises
    ------
    InputError
        Where a disk is given twice, or is none. `DescriptorError`, at the first access, where disks do not belong
        together.

    Examples
    --------
    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     store = StripedStore([a, b])
    ...     array = zarr.create_array(store, data=np.arange(16).reshape(4, 4), chunks=(2, 2))
    ...     sorted(os.listdir(f"{a}/c/0") + os.listdir(f"{b}/c/0")), zarr.open_array(StripedStore([b, a]))[1:3, 3]
    (['0', '1'], array([ 7, 11]))
    """

    supports_writes = supports_deletes = supports_listing = True
    supports_partial_writes = False

    def __init__(
        self,
        disks: Sequence[Any],
        *,
        block: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        read_only: bool = False,
        ways: Ways | None = None,
    ) -> None:
        super().__init__(read_only=read_only)
        self._given = parts_of(disks, storage_options, ways)
        self._asked = None if block is None else whole(block, "block", 1)
        self._layout: Layout | None = None
        self._lock = threading.Lock()
        self._id = uuid.uuid4().hex

    # -------------------------------------------------------------------------------------------------- what it is

    @property
    def url(self) -> str:
        """What opens it again."""
        return joined_url([part if isinstance(part, RemoteStore) else label_of(part) for part in self._given])

    @property
    def disks(self) -> tuple[str, ...]:
        """The disks, as a person calls them, as they were given."""
        return tuple(map(label_of, self._given))

    @property
    def parts(self) -> tuple[Store, ...]:
        """The same as stores."""
        return tuple(self._given)

    @property
    def folders(self) -> tuple[str, ...]:
        """The local folders among its disks."""
        return tuple(str(part.root) for part in self._given if isinstance(part, LocalStore))

    @property
    def block(self) -> int | None:
        """Bytes of a block; None where chunks stay whole."""
        return self.layout().block

    def layout(self) -> Layout:
        """Where what lies: read from the disks once there is anything."""
        known = self._layout
        return sync(self._known()) if known is None or not known.made else known

    def layout_is_made(self) -> bool:
        """Return whether its disks are known to say which they are."""
        return self._layout is not None and self._layout.made

    def disk_of(self, key: str) -> int:
        """Return the number of the disk that has a key."""
        return self.layout().number_of(key)

    def below(self, folder: str) -> StripedStore:
        """Return what is made of the same disks' folders of that name."""
        return self._again([part_below(part, folder) for part in self._given])

    def files(self, prefix: str, *, past_cache: bool = False) -> LocalBlobs | None:
        """Return the chunks of an array as local files; None where they are not, each whole, in folders."""
        if len(self.folders) < len(self._given) or self._asked is not None:
            return None
        layout = self.layout()
        whole_there = layout.block is None and not layout.before
        return StripedBlobs(layout, prefix, past_cache=past_cache) if whole_there else None

    def _again(self, parts: Sequence[Store], read_only: bool | None = None) -> StripedStore:
        made = StripedStore.__new__(StripedStore)
        Store.__init__(made, read_only=self.read_only if read_only is None else read_only)
        made._given, made._asked, made._layout = list(parts), self._asked, None
        made._lock, made._id = threading.Lock(), uuid.uuid4().hex
        return made

    def with_disks(self, parts: Sequence[Store]) -> StripedStore:
        """Return the same store on other disks."""
        return self._again(parts)

    def with_read_only(self, read_only: bool = False) -> StripedStore:
        """Return the same store, to be read only or not."""
        return self._again(self._given, read_only)

    def __reduce__(self) -> Any:
        return _again, (self._given, self._asked, self.read_only, self._is_open)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StripedStore) and (self._given, self._asked, self.read_only) == (
            other._given,
            other._asked,
            other.read_only,
        )

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.url

    def __repr__(self) -> str:
        return f"StripedStore({list(self.disks)!r})"

    # ------------------------------------------------------------------------------------------------ descriptors

    async def _known(self, *, anew: bool = False) -> Layout:
        """Return where what lies; asked again until somebody has written."""
        if self._layout is None or not self._layout.made or anew:
            self._layout = await self._read_layout()
        return self._layout

    async def _read_layout(self) -> Layout:
        if not self._is_open:
            await self._open()
        what, found, order = f"striped store {self.url}", await self._found(), None
        try:
            order = in_order(what, found)
        except DescriptorError:
            if not await self._is_bare(found):  # unless another has made it, and written, since it was looked at
                found = await self._found()
                order = in_order(what, found)
        if order is None:
            for part in self._given:
                if isinstance(part, FolderStore):
                    part.check_disk()
            members = tuple(range(len(self._given)))
            return Layout(parts=dict(enumerate(self._given)), cycle=members, before=(), block=self._asked, made=False)
        said = newest_of(found)
        if self._asked not in (None, said.block):
            raise InputError(f"block={self._asked}: {what} has {said.block or 'chunks that are not split'}")
        numbered = [(d.number, self._given[place]) for place in order if (d := found[place].descriptor) is not None]
        return Layout(parts=dict(numbered), cycle=said.cycle, before=said.before, block=said.block, made=True)

    async def _found(self) -> list[Found]:
        """Read the descriptors of all disks."""
        texts = await asyncio.gather(*(part.get(DOCUMENT, PROTOTYPE) for part in self._given))
        return [
            Found(label=label, descriptor=None if text is None else _descriptor(text.to_bytes(), label))
            for label, text in zip(self.disks, texts, strict=True)
        ]

    async def _is_bare(self, found: Sequence[Found]) -> bool:
        """Return whether there is nothing but some descriptors: of one that was being made, or removed, by who died."""
        if all(each.descriptor is not None for each in found):
            return False
        for part in self._given:
            async for key in part.list():
                if key != DOCUMENT and not PARTIAL.search(key):  # of what another writes just now there is no more yet
                    return False
        return True

    async def _make(self) -> Layout:
        """Say on all disks which they are, where that is not said; the disk that is first decides who it was."""
        layout = await self._known()
        if layout.made:
            return layout
        members = tuple(layout.parts)
        of = Descriptor(
            name=self.url, id=self._id, kind="store", disks=len(members), block=self._asked, number=0, cycle=members
        )
        first = layout.parts[0]
        await first.set_if_not_exists(DOCUMENT, _buffer(of.to_json()))
        there = await first.get(DOCUMENT, PROTOTYPE)
        said = _descriptor((there or _buffer(of.to_json())).to_bytes(), label_of(first))
        others = [(number, part) for number, part in layout.parts.items() if number]
        await asyncio.gather(
            *(part.set(DOCUMENT, _buffer(replace(said, number=number).to_json())) for number, part in others)
        )
        return await self._known(anew=True)

    def said(self) -> Descriptor:
        """Return what the disks say, the newest of it."""
        texts = [sync(part.get(DOCUMENT, PROTOTYPE)) for part in self._given]
        labels = zip(self.disks, texts, strict=True)
        return newest_of(
            [Found(label=l, descriptor=None if t is None else _descriptor(t.to_bytes(), l)) for l, t in labels]
        )

    async def say(self, descriptors: Mapping[int, Descriptor], parts: Mapping[int, Store]) -> None:
        """Write descriptors down, one disk after the other."""
        for number, said in descriptors.items():
            await parts[number].set(DOCUMENT, _buffer(said.to_json()))
        self._layout = None

    async def _check_disk(self, part: Store) -> None:
        """Refuse to take for missing what is on a disk that has gone."""
        if await part.get(DOCUMENT, PROTOTYPE) is None:
            raise DescriptorError(f"disk {label_of(part)} of striped store {self.url} is empty, or has gone")

    # ------------------------------------------------------------------------------------------------------ reading

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under ``key``, or None; of documents only while all disks are there."""
        layout = await self._known(anew=turn_of(key) is None)
        for part in layout.places(key):
            found = await self._get_of(layout, part, key, prototype, byte_range)
            if found is not None:
                return found
        if layout.made and turn_of(key) is not None:
            await self._check_disk(layout.part_of(key))
        return None

    async def _get_of(
        self, layout: Layout, part: Store, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """Get what one disk has under a key, split or not; looked for again where it has become the other meanwhile."""
        for _ in range(3):
            found = await part.get(key, prototype, byte_range)
            if found is not None or layout.block is None:
                return found
            head = await self.head_on(part, key)
            if head is None:
                return await part.get(key, prototype, byte_range)
            data = await self._blocks(layout, head, key, byte_range)
            if data is not None:
                return prototype.buffer.from_array_like(data)
        raise CorruptChunkError(f"{key} of {self} lacks blocks")

    @staticmethod
    async def head_on(part: Store, key: str) -> Head | None:
        """Return what one disk says of the blocks of a value; None where it says nothing."""
        text = await part.get(key + HEAD, PROTOTYPE)
        return None if text is None else Head.from_json(text.to_bytes(), key)

    async def _blocks(self, layout: Layout, head: Head, key: str, byte_range: ByteRequest | None) -> Any:
        """Get a range of a split value; None where its blocks have been replaced."""
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

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Get many, all at one time."""
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        """Return whether there is anything under ``key``."""
        layout = await self._known()
        for part in layout.places(key):
            if await part.exists(key) or (layout.block is not None and await part.exists(key + HEAD)):
                return True
        return False

    async def getsize(self, key: str) -> int:
        """Return the bytes under ``key``."""
        layout = await self._known()
        for part in layout.places(key):
            try:
                return await part.getsize(key)
            except FileNotFoundError:
                head = None if layout.block is None else await self.head_on(part, key)
                if head is not None:
                    return head.length
        raise FileNotFoundError(key)

    # ------------------------------------------------------------------------------------------------------ writing

    async def set(self, key: str, value: Buffer) -> None:
        """Replace what is under ``key``, at once: whoever looks, at any time, sees the old or the new."""
        self._check_writable()
        _check_value(value)
        layout = await self._make()
        home, *others = layout.places(key)
        if layout.block is None:
            await home.set(key, value)
        elif len(value) <= layout.block or turn_of(key) is None:
            await home.set(key, value)
            await self._unsplit(layout, home, key)
        else:
            await self._split(layout, home, key, value)
        for other in others:
            await self._delete_of(layout, other, key)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put ``value`` under ``key`` if nothing is there."""
        self._check_writable()
        layout = await self._make()
        if layout.block is not None and turn_of(key) is not None:
            if not await self.exists(key):
                await self.set(key, value)
        elif not layout.before or not await self.exists(key):
            await layout.part_of(key).set_if_not_exists(key, value)

    async def _split(self, layout: Layout, home: Store, key: str, value: Buffer) -> None:
        before = await self.head_on(home, key)
        assert layout.block is not None, "what is split is larger than a block"
        data = np.frombuffer(value.as_buffer_like(), np.uint8)
        head = Head.new(len(data), layout.block, layout.from_turn(key))
        puts = []
        for turn, low, high, cuts in head.pieces(0, len(data)):
            part = np.concatenate([data[begin:end] for begin, end in cuts])
            assert (low, high) == (0, len(part)), "a disk has all its blocks in one"
            puts.append(layout.parts[head.disks[turn]].set(head.key(key), PROTOTYPE.buffer.from_array_like(part)))
        await _all(puts)
        await home.set(key + HEAD, _buffer(head.to_json()))
        await home.delete(key)  # what was not split counts until it has gone
        if before is not None:
            await self._drop(layout, before, key)

    async def _unsplit(self, layout: Layout, home: Store, key: str) -> None:
        """Remove the blocks of what is not split any more."""
        head = await self.head_on(home, key)
        if head is not None:
            await home.delete(key + HEAD)
            await self._drop(layout, head, key)

    async def _drop(self, layout: Layout, head: Head, key: str) -> None:
        await _all([layout.parts[n].delete(head.key(key)) for n in dict.fromkeys(head.disks) if n in layout.parts])

    async def delete(self, key: str) -> None:
        """Remove what is under ``key``, if there is anything."""
        self._check_writable()
        layout = await self._known()
        for part in reversed(layout.places(key)):  # where it lies anew last: it counts first
            await self._delete_of(layout, part, key)

    async def _delete_of(self, layout: Layout, part: Store, key: str) -> None:
        if layout.block is not None:  # first what comes to light when the other has gone
            await self._unsplit(layout, part, key)
        await part.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below ``prefix``; of the whole store the descriptors too, when all else has gone."""
        self._check_writable()
        layout, prefix = await self._known(), prefix.strip("/")
        if prefix:
            await _all([part.delete_dir(prefix) for part in layout.parts.values()])
            return
        for part in self._given:
            for key in [key async for key in part.list() if key != DOCUMENT]:
                await part.delete(key)
        for part in self._given:
            await part.delete(DOCUMENT)
            if isinstance(part, FolderStore):
                part.clear_folders()
        self._layout = None

    async def clear(self) -> None:
        """Remove all."""
        await self.delete_dir("")

    # ------------------------------------------------------------------------------------------------------ listing

    async def is_empty(self, prefix: str) -> bool:
        """Return whether there is nothing below ``prefix``."""
        async for _ in self.list_dir(prefix):
            return False
        return True

    def list(self) -> AsyncIterator[str]:
        """All keys."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with ``prefix``."""
        layout, seen = await self._known(), set()
        for part in layout.parts.values():
            async for name in part.list_prefix(prefix):
                key = _key_of(name)
                if key is not None and key not in seen:
                    seen.add(key)
                    yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below ``prefix``."""
        layout, seen = await self._known(), set()
        for part in layout.parts.values():
            async for name in part.list_dir(prefix):
                key = _key_of(name)
                if key is not None and key not in seen:
                    seen.add(key)
                    yield key

    async def details(self, prefix: str) -> Any:
        """Return all keys with a prefix, their bytes, and what changes with each writing; None if not told."""
        layout = await self._known()
        if layout.block is not None or layout.before:
            return None
        found: Any = []
        for part in layout.parts.values():
            if isinstance(part, LocalStore):
                found += await asyncio.to_thread(_file_details, str(part.root), prefix)
            else:
                some = await part.details(prefix) if isinstance(part, RemoteStore) else None
                if some is None:
                    return None
                found += some
        return [each for each in found if _key_of(each[0]) is not None]

    async def _open(self) -> None:
        if self._is_open:
            raise ValueError("store is already open")
        for part in self._given:
            await part._ensure_open()
        self._is_open = True

    def close(self) -> None:
        """Close the disks."""
        for part in self._given:
            part.close()
        super().close()


class Layout:
    """Where what lies in a striped store.

    Parameters
    ----------
    parts : dict
        The disks, by their numbers.
    cycle, before : tuple of int
        Whose turn is when; and was, where chunks are being moved.
    made : bool
        Whether that is said on the disks.
    """

    def __init__(
        self, *, parts: dict[int, Store], cycle: tuple[int, ...], before: tuple[int, ...], block: int | None, made: bool
    ) -> None:
        self.parts, self.cycle, self.before, self.block, self.made = parts, cycle, before, block, made

    def number_of(self, key: str, cycle: Sequence[int] = ()) -> int:
        """Return the disk of a key: of what is no chunk the first."""
        cycle = cycle or self.cycle
        return cycle[(turn_of(key) or 0) % len(cycle)]

    def part_of(self, key: str) -> Store:
        """Return the same as a store."""
        return self.parts[self.number_of(key)]

    def places(self, key: str) -> list[Store]:
        """Where a key may be: on its disk; where chunks are being moved on the one before, or meanwhile on its own."""
        here = self.part_of(key)
        there = self.parts[self.number_of(key, self.before)] if self.before else here
        return [here] if there is here else [here, there]

    def from_turn(self, key: str) -> tuple[int, ...]:
        """Return all disks, from that of a key on."""
        disks = sorted(set(self.cycle))
        first = disks.index(self.number_of(key))
        return (*disks[first:], *disks[:first])


class StripedBlobs(LocalBlobs):
    """The chunks of one array in the folders of several disks."""

    def __init__(self, layout: Layout, prefix: str, *, past_cache: bool = False) -> None:
        self._layout = layout
        self._roots = [str(layout.parts[number].root) for number in layout.cycle]  # type: ignore[attr-defined]
        super().__init__(os.path.join(self._roots[0], prefix) if prefix else self._roots[0], past_cache=past_cache)
        self._prefix = prefix

    def root_of(self, key: str) -> str:
        """Return the folder of the disk that has a chunk."""
        return self._roots[(turn_of(key) or 0) % len(self._roots)]

    def path(self, key: str) -> str:
        """Where the chunk under ``key`` is, or would be."""
        return os.path.join(self.root_of(key), self._prefix, key)

    def check(self) -> None:
        """Refuse to write where a disk has gone."""
        super().check()
        for root in dict.fromkeys(self._roots):
            LocalBlobs(root).check()


def _again(given: list[Store], asked: int | None, read_only: bool, is_open: bool) -> StripedStore:
    made = StripedStore(given, block=asked, read_only=read_only)
    made._is_open = is_open
    return made


def _buffer(data: bytes) -> Buffer:
    return PROTOTYPE.buffer.from_bytes(data)


def _descriptor(text: bytes, label: str) -> Descriptor:
    said = Descriptor.from_json(text, f"{label}/{DOCUMENT}")
    if said.kind != "store":
        raise DescriptorError(f"{label}/{DOCUMENT} is of a striped file, not of a store")
    return said


def _check_value(value: Any) -> None:
    if not isinstance(value, Buffer):
        raise TypeError(f"a store takes values of type Buffer, not {type(value).__name__}")


def _key_of(name: str) -> str | None:
    """Return the key that a name on a disk stands for; None of what is no key.

    >>> _key_of("c/0"), _key_of("c/0.striped"), _key_of(f"c/0.{32 * 'f'}.striped"), _key_of(".striped.json")
    ('c/0', 'c/0', None, None)
    """
    if name == DOCUMENT or (name.endswith(HEAD) and BLOCKS.search(name)):
        return None
    return name.removesuffix(HEAD)


async def _all(work: Iterable[Awaitable[Any]]) -> None:
    """Do all, and tell what failed first when all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    failed = [each for each in results if isinstance(each, BaseException)]
    if failed:
        raise next((each for each in failed if isinstance(each, OocError)), failed[0])


def _file_details(root: str, prefix: str) -> list[tuple[str, int, str]]:
    """List names, sizes and versions of the files of a disk."""
    found = []
    for folder, _, names in os.walk(os.path.join(root, prefix.rpartition("/")[0])):
        for name in names:
            path = os.path.join(folder, name)
            key = os.path.relpath(path, root)
            if key.startswith(prefix) and not name.endswith(".partial"):
                try:
                    status = os.stat(path)
                except FileNotFoundError:
                    continue
                found.append((key, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}"))
    return found


def opened(url: str, options: Mapping[str, Any] | None, ways: Ways) -> StripedStore:
    """Open ``striped:///a,/b,/c!name.zarr``: disks, and what is under that name on each.

    >>> opened("striped:///a,/b!x.zarr", None, Ways()).disks
    ('/a/x.zarr', '/b/x.zarr')
    """
    named, _, name = url.partition("://")[2].partition("!")
    disks = [unquote(each) for each in named.split(",")]
    if not all(disks):
        raise InputError(f"{url} names no disks: it is like striped:///mnt/a,/mnt/b!name.zarr")
    if name:
        disks = [f"{each.rstrip('/')}/{unquote(name).strip('/')}" for each in disks]
    return StripedStore(disks, storage_options=options, ways=ways)


OPENERS[SCHEME] = opened
