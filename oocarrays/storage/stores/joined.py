"""Stores that are made of others, and stand where one stands: what the rooms below them need to know of such."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar, TypeVar

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import WrapperStore
from zarr.storage._utils import _normalize_byte_range_index

from oocarrays.errors import NotFoundError, StoreFailure
from oocarrays.storage.local.names import names_below

T = TypeVar("T", bound=Store)
ENTERING = ("oocarrays.storage.striped.store", "oocarrays.storage.foreign.places")
"""Modules that enter themselves below when they are imported: when a place is first looked at."""
OPENERS: dict[str, Callable[[str, Mapping[str, Any] | None, Any], Store]] = {}
"""How URLs of their schemes are opened: each such store enters its own."""
PLACES: list[Callable[[Any, Mapping[str, Any] | None, Any], Any]] = []
"""What else may know a place, or an object of another library: each returns a store, or None of what is not its own."""
SHORTER: list[Callable[[Store, str], Store | None]] = []
"""What may know a shorter way to what is in a store, by its name: each returns a store, or None."""


def have_all_entered() -> None:
    """Know every kind of store."""
    for module in ENTERING:
        import_module(module)


class Joined(Store):
    """Base of stores made of others or of files: a subclass gives ``get``, ``exists``, ``list_prefix`` and itself."""

    supports_writes = supports_deletes = True
    supports_partial_writes = False
    supports_listing = True

    def __init__(self, url: str = "", *, read_only: bool = True) -> None:
        super().__init__(read_only=read_only)
        self._url = url

    @property
    def url(self) -> str:
        """URL that opens it again."""
        return self._url

    @abstractmethod
    def _identity(self) -> Any:
        """Return a value that is equal for equal stores."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._identity() == other._identity()

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.url

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Get several ranges at one time."""
        return await _all_of(self, prototype, key_ranges)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """All names right below a prefix."""
        for name in names_below([key async for key in self.list_prefix(prefix)], prefix):
            yield name

    @property
    def disks(self) -> tuple[str, ...]:
        """The places of its parts: folders, URLs; nothing where nobody has laid it out over disks."""
        return ()

    @property
    def folders(self) -> tuple[str, ...]:
        """The local folders among its parts."""
        return ()

    def summary(self) -> str | None:
        """Return a table of what it joins; None if there is no better one than its name."""
        return None

    @abstractmethod
    def below(self, folder: str) -> Joined:
        """Return what is made of the same parts' folders of that name."""

    def files(self, prefix: str, *, past_cache: bool = False) -> Any:
        """Return an array's chunks as `LocalBlobs` where each is one local file, or None."""
        return None

    def disk_of(self, key: str) -> int:
        """Return the part that has a key."""
        return 0

    async def details(self, prefix: str) -> list[tuple[str, int, str]] | None:
        """Return all keys with a prefix, their bytes, and what changes with each writing; None if not told."""
        return None

    def list(self) -> AsyncIterator[str]:
        """All keys."""
        return self.list_prefix("")


class OnlyRead(Joined):
    """A joined store of files that are only read: nothing is written to it, nor below it."""

    supports_writes = supports_deletes = False
    is_what: ClassVar[str] = "is a file, and has"
    """How a sentence about it goes on that says what it lacks."""
    why: ClassVar[str]
    """Why it is only read."""

    def below(self, folder: str) -> Joined:
        """Raise: nothing is written below it."""
        raise NotFoundError(f"{self} {self.is_what} no folder {folder}")

    async def set(self, key: str, value: Buffer) -> None:
        """Raise: nothing is written."""
        raise StoreFailure(f"cannot write {key} of {self}: {self.why}")

    async def delete(self, key: str) -> None:
        """Raise: nothing is removed."""
        raise StoreFailure(f"cannot remove {key} of {self}: {self.why}")


class Wrapped(WrapperStore[T]):
    """A wrapper whose requests all pass through its own ``get`` and ``set``.

    Zarr's `WrapperStore` forwards ranges, lists of keys and synchronous requests to the wrapped store as they are, past
    whatever a subclass does with keys and bytes.
    """

    get_sync = set_sync = delete_sync = None  # type: ignore[assignment]
    _supports_sync_io = False
    _get_many = Store._get_many
    _set_many = Store._set_many
    if hasattr(Store, "get_ranges"):
        get_ranges = Store.get_ranges

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Get several ranges at one time."""
        return await _all_of(self, prototype, key_ranges)

    async def clear(self) -> None:
        """Remove all keys."""
        await self.delete_dir("")

    def _check_writable(self) -> None:
        if self.read_only:
            raise ValueError("store was opened in read-only mode and does not support writing")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._store!r})"


async def _all_of(
    store: Store, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
) -> list[Buffer | None]:
    return list(await asyncio.gather(*(store.get(key, prototype, part) for key, part in key_ranges)))


def span(byte_range: ByteRequest | None, nbytes: int) -> tuple[int, int]:
    """Return where a requested range of ``nbytes`` bytes begins and ends."""
    data: Any = range(nbytes)  # all that is asked of it is its length
    start, stop = _normalize_byte_range_index(data, byte_range)
    start = min(max(start, 0), nbytes)
    return start, max(min(stop, nbytes), start)


def layers(store: Any) -> Iterator[Any]:
    """Yield a store, and those that it wraps, the innermost last."""
    yield store
    while isinstance(store, WrapperStore):
        store = store._store
        yield store


def innermost(store: Any) -> Any:
    """Return the store that answers: itself, or the last of those that it wraps."""
    *_, found = layers(store)
    return found


def joined_in(store: Any) -> tuple[Joined, str] | None:
    """Return the joined store that a store is, or wraps, and what stands before its keys; None of any other."""
    prefix = ""
    while isinstance(store, WrapperStore):
        prefix, store = getattr(store, "prefix", "") + prefix, store._store
    return (store, prefix) if isinstance(store, Joined) else None
