"""Verification of striped stores: damaged, missing or misplaced values, and old copies of a disk.

record    size and checksum of every value, on the first disk, with the generation of the store
write     the first write of a process raises the generation: the record becomes invalid
verify    every value is read, decoded, and compared with a valid record
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar

import zarr
from zarr.abc.store import Store
from zarr.core.buffer import Buffer
from zarr.core.sync import sync

from oocarrays.errors import DescriptorError, OocError
from oocarrays.storage.local.blobs import checksum
from oocarrays.storage.local.fs import ARRAY_2, METADATA, PARTIAL_END, index_of_chunk
from oocarrays.storage.striped.catalog import BLOCKS, HEAD, head_on
from oocarrays.storage.striped.disks import HIDDEN, PROTOTYPE, RECORD, label_of
from oocarrays.storage.striped.store import StripedStore, striped_of

AT_ONCE = 4
"""Maximum values read or decoded at a time."""
K = TypeVar("K")
Recorded = dict[str, list[int]]
"""Size and checksum of each value, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Result of verifying a striped store."""

    keys: int
    """Number of values that were read from their disks."""
    nbytes: int
    """Bytes of these values."""
    faults: tuple[str, ...]
    """Faults, one line each."""
    left: tuple[str, ...]
    """Unused files left by interrupted writers, by disk."""
    recorded: bool
    """Whether a valid record of all values exists, so that missing values are detected."""


async def each_of(work: Callable[[K], Awaitable[int]], keys: Iterable[K], at_once: int) -> list[int]:
    """Process the keys with at most ``at_once`` concurrent tasks."""
    waiting, done = iter(list(keys)), []

    async def worker() -> None:
        for key in waiting:
            done.append(await work(key))

    await asyncio.gather(*(worker() for _ in range(at_once)))
    return done


def receipt_of(value: Buffer) -> list[int]:
    return [len(value), checksum(value.to_bytes())]


async def put_record(striped: StripedStore, values: Recorded) -> None:
    """Mark the store closed, and write a record that is valid until the next write."""
    generation = await striped.catalog.close()
    text = json.dumps({"generation": generation, "values": values}).encode()
    await (await striped.catalog.known(anew=True)).part_of(RECORD).set(RECORD, PROTOTYPE.buffer.from_bytes(text))


async def record_of(striped: StripedStore) -> Recorded | None:
    """Return the record of all values; None if it is absent or invalidated by a later write."""
    layout, descriptors = await striped.catalog.known(anew=True), await striped.catalog.descriptors()
    text = await layout.part_of(RECORD).get(RECORD, PROTOTYPE)
    if text is None or not all(each.closed for each in descriptors):
        return None
    try:
        record = json.loads(text.to_bytes())
        values: Recorded = dict(record["values"])
        return values if record["generation"] == descriptors[0].generation else None
    except (ValueError, LookupError, TypeError):
        raise DescriptorError(f"the record of values of {striped} is damaged; write a new one: --record") from None


def record(store: Any) -> int:
    """Record size and checksum of every value, and return their number; no other process may write meanwhile."""
    return sync(_record(striped_of(store)))


async def _record(striped: StripedStore) -> int:
    values: Recorded = {}

    async def read(key: str) -> int:
        value = await striped.get(key, PROTOTYPE)
        assert value is not None, "it is listed, and nobody else writes"
        values[key] = receipt_of(value)
        return 1

    keys = [key async for key in striped.list() if not key.endswith(PARTIAL_END)]
    await each_of(read, keys, AT_ONCE * len(striped.disks))
    await put_record(striped, values)
    return len(values)


def verify(store: Any) -> Verified:
    """Read and decode all values of a striped store, and compare them with a valid record."""
    return sync(_verify(striped_of(store)))


async def _verify(striped: StripedStore) -> Verified:
    layout, record = await striped.catalog.known(), await record_of(striped)
    places: dict[str, Store] = {}
    sizes: dict[str, int] = {}
    astray: list[str] = []
    left: list[str] = []
    split: set[tuple[int, str]] = set()
    for number, part in layout.parts.items():
        async for name in part.list():
            key = name.removesuffix(HEAD)
            if name.endswith(PARTIAL_END):
                left.append(f"{label_of(part)}/{name}")
            elif BLOCKS.search(name):
                split.add((number, name))
            elif name not in HIDDEN and part in layout.places(key):
                places[key] = part
            elif name not in HIDDEN:
                astray.append(f"{label_of(part)}/{name} is on the wrong disk: {striped} does not read it there")
    faults = {key: f"{key} of {striped} is missing: it existed when values were recorded" for key in record or ()}

    async def read(key: str) -> int:
        faults.pop(key, None)
        try:
            value = await striped.get(key, PROTOTYPE)
        except (OocError, OSError) as error:
            faults[key] = str(error)
            return 0
        if value is None:
            faults[key] = f"{key} of {striped} was deleted while it was verified"
            return 0
        if record is not None and record.get(key) != receipt_of(value):
            faults[key] = f"{key} of {striped} has changed since values were recorded"
        sizes[key] = len(value)
        return len(value)

    await each_of(read, list(places), AT_ONCE * len(layout.parts))
    for key, part in places.items():
        head = None if layout.block is None else await head_on(part, key)
        split -= {(n, head.key(key)) for n in head.disks} if head is not None else set()
    left += [f"{label_of(layout.parts[number])}/{name}" for number, name in sorted(split)]
    faults |= await asyncio.to_thread(_undecoded, striped, [key for key in sizes if key not in faults])
    return Verified(
        keys=len(sizes),
        nbytes=sum(sizes.values()),
        faults=(*astray, *(faults[key] for key in sorted(faults))),
        left=tuple(left),
        recorded=record is not None,
    )


def _undecoded(striped: StripedStore, keys: list[str]) -> dict[str, str]:
    """Decode the chunks of all arrays; return a line for each that fails."""
    place, faults = striped.with_read_only(True), {}
    for document in (key for key in keys if key.rpartition("/")[2] in (METADATA, ARRAY_2)):
        path = document.rpartition("/")[0]
        try:
            array = zarr.open(place, path=path, mode="r")
        except Exception as error:  # noqa: BLE001  any failure of a codec or document is a fault
            faults[document] = f"{document} of {striped} describes no array: {_line(error)}"
            continue
        if isinstance(array, zarr.Group):
            continue
        prefix = f"{path}/" if path else ""
        chunks = {key: index_of_chunk(key[len(prefix) :], array) for key in keys if key.startswith(prefix)}
        sections = [(key, _section(array, index)) for key, index in chunks.items() if index is not None]
        with ThreadPoolExecutor(AT_ONCE, "verify") as pool:
            errors = pool.map(partial(_error_of, array), (section for _, section in sections))
            faults |= {
                key: f"{key} of {striped} cannot be decoded: {error}"
                for (key, _), error in zip(sections, errors, strict=True)
                if error is not None
            }
    return faults


def _error_of(array: zarr.Array, section: tuple[slice, ...]) -> str | None:
    """Decode a chunk; return its error in one line, or None."""
    try:
        array[section]
    except Exception as error:  # noqa: BLE001  each codec raises its own
        return _line(error)
    return None


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _section(array: zarr.Array, index: tuple[int, ...]) -> tuple[slice, ...]:
    sizes: Any = getattr(array, "write_chunk_sizes", None)  # newer versions only, with chunks of unequal lengths
    if sizes is None:
        lengths = array.shards or array.chunks
        return tuple(slice(i * n, (i + 1) * n) for i, n in zip(index, lengths, strict=True))
    bounds = [(0, *accumulate(each)) for each in sizes]
    return tuple(slice(*each[i : i + 2]) for i, each in zip(index, bounds, strict=True))
