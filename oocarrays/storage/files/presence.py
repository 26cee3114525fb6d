"""Check that an opened array still exists, so that missing chunks can be read as fill values.

    chunk "not found" ──► its metadata document exists and is unchanged ──► fill value
                      ──► missing, unreadable or another array          ──► RunError that names the array

A moved folder, an unmounted disk and a deleted prefix answer "not found" for every chunk. An array without stored
chunks answers the same. Readers report missing chunks here, once per batch of chunks.

Chunks are found by name only, and none is read:

folder    scandir, name by name, until the answer is known
store     one listing: of names directly below the array, or of all keys if they fit in one page
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from operator import le
from typing import Any, NamedTuple

import zarr
from zarr.core.metadata import ArrayV2Metadata, ArrayV3Metadata
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import OocError, RunError, StoreFailure
from oocarrays.mapping.given import Policy
from oocarrays.mapping.grid import Index, ceil_div, turned_back
from oocarrays.storage.files.places import is_remote, prefix_of
from oocarrays.storage.local.fs import array_document, chunk_files, draft_key, read_file, translated
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.remote import RemoteStore, reason
from oocarrays.storage.stores.underway import got

CHUNK = re.compile(r"c$|c\.|\d")
"""Start of the names of chunks, and of folders of chunks."""
MOST_COUNTED = 100_000
"""Maximum number of chunks counted: about a fifth of a second on a local file system."""
PAGE = 1000
"""Names that an object store returns per response."""


class Identity(NamedTuple):
    """Identity of an array, which distinguishes it from other arrays."""

    shape: tuple[int, ...]
    """Number of elements along each axis."""
    digest: str
    """Digest of all other metadata that chunks depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Location and identity of an array when it was opened."""

    name: str
    """Name of its location for messages."""
    place: str | StorePath
    """Its absolute folder on this machine, or its location in a store."""
    format: int
    """Zarr format, 2 or 3."""
    identity: Identity
    """Digest of the metadata that chunks depend on, and the shape."""
    chunks: int
    """Number of chunks, or shards, if none is missing."""
    stored: int
    """Number of chunks stored when it was planned; 1 if some are and they were not counted, 0 if none is known."""
    missing: Policy | None = None
    """Policy for missing chunks; None for arrays that a run writes itself."""

    def at_planning(self, key: str) -> Presence:
        """Return the record with the number of chunks, or whether there is any, if one request suffices.

        ``key`` is that of the first chunk.
        """
        stored = count_chunks(self.place, self.chunks) if self.chunks else None
        if stored is not None:
            return replace(self, stored=max(self.stored, stored))
        names = 1 if key.startswith("c/") else self.chunks  # directly below the array
        if isinstance(self.place, str) or names > PAGE:
            return self
        return replace(self, stored=int(seems_to_hold_chunks(self.place)))

    def check(self) -> None:
        """Raise unless the array still exists, unchanged, and has a chunk if it had one; reads one small document."""
        self._check_document()
        if self.stored and not holds_chunks(self.place):
            raise RunError(f"{self.name} is empty: it had chunks when it was opened, and none are found now")

    def check_planned(self) -> None:
        """Raise if fewer chunks are stored than at planning time, if they were counted then."""
        now = count_chunks(self.place, self.chunks) if self.stored > 1 else None
        if now is not None and now < self.stored:
            raise RunError(
                f"{self.name} has lost {self.stored - now} of the {self.stored} chunks that it had when this was "
                "planned; restore them, or plan it again to read fill values"
            )

    def _check_document(self) -> None:
        name = array_document(self.format)
        document = self._read(name)
        if document is None:
            document = self._read(draft_key(name))
        if document is None:
            if isinstance(self.place, StorePath) and isinstance(self.place.store, RemoteStore):
                sync(self.place.store.is_empty(self.place.path))  # raises if there is no bucket; a get does not
            raise RunError(f"{self.name} is missing, or not visible to this process: there is no {name}")
        now, then = _identity_in(document, self.format), self.identity
        if now is None or now.digest != then.digest or not all(map(le, then.shape, now.shape)):  # it may have grown
            raise RunError(
                f"{self.name} is not the array that was opened: its shape, chunks, dtype, codecs "
                "or fill value have changed"
            )

    def found_missing(self, count: int, first: Sequence[Index], meter: Meter) -> None:
        """Check the array and apply the policy to chunks that a reader found missing in one batch."""
        self.check() if isinstance(self.place, str) else self._check_document()  # a run lists a store at its end
        if self.missing is None:
            return
        meter.add(missing_chunks=count, warned_chunks=count if self.missing == "warn" else 0)
        if self.missing == "error":
            named = ", ".join(f"({', '.join(map(str, index))})" for index in first)
            more = f" and {count - len(first)} more" if first and count > len(first) else ""
            which = f": {named}{more}" if first else ""
            raise RunError(f"{self.name} lacks {count} chunks, and missing='error'{which}")

    def look_for_missing(self, meter: Meter) -> None:
        """Count missing chunks by name and apply the policy, for copies that do not read chunks."""
        if self.missing in (None, "fill") or not self.chunks:
            return
        at = self.place
        stored = sum(1 for _ in chunk_files(at, CHUNK.match)) if isinstance(at, str) else _count_listed(at)
        if stored is not None and stored < self.chunks:
            self.found_missing(self.chunks - stored, (), meter)

    def count_missing(self) -> int | None:
        """Return the number of missing chunks or shards from a listing; None if listing is slow."""
        stored = count_chunks(self.place, self.chunks) if self.chunks else None
        return None if stored is None else max(self.chunks - stored, 0)

    def _read(self, name: str) -> bytes | None:
        if isinstance(self.place, str):
            path = os.path.join(self.place, name)
            with translated("read", path):
                return read_file(path)
        data = sync(got(self.place.store, f"{self.place.path}/{name}".lstrip("/")))
        return None if data is None else data.tobytes()


class Missing:
    """Missing chunks of a batch, collected from several threads and reported at the end of the batch."""

    def __init__(self, presence: Presence, meter: Meter, axes: tuple[int, ...] | None = None) -> None:
        self._presence, self._meter, self._axes = presence, meter, axes
        self.count = 0
        """Number of missing chunks."""
        self.first: list[Index] = []
        """Indices of the first missing chunks, at most three, which an error names."""
        self._lock = threading.Lock()

    def add(self, *indices: Index) -> None:
        if not indices:
            return
        with self._lock:
            named = indices[: 3 - len(self.first)]
            self.first += [turned_back(index, self._axes) for index in named]
            self.count += len(indices)

    def tell(self) -> None:
        if self.count:
            self._presence.found_missing(self.count, self.first, self._meter)

    def __enter__(self) -> Missing:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Report missing chunks at the end of a batch, also if its consumer stops early."""
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
        stored=int(read and shows_chunks(array)),
        missing=missing,
    )


