"""Whether the array that was opened is still there, so that what is missing of it is its fill value.

    chunk "not found" ──► its metadata document is there, and says the same ──► fill value
                      ──► gone, unreadable, another one                     ──► RunError, which names the array

A folder that was moved, a disk that is not mounted and a prefix that was removed answer "not found" for every chunk,
as an array does of which nothing has been written. Readers say here what they found missing, once a batch of chunks.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import le
from typing import Any, Literal, NamedTuple

import zarr
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import RunError
from oocarrays.mapping.grid import Index, ceil_div
from oocarrays.mapping.orientation import turned_back
from oocarrays.storage.files.chunk_names import count_all, count_chunks, holds_chunks, seems_to_hold_chunks
from oocarrays.storage.local.fs import read_file, translated
from oocarrays.storage.local.names import ARRAY_2, METADATA, draft_key
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.underway import got

DOCUMENT_OF = {2: ARRAY_2, 3: METADATA}
"""What says of a folder that it is an array, by the format of Zarr."""
MAY_CHANGE = ("attributes", "consolidated_metadata", "dimension_names", "shape", "storage_transformers")
"""What an array may say anew, and is the same array still: it may also grow, and then none of its chunks moves."""
Policy = Literal["fill", "warn", "error"]
NAMED_CHUNKS = 3
"""Chunks that an error names."""
KNOWN_DOCUMENTS = 32
"""Documents whose digests a process keeps."""


class Identity(NamedTuple):
    """The identity of an array, which tells it from another one."""

    shape: tuple[int, ...]
    """Elements along each axis."""
    digest: str
    """Of all else that chunks depend on."""

    def holds_for(self, now: Identity) -> bool:
        """Return whether an array is this one, or this one grown."""
        return now.digest == self.digest and all(map(le, self.shape, now.shape))


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """An array as it was opened: where it is, and what tells it from another one in the same place."""

    name: str
    """Where it is, as a person writes it."""
    place: str | StorePath
    """Its absolute folder on this machine, or where else it is."""
    format: int
    """Of Zarr: 2 or 3."""
    identity: Identity
    """What its metadata said that chunks depend on."""
    chunks: int
    """Chunks, or shards, that it has where none is missing."""
    had_chunks: bool
    """Whether it is known that a chunk was stored then."""
    missing: Policy | None = None
    """What is made of a chunk that is missing; None where nobody asks: of what a run writes itself."""
    planned: int | None = None
    """Chunks that were stored when a plan was made; None where nobody counted them."""

    def check(self) -> None:
        """Look at the metadata, in one small read, and for any chunk where there was one."""
        self._check_document()
        if self.had_chunks and not holds_chunks(self.place):
            raise RunError(f"{self.name} is empty: it had chunks when it was opened, and now none is found")

    def check_planned(self) -> None:
        """Count chunks before any is read, where they were counted for the plan."""
        now = count_chunks(self.place, self.chunks) if self.planned else None
        if self.planned and now is not None and now < self.planned:
            raise RunError(
                f"{self.name} has lost {self.planned - now} of the {self.planned} chunks that it had when this was "
                "planned; restore them, or plan it again to read fill values"
            )

    def _check_document(self) -> None:
        document = self._document()
        if document is None:
            self._check_bucket()
            raise RunError(
                f"{self.name} is gone, or this process does not see it: there is no {DOCUMENT_OF[self.format]}"
            )
        self._check_same(_identity_in(document, self.format))

    def _check_same(self, now: Identity | None) -> None:
        """Refuse an array that is not the one that was opened, nor that one grown."""
        if now is None or not self.identity.holds_for(now):
            raise RunError(
                f"{self.name} is another array than when it was opened: its shape, chunks, type, codecs "
                "or fill value have changed"
            )

    def found_missing(self, count: int, first: Sequence[Index], meter: Meter) -> None:
        """Take chunks for the fill value that a reader found missing in one batch: all readers say so here."""
        self.check() if isinstance(self.place, str) else self._check_document()  # a run lists a store at its end
        if self.missing is None:
            return
        meter.add(missing_chunks=count, warned_chunks=count if self.missing == "warn" else 0)
        if self.missing == "error":
            named = ", ".join(f"({', '.join(map(str, index))})" for index in first)
            more = f" and {count - len(first)} more" if first and count > len(first) else ""
            which = f": {named}{more}" if first else ""
            raise RunError(f"{self.name} lacks {count} chunk{'s' * (count > 1)}, and missing='error'{which}")

    def look_for_missing(self, meter: Meter) -> None:
        """Tell what is missing of what is copied by its names, and not read, where anybody asks for that."""
        if self.missing in (None, "fill") or not self.chunks:
            return
        stored = count_all(self.place)
        if stored is not None and stored < self.chunks:
            self.found_missing(self.chunks - stored, (), meter)

    def count_missing(self) -> int | None:
        """Chunks, or shards, that are not stored, as a listing has it; None where that takes long."""
        stored = count_chunks(self.place, self.chunks) if self.chunks else None
        return None if stored is None else max(self.chunks - stored, 0)

    def _check_bucket(self) -> None:
        """Refuse a store of which not even the bucket is there, which a listing tells; a get does not."""
        if isinstance(self.place, StorePath) and isinstance(self.place.store, RemoteStore):
            sync(self.place.store.is_empty(self.place.path))

    def _document(self) -> bytes | None:
        """Return the document of the array, or its draft."""
        name = DOCUMENT_OF[self.format]
        found = self._read(name)
        return self._read(draft_key(name)) if found is None else found

    def _read(self, name: str) -> bytes | None:
        if isinstance(self.place, str):
            return read_document(os.path.join(self.place, name))
        data = sync(got(self.place.store, f"{self.place.path}/{name}".lstrip("/")))
        return None if data is None else data.tobytes()


class Missing:
    """The chunks that a batch lacks; several threads may read it, and it reports them when the batch is at its end."""

    def __init__(self, presence: Presence, meter: Meter, axes: tuple[int, ...] | None = None) -> None:
        self._presence, self._meter, self._axes = presence, meter, axes
        self.count = 0
        """Chunks that are missing."""
        self.first: list[Index] = []
        """The indices of the first of them."""
        self._lock = threading.Lock()

    def add(self, *indices: Index) -> None:
        if not indices:
            return
        with self._lock:
            named = indices[: NAMED_CHUNKS - len(self.first)]
            self.first += [turned_back(index, self._axes) for index in named]
            self.count += len(indices)

    def tell(self) -> None:
        if self.count:
            self._presence.found_missing(self.count, self.first, self._meter)

    def __enter__(self) -> Missing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Tell of them all at the end of a batch, also where who takes its chunks stops early."""
        if kind is None or issubclass(kind, GeneratorExit):
            self.tell()


