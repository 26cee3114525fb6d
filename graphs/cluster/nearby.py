"""Messages between workers of one machine: only their address is sent over the connection.

    worker a                               worker b
    send ─► Message ──── its address ────► a mapping of its pages ─► Message ─► receive   packed in shared memory
            Message ──── its address ────► process_vm_readv ─► Message ─► receive         packed elsewhere, if allowed
            Message ──── its bytes ──────► read from a socket ─► Message ─► receive       any other

A `Message` is transferred like any task result. On one machine the receiver copies or maps its bytes before it
acknowledges the transfer, while the sender still holds them. So a message arrives whole or not at all, as with sockets.
It takes one copy or none, instead of two and the work of a connection. MPI libraries do the same.

No extra permission is needed: packed data lies in files of the sender that only its own user can open (`shared`). Other
memory is read only if the system lets processes of one user read each other (Yama does not, by default). Workers test
this with each other first (`introduce`); until then, and if a test fails, messages use sockets.

    chunk ─► share of b ── address ─► process_vm_readv ─► a cache's worth ─► its place in b's part     copied once
                        ── bytes ───► read from a socket ─► copied into the part by a task

A message for a part that is being filled here is copied straight into it, so the task that fills the part has nothing
to copy. If that task has another part, because the first was lost or has moved, it copies the message: the result does
not depend on the path of the bytes. Thakur 1995, section 6.3.1.

A worker keeps the last ten thousand records of its log for the dashboard, each with its exception. The frames of an
exception hold the message being sent when the receiver died: memory that is neither counted nor released.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import math
import os
import pickle
import secrets
import weakref
from collections.abc import Collection, Hashable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed import Client
from distributed.comm.addressing import get_address_host
from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from oocarrays.errors import RunError
from oocarrays.graphs.cluster import shared
from oocarrays.graphs.cluster.placement import known_workers
from oocarrays.graphs.cluster.shared import LEAST_BYTES, TOKEN_BYTES, RoomAddress
from oocarrays.graphs.settings import setting
from oocarrays.plan.documents import Header


def keep_only_words(record: logging.LogRecord) -> bool:
    """Replace a record's exception by its text and release the exception; a filter that passes every record."""
    if record.exc_info:
        record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True


BOUNCE_BYTES = 2**19
"""Bytes copied at one time to a non-contiguous destination: they fit in a core's second-level cache."""
LOOK, READ = "look", "read"
"""Methods of transfer: mapping the sender's shared memory, and copying out of any of its memory."""
_TOKEN = ctypes.create_string_buffer(secrets.token_bytes(TOKEN_BYTES), TOKEN_BYTES)
"""Token that identifies this process to readers, in case another process has the same number."""
STRANGE = "workers at one address are not on one machine: set oocarrays.same-machine to False"
Tried = tuple[tuple[int, int, bytes], RoomAddress | None]
"""Addresses of a process's token and of its shared segment, for tests by other workers."""
_INTRODUCED: weakref.WeakKeyDictionary[Client, frozenset[str]] = weakref.WeakKeyDictionary()
"""Workers that have been introduced to each other."""
_ways: frozenset[str] = frozenset()
"""Methods that work between all workers at this address."""
logging.getLogger("distributed.worker").addFilter(keep_only_words)  # in every process that handles messages


