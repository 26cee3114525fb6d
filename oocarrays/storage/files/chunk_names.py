"""Chunks of an array, found by name only: no chunk is read.

folder    scandir, name by name, until the answer is known
store     one listing: of names directly below the array, or of all keys if they fit in one page
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice

from zarr.core.sync import sync
from zarr.storage import StorePath

from oocarrays.errors import OocError, StoreFailure
from oocarrays.storage.local.fs import failure
from oocarrays.storage.local.names import PARTIAL_END
from oocarrays.storage.stores.remote import is_remote, reason

CHUNK = re.compile(r"c$|c\.|\d")
"""Start of the names of chunks, and of folders of chunks."""
MOST_COUNTED = 100_000
"""Maximum number of chunks counted: about a fifth of a second on a local file system."""
PAGE = 1000
"""Names that an object store returns per response."""


def holds_chunks(place: str | StorePath) -> bool:
    """Return whether an array has any chunk, in its folder or at its location in a store."""
    if isinstance(place, str):
        return any(True for _ in _files(place))
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
            count = sum(1 for _ in islice(_files(place), MOST_COUNTED + 1))
            return count if count <= MOST_COUNTED else None
        return None if most > (PAGE if is_remote(place.store) else MOST_COUNTED) else _count_listed(place)
    except OocError:
        return None


def count_all(place: str | StorePath) -> int | None:
    """Return the number of stored chunks regardless of time; None if the store lists nothing."""
    return sum(1 for _ in _files(place)) if isinstance(place, str) else _count_listed(place)


def _count_listed(place: StorePath) -> int | None:
    prefix = f"{place.path}/".lstrip("/")
    names = [name.removeprefix(prefix) for name in _listed(lambda: place.store.list_prefix(prefix), place)]
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


def _files(folder: str) -> Iterator[str]:
    """Yield the names of chunk files below the folder of an array."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not CHUNK.match(entry.name) or entry.name.endswith(PARTIAL_END):
                    continue
                if entry.is_dir():
                    yield from _files(entry.path)
                elif entry.is_file() or os.path.exists(entry.path):  # a FIFO is refused when it is read
                    yield entry.name
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure("list", folder, error) from error


def mark_of_plan(run: str, beginning: str, number: int) -> str:
    """Return the mark in the names of unfinished chunks, for one pass of one plan of a run."""
    return hashlib.sha256(f"{run} {beginning} {number}".encode()).hexdigest()[:32]
