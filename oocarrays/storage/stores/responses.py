"""Responses of object stores with object versions, compared on arrival.

Zarr's store     bytes                     obstore and s3fs know the ETag of each response: Zarr drops it
while checked    bytes, ETag ──► check     the same request, made by the library directly
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest
from zarr.core.buffer import Buffer, BufferPrototype

from oocarrays.storage.local.fs import ABSENT

Response = tuple[Buffer | None, str | None]
"""Bytes and version of an object; both None if it does not exist."""


@dataclass(frozen=True, eq=False, weakref_slot=True, slots=True)
class ResponseCheck:
    """Comparison of all responses in this process with expected versions, active while referenced."""

    prefix: str
    """URL prefix of the compared objects; the rest of an object's URL is its name."""
    expected: Callable[[str, str | None], bool]
    """Predicate: whether an object of this name is expected to have this version, or None if absent."""
    unlike: dict[str, str | None] = field(default_factory=dict)
    """Versions of objects that were not as expected, by name."""

    def __post_init__(self) -> None:
        with _lock:
            _checks.add(self)

    def saw(self, url: str, version: str | None) -> None:
        if url.startswith(self.prefix):
            name = url.removeprefix(self.prefix)
            if not self.expected(name, version):
                self.unlike[name] = version


_checks: weakref.WeakSet[ResponseCheck] = weakref.WeakSet()
_lock = threading.Lock()


def active_checks() -> list[ResponseCheck]:
    with _lock:
        return list(_checks)


async def versioned(store: Any, key: str, prototype: BufferPrototype, part: ByteRequest | None) -> Response:
    get = _by_obstore if type(store).__name__ == "ObjectStore" else _by_s3fs
    try:
        data, version = await get(store, key, part)
    except (*ABSENT, IsADirectoryError):
        return None, None
    return prototype.buffer.from_bytes(data), version


async def _by_obstore(store: Any, key: str, part: ByteRequest | None) -> tuple[Any, str]:
    options: Any = {}
    if isinstance(part, RangeByteRequest):
        options = {"range": (part.start, part.end)}
    elif part is not None:
        options = {"range": asdict(part)}
    found = await store.store.get_async(key, options=options)
    return await found.bytes_async(), version_of(found.meta)


async def _by_s3fs(store: Any, key: str, part: ByteRequest | None) -> tuple[bytes, str]:
    bucket, name, _ = store.fs.split_path(f"{store.path}/{key}")
    head = {}
    if isinstance(part, RangeByteRequest):
        head = {"Range": f"bytes={part.start}-{part.end - 1}"}
    elif part is not None:
        head = {"Range": f"bytes={part.offset}-" if isinstance(part, OffsetByteRequest) else f"bytes=-{part.suffix}"}

    async def read() -> tuple[bytes, str]:
        found = await store.fs._call_s3("get_object", Bucket=bucket, Key=name, **head)
        try:
            return await found["Body"].read(), version_of(found)
        finally:
            found["Body"].close()

    retried = sys.modules[type(store.fs).__module__]._error_wrapper  # the retry of all s3fs reads
    return await retried(read, retries=store.fs.retries)


def version_of(said: Mapping[str, Any]) -> str:
    """Return the version of an object as given by a library; empty if unknown."""
    names = ("e_tag", "ETag", "etag", "generation", "last_modified", "LastModified", "mtime", "created")
    return next((str(said[name]) for name in names if said.get(name)), "")
