"""Disks with set service times: one request at a time, with seeks and jitter.

    request ──► routing (if any) ──► disk ──► answer        each a station: requests wait for their turn
                1.9 ms a block       20 ms

A station serves one request at a time, in the order of arrival, like an I/O node with one disk (Wang and Leiss, section
2). The real access, to a folder or a store, happens within that time. A station counts from when it is free and not
from when a thread wakes up, so that service times are exact on a machine with few processors, too.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import LocalStore

from oocarrays.errors import InputError
from oocarrays.storage.local.fs import translated
from oocarrays.storage.stores.joined import Wrapped
from oocarrays.storage.stores.urls import store_of
from oocarrays.storage.striped.disks import FolderDisk, FolderPart

__all__ = ["SlowDisk", "Station"]

JITTERS = ("none", "uniform", "exponential")


class Station:
    """Server of one request at a time, in their order.

    Examples
    --------
    >>> disk = Station()
    >>> begun = time.monotonic()
    >>> for _ in range(3): disk.serve(0.001)
    >>> time.monotonic() - begun >= 0.003, disk.served
    (True, 3)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free = 0.0
        self.served = 0
        """Requests so far."""
        self.busy_seconds = 0.0
        """Seconds of service so far."""

    def reserve(self, seconds: float, after: float | None = None) -> float:
        """Reserve the next turn, and return its end on the clock of ``time.monotonic``.

        Parameters
        ----------
        after : float, optional
            Arrival of the request, by default now.
        """
        with self._lock:
            now = time.monotonic() if after is None else after
            self._free = max(now, self._free) + seconds
            self.served += 1
            self.busy_seconds += seconds
            return self._free

    def serve(self, seconds: float) -> None:
        """Reserve the next turn, and wait for its end."""
        wait_until(self.reserve(seconds))

    def __reduce__(self) -> Any:
        return Station, ()  # a lock does not travel: another process has a disk of its own


