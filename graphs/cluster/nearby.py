"""Messages between workers of one machine: only their address is sent over the connection.

    worker a                               worker b
    send ─► Message ──── its address ────► a mapping of its pages ─► Message ─► receive   packed in shared memory
            Message ──── its bytes ──────► read from a socket ─► Message ─► receive       any other

A `Message` is transferred like any task result. On one machine the receiver maps its bytes before it acknowledges the
transfer, while the sender still holds them. So a message arrives whole or not at all, as with sockets. It takes no
copy, instead of two and the work of a connection.

No extra permission is needed: packed data lies in files of the sender that only its own user can open (`shared`).
Workers test this with each other first (`introduce`); until then, and if a test fails, messages use sockets.

A worker keeps the last ten thousand records of its log for the dashboard, each with its exception. The frames of an
exception hold the message being sent when the receiver died: memory that is neither counted nor released.
"""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import weakref
from collections.abc import Collection, Sequence
from contextlib import suppress
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
from oocarrays.graphs.cluster.shared import LEAST_BYTES, RoomAddress
from oocarrays.graphs.settings import setting
from oocarrays.plan.documents import Header


def keep_only_words(record: logging.LogRecord) -> bool:
    """Replace a record's exception by its text and release the exception; a filter that passes every record."""
    if record.exc_info:
        record.exc_text = record.exc_text or logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    return True


_INTRODUCED: weakref.WeakKeyDictionary[Client, frozenset[str]] = weakref.WeakKeyDictionary()
"""Workers that have been introduced to each other."""
logging.getLogger("distributed.worker").addFilter(keep_only_words)  # in every process that handles messages


class Message:
    """Contiguous arrays sent from one rank to another, each with its origin and final rank, or its place there."""

    __slots__ = ("arrays", "labels", "places")

    def __init__(
        self, arrays: Sequence[np.ndarray], labels: Sequence[tuple[int, int]] = (), places: Sequence[Any] = ()
    ) -> None:
        self.arrays = list(arrays)
        self.labels = [(origin, final) for origin, final in labels]
        self.places = places
        """Place of each array in the part that it is for, as `FilledPart.put` takes it."""

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


@sizeof.register(Message)  # type: ignore[untyped-decorator]
def _sizeof(message: Message) -> int:
    return message.nbytes


@dask_serialize.register(Message)  # type: ignore[untyped-decorator]
def serialized(message: Message, context: Header | None = None) -> tuple[Header, list[Any]]:
    """Return a message as sent over a connection: its address, or a header and its bytes."""
    told = {"labels": message.labels} | ({"places": pickle.dumps(message.places)} if message.places else {})
    if context and message.nbytes >= LEAST_BYTES and _same_host(context):
        looked = _looked_for(message)
        if looked is not None:
            return {"look": looked, **told}, []
    headers, frames = [], []
    for array in message.arrays:
        header, here = serialize_numpy_ndarray(array)
        headers.append((header, len(here)))
        frames += here
    return {"headers": headers, **told}, frames


def _looked_for(message: Message) -> list[Any] | None:
    """Return the shared-memory addresses of a message; None if part of it lies elsewhere, or sharing is off."""
    places = [shared.found(array) if array.nbytes else (None, 0) for array in message.arrays]
    if None in places or not shared.is_on():
        return None
    return [(*place, *_kind(array)) for place, array in zip(places, message.arrays, strict=True) if place]


@dask_deserialize.register(Message)  # type: ignore[untyped-decorator]
def deserialized(header: Header, frames: list[Any]) -> Message:
    told = header["labels"], pickle.loads(header["places"]) if "places" in header else ()
    if "look" in header:
        return Message(_looks(header["look"]), *told)
    arrays, rest = [], iter(frames)
    for each, count in header["headers"]:
        arrays.append(deserialize_numpy_ndarray(each, [next(rest) for _ in range(count)]))
    return Message(arrays, *told)


def _same_host(context: Header) -> bool:
    """Return whether both ends of a connection have the same address, hence one machine."""
    ends = (str(context.get(end, {}).get("address", "")) for end in ("sender", "recipient"))
    one, other = (end.rpartition(":")[0] for end in ends)
    return bool(one) and one == other and one.startswith("tcp://")


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
        raise RunError("workers at one address are not on one machine: set oocarrays.same-machine to False") from error
    arrays = []
    for where, start, shape, kind in places:
        room = seen[where][start - spans[where][0] :] if where else np.empty(0, np.uint8)
        arrays.append(room[: math.prod(shape) * kind.itemsize].view(kind).reshape(shape))
    return arrays


def _dtype(kind: Any) -> np.dtype:
    return np.dtype(kind if isinstance(kind, str) else [tuple(field) for field in kind])


def introduce(client: Client) -> None:
    """Test shared memory between workers that share a machine, and enable it if it works for all of them.

    Workers that join later use sockets until they are introduced too. Repeated calls for the same workers do nothing.
    """
    if not setting("same-machine"):
        return
    workers = frozenset(known_workers(client))
    if _INTRODUCED.get(client) == workers:
        return
    if near := client.sync(_met, client, workers):
        client.run(shared.use, True, workers=near, on_error="ignore")
    _INTRODUCED[client] = workers


async def _met(client: Client, workers: Collection[str]) -> list[str]:
    """Return the workers that see the shared memory of all others at their address.

    Each worker receives the addresses of its own machine only: lists of all would have a million entries for a thousand
    workers.
    """
    hosts: dict[str, list[str]] = {}
    for address in workers:
        hosts.setdefault(get_address_host(address), []).append(address)
    shared_by = [near for near in hosts.values() if len(near) > 1]
    if not shared_by:
        return []
    known = await client._run(_probed, workers=[address for near in shared_by for address in near], on_error="ignore")
    can = await asyncio.gather(*(_all_see(client, near, known) for near in shared_by))
    return [address for near, see in zip(shared_by, can, strict=True) if see for address in near]


async def _all_see(client: Client, near: Sequence[str], known: dict[str, RoomAddress | None]) -> bool:
    """Return whether shared memory works between all workers at one address; those of one process are tested once."""
    tried = list(dict.fromkeys(known[address] for address in near if address in known))
    can = await client._run(_sees, tried, workers=list(near), on_error="ignore")
    return all(can.get(address, False) for address in near)


def _probed() -> RoomAddress | None:
    """Return the address in this process that other workers test; None if it has no shared memory."""
    with suppress(OSError):
        return shared.probe().where
    return None


def _sees(tried: Sequence[RoomAddress | None]) -> bool:
    """Return whether this worker can map the memory of all others at its address."""
    with suppress(OSError):
        return all(where is not None and len(shared.look(RoomAddress(*where), 0, 1)) == 1 for where in tried)
    return False