def _chunks_of(array: zarr.Array) -> int:
    """Return the number of chunks or shards of an array; 0 for chunks of unequal length, which are not counted."""
    try:
        lengths = array.shards or array.chunks
    except NotImplementedError:
        return 0
    return math.prod(map(ceil_div, array.shape, lengths))


def identity_of(metadata: ArrayV2Metadata | ArrayV3Metadata) -> Identity:
    """Return the identity of an array: its shape, and a digest of its other fixed metadata."""
    may_change = ("attributes", "consolidated_metadata", "dimension_names", "shape", "storage_transformers")
    said = {name: value for name, value in metadata.to_dict().items() if name not in may_change}
    text = json.dumps(said, sort_keys=True, default=str)
    return Identity(tuple(metadata.shape), hashlib.blake2b(text.encode(), digest_size=16).hexdigest())


@lru_cache(32)
def _identity_in(document: bytes, format: int) -> Identity | None:
    """Return the identity in a stored document; None if it is not of an array."""
    kind: Any = ArrayV2Metadata if format == 2 else ArrayV3Metadata
    try:
        return identity_of(kind.from_dict(json.loads(document)))
    except Exception:  # noqa: BLE001  Zarr raises various errors for documents that are not of an array
        return None


def _place(array: zarr.Array) -> str | StorePath:
    place = array.store_path
    if not isinstance(place.store, LocalStore):
        return place
    return os.path.abspath(os.path.join(str(place.store.root), place.path))


def shows_chunks(array: zarr.Array) -> bool:
    """Return whether any chunk of an array is found; False for arrays on other machines or without a listing."""
    place = _place(array)
    return isinstance(place, str) and seems_to_hold_chunks(place)


def holds_chunks(place: str | StorePath) -> bool:
    """Return whether an array has any chunk, in its folder or at its location in a store."""
    if isinstance(place, str):
        return any(True for _ in chunk_files(place, CHUNK.match))
    seen = any(map(CHUNK.match, _listed(lambda: place.store.list_dir(place.path), place)))
    return seen or bool(_count_listed(place))  # old versions of fsspec list no folders of references


def seems_to_hold_chunks(place: str | StorePath) -> bool:
    """Return whether any chunk is found; False if chunks cannot be listed."""
    try:
        return holds_chunks(place)
    except OocError:
        return False


def count_chunks(place: str | StorePath, most: int) -> int | None:
    """Return the number of stored chunks, counting shards as one; None if counting is slow or impossible."""
    try:
        if isinstance(place, str):
            count = sum(1 for _ in islice(chunk_files(place, CHUNK.match), MOST_COUNTED + 1))
            return count if count <= MOST_COUNTED else None
        return None if most > (PAGE if is_remote(place.store) else MOST_COUNTED) else _count_listed(place)
    except OocError:
        return None


def keys_below(place: StorePath) -> list[str]:
    prefix = prefix_of(place)
    return [name.removeprefix(prefix) for name in _listed(lambda: place.store.list_prefix(prefix), place)]


def _count_listed(place: StorePath) -> int | None:
    names = keys_below(place)
    chunks = sum(1 for name in names if CHUNK.match(name.partition("/")[0]))
    return chunks if chunks < len(names) else None  # a store that does not list even the metadata lists nothing


def _listed(names: Callable[[], AsyncIterator[str]], place: StorePath) -> list[str]:
    async def collected() -> list[str]:
        return [name async for name in names()]

    try:
        return sync(collected())
    except OocError:
        raise
    except Exception as error:  # a user's own store may raise any exception
        raise StoreFailure(f"cannot list {place}: {reason(error)}") from error