def wait_until(moment: float) -> None:
    """Sleep until a moment of ``time.monotonic``."""
    left = moment - time.monotonic()
    if left > 0:
        time.sleep(left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Service times of a disk."""

    seconds: float = 0.0
    """Seconds of each request."""
    bytes_per_second: float = float("inf")
    """Bandwidth."""
    seek_seconds: float = 0.0
    """Additional seconds if a request does not begin at the end of the last one."""
    jitter: str = "none"
    """Variation: none, uniform from zero to twice, or exponential, as in queueing models."""

    def of(self, nbytes: int, *, seek: bool, draw: random.Random) -> float:
        seconds = self.seconds + nbytes / self.bytes_per_second + (self.seek_seconds if seek else 0.0)
        if self.jitter == "uniform":
            return seconds * draw.uniform(0, 2)
        return seconds * draw.expovariate(1) if self.jitter == "exponential" else seconds


class SlowDisk(Wrapped[Store]):
    """Folder or Zarr store as slow as a disk: one request at a time, for any number of callers.

    A folder stands for a disk of `open_striped`, and for a part of a `StripedStore`; a Zarr array can be in it, too.
    Other processes that open it have their own disk.

    Parameters
    ----------
    place : path, URL or store
        Location of the bytes.
    seconds : float
        Seconds of each request.
    bytes_per_second : float
        Bandwidth.
    seek_seconds : float
        Additional seconds if a request does not begin at the end of the last one.
    jitter : "none", "uniform" or "exponential"
        Distribution of the seconds of requests.
    seed : int
        Seed of the jitter.
    through : sequence of (Station, float)
        Stations that every request passes, shared with other disks, with its seconds at each: a processor, a network.
    fails_after : int, optional
        Number of requests before it fails, with an input/output error each time from then on.

    Examples
    --------
    >>> import tempfile, oocarrays as ooc
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     disks = [SlowDisk(a, seconds=0.001), SlowDisk(b, seconds=0.001)]
    ...     with ooc.disks.open_striped("field", "w+", disks=disks, block=1000) as file:
    ...         file.write(bytes(6000)), [disk.station.served for disk in disks]
    (6000, [3, 3])
    """

    def __init__(
        self,
        place: Any,
        *,
        seconds: float = 0.0,
        bytes_per_second: float = float("inf"),
        seek_seconds: float = 0.0,
        jitter: str = "none",
        seed: int = 0,
        through: Sequence[tuple[Station, float]] = (),
        fails_after: int | None = None,
    ) -> None:
        there = store_of(place)
        super().__init__(there if isinstance(there, Store) else LocalStore(str(there)))
        if jitter not in JITTERS:
            raise InputError(f"jitter={jitter!r} is not one of {', '.join(map(repr, JITTERS))}")
        if min(seconds, seek_seconds, *(each for _, each in through)) < 0 or not bytes_per_second > 0:
            raise InputError("a slow disk needs seconds of at least 0 and bytes_per_second above 0")
        self.service = Service(
            seconds=seconds, bytes_per_second=bytes_per_second, seek_seconds=seek_seconds, jitter=jitter
        )
        self.station = Station()
        """Station of its requests, with their number and its busy seconds."""
        self.through = tuple(through)
        self.fails_after = fails_after
        self._draw = random.Random(seed)
        self._head: tuple[str, int] = ("", 0)

    def begin(self, name: str, offset: int, nbytes: int) -> float:
        """Reserve a turn for some bytes of a file, and return its end; raise an `OSError` if the disk has failed."""
        if self.fails_after is not None and self.station.served >= self.fails_after:
            raise OSError(5, "Input/output error")
        comes = None
        for station, each in self.through:
            comes = station.reserve(each, comes)
        seconds = self.service.of(nbytes, seek=self._head != (name, offset), draw=self._draw)
        self._head = (name, offset + nbytes)
        return self.station.reserve(seconds, comes)

    async def _turn(self, name: str, offset: int, nbytes: int) -> None:
        left = self.begin(name, offset, nbytes) - time.monotonic()
        if left > 0:
            await asyncio.sleep(left)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        data = await self._store.get(key, prototype, byte_range)
        await self._turn(key, getattr(byte_range, "start", 0), 0 if data is None else len(data))
        return data

    async def set(self, key: str, value: Buffer) -> None:
        await self._turn(key, 0, len(value))
        await self._store.set(key, value)

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        await self._turn(key, 0, len(value))
        await self._store.set_if_not_exists(key, value)

    async def exists(self, key: str) -> bool:
        await self._turn(key, 0, 0)
        return await self._store.exists(key)

    async def delete(self, key: str) -> None:
        await self._turn(key, 0, 0)
        await self._store.delete(key)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield all names directly below ``prefix``."""
        await self._turn(prefix, 0, 0)
        async for name in self._store.list_dir(prefix):
            yield name

    def _with_store(self, store: Store) -> SlowDisk:
        made = SlowDisk.__new__(SlowDisk)
        vars(made).update(vars(self) | {"_store": store})
        return made

    def __str__(self) -> str:
        return self.label

    def __repr__(self) -> str:
        return f"SlowDisk({self.label!r}, seconds={self.service.seconds})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlowDisk) and self._store == other._store and self.service == other.service

    __hash__ = None  # type: ignore[assignment]

    @property
    def label(self) -> str:
        """Name of the disk for users."""
        return str(self._store.root) if isinstance(self._store, LocalStore) else str(self._store)

    def as_disk(self) -> FolderDisk:
        """Return the disk as one of a striped file."""
        return SlowFolder(self)


class SlowFolder(FolderDisk):
    """Folder of parts of striped files on a slow disk; small files take no time."""

    joined_bytes = 0

    def __init__(self, disk: SlowDisk) -> None:
        super().__init__(disk.label)
        self._disk = disk

    def open_part(self, name: str, flags: int) -> FolderPart:
        return SlowPart(self._disk, name, self._path(name), flags)


class SlowPart(FolderPart):
    """The part of a striped file on a slow disk."""

    def __init__(self, disk: SlowDisk, name: str, path: str, flags: int) -> None:
        super().__init__(path, flags)
        self._disk, self._name = disk, name

    def read(self, views: Sequence[memoryview], offset: int) -> int:
        with translated("read", self.path):
            until = self._disk.begin(self._name, offset, sum(map(len, views)))
        got = super().read(views, offset)
        wait_until(until)
        return got

    def read_at_once(self, views: Sequence[memoryview], offset: int) -> bool:
        """Return False: no data is available without a turn."""
        return False

    write_at_once = read_at_once

    def write(self, views: Sequence[memoryview], offset: int) -> None:
        with translated("write", self.path):
            until = self._disk.begin(self._name, offset, sum(map(len, views)))
        super().write(views, offset)
        wait_until(until)