class _IoVec(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("start", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class Message:
    """Contiguous arrays sent from one rank to another; once received, they may lie in the part that they are for."""

    __slots__ = ("arrays", "into", "labels")

    def __init__(
        self,
        arrays: Sequence[np.ndarray],
        labels: Sequence[tuple[int, int]] = (),
        into: tuple[Hashable, Sequence[Any]] | None = None,
    ) -> None:
        self.arrays = list(arrays)
        self.labels = [(origin, final) for origin, final in labels]
        self.into = into
        """Name of the part that the arrays are for, and the place of each in it, as `FilledPart.at` takes it."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def fill(self, part: FilledPart) -> None:
        """Copy the arrays into a part."""
        assert self.into is not None, "the arrays are for a part"
        for place, data in zip(self.into[1], self.arrays, strict=True):
            part.put(place, data)


_parts: weakref.WeakValueDictionary[Hashable, FilledPart] = weakref.WeakValueDictionary()
"""Parts that are being filled in this process."""


class FilledPart:
    """Part of a rank while it is being filled; Dask does not learn its size, as tasks pass it on."""

    __slots__ = ("__weakref__", "array", "name")

    def __init__(self, array: np.ndarray, name: Hashable) -> None:
        self.array = array
        self.name = name

    def expect(self) -> None:
        """Receive data for this part straight into it from now on."""
        _parts[self.name] = self

    def done(self) -> None:
        """Receive nothing into this part any more."""
        if _parts.get(self.name) is self:
            del _parts[self.name]

    def at(self, place: Any) -> np.ndarray:
        """Return a writable view of a place; first copy the part if it came read-only from another process."""
        if not self.array.flags.writeable:
            self.array = self.array.copy()
        view: np.ndarray = self.array[(*place, ...)]
        return view

    def put(self, place: Any, data: np.ndarray) -> None:
        """Copy data to a place, unless they lie there already."""
        there = self.at(place)
        if there.ctypes.data != data.ctypes.data:
            there[...] = data.reshape(there.shape)


@sizeof.register(Message)  # type: ignore[untyped-decorator]
def _sizeof(message: Message) -> int:
    return message.nbytes


@dask_serialize.register(Message)  # type: ignore[untyped-decorator]
def serialized(message: Message, context: Header | None = None) -> tuple[Header, list[Any]]:
    """Return a message as sent over a connection: its address, or a header and its bytes."""
    told = {"labels": message.labels} | ({} if message.into is None else {"into": pickle.dumps(message.into)})
    whole = all(array.flags.c_contiguous for array in message.arrays)  # else they lie in a part, and are passed on
    if _ways and context and whole and message.nbytes >= LEAST_BYTES and _same_host(context):
        header = _looked_for(message) or _read_at(message)
        if header is not None:
            return header | told, []
    headers, frames = [], []
    for array in message.arrays:
        header, here = serialize_numpy_ndarray(array)
        headers.append((header, len(here)))
        frames += here
    return {"headers": headers, **told}, frames


def _looked_for(message: Message) -> Header | None:
    """Return the shared-memory addresses of a message; None if part of it lies elsewhere."""
    places = [shared.found(array) if array.nbytes else (None, 0) for array in message.arrays]
    if LOOK not in _ways or None in places:
        return None
    return {"look": [(*place, *_kind(array)) for place, array in zip(places, message.arrays, strict=True) if place]}


def _read_at(message: Message) -> Header | None:
    """Return the address of a message in this process's memory, if other processes may read it."""
    if READ not in _ways:
        return None
    arrays = [(array.ctypes.data, *_kind(array)) for array in message.arrays]
    return {"process": _here(), "arrays": arrays}


@dask_deserialize.register(Message)  # type: ignore[untyped-decorator]
def deserialized(header: Header, frames: list[Any]) -> Message:
    into: Any = pickle.loads(header["into"]) if "into" in header else None
    if "process" in header or "look" in header:
        part = _parts.get(into[0]) if into else None
        rooms = None if part is None else [part.at(place) for place in into[1]]
        return Message(_fetched(header, rooms), header["labels"], into)
    arrays, rest = [], iter(frames)
    for each, count in header["headers"]:
        arrays.append(deserialize_numpy_ndarray(each, [next(rest) for _ in range(count)]))
    return Message(arrays, header["labels"], into)


def _same_host(context: Header) -> bool:
    """Return whether both ends of a connection have the same address, hence one machine."""
    ends = (str(context.get(end, {}).get("address", "")) for end in ("sender", "recipient"))
    one, other = (end.rpartition(":")[0] for end in ends)
    return bool(one) and one == other and one.startswith("tcp://")


def _here() -> tuple[int, int, bytes]:
    """Return this process's number, and the address and value of its token."""
    return os.getpid(), ctypes.addressof(_TOKEN), _TOKEN.raw


def _kind(array: np.ndarray) -> tuple[tuple[int, ...], Any]:
    assert array.flags.c_contiguous, "messages are contiguous"
    return array.shape, array.dtype.str if array.dtype.fields is None else array.dtype.descr


def _looks(header: Sequence[Any]) -> list[np.ndarray]:
    """Return mapped arrays of a message in another process, with one mapping per file."""
    spans: dict[RoomAddress, tuple[int, int]] = {}
    places = [
        (where and RoomAddress(*where), start, tuple(shape), _dtype(kind)) for where, start, shape, kind in header
    ]
    for where, start, shape, kind in places:
        if where:
            first, last = spans.get(where, (start, start))
            spans[where] = min(first, start), max(last, start + math.prod(shape) * kind.itemsize)
    try:
        seen = {where: shared.look(where, *span) for where, span in spans.items()}
    except PermissionError as error:
        raise RunError(STRANGE) from error
    arrays = []
    for where, start, shape, kind in places:
        room = seen[where][start - spans[where][0] :] if where else np.empty(0, np.uint8)
        arrays.append(room[: math.prod(shape) * kind.itemsize].view(kind).reshape(shape))
    return arrays


def _fetched(header: Header, rooms: list[np.ndarray] | None) -> list[np.ndarray]:
    """Return the arrays of a message in another process: mapped or copied, or copied into ``rooms``.

    A non-contiguous destination is filled through a buffer that fits in a core's cache.
    """
    if "look" in header:
        seen = _looks(header["look"])
        for array, room in zip(seen, rooms or (), strict=rooms is not None):
            room[...] = array
        return rooms or seen
    if rooms is None:
        kinds = [(tuple(shape), _dtype(kind)) for _, shape, kind in header["arrays"]]
        rooms = [np.empty(math.prod(n) * kind.itemsize, np.uint8).view(kind).reshape(n) for n, kind in kinds]
    number = header["process"][0]
    if not _is_sender(*header["process"]):
        raise RunError(STRANGE)
    bounce = np.empty(0, np.uint8)
    for (start, *_), room in zip(header["arrays"], rooms, strict=True):
        for block in _blocks(room):
            into = block
            if not block.flags.c_contiguous:
                bounce = bounce if len(bounce) >= block.nbytes else np.empty(block.nbytes, np.uint8)
                into = bounce[: block.nbytes].view(block.dtype).reshape(block.shape)
            _read(number, start, into.reshape(-1).view(np.uint8))
            if into is not block:
                block[...] = into
            start += block.nbytes
    return rooms


def _blocks(room: np.ndarray) -> Iterator[np.ndarray]:
    """Yield an array in contiguous or small pieces, in order."""
    if room.flags.c_contiguous or room.nbytes <= BOUNCE_BYTES:
        yield room
        return
    rows = max(BOUNCE_BYTES * len(room) // room.nbytes, 1)
    for start in range(0, len(room), rows):
        block = room[start : start + rows]
        if len(block) > 1 or block.nbytes <= BOUNCE_BYTES:
            yield block
        else:
            yield from (inner[np.newaxis] for inner in _blocks(block[0]))


def _dtype(kind: Any) -> np.dtype:
    return np.dtype(kind if isinstance(kind, str) else [tuple(field) for field in kind])


def _read(process: int, start: int, out: Any) -> None:
    """Fill a buffer from another process's memory; the kernel copies at most two gigabytes in one call."""
    nbytes, done = len(out), 0
    target = (ctypes.c_char * nbytes).from_buffer(out)
    while done < nbytes:
        here = _IoVec(ctypes.addressof(target) + done, nbytes - done)
        there = _IoVec(start + done, nbytes - done)
        got = _process_vm_readv()(process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got <= 0:
            error = ctypes.get_errno()
            raise ConnectionError(error, f"process {process} cannot be read: {os.strerror(error)}")
        done += got


def _is_sender(process: int, place: int, token: bytes) -> bool:
    """Return whether a process has this token."""
    known = bytearray(TOKEN_BYTES)
    _read(process, place, known)
    return bytes(known) == token


@cache
def _process_vm_readv() -> Any:
    function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    piece, count = ctypes.POINTER(_IoVec), ctypes.c_ulong
    function.argtypes = (ctypes.c_int, piece, count, piece, count, count)
    function.restype = ctypes.c_ssize_t
    return function


# ---------------------------------------------------------------------- tests of transfers


def introduce(client: Client) -> None:
    """Test methods of transfer between workers that share a machine, and enable those that work for all of them.

    Workers that join later use sockets until they are introduced too. Repeated calls for the same workers do nothing.
    """
    if not setting("same-machine"):
        return
    workers = frozenset(known_workers(client))
    if _INTRODUCED.get(client) == workers:
        return
    for ways, near in client.sync(_met, client, workers).items():
        client.run(use, ways, workers=near, on_error="ignore")
    _INTRODUCED[client] = workers


async def _met(client: Client, workers: Collection[str]) -> dict[frozenset[str], list[str]]:
    """Return workers by the methods of transfer that work between all workers at their address.

    Each worker receives the addresses of its own machine only: lists of all would have a million entries for a thousand
    workers.
    """
    hosts: dict[str, list[str]] = {}
    for address in workers:
        hosts.setdefault(get_address_host(address), []).append(address)
    shared_by = [near for near in hosts.values() if len(near) > 1]
    if not shared_by:
        return {}
    known = await client._run(_tried, workers=[address for near in shared_by for address in near], on_error="ignore")
    can = await asyncio.gather(*(_common(client, near, known) for near in shared_by))
    found: dict[frozenset[str], list[str]] = {}
    for near, ways in zip(shared_by, can, strict=True):
        if ways:
            found.setdefault(ways, []).extend(near)
    return found


async def _common(client: Client, near: Sequence[str], known: dict[str, Tried]) -> frozenset[str]:
    """Return the methods that work between all workers at one address; workers of one process are tested once."""
    tried = list(dict.fromkeys(known[address] for address in near if address in known))
    can = await client._run(_can, tried, workers=list(near), on_error="ignore")
    return frozenset.intersection(*(can.get(address, frozenset()) for address in near))


def _tried() -> Tried:
    """Return the addresses in this process that other workers test."""
    with suppress(OSError):
        return _here(), shared.probe().where
    return _here(), None


def _can(tried: Sequence[Tried]) -> frozenset[str]:
    """Return the methods by which this worker can receive from all others at its address."""
    ways = {LOOK: all(_is_seen(where) for _, where in tried), READ: all(_is_readable(here) for here, _ in tried)}
    return frozenset(way for way, works in ways.items() if works)


def _is_seen(where: RoomAddress | None) -> bool:
    with suppress(OSError):
        return where is not None and len(shared.look(RoomAddress(*where), 0, 1)) == 1
    return False


def _is_readable(process: tuple[int, int, bytes]) -> bool:
    with suppress(OSError, AttributeError):
        return _is_sender(*process)
    return False


def use(ways: Collection[str]) -> None:
    """Send messages by one of these methods from now on; over sockets if there are none.

    If the system allows both, memory is read. Mapping shared memory took as much processor time, or up to a tenth more,
    and nearly twice as much for schedules that forward (REX).
    """
    global _ways
    _ways = frozenset((READ,) if READ in ways else ways)
    shared.use(LOOK in _ways)
