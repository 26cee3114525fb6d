"""Messages between workers of one machine, copied once by the kernel, straight out of the sender's memory.

    worker a                               worker b
    send ─► Message ──── where it is ────► process_vm_readv ─► Message ─► receive         same machine
            Message ──── its bytes ──────► read from a socket ─► Message ─► receive       any other

A `Message` travels as any result of a task does. Between two ends of one machine only the place of its bytes goes over
the connection: the receiver copies them before it says that it has them, while the sender still holds them. So a
message is there or it is not, as with sockets; and it takes one copy, not two and the work of a connection. MPI
libraries do the same (cross-memory attach). Workers try it out with each other first (`introduce`); until then, and
where it does not work, messages go over sockets.
"""

from __future__ import annotations

import ctypes
import math
import os
import secrets
import weakref
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed import Client, Worker
from distributed.comm.addressing import get_address_host
from distributed.protocol.numpy import deserialize_numpy_ndarray, serialize_numpy_ndarray
from distributed.protocol.serialize import dask_deserialize, dask_serialize
from oocarrays.graphs.placement import known_workers
from oocarrays.graphs.settings import setting

from oocarrays.errors import RunError

LEAST_BYTES = 2**16
"""Of a message: less goes over the socket anyway."""
BOUNCE_BYTES = 2**19
"""Copied at one time to where it is not to lie in one piece: so much stays in a core's second cache."""
TOKEN_BYTES = 16
_TOKEN = ctypes.create_string_buffer(secrets.token_bytes(TOKEN_BYTES), TOKEN_BYTES)
"""By which a reader knows that it reads this process, and no other that has its number elsewhere."""
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, 2**64 - 1
_INTRODUCED: weakref.WeakKeyDictionary[Client, frozenset[str]] = weakref.WeakKeyDictionary()
"""Workers that have been introduced to each other."""
_near = False
"""Whether all workers at this address have been seen to read each other's memory."""


