"""Stores composed of others, with the interface that the storage layer requires of them, and files beside an array.

    target/.oocarrays/draft.zarr.json   ─►   target/zarr.json        format 3
    target/.oocarrays/draft.zarray      ─►   target/.zarray          format 2, after .zattrs

The metadata of a target is a draft during the run, which other Zarr readers ignore. The final document is written last,
after all chunks are stored. If it exists, it is valid and supersedes the draft.

    c/0/1, zarr.json        ─►  the store       stores that accept only an array's own keys
    .oocarrays/plan.json    ─►  memory
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
import zarr
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import MemoryStore, StorePath, WrapperStore
from zarr.storage._utils import _normalize_byte_range_index

from oocarrays.errors import NotFoundError, StoreFailure
from oocarrays.storage.local.fs import ARRAY_2, ATTRIBUTES_2, GROUP_2, OURS, draft_key, is_document, names_below

T = TypeVar("T", bound=Store)
D = TypeVar("D", np.ndarray, Buffer)
N = TypeVar("N", bound=zarr.Array | zarr.Group)
OPENERS: dict[str, Callable[[str, Mapping[str, Any] | None, Any], Store]] = {}
"""Openers of URLs by scheme, registered by each joined store."""
PLACES: list[Callable[[Any, Mapping[str, Any] | None, Any], Any]] = []
"""Recognizers of locations and of other libraries' objects; each returns a store, or None for foreign ones."""
SHORTER: list[Callable[[Store, str], Store | None]] = []
"""Shortcuts to the contents of a store, by its name; each returns a store, or None."""


def have_all_entered() -> None:
    """Import the modules that register their stores, at the first access to a location."""
    for module in ("oocarrays.storage.striped.store", "oocarrays.storage.foreign.places"):
        import_module(module)


async def _get_each(
    store: Store, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
) -> list[Buffer | None]:
    return list(await asyncio.gather(*(store.get(key, prototype, part) for key, part in key_ranges)))


class Joined(Store):
    """Base of stores composed of others or of files; a store has ``get``, ``exists``, ``list_prefix`` and identity."""

    supports_writes = supports_deletes = True
    supports_partial_writes = False
    supports_listing = True
    is_foreign: ClassVar[bool] = False
    """Whether it shows files of another format as Zarr."""

    def __init__(self, url: str = "", *, read_only: bool = True) -> None:
        super().__init__(read_only=read_only)
        self.url = url
        """URL that opens the store."""

    @abstractmethod
    def _identity(self) -> Any:
        """Return a value that is equal for equal stores."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.url

    get_partial_values = _get_each

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in names_below([key async for key in self.list_prefix(prefix)], prefix):
            yield name

    @property
    def disks(self) -> tuple[str, ...]:
        """Folders or URLs of its parts; empty unless the store is striped over disks."""
        return ()

    @property
    def folders(self) -> tuple[str, ...]:
        return ()

    def summary(self) -> list[tuple[str, str]]:
        """Return the joined parts as rows of label and text; none if the name suffices."""
        return []

    @abstractmethod
    def below(self, folder: str) -> Joined:
        """Return the store of the same folder in each part."""

    def files(self, prefix: str, *, past_cache: bool = False) -> Any:
        """Return an array's chunks as `LocalBlobs` if each is one local file, else None."""
        return None

    def disk_of(self, key: str) -> int:
        return 0

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return keys with a prefix, their sizes and versions; None if unavailable."""
        return None

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")


class ReadOnlyStore(Joined):
    """Read-only store of what ``inner`` describes: equal stores have equal ones."""

    supports_writes = supports_deletes = False
    is_what: ClassVar[str] = "is a file, and has"
    """Verb phrase in error messages before a missing feature."""
    why: ClassVar[str]
    """Reason in error messages for being read-only."""

    def __init__(self, inner: Any, url: str) -> None:
        super().__init__(url)
        self._inner = inner

    def __reduce__(self) -> Any:
        return type(self), (self._inner, self.url)

    def _identity(self) -> Any:
        return self._inner

    def with_read_only(self, read_only: bool = False) -> Store:
        if not read_only:
            raise NotImplementedError(f"{self} is only read")
        return self

    def below(self, folder: str) -> Joined:
        raise NotFoundError(f"{self} {self.is_what} no folder {folder}")

    async def set(self, key: str, value: Buffer) -> None:
        raise StoreFailure(f"cannot write {key} of {self}: {self.why}")

    async def delete(self, key: str) -> None:
        raise StoreFailure(f"cannot remove {key} of {self}: {self.why}")


class Wrapped(WrapperStore[T]):
    """Wrapper that handles all requests by its own ``get`` and ``set``.

    Zarr's `WrapperStore` forwards ranges, lists of keys and synchronous requests directly to the wrapped store, and
    thus bypasses a subclass's treatment of keys and bytes.
    """

    get_sync = set_sync = delete_sync = None  # type: ignore[assignment]
    _supports_sync_io = False
    _get_many = Store._get_many
    _set_many = Store._set_many
    _check_writable = Store._check_writable
    get_partial_values = _get_each
    if hasattr(Store, "get_ranges"):
        get_ranges = Store.get_ranges

    async def clear(self) -> None:
        await self.delete_dir("")

    def list(self) -> AsyncIterator[str]:
        return self.list_prefix("")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"


def span(byte_range: ByteRequest | None, nbytes: int) -> tuple[int, int]:
    """Return the begin and end of a requested range within ``nbytes`` bytes."""
    data: Any = range(nbytes)  # only its length is used
    start, stop = _normalize_byte_range_index(data, byte_range)
    start = min(max(start, 0), nbytes)
    return start, max(min(stop, nbytes), start)


def part_of(data: D, byte_range: ByteRequest | None) -> D:
    return data[slice(*span(byte_range, len(data)))]


def layers(store: Any) -> Iterator[Any]:
    """Yield a store and its wrapped stores, outermost first."""
    yield store
    while isinstance(store, WrapperStore):
        store = store._store
        yield store


def innermost(store: Any) -> Any:
    *_, found = layers(store)
    return found


def joined_in(store: Any) -> tuple[Joined, str] | None:
    """Return the joined store inside a store or a location in one, and the path there; None for other stores."""
    path, store = (store.path, store.store) if isinstance(store, StorePath) else ("", store)
    while isinstance(store, WrapperStore):
        path, store = getattr(store, "prefix", "") + path, store._store
    return (store, path) if isinstance(store, Joined) else None


def foreign_at(place: StorePath) -> tuple[Any, str] | None:
    """Return the store of files of another format that holds a location, and the path in it; None for other stores."""
    found = joined_in(place)
    return found if found and found[0].is_foreign else None


class DraftStore(Wrapped[Store]):
    """Store that writes metadata documents as drafts, and reads a draft if its document is absent, or always."""

    only = False
    """Whether to read only drafts, and never the documents themselves."""
    set_if_not_exists = Store.set_if_not_exists

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        if self.only and is_document(key):
            return await self._store.get(draft_key(key), prototype, byte_range)
        found = await self._store.get(key, prototype, byte_range)
        if not is_document(key):
            return found
        early = key.rpartition("/")[2] == ATTRIBUTES_2 and found is not None and not await self._is_said(key)
        if found is None or early:
            return await self._store.get(draft_key(key), prototype, byte_range) or found
        return found

    async def _is_said(self, key: str) -> bool:
        """Return whether attributes in format 2 are of an array or group, which they precede, or of a stray group."""
        array, group = (key.removesuffix(ATTRIBUTES_2) + name for name in (ARRAY_2, GROUP_2))
        there = self._store.exists
        return await there(array) or (await there(group) and not await there(draft_key(array)))

    async def exists(self, key: str) -> bool:
        return await self._store.exists(key) or (is_document(key) and await self._store.exists(draft_key(key)))

    async def set(self, key: str, value: Buffer) -> None:
        await self._store.set(draft_key(key) if is_document(key) else key, value)

    async def delete(self, key: str) -> None:
        await self._store.delete(key)
        if is_document(key):
            await self._store.delete(draft_key(key))

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        async for name in self._store.list_dir(prefix):
            if name != OURS:
                yield name


def clear_tracebacks(error: BaseException) -> None:
    """Release the frames held by an error and its causes; Zarr's form a cycle that keeps the callers' buffers."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__, seen = None, seen.__cause__ or seen.__context__


