"""Fingerprints of what is stored in an array: what tells it from the same array written again.

    chunk files, objects  ─► group by their keys ─► of each group three sums:  sizes
                                                                               … and times, or ETags
                                                                               … and inodes

The sums of a group differ where one of its chunks does: that says how much has changed, in a few KiB for any number of
chunks. Nothing is read but what folders and stores list. A copy has other inodes; a chunk written again has another
time. What a store does not list has no fingerprint.
"""

from __future__ import annotations

import os
import stat
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np
import zarr
from zarr.core.sync import sync

from oocarrays.errors import JournalError, StoreFailure
from oocarrays.plan.documents import Document
from oocarrays.storage.files.documents import ATTRIBUTES, PARTIAL, PARTIAL_END
from oocarrays.storage.files.places import local_folder, place_name
from oocarrays.storage.journal.texts import FOLDER, MADE, NOTE, SOURCE
from oocarrays.storage.stores.remote import RemoteStore

GROUPS = 1024
"""Groups of chunks, at most."""
AT_ONCE = 10_000
"""Chunks that are held at one time."""
NO_CHUNKS = frozenset((*ATTRIBUTES, ".zarray", ".zgroup", ".zmetadata", FOLDER, NOTE, MADE, SOURCE))
"""What is beside chunks, and says of itself what it is."""
KINDS = 3
"""Sums of each group: sizes; and times or ETags; and inodes."""
Listed = tuple[str, int, int, int]
"""Of one chunk its key, its bytes, its time or ETag, and its inode."""


def fingerprint(array: zarr.Array, each: Callable[[Sequence[Listed]], None] | None = None) -> Document | None:
    """The fingerprint of what is stored in an array, as JSON keeps it; None where its store lists nothing of use."""
    found = listed(array)
    if found is None:
        return None
    place = array.store_path
    sums, count = np.zeros((KINDS, _groups(array)), np.uint64), 0
    while some := list(islice(found, AT_ONCE)):
        _add(sums, some)
        count += len(some)
        if each:
            each(some)
    return {
        "place": place_name(place.store, place.path),
        "files": count,
        "sums": [b64encode(each.astype("<u8").tobytes()).decode() for each in sums],
    }


def _groups(array: zarr.Array) -> int:
    with suppress(NotImplementedError):  # chunks of unequal length
        return int(min(GROUPS, max(array.nchunks, 1)))
    return GROUPS


def changed(before: Mapping[str, Any], now: Mapping[str, Any], *, moved: bool = False) -> float:
    """The share of an array that has changed between two fingerprints, as far as their groups tell."""
    kind = KINDS - 2 if moved or before.get("place") != now.get("place") else KINDS - 1
    old, new = _sums(before)[kind], _sums(now)[kind]
    if len(old) != len(new):
        return 1.0
    return int(np.count_nonzero(old != new)) / max(int(np.count_nonzero(old | new)), 1)


def _sums(given: Mapping[str, Any]) -> list[np.ndarray]:
    try:
        sums = [np.frombuffer(b64decode(each), "<u8") for each in given["sums"]]
    except (KeyError, TypeError, ValueError):
        sums = []
    if len(sums) != KINDS:
        raise JournalError("the fingerprint of a source in a journal is cut short, or none")
    return sums


def _add(sums: np.ndarray, chunks: Sequence[Listed]) -> None:
    """Add some chunks to the sums of their groups."""
    mixed = np.array([crc32(key.encode()) for key, *_ in chunks], np.uint64)
    groups = mixed % np.uint64(sums.shape[1])
    for kind, words in enumerate(words_of(chunks, mixed)):
        np.add.at(sums[kind], groups, words)


def words_of(chunks: Sequence[Listed], mixed: np.ndarray) -> Iterator[np.ndarray]:
    """Yield a word for each chunk: of its size; and of its time or ETag with that; and of its inode with both."""
    _, *told = zip(*chunks, strict=True)
    for values in told:
        mixed = _mixed(mixed ^ np.array([value % 2**64 for value in values], np.uint64))
        yield mixed


def word_of(text: str) -> int:
    """Return a text as 8 bytes: the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mixed(words: np.ndarray) -> np.ndarray:
    """Every bit of a word in every bit of what comes of it: the end of splitmix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = words ^ (words >> np.uint64(31))
    return mixed


# ---------------------------------------------------------------------- what is listed


def listed(array: zarr.Array) -> Iterator[Listed] | None:
    """Yield all chunks that are stored; return None where the store does not list their versions."""
    place = array.store_path
    folder = local_folder(place.store, place.path)
    if folder is not None:
        return _files(folder)
    if not isinstance(place.store, RemoteStore):
        return None
    prefix = f"{place.path}/" if place.path else ""
    found = sync(place.store.details(prefix))
    if found is None or not all(version for _, _, version in found):
        return None
    return _objects((key.removeprefix(prefix), size, version) for key, size, version in found)


def _objects(found: Iterable[tuple[str, int, str]]) -> Iterator[Listed]:
    for key, size, version in found:
        if key.partition("/")[0] not in NO_CHUNKS:
            yield of_object(key, version, size)


def _files(folder: str) -> Iterator[Listed]:
    """Chunk files below a folder."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with suppress(FileNotFoundError, NotADirectoryError), _scanned(f"{folder}/{below}") as entries:
            for entry in entries:
                name = entry.name
                key = f"{below}{name}"
                if key in NO_CHUNKS or (name.endswith(PARTIAL_END) and PARTIAL.search(name)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{key}/")
                    continue
                status = _status(entry)
                if status is None:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(f"{key}/")
                else:
                    yield of_path(key, status)


def of_object(key: str, version: str, size: int = 0) -> Listed:
    """Return what tells an object from another version of it."""
    return key, size, word_of(version), 0


def of_path(key: str, status: os.stat_result) -> Listed:
    """Return what tells a file from another version of it."""
    return key, status.st_size, status.st_mtime_ns, status.st_ino


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of a file or folder, or what a link leads to; None where it has gone meanwhile."""
    try:
        return entry.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreFailure(f"cannot look at {entry.path}: {error.strerror}") from error


def _scanned(folder: str) -> Any:
    try:
        return os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        raise StoreFailure(f"cannot look into {folder}: {error.strerror}") from error