class _Piece(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = (("start", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class Message:
    """Contiguous arrays that go from one rank to another.

    Parameters
    ----------
    labels : sequence of pairs of ranks
        The origin and the final rank of each array, where those may be others than the two of the message.

    >>> from distributed.protocol import deserialize, serialize
    >>> there = deserialize(*serialize(Message([np.arange(3), np.zeros((2, 2))], labels=[(0, 1), (0, 2)])))
    >>> there.arrays[0].tolist(), there.labels, there.nbytes
    ([0, 1, 2], [(0, 1), (0, 2)], 56)
    """

    __slots__ = ("arrays", "labels")

    def __init__(self, arrays: Sequence[np.ndarray], labels: Sequence[tuple[int, int]] = ()) -> None:
        self.arrays = list(arrays)
        self.labels = [(origin, final) for origin, final in labels]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays)


@sizeof.register(Message)  # type: ignore[untyped-decorator]
def _sizeof(message: Message) -> int:
    return message.nbytes


@dask_serialize.register(Message)  # type: ignore[untyped-decorator]
def serialized(message: Message, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """A message as it goes over a connection: where it is, or a header and its bytes."""
    if _near and context and message.nbytes >= LEAST_BYTES and _same_host(context):
        arrays = [_place(array) for array in message.arrays]
        return {"process": _here(), "arrays": arrays, "labels": message.labels}, []
    headers, frames = [], []
    for array in message.arrays:
        header, here = serialize_numpy_ndarray(array)
        headers.append((header, len(here)))
        frames += here
    return {"headers": headers, "labels": message.labels}, frames


@dask_deserialize.register(Message)  # type: ignore[untyped-decorator]
def deserialized(header: dict[str, Any], frames: list[Any]) -> Message:
    """The message again."""
    if is_near(header):
        return Message(_fetched(header), header["labels"])
    arrays, rest = [], iter(frames)
    for each, count in header["headers"]:
        arrays.append(deserialize_numpy_ndarray(each, [next(rest) for _ in range(count)]))
    return Message(arrays, header["labels"])


def _same_host(context: dict[str, Any]) -> bool:
    """Whether both ends of a connection are at one address, as ends of different machines are not."""
    ends = (str(context.get(end, {}).get("address", "")) for end in ("sender", "recipient"))
    one, other = (end.rpartition(":")[0] for end in ends)
    return bool(one) and one == other and one.startswith("tcp://")


def _here() -> tuple[int, int, bytes]:
    """This process: its number, and where its token is and what it says."""
    return os.getpid(), ctypes.addressof(_TOKEN), _TOKEN.raw


def _place(array: np.ndarray) -> tuple[int, tuple[int, ...], Any]:
    assert array.flags.c_contiguous, "messages are contiguous"
    return array.ctypes.data, array.shape, array.dtype.str if array.dtype.fields is None else array.dtype.descr


def is_near(header: dict[str, Any]) -> bool:
    """Whether only the place of a message came, which is in another process's memory."""
    return "process" in header


def _fetched(header: dict[str, Any]) -> list[np.ndarray]:
    """The arrays of a message in another process, copied out of its memory."""
    kinds = [(tuple(shape), _dtype(kind)) for _, shape, kind in header["arrays"]]
    arrays = [np.empty(math.prod(shape) * kind.itemsize, np.uint8).view(kind).reshape(shape) for shape, kind in kinds]
    fetch_into(header, arrays)
    return arrays


def fetch_into(header: dict[str, Any], rooms: Sequence[np.ndarray]) -> None:
    """Copy the arrays of a message out of another process's memory, each into an array of its shape and type.

    Where one of these is not in one piece, so much goes through a buffer at one time as stays in a core's cache.

    Raises
    ------
    OSError
        Where that process is gone: to Dask, the connection to it is lost.
    RunError
        Where another process has its number here.
    """
    number, place, token = header["process"]
    known = bytearray(TOKEN_BYTES)
    _read(number, place, known)
    if bytes(known) != token:
        raise RunError("workers at one address are not on one machine: set oocarrays.same-machine to False")
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


def _blocks(room: np.ndarray) -> Iterator[np.ndarray]:
    """A room in pieces that are contiguous or small, one after the other in its order.

    >>> [block.shape for block in _blocks(np.zeros((3, 2**18, 4), "u1")[:, :, 1:])]
    [(1, 174762, 3), (1, 87382, 3), (1, 174762, 3), (1, 87382, 3), (1, 174762, 3), (1, 87382, 3)]
    """
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
    """Fill a buffer from another process's memory; the kernel copies two gigabytes in one call at most."""
    nbytes, done = len(out), 0
    target = (ctypes.c_char * nbytes).from_buffer(out)
    while done < nbytes:
        here = _Piece(ctypes.addressof(target) + done, nbytes - done)
        there = _Piece(start + done, nbytes - done)
        got = _process_vm_readv()(process, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if got <= 0:
            error = ctypes.get_errno()
            raise ConnectionError(error, f"process {process} cannot be read: {os.strerror(error)}")
        done += got


@cache
def _process_vm_readv() -> Any:
    """The system's function.

    Raises
    ------
    AttributeError
        Where it has none.
    """
    function = ctypes.CDLL(None, use_errno=True).process_vm_readv
    piece, count = ctypes.POINTER(_Piece), ctypes.c_ulong
    function.argtypes = (ctypes.c_int, piece, count, piece, count, count)
    function.restype = ctypes.c_ssize_t
    return function


# ---------------------------------------------------------------------- trying it out


def introduce(client: Client) -> None:
    """Let workers that share a machine try to read each other's memory, and do so from now on where all can.

    Workers that come later send over sockets until they are introduced, too. Once for the same workers.
    """
    if not setting("same-machine"):
        return
    workers = frozenset(known_workers(client))
    if _INTRODUCED.get(client) == workers:
        return
    strange = _strange_hosts(client, workers)
    if strange:
        client.run(_allow, workers=[a for a in workers if get_address_host(a) in strange], on_error="ignore")
        strange = _strange_hosts(client, workers)
    near = [address for address in workers if get_address_host(address) not in strange]
    if near:
        client.run(_use, workers=near, on_error="ignore")
    _INTRODUCED[client] = workers


def _strange_hosts(client: Client, workers: Collection[str]) -> set[str]:
    """The hosts on which some worker cannot read some other."""
    known = client.run(_here, on_error="ignore")
    can = client.run(_can_read, known, on_error="ignore")
    return {get_address_host(address) for address in workers if not can.get(address)}


def _allow() -> None:
    """Let other processes of the same user read this one, where the system asks for that (Yama)."""
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ctypes.c_ulong(PR_SET_PTRACER_ANY), 0, 0, 0)


def _can_read(known: dict[str, tuple[int, int, bytes]], dask_worker: Worker) -> bool:
    """Whether this worker can read all others at its address."""
    mine = get_address_host(dask_worker.address)
    others = [process for address, process in known.items() if get_address_host(address) == mine]
    return all(map(_is_readable, others))


def _is_readable(process: tuple[int, int, bytes]) -> bool:
    number, place, token = process
    known = bytearray(TOKEN_BYTES)
    try:
        _read(number, place, known)
    except (OSError, AttributeError):
        return False
    return bytes(known) == token


def _use() -> None:
    global _near
    _near = True
