"""Striped stores: one Zarr store over many disks, by chunk, or by block for larger chunks.

    StripedStore(["/mnt/a", "/mnt/b", "s3://bucket/c"])

    .striped.json   on each disk: its number, the number of disks, and the cycle
    a/zarr.json     documents, and all other keys that are not chunks: on the first disk
    a/c/0/3         a chunk: on the disk of its turn, in its own file or object

If all disks are folders and chunks stay whole, chunks are plain files, read and written as in a single folder.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
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
from oocarrays.storage.striped.catalog import (
    HEAD,
    DiskCatalog,
    DiskLayout,
    StripedBlobs,
    all_of,
    head_on,
    key_of,
    put_split,
    read_split,
    unsplit,
)
from oocarrays.storage.striped.disks import DOCUMENT, FolderStore, clear_folders, label_of, part_below, parts_of
from oocarrays.storage.striped.layout import turn_of


class StripedStore(Joined):
    """A Zarr store striped over several disks, with the sum of their bandwidths.

    Neighbouring chunks along any axis are on different disks. Each disk has a small descriptor: disks may be given in
    any order, and an error names a disk that is missing, empty or another store's. It also names an old copy of a disk
    that predates the last ``oocarrays stripe`` (``--add``, ``--empty``, ``--record``), if data were written since.
    ``--verify`` compares every value with the record.

    Parameters
    ----------
    disks : sequence of path, URL or store
        Folders, prefixes of object stores, or any Zarr stores, one per disk.
    block : int, optional
        Bytes of a block: larger chunks are split into blocks over the disks. By default no chunk is split, and folders
        are then as fast as one folder.
    storage_options : mapping, optional
        Options with which URLs are opened.

    Raises
    ------
    InputError
        If a disk is invalid or given twice. `DescriptorError`, at the first access, if the disks do not belong
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
        self._given = parts_of(disks, storage_options, ways)
        self._asked = None if block is None else whole(block, "block", 1)
        self.catalog = DiskCatalog(self._given, self._asked)
        """Descriptors on the disks."""
        super().__init__(self.catalog.url, read_only=read_only)

    @property
    def disks(self) -> tuple[str, ...]:
        """Labels of the disks, in the given order."""
        return tuple(map(label_of, self._given))

    @property
    def parts(self) -> tuple[Store, ...]:
        """The disks as stores."""
        return tuple(self._given)

    @property
    def folders(self) -> tuple[str, ...]:
        """Paths of the local folders among the disks."""
        return tuple(str(part.root) for part in self._given if isinstance(part, LocalStore))

    @property
    def block(self) -> int | None:
        """Bytes of a block; None if chunks stay whole."""
        return self.layout().block

    def layout(self) -> DiskLayout:
        """Return the layout, cached once descriptors exist."""
        return self.catalog.made or sync(self.catalog.known())

    def disk_of(self, key: str) -> int:
        """Return the number of the disk of a key."""
        return self.layout().number_of(key)

    def below(self, folder: str) -> StripedStore:
        """Return the store of the same folder on each disk."""
        return self.with_disks([part_below(part, folder) for part in self._given])

    def files(self, prefix: str, *, past_cache: bool = False) -> LocalBlobs | None:
        """Return the chunks of an array as local files; None unless all disks are folders and chunks are whole."""
        if len(self.folders) < len(self._given) or self._asked is not None:
            return None
        layout = self.layout()
        whole_there = layout.block is None and not layout.before
        if not whole_there:
            return None
        return StripedBlobs(layout, prefix, begin=self.begin_writing, past_cache=past_cache)

    def with_disks(self, parts: Sequence[Store], read_only: bool | None = None) -> StripedStore:
        """Return a store of the same block size on other disks."""
        return StripedStore(parts, block=self._asked, read_only=self.read_only if read_only is None else read_only)

    def with_read_only(self, read_only: bool = False) -> StripedStore:
        """Return the same store, read-only or not."""
        return self.with_disks(self._given, read_only)

    def __reduce__(self) -> Any:
        return partial(StripedStore, block=self._asked, read_only=self.read_only), (self._given,)

    def _identity(self) -> Any:
        return self._given, self._asked, self.read_only

    def __repr__(self) -> str:
        return f"StripedStore({list(self.disks)!r})"

    def begin_writing(self) -> None:
        """Announce a writer on all disks, unless that was done."""
        sync(self.catalog.begin())

    def end_writing(self) -> int:
        """Mark the store closed on all disks, and return the generation that ends."""
        return sync(self.catalog.close())

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the value under ``key``, or None; documents require all disks."""
        layout = await self.catalog.known(anew=turn_of(key) is None)
        for part in layout.places(key):
            found = await self._get_of(layout, part, key, prototype, byte_range)
            if found is not None:
                return found
        if layout.made and turn_of(key) is not None:
            await self.catalog.check_disk(layout.part_of(key))
        return None

    async def _get_of(
        self, layout: DiskLayout, part: Store, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None
    ) -> Buffer | None:
        """Return the value of a key on one disk, split or not; retry if it changes between the two meanwhile."""
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
        layout = await self.catalog.known()
        for part in layout.places(key):
            if await part.exists(key) or (layout.block is not None and await part.exists(key + HEAD)):
                return True
        return False

    async def getsize(self, key: str) -> int:
        """Return the size in bytes of the value under ``key``."""
        layout = await self.catalog.known()
        for part in layout.places(key):
            try:
                return await part.getsize(key)
            except FileNotFoundError:
                head = None if layout.block is None else await head_on(part, key)
                if head is not None:
                    return head.length
        raise FileNotFoundError(key)

    async def set(self, key: str, value: Buffer) -> None:
        """Replace the value under ``key`` atomically: a reader sees the old value or the new one."""
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"a store takes values of type Buffer, not {type(value).__name__}")
        layout = await self.catalog.begin()
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
        self._check_writable()
        layout = await self.catalog.begin()
        if layout.block is not None and turn_of(key) is not None:
            if not await self.exists(key):
                await self.set(key, value)
        elif not layout.before or not await self.exists(key):
            await layout.part_of(key).set_if_not_exists(key, value)

    async def delete(self, key: str) -> None:
        """Delete ``key`` if it exists."""
        self._check_writable()
        layout = await self.catalog.known()
        layout = await self.catalog.begin() if layout.made else layout
        for part in reversed(layout.places(key)):  # the current place last, because it takes precedence
            await self._delete_of(layout, part, key)

    async def _delete_of(self, layout: DiskLayout, part: Store, key: str) -> None:
        if layout.block is not None:  # the split value first: it would reappear when the unsplit one is deleted
            await unsplit(layout, part, key)
        await part.delete(key)

    async def delete_dir(self, prefix: str) -> None:
        """Delete all keys below ``prefix``; for the whole store, delete the descriptors last."""
        self._check_writable()
        layout, prefix = await self.catalog.known(), prefix.strip("/")
        if prefix and layout.made:
            layout = await self.catalog.begin()
        if prefix:
            await all_of([part.delete_dir(prefix) for part in layout.parts.values()])
            return
        for part in self._given:
            for key in [key async for key in part.list() if key != DOCUMENT]:
                await part.delete(key)
        for part in self._given:
            await part.delete(DOCUMENT)
            clear_folders(part)
        self.catalog.forget()

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._keys(lambda part: part.list_prefix(prefix))

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._keys(lambda part: part.list_dir(prefix))

    async def _keys(self, names: Callable[[Store], AsyncIterator[str]]) -> AsyncIterator[str]:
        layout, seen = await self.catalog.known(), set()
        for part in layout.parts.values():
            async for name in names(part):
                key = key_of(name)
                if key is not None and key not in seen:
                    seen.add(key)
                    yield key

    async def details(self, prefix: str) -> Any:
        """Return keys with a prefix, their sizes and versions; None if a disk does not report them."""
        layout = await self.catalog.known()
        if layout.block is not None or layout.before:
            return None
        found: Any = []
        for part in layout.parts.values():
            some = await part.details(prefix) if isinstance(part, FolderStore | RemoteStore) else None
            if some is None:
                return None
            found += some
        return [each for each in found if key_of(each[0]) is not None]

    def close(self) -> None:
        for part in self._given:
            part.close()
        super().close()


def opened(url: str, options: Mapping[str, Any] | None, ways: Ways) -> StripedStore:
    """Open ``striped:///a,/b,/c!name.zarr``: a list of disks, and a path on each."""
    named, _, name = url.partition("://")[2].partition("!")
    disks = [unquote(each) for each in named.split(",")]
    if not all(disks):
        raise InputError(f"{url} names no disks; write striped:///mnt/a,/mnt/b!name.zarr")
    if name:
        disks = [f"{each.rstrip('/')}/{unquote(name).strip('/')}" for each in disks]
    return StripedStore(disks, storage_options=options, ways=ways)


def striped_of(store: Any) -> StripedStore:
    found = joined_in(store)
    if found is None or not isinstance(found[0], StripedStore) or found[1]:
        raise InputError(f"{store} is not a striped store; write striped:///mnt/a,/mnt/b!name.zarr")
    return found[0]


OPENERS["striped"] = opened
