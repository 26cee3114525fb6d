"""Stores composed of others, with the interface that the storage layer requires of them."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import numpy as np
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import StorePath, WrapperStore
from zarr.storage._utils import _normalize_byte_range_index

from oocarrays.errors import NotFoundError, StoreFailure
from oocarrays.storage.local.fs import names_below

T = TypeVar("T", bound=Store)
D = TypeVar("D", np.ndarray, Buffer)
ENTERING = ("oocarrays.storage.striped.store", "oocarrays.storage.foreign.places")
"""Modules that register their stores on import, at the first access to a location."""
OPENERS: dict[str, Callable[[str, Mapping[str, Any] | None, Any], Store]] = {}
"""Openers of URLs by scheme, registered by each joined store."""
PLACES: list[Callable[[Any, Mapping[str, Any] | None, Any], Any]] = []
"""Recognizers of locations and of other libraries' objects; each returns a store, or None for foreign ones."""
SHORTER: list[Callable[[Store, str], Store | None]] = []
"""Shortcuts to the contents of a store, by its name; each returns a store, or None."""


def have_all_entered() -> None:
    """Import all modules that register stores."""
    for module in ENTERING:
        import_module(module)


async def _get_each(
    store: Store, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
) -> list[Buffer | None]:
    return list(await asyncio.gather(*(store.get(key, prototype, part) for key, part in key_ranges)))


class Joined(Store):
    """Base of stores composed of others or of files; subclasses define ``get``, ``exists``, ``list_prefix`` and
    identity."""

    supports_writes = supports_deletes = True
    supports_partial_writes = False
    supports_listing = True
    is_foreign: ClassVar[bool] = False
    """Whether it shows files of another format as Zarr."""

    def __init__(self, url: str = "", *, read_only: bool = True) -> None:
        super().__init__(read_only=read_only)
        self._url = url

    @property
    def url(self) -> str:
        """URL that opens the store."""
        return self._url

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
        """Local folders among its parts."""
        return ()

    def summary(self) -> str | None:
        """Return a table of the joined parts; None if the name suffices."""
        return None

    @abstractmethod
    def below(self, folder: str) -> Joined:
        """Return the store of the same folder in each part."""

    def files(self, prefix: str, *, past_cache: bool = False) -> Any:
        """Return an array's chunks as `LocalBlobs` if each is one local file, else None."""
        return None

    def disk_of(self, key: str) -> int:
        """Return the number of the part of a key."""
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
        return type(self), (self._inner, self._url)

    def _identity(self) -> Any:
        return self._inner

    def with_read_only(self, read_only: bool = False) -> Store:
        """Return the same store, which is always read-only."""
        if not read_only:
            raise NotImplementedError(f"{self} is only read")
        return self

    def below(self, folder: str) -> Joined:
        """Raise, because the store is read-only."""
        raise NotFoundError(f"{self} {self.is_what} no folder {folder}")

    async def set(self, key: str, value: Buffer) -> None:
        """Raise, because the store is read-only."""
        raise StoreFailure(f"cannot write {key} of {self}: {self.why}")

    async def delete(self, key: str) -> None:
        """Raise, because the store is read-only."""
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
    """Return the requested range of a whole value."""
    found: D = data[slice(*span(byte_range, len(data)))]
    return found


def layers(store: Any) -> Iterator[Any]:
    """Yield a store and its wrapped stores, outermost first."""
    yield store
    while isinstance(store, WrapperStore):
        store = store._store
        yield store


def innermost(store: Any) -> Any:
    """Return the innermost wrapped store, or the store itself."""
    *_, found = layers(store)
    return found


def joined_in(store: Any) -> tuple[Joined, str] | None:
    """Return the joined store inside ``store`` and the prefix of its keys; None for other stores."""
    prefix = ""
    while isinstance(store, WrapperStore):
        prefix, store = getattr(store, "prefix", "") + prefix, store._store
    return (store, prefix) if isinstance(store, Joined) else None


def foreign_at(place: StorePath) -> tuple[Any, str] | None:
    """Return the store of files of another format that holds a location, and the path in it; None for other stores."""
    found = joined_in(place.store)
    return (found[0], found[1] + place.path) if found and found[0].is_foreign else None
