"""Recording of the sections of stored arrays that a run accesses, by Zarr's own methods and by this package's.

z[key], z.oindex[key], …    ─┐
a[key], lazy arrays, jobs   ─┼─► the active recordings of this process
the same on each worker     ─┘   sent back by workers when the recording ends
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from itertools import product
from types import FrameType
from typing import TYPE_CHECKING, Any

import zarr
from zarr.abc.store import Store

from oocarrays.graphs.tracing.parts import TakenPart, as_ranges, asked
from oocarrays.graphs.tracing.seen import Seen
from oocarrays.mapping.grid import ChunkGrid, Index
from oocarrays.plan.advice.trace import Trace, checked_weight
from oocarrays.storage.chunks.places import CountingStore
from oocarrays.storage.local.fs import SAYING, index_of_chunk
from oocarrays.storage.meter import WATCHERS
from oocarrays.storage.stores.joined import Wrapped

if TYPE_CHECKING:
    from distributed import Client
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype


class Traced(Wrapped[Store]):
    """Store that records the chunks read from it and written to it; ``trace()`` assigns them to arrays.

    A chunk or shard counts as a whole even if only part of it is read: a store cannot see more.
    """

    def __init__(self, store: Store, counts: Counter[tuple[str, bool]] | None = None) -> None:
        super().__init__(store)
        self._counts: Counter[tuple[str, bool]] = Counter() if counts is None else counts
        self._lock = threading.Lock()

    def _with_store(self, store: Store) -> Traced:
        return type(self)(store, self._counts)

    def __reduce__(self) -> Any:
        return type(self), (self._store,)  # each process has its own counts

    def _note(self, key: str, writes: bool) -> None:
        with self._lock:
            self._counts[key, writes] += 1

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return the value of a key, or some of its bytes."""
        found = await self._store.get(key, prototype, byte_range)
        if byte_range is None or found is not None:
            self._note(key, False)
        return found

    async def set(self, key: str, value: Buffer) -> None:
        """Store the value of a key."""
        self._note(key, True)
        await self._store.set(key, value)

    def trace(self, block: str = "program", weight: float = 1.0) -> Trace:
        """Return the chunks that were read and written since its creation, as the trace of a block."""
        with self._lock:
            counts = dict(self._counts)
        opened: dict[str, zarr.Array | None] = {}
        seen = Seen()
        for (key, writes), times in counts.items():
            array, index = self._chunk(key, opened)
            if array is not None and index is not None:
                grid = ChunkGrid.of(tuple(array.shape), tuple(array.shards or array.chunks))
                if all(i < n for i, n in zip(index, grid.counts, strict=True)):
                    seen.fold(array, writes=writes).add(grid.section(index).axes, times)
        return seen.trace(block, checked_weight(weight, f"the weight of {block!r}"))

    def _chunk(self, key: str, opened: dict[str, zarr.Array | None]) -> tuple[zarr.Array | None, Index | None]:
        """Return the array of a chunk's key, and the chunk's index in its grid; None for another key."""
        parts = key.split("/")
        for length in reversed(range(len(parts))) if parts[-1] not in SAYING else ():
            path = "/".join(parts[:length])
            if path not in opened:
                opened[path] = None
                with suppress(FileNotFoundError, KeyError, ValueError, TypeError):
                    opened[path] = zarr.open_array(self._store, path=path, mode="r")
            if (array := opened[path]) is not None:
                return array, index_of_chunk("/".join(parts[length:]), array)
        return None, None


_RECORDED: list[Seen] = []
_LOCK = threading.Lock()
_ORIGINAL: dict[str, Callable[..., Any]] = {}


@contextmanager
def recorded(seen: Seen, client: Client | None) -> Iterator[None]:
    """Record the accesses by this process and by the workers of a cluster; the recording of a lost worker is lost."""
    name = f"recording-{id(seen)}-{os.getpid()}"
    _begin(seen)
    if client is not None:
        client.run(_begin_there, name, os.getpid())
    try:
        yield
    finally:
        _end(seen)
        if client is not None:
            for worker, told in client.run(_end_there, name, on_error="ignore").items():
                seen.put(told or (), worker)


_HERE: dict[str, Seen] = {}


def _begin_there(name: str, caller: int) -> None:
    """Begin to record on a worker, unless it is in the process of the caller."""
    if os.getpid() != caller and name not in _HERE:
        _HERE[name] = Seen()
        _begin(_HERE[name])


def _end_there(name: str) -> Any:
    if name not in _HERE:
        return ()
    _end(_HERE[name])
    return _HERE.pop(name).take()


def _begin(seen: Seen) -> None:
    """Record into ``seen``; with the first recording, wrap Zarr's methods so that they report their selections."""
    with _LOCK:
        if not _RECORDED:
            for way, verb in product(("basic", "orthogonal", "coordinate", "mask", "block"), ("get", "set")):
                name = f"{verb}_{way}_selection"
                _ORIGINAL[name] = getattr(zarr.Array, name)
                setattr(zarr.Array, name, _telling(_ORIGINAL[name], way, verb == "set"))
            WATCHERS.append(_hear)
        _RECORDED.append(seen)


def _end(seen: Seen) -> None:
    with _LOCK:
        _RECORDED[:] = [each for each in _RECORDED if each is not seen]
        if not _RECORDED:
            for name in list(_ORIGINAL):
                setattr(zarr.Array, name, _ORIGINAL.pop(name))
            WATCHERS.remove(_hear)


def _telling(method: Callable[..., Any], way: str, writes: bool) -> Callable[..., Any]:
    """Return a method of Zarr that reports its selection."""

    @wraps(method)
    def tell(self: zarr.Array, selection: Any = ..., *args: Any, **how: Any) -> Any:
        if isinstance(self.store_path.store, CountingStore):  # such a store reports for itself
            return method(self, selection, *args, **how)
        begun = time.perf_counter()
        answer = method(self, selection, *args, **how)
        seconds = time.perf_counter() - begun
        told: dict[str, Any] = {"seconds": seconds, "thread": threading.get_ident(), "cut": _is_for_dask()}
        for seen in tuple(_RECORDED):
            seen.add(self, asked(self, way, selection), writes=writes, **told)
        return answer

    return tell


def _is_for_dask() -> bool:
    """Return whether one of Dask's getters made this read: its tasks follow the array's chunks.

    They are recognised by name: importing ``dask.array.core`` takes a second.
    """
    getters = ("getter", "getter_inline", "getter_nofancy")
    frame: FrameType | None = sys._getframe(2)
    while frame and not (frame.f_code.co_name in getters and frame.f_globals["__name__"] == "dask.array.core"):
        frame = frame.f_back
    return frame is not None


def _hear(file: Any, axes: Any, writes: bool, seconds: float, ranks: int | None = None) -> None:
    taken = [tuple(map(as_ranges, axes))] if all(len(each) for each in axes) else []
    part = TakenPart.whole(file.zarr, "oocarrays")
    told: dict[str, Any] = {"by": part.by, "seconds": seconds, "thread": threading.get_ident(), "ranks": ranks}
    for seen in tuple(_RECORDED):
        seen.add(part.array, taken, writes=writes, **told)
