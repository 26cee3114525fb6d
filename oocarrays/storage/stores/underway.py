"""Concurrent requests: reads ahead of use, and writes behind.

    in_order  request 0 1 2 ──► return 0, request 3 ──► return 1, request 4 ──► …      in order, with a limit in flight
    Putting   write 0 1 2 ──► 0 is stored: write 3 ──► …                    all stored, or one failed, at the end

All run in Zarr's own event loop, which owns a store's connections: a request is a coroutine and uses no thread.

Stored chunks by key, in local files or in any Zarr store.

LocalBlobs    open ─► a file, and the range of it: read at any place, or mapped
StoreBlobs    fetched ─► bytes in order, several requests in flight
both          exists, read, read_into, put, remove
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from zarr.abc.store import ByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import sync

from oocarrays.errors import CorruptChunkError, OocError, StoreFailure
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import METADATA, translated
from oocarrays.storage.stores.joined import innermost, part_of
from oocarrays.storage.stores.remote import reason

A = TypeVar("A")
T = TypeVar("T")
Fetch = tuple[str, RangeByteRequest | None]
"""Key and byte range of a read; None for the whole value."""


async def _this_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _submitting() -> Callable[..., Future[Any]]:
    """Return a function that starts a coroutine in Zarr's event loop without waiting."""
    return partial(asyncio.run_coroutine_threadsafe, loop=sync(_this_loop()))


async def got(store: Store, key: str, part: ByteRequest | None = None) -> np.ndarray | None:
    """Read the bytes under a key of any store, or a range of them; None if the key does not exist."""
    try:
        buffer = await _got(store, key, part)
    except OocError:
        raise
    except Exception as error:  # a user's own store may raise anything
        raise StoreFailure(f"cannot read {key} of {store}: {reason(error)}") from error
    return None if buffer is None else np.frombuffer(buffer.as_buffer_like(), np.uint8)


async def _got(store: Store, key: str, part: ByteRequest | None) -> Buffer | None:
    """Read a range from a store that may support whole keys only."""
    try:
        return await store.get(key, default_buffer_prototype(), part)
    except NotImplementedError:
        if part is None:
            raise
    found = await store.get(key, default_buffer_prototype())
    return None if found is None else part_of(found, part)


def answers_ranges(store: Store) -> bool:
    store = innermost(store)
    part, whole_keys = RangeByteRequest(0, 1), getattr(store, "whole_keys", False)
    return not whole_keys and _supports(store, lambda: store.get(METADATA, default_buffer_prototype(), part))


def lists_keys(store: Store) -> bool:

    async def first() -> None:
        async for _ in store.list_prefix(""):
            return

    return _supports(store, first)


def _supports(store: Store, request: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Return whether a store supports a request; try it for stores other than Zarr's and ours."""
    if type(store).__module__.startswith(("zarr.", "oocarrays.")):
        return True
    with suppress(Exception):  # the error for a possibly missing key is the store's own
        try:
            sync(request())
        except NotImplementedError:
            return False
    return True


def _nothing() -> Future[np.ndarray | None]:
    future: Future[np.ndarray | None] = Future()
    future.set_result(None)
    return future


def in_order(start: Callable[[A], Future[T]], items: Iterable[A], most: int) -> Iterator[T]:
    """Yield the result of each item in order, with at most ``most`` of them started: in threads or in an event loop."""
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            if len(waiting) >= most:
                yield waiting.popleft().result()
            waiting.append(start(item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


class Putting:
    """Concurrent writes; leaving the context waits for all of them."""

    def __init__(self, blobs: StoreBlobs) -> None:
        self._blobs = blobs
        self._submit = _submitting()
        self._under_way: deque[tuple[str, Future[None]]] = deque()

    def put(self, key: str, data: memoryview) -> None:
        """Start to store ``data`` under ``key``; ``data`` must not change until the context exits."""
        while len(self._under_way) >= self._blobs.requests:
            self._under_way[0][1].result()  # one that failed stays, for `lost`
            self._under_way.popleft()
        buffer = default_buffer_prototype().buffer.from_array_like(np.frombuffer(data, np.uint8))
        self._under_way.append((key, self._submit(self._blobs.store.set(self._blobs._key(key), buffer))))

    def lost(self) -> list[str]:
        """Return the keys under which nothing could be stored, once the context has exited."""
        return [key for key, future in self._under_way if future.cancelled() or future.exception()]

    def __enter__(self) -> Putting:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait([future for _, future in self._under_way])  # also after an error: no write goes on when a run has failed
        for _, future in () if error is not None else self._under_way:
            future.result()


class StoreBlobs:
    """Chunks of one array in any Zarr store."""

    def __init__(self, store: Store, prefix: str, requests: int = 1) -> None:
        self.store = store
        self.prefix = prefix
        self.requests = requests

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def path(self, key: str) -> str:
        return f"{self._key(key)} of {self.store}"

    def read(self, key: str, part: slice | None = None) -> np.ndarray | None:
        """Return the bytes under ``key``, or the first or last of them, or a range; None if it is missing."""
        wanted: ByteRequest | None = None
        if part is not None:
            wanted = SuffixByteRequest(-part.start) if part.start < 0 else RangeByteRequest(part.start, part.stop)
        return sync(got(self.store, self._key(key), wanted))

    def read_into(self, key: str, offset: int, out: memoryview) -> bool:
        """Fill ``out`` with bytes under ``key`` from ``offset`` on, in one request; return False if it is missing."""
        data = self.read(key, slice(offset, offset + len(out)))
        if data is not None:
            if len(data) != len(out):
                raise CorruptChunkError(f"{self.path(key)} is truncated: {len(data)} bytes, not {len(out)}")
            out[:] = data.data
        return data is not None

    def exists(self, key: str) -> bool:
        with translated("read", self.path(key), full=True):
            return sync(self.store.exists(self._key(key)))

    def fetched(self, wanted: Iterable[Fetch | None]) -> Iterator[np.ndarray | None]:
        """Return an iterator over the bytes under keys in order, requested ahead; None for None and missing keys."""
        submit = _submitting()

        def start(each: Fetch | None) -> Future[np.ndarray | None]:
            return _nothing() if each is None else submit(got(self.store, self._key(each[0]), each[1]))

        return in_order(start, wanted, self.requests)

    def announce(self, keys: Iterable[str]) -> None:
        """Do nothing: a store has no read-ahead."""

    def put(self, key: str, data: memoryview) -> None:
        with translated("write", self.path(key)):
            buffer = default_buffer_prototype().buffer.from_bytes(bytes(data))
            sync(self.store.set(self._key(key), buffer))

    def remove(self, key: str) -> None:
        """Delete the chunk under ``key`` if it exists; it then holds the fill value."""
        gone = (FileNotFoundError,)
        with suppress(*gone), translated("write", self.path(key), but=gone):
            sync(self.store.delete(self._key(key)))


Blobs = LocalBlobs | StoreBlobs
