"""Striped stores: one Zarr store over many disks, chunk by chunk, and block by block where chunks are larger.

    StripedStore(["/mnt/a", "/mnt/b", "s3://bucket/c"])

    .striped.json   on each disk: which it is of how many, and whose turn is when
    a/zarr.json     documents, and all that is not a chunk: on the first disk
    a/c/0/3         a chunk: on the disk whose turn it is, in a file or object of its own

Where all disks are folders and chunks stay whole, they are plain files, which we read and write as those of one folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.core.sync import sync
from zarr.storage import LocalStore

from oocarrays.errors import CorruptChunkError, InputError
from oocarrays.mapping.given import whole
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.stores.joined import OPENERS, Joined, joined_in
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import Ways
from oocarrays.storage.striped.descriptor import DiskDescriptor
from oocarrays.storage.striped.disk_layout import DiskLayout, StripedBlobs
from oocarrays.storage.striped.labels import Labels
from oocarrays.storage.striped.layout import turn_of
from oocarrays.storage.striped.parts import DOCUMENT, clear_folders, file_details, label_of, part_below, parts_of
from oocarrays.storage.striped.split import HEAD, all_of, head_on, key_of, put_split, read_split, unsplit

SCHEME = "striped"


class StripedStore(Joined):
    """A Zarr store whose chunks lie on several disks in turn: it is as fast as all of them together.

    Chunks that are neighbours along any axis are on different disks. Each disk has a small descriptor, so that disks
    may be given in any order, and one that is missing, empty or another store's is named in one line. So is an old copy
    of a disk, if it was made before the last ``oocarrays stripe`` (``--add``, ``--empty``, ``--record``) and data were
    written since; ``--verify`` compares every value with the record.

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
    >>> import os, tempfile, numpy as np, zarr
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     store = StripedStore([a, b])
    ...     array = zarr.create_array(store, data=np.arange(16).reshape(4, 4), chunks=(2, 2))
    ...     sorted(os.listdir(f"{a}/c/0") + os.listdir(f"{b}/c/0")), zarr.open_array(StripedStore([b, a]))[1:3, 3]
    (['0', '1'], array([ 7, 11]))
    """

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
        self._labels = Labels(self._given, self._asked)

    # -------------------------------------------------------------------------------------------------- what it is

    @property
    def url(self) -> str:
        """The URL that opens it again."""
        return self._labels.url

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

    def layout(self) -> DiskLayout:
        """Where what lies: read from the disks once there is anything."""
        return self._labels.made or sync(self._known())

    def layout_is_made(self) -> bool:
        """Return whether its disks are known to say which they are."""
        return self._labels.made is not None

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
        if not whole_there:
            return None
        return StripedBlobs(layout, prefix, begin=self.begin_writing, past_cache=past_cache)

    def _again(self, parts: Sequence[Store], read_only: bool | None = None) -> StripedStore:
        made = StripedStore.__new__(StripedStore)
        Joined.__init__(made, read_only=self.read_only if read_only is None else read_only)
        made._given, made._asked = list(parts), self._asked
        made._labels = Labels(made._given, made._asked)
        return made

    def with_disks(self, parts: Sequence[Store]) -> StripedStore:
        """Return the same store on other disks."""
        return self._again(parts)

    def with_read_only(self, read_only: bool = False) -> StripedStore:
        """Return the same store, to be read only or not."""
        return self._again(self._given, read_only)

    def __reduce__(self) -> Any:
        return _again, (self._given, self._asked, self.read_only, self._is_open)

    def _identity(self) -> Any:
        return self._given, self._asked, self.read_only

    def __repr__(self) -> str:
        return f"StripedStore({list(self.disks)!r})"

    async def _known(self, *, anew: bool = False) -> DiskLayout:
        """Return where what lies; asked again until somebody has written."""
        await self._ensure_open()
        return await self._labels.known(anew=anew)

    async def _begun(self) -> DiskLayout:
        """Return the same once all disks say which they are, and that somebody writes."""
        await self._ensure_open()
        return await self._labels.begin()

    async def known(self) -> DiskLayout:
        """Return where what lies, as the disks say now."""
        return await self._known(anew=True)

    async def described(self) -> list[DiskDescriptor]:
        """Return the descriptors of all disks, the newest first."""
        await self._ensure_open()
        return await self._labels.described()

    def said(self) -> DiskDescriptor:
        """Return what the disks say, the newest of it."""
        return sync(self.described())[0]

    def begin_writing(self) -> None:
        """Have all disks say that somebody writes, unless they do."""
        sync(self._begun())

    async def closed(self) -> int:
        """Have all disks say that nobody writes, and return the generation that ends so."""
        await self._ensure_open()
        return await self._labels.close()

    def end_writing(self) -> int:
        """Do the same from outside of an event loop."""
        return sync(self.closed())

    async def say(self, descriptors: Mapping[int, DiskDescriptor], parts: Mapping[int, Store]) -> None:
        """Write descriptors down, one disk after the other."""
        await self._labels.say(descriptors, parts)

    # ------------------------------------------------------------------------------------------------------ reading

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under ``key``, or None; of documents only while all disks are there."""
        layout = await self._known(anew=turn_of(key) is None)
        for part in layout.places(key):
            found = await self._get_of(layout, part, key, prototype, byte_range)
            if found is not None:
                return found
        if layout.made and turn_of(key) is not None:
            await self._labels.check_disk(layout.part_of(key))
        return None

    async def _get_of(
        self, layout: DiskLayout, part: Store, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """Get what one disk has under a key, split or not; looked for again where it has become the other meanwhile."""
        for _ in range(3):
            found = await part.get(key, prototype, byte_range)
            if found is not None or layout.block is None:
                return found
            head = await head_on(part, key)
            if head is None:
                return await part.get(key, prototype, byte_range)
            data = await read_split(layout, head, key, byte_range)
            if data is not None:
                return prototype.buffer.from_array_like(data)
        raise CorruptChunkError(f"{key} of {self} lacks blocks")

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
                head = None if layout.block is None else await head_on(part, key)
                if head is not None:
                    return head.length
        raise FileNotFoundError(key)

    # ------------------------------------------------------------------------------------------------------ writing

    async def set(self, key: str, value: Buffer) -> None:
        """Replace what is under ``key``, at once: whoever looks, at any time, sees the old or the new."""
        self._check_writable()
        _check_value(value)
        layout = await self._begun()
        home, *others = layout.places(key)
        if layout.block is None:
            await home.set(key, value)
        elif len(value) <= layout.block or turn_of(key) is None:
            await home.set(key, value)
            await unsplit(layout, home, key)
        else:
            await put_split(layout, home, key, value)
        for other in others:
            await self._delete_of(layout, other, key)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Put ``value`` under ``key`` if nothing is there."""
        self._check_writable()
        layout = await self._begun()
        if layout.block is not None and turn_of(key) is not None:
            if not await self.exists(key):
                await self.set(key, value)
        elif not layout.before or not await self.exists(key):
            await layout.part_of(key).set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        """Remove what is under ``key``, if there is anything."""
        self._check_writable()
        layout = await self._known()
        layout = await self._begun() if layout.made else layout
        for part in reversed(layout.places(key)):  # where it lies anew last: it counts first
            await self._delete_of(layout, part, key)

    async def _delete_of(self, layout: DiskLayout, part: Store, key: str) -> None:
        if layout.block is not None:  # first what comes to light when the other has gone
            await unsplit(layout, part, key)
        await part.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Remove all below ``prefix``; of the whole store the descriptors too, when all else has gone."""
        self._check_writable()
        layout, prefix = await self._known(), prefix.strip("/")
        if prefix and layout.made:
            layout = await self._begun()
        if prefix:
            await all_of([part.delete_dir(prefix) for part in layout.parts.values()])
            return
        for part in self._given:
            for key in [key async for key in part.list() if key != DOCUMENT]:
                await part.delete(key)
        for part in self._given:
            await part.delete(DOCUMENT)
            clear_folders(part)
        self._labels.forget()

    async def clear(self) -> None:
        """Remove all."""
        await self.delete_dir("")

    # ------------------------------------------------------------------------------------------------------ listing

    async def is_empty(self, prefix: str) -> bool:
        """Return whether there is nothing below ``prefix``."""
        async for _ in self.list_dir(prefix):
            return False
        return True

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """All keys that begin with ``prefix``."""
        return self._keys(lambda part: part.list_prefix(prefix))

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below ``prefix``."""
        return self._keys(lambda part: part.list_dir(prefix))

    async def _keys(self, names: Callable[[Store], AsyncIterator[str]]) -> AsyncIterator[str]:
        """Yield each key that stands for names on the disks once."""
        layout, seen = await self._known(), set()
        for part in layout.parts.values():
            async for name in names(part):
                key = key_of(name)
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
                found += await asyncio.to_thread(file_details, str(part.root), prefix)
            else:
                some = await part.details(prefix) if isinstance(part, RemoteStore) else None
                if some is None:
                    return None
                found += some
        return [each for each in found if key_of(each[0]) is not None]

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


def _again(given: list[Store], asked: int | None, read_only: bool, is_open: bool) -> StripedStore:
    made = StripedStore(given, block=asked, read_only=read_only)
    made._is_open = is_open
    return made


def _check_value(value: Any) -> None:
    if not isinstance(value, Buffer):
        raise TypeError(f"a store takes values of type Buffer, not {type(value).__name__}")


def opened(url: str, options: Mapping[str, Any] | None, ways: Ways) -> StripedStore:
    """Open ``striped:///a,/b,/c!name.zarr``: disks, and what is under that name on each."""
    named, _, name = url.partition("://")[2].partition("!")
    disks = [unquote(each) for each in named.split(",")]
    if not all(disks):
        raise InputError(f"{url} names no disks: it is like striped:///mnt/a,/mnt/b!name.zarr")
    if name:
        disks = [f"{each.rstrip('/')}/{unquote(name).strip('/')}" for each in disks]
    return StripedStore(disks, storage_options=options, ways=ways)


def striped_of(store: Any) -> StripedStore:
    found = joined_in(store)
    if found is None or not isinstance(found[0], StripedStore) or found[1]:
        raise InputError(f"{store} is not a striped store: it is opened by striped:///mnt/a,/mnt/b!name.zarr")
    return found[0]


OPENERS[SCHEME] = opened