def presence_of(array: zarr.Array, name: str, *, read: bool, missing: Policy | None = None) -> Presence:
    place = _place(array)
    return Presence(
        name=name,
        place=place,
        format=array.metadata.zarr_format,
        identity=identity_of(array.metadata),
        chunks=_chunks_of(array),
        had_chunks=read and shows_chunks(array),
        missing=missing,
    )


def _chunks_of(array: zarr.Array) -> int:
    """Chunks, or shards, of an array; 0 where they are of unequal length, and nobody counts them."""
    try:
        lengths = array.shards or array.chunks
    except NotImplementedError:
        return 0
    return math.prod(map(ceil_div, array.shape, lengths))


def identity_of(metadata: ArrayV2Metadata | ArrayV3Metadata) -> Identity:
    """Return what tells an array from one of other elements, other chunks, or other codecs."""
    said = {name: value for name, value in metadata.to_dict().items() if name not in MAY_CHANGE}
    text = json.dumps(said, sort_keys=True, default=str)
    return Identity(tuple(metadata.shape), hashlib.blake2b(text.encode(), digest_size=16).hexdigest())


@lru_cache(KNOWN_DOCUMENTS)
def _identity_in(document: bytes, format: int) -> Identity | None:
    """Return the same of a stored document; None where it is not that of an array."""
    kind: Any = ArrayV2Metadata if format == 2 else ArrayV3Metadata
    try:
        return identity_of(kind.from_dict(json.loads(document)))
    except Exception:  # noqa: BLE001  Zarr refuses what is no array in ways of its own
        return None


def read_document(path: str) -> bytes | None:
    """Return a local document; None where there is none."""
    with translated("read", path):
        return read_file(path)


def _place(array: zarr.Array) -> str | StorePath:
    place = array.store_path
    if not isinstance(place.store, LocalStore):
        return place
    return os.path.abspath(os.path.join(str(place.store.root), place.path))


def shows_chunks(array: zarr.Array) -> bool:
    """Whether any chunk of an array is seen: of one that cannot be listed, or is not on this machine, none is."""
    place = _place(array)
    return isinstance(place, str) and seems_to_hold_chunks(place)