def is_session(store: Any) -> bool:
    """Return whether a store is a session of icechunk, which has no keys but Zarr's, and so no drafts."""
    return type(store).__module__.partition(".")[0] == "icechunk" and isinstance(store, Store)


def with_drafts(place: StorePath, *, only: bool = False) -> StorePath:
    store = DraftStore(place.store)
    store.only = only
    return StorePath(store, place.path)


def keeps_drafts(place: StorePath) -> bool:
    """Return whether a store accepts drafts; a store that requires documents before chunks does not."""
    return not any(getattr(each, "documents_first", False) for each in layers(place.store))


def without_drafts(node: N) -> N:
    """Return an array or group opened by its draft as one of the store itself."""
    store, path = node.store_path.store, node.store_path.path
    return at_place(node, StorePath(store._store, path)) if isinstance(store, DraftStore) else node


def at_place(node: N, place: StorePath) -> N:
    """Return an open array or group, with its metadata, at another location."""
    inner: Any = node.async_array if isinstance(node, zarr.Array) else node._async_group
    return type(node)(replace(inner, store_path=place))


class AsideStore(Wrapped[T]):
    """Store that receives some keys only; all others stay in memory."""

    one_writer = ""
    """Error text for several concurrent workers; empty if they are allowed."""
    set_if_not_exists = Store.set_if_not_exists

    def __init__(self, store: T) -> None:
        super().__init__(store)
        self._aside = MemoryStore()

    def _with_store(self, store: T) -> Any:
        made = type(self)(store)
        made._aside = self._aside
        return made

    def __str__(self) -> str:
        return str(self._store)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._store == other._store

    __hash__ = None  # type: ignore[assignment]

    def _is_aside(self, key: str) -> bool:
        return any(part.startswith(OURS) for part in key.split("/"))

    def _of(self, key: str) -> Store:
        return self._aside if self._is_aside(key) else self._store

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        return await self._of(key).get(key, prototype, byte_range)

    async def exists(self, key: str) -> bool:
        return await self._of(key).exists(key)

    async def set(self, key: str, value: Buffer) -> None:
        await self._of(key).set(key, value)

    async def delete(self, key: str) -> None:
        await self._of(key).delete(key)

    async def delete_dir(self, prefix: str) -> None:
        await self._aside.delete_dir(prefix)
        if not self._is_aside(prefix):
            await self._store.delete_dir(prefix)

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        async for key in self._aside.list_prefix(prefix):
            yield key
        if not self._is_aside(prefix):
            async for key in self._store.list_prefix(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        names = {name async for name in self._aside.list_dir(prefix)}
        if not self._is_aside(prefix):
            names |= {name async for name in self._store.list_dir(prefix)}
        for name in sorted(names):
            yield name
