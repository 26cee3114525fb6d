"""A Zarr store that remembers which chunks are asked of it, for programs that cannot be changed."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import zarr
from zarr.abc.store import Store

from oocarrays.graphs.tracing.seen import Seen
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.storage.stores.joined import Wrapped

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
"""Names of what is no chunk."""


class TracedStore(Wrapped[Store]):
    """A store that remembers which chunks are read from it and written to it; ``trace()`` says of which arrays.

    A chunk counts whole, and so does a shard, whatever is read of it: a store sees no more.
    """

    def __init__(self, store: Store, counts: Counter[tuple[str, bool]] | None = None) -> None:
        super().__init__(store)
        self._counts: Counter[tuple[str, bool]] = Counter() if counts is None else counts
        self._lock = threading.Lock()

    def _with_store(self, store: Store) -> TracedStore:
        return type(self)(store, self._counts)

    def __reduce__(self) -> Any:
        return type(self), (self._store,)  # another process counts for itself

    def _note(self, key: str, writes: bool) -> None:
        with self._lock:
            self._counts[key, writes] += 1

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Get what is under a key, or some of its bytes."""
        found = await self._store.get(key, prototype, byte_range)
        if byte_range is None or found is not None:
            self._note(key, False)
        return found

    async def set(self, key: str, value: Buffer) -> None:
        """Put bytes under a key."""
        self._note(key, True)
        await self._store.set(key, value)

    def seen(self) -> Seen:
        """Return the chunks that were asked for, as sections of the arrays in the store."""
        with self._lock:
            counts = dict(self._counts)
        found, seen = _Arrays(self._store), Seen()
        for (key, writes), times in counts.items():
            place = found.chunk(key)
            if place is not None:
                array, index = place
                lengths = tuple(array.shards or array.chunks)
                grid = ChunkGrid.of(tuple(array.shape), lengths)
                fold = seen.fold(array, writes=writes)
                if all(i < n for i, n in zip(index, grid.counts, strict=True)):
                    fold.add(grid.section(index).axes, times)
        return seen


class _Arrays:
    """The arrays of a store, found by the keys of their chunks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, zarr.Array | None] = {}

    def _open(self, path: str) -> zarr.Array | None:
        if path not in self._known:
            try:
                self._known[path] = zarr.open_array(self._store, path=path, mode="r")
            except (FileNotFoundError, KeyError, ValueError, TypeError):
                self._known[path] = None
        return self._known[path]

    def chunk(self, key: str) -> tuple[zarr.Array, tuple[int, ...]] | None:
        """Return the array and the place in its grid of what is under a key; None where that is not a chunk."""
        parts = key.split("/")
        if parts[-1] in METADATA:
            return None
        for length in reversed(range(len(parts))):
            array = self._open("/".join(parts[:length]))
            if array is not None:
                index = _index("/".join(parts[length:]), array)
                return None if index is None else (array, index)
        return None


def _index(name: str, array: zarr.Array) -> tuple[int, ...] | None:
    """Return the place in its grid of the chunk of some name."""
    numbers = name.removeprefix("c").replace(".", "/").strip("/")
    index = tuple(int(each) for each in numbers.split("/") if each.isdigit())
    if array.ndim == 0:
        return ()
    return index if len(index) == array.ndim else None
