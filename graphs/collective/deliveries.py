"""Deliveries to parts on other workers: on one machine, each is copied once, from the read buffer into the part.

    worker a                            worker b
    chunk ─► share of b ── address ─► process_vm_readv ─► a cache's worth ─► its place in the part     same machine
                        ── bytes ───► read from a socket ─► copied into the part by a task             any other

A delivery that was copied into the part is a view of it, so the task that fills the part has nothing to copy. If that
task has another part, because the first was lost or has moved, it copies the delivery: the result does not depend on
the path of the bytes. Thakur 1995, section 6.3.1.
"""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from dask.sizeof import sizeof
from distributed.protocol.serialize import dask_deserialize, dask_serialize

from oocarrays.graphs.cluster import nearby
from oocarrays.plan.collective.wanted import Place
from oocarrays.plan.documents import Header

_parts: weakref.WeakValueDictionary[Hashable, FilledPart] = weakref.WeakValueDictionary()
"""Parts that are being filled in this process."""


class FilledPart:
    """Part of a rank while it is being filled; Dask does not learn its size, as tasks pass it on."""

    __slots__ = ("__weakref__", "array", "name")

    def __init__(self, array: np.ndarray, name: Hashable) -> None:
        self.array = array
        self.name = name

    def expect(self) -> None:
        """Deliver data for this part straight into it from now on."""
        _parts[self.name] = self

    def done(self) -> None:
        """Stop delivering into this part."""
        if _parts.get(self.name) is self:
            del _parts[self.name]

    def at(self, place: Place) -> np.ndarray:
        """Return a writable view of a place; first copy the part if it came read-only from another process."""
        if not self.array.flags.writeable:
            self.array = self.array.copy()
        view: np.ndarray = self.array[(*place, ...)]
        return view

    def put(self, place: Place, data: np.ndarray) -> None:
        """Copy data to a place, unless they lie there already."""
        there = self.at(place)
        if there.ctypes.data != data.ctypes.data:
            there[...] = data.reshape(there.shape)


class Delivery:
    """Elements sent from one rank to a part of another."""

    __slots__ = ("arrays", "name", "places")

    def __init__(self, name: Hashable, places: Sequence[Place], arrays: Sequence[np.ndarray]) -> None:
        self.name = name
        self.places = list(places)
        self.arrays = list(arrays)

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def fill(self, part: FilledPart) -> None:
        """Copy all received data into the part."""
        for place, data in zip(self.places, self.arrays, strict=True):
            part.put(place, data)


@sizeof.register(Delivery)  # type: ignore[untyped-decorator]
def _sizeof(delivery: Delivery) -> int:
    return delivery.nbytes


@dask_serialize.register(Delivery)  # type: ignore[untyped-decorator]
def _serialize(delivery: Delivery, context: Header | None = None) -> tuple[Header, list[Any]]:
    sent = nearby.Message([np.ascontiguousarray(array) for array in delivery.arrays])
    header, frames = nearby.serialized(sent, context)
    return {"sent": header, "into": pickle.dumps((delivery.name, delivery.places))}, frames


@dask_deserialize.register(Delivery)  # type: ignore[untyped-decorator]
def _deserialize(header: Header, frames: list[Any]) -> Delivery:
    name, places = pickle.loads(header["into"])
    part = _parts.get(name)
    if part is None or not nearby.is_near(header["sent"]):
        return Delivery(name, places, nearby.deserialized(header["sent"], frames).arrays)
    rooms = [part.at(place) for place in places]
    nearby.fetch_into(header["sent"], rooms)
    return Delivery(name, places, rooms)
