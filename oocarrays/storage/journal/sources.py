"""Fingerprints of a source, kept beside the finished array that was made from it, for later updates.

    kept    ▪ ▪ ▪ ▪              two words of each chunk: of its size and time, or ETag; and of these and its inode
    now     ▪ ▫ ▪ ▪ ▪ ▫ ▫          ▫ changed: another word, or elements beyond the old shape

    target/  .oocarrays.source   a line of JSON, and the words of all chunks, or shards, in C order

Only the listing of the source's folder or store is read.

chunk files, objects  ─► group by their keys ─► three sums for each group:  sizes
                                                                               … and times, or ETags
                                                                               … and inodes

The sums of a group differ where one of its chunks differs. They estimate the changed share in a few KiB for any number
of chunks. A copy has other inodes; a rewritten chunk has another time. A store without listings has no fingerprint.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any
from zlib import crc32

import numpy as np
import zarr
from zarr.core.sync import sync

from oocarrays.errors import InputError, JournalError
from oocarrays.mapping.grid import ChunkGrid, ravel
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.entries import entries_of, reading, writing
from oocarrays.storage.files.places import StoreLike, local_folder, location, place_name, prefix_of, store_path
from oocarrays.storage.journal.texts import NO_CHUNKS, SOURCE
from oocarrays.storage.local.fs import Version, chunk_files, index_of_chunk, status_of
from oocarrays.storage.stores.remote import RemoteStore

AT_ONCE = 10_000
"""Maximum number of chunks held at one time."""
KINDS = 3
"""Number of sums of each group: sizes; sizes with times or ETags; and these with inodes."""
CHUNKS_READ = "chunks_read"
"""Key of the source fingerprints in a journal."""


def fingerprint(array: zarr.Array, each: Callable[[Sequence[Version]], None] | None = None) -> Document | None:
    """Return the fingerprint of the stored chunks of an array as JSON values; None if its store lists no versions."""
    found = listed(array)
    if found is None:
        return None
    sums, count = np.zeros((KINDS, _groups(array)), np.uint64), 0
    while some := list(islice(found, AT_ONCE)):
        mixed = np.array([crc32(key.encode()) for key, *_ in some], np.uint64)
        for kind, words in enumerate(words_of(some, mixed)):
            np.add.at(sums[kind], mixed % np.uint64(sums.shape[1]), words)
        count += len(some)
        if each:
            each(some)
    return {
        "place": place_name(array.store_path),
        "files": count,
        "sums": [b64encode(each.astype("<u8").tobytes()).decode() for each in sums],
    }


def _groups(array: zarr.Array) -> int:
    most = 1024
    with suppress(NotImplementedError):  # chunks of unequal length
        return int(min(most, max(array.nchunks, 1)))
    return most


def changed(before: Mapping[str, Any], now: Mapping[str, Any], *, moved: bool = False) -> float:
    """Return the share of an array that has changed between two fingerprints, to the resolution of their groups."""
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
        raise JournalError("the fingerprint of a source in a journal is truncated or invalid")
    return sums


def words_of(chunks: Sequence[Version], mixed: np.ndarray) -> Iterator[np.ndarray]:
    """Yield three arrays of one word per chunk: of its size; of that and its time or ETag; of both and its inode."""
    _, *told = zip(*chunks, strict=True)
    for values in told:
        mixed = _mixed(mixed ^ np.array([value % 2**64 for value in values], np.uint64))
        yield mixed


def word_of(text: str) -> int:
    """Return a hash of a text as an integer of 8 bytes, equal in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def _mixed(words: np.ndarray) -> np.ndarray:
    """Mix each word so that every input bit affects every output bit: the finalizer of splitmix64."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def listed(array: zarr.Array) -> Iterator[Version] | None:
    """Return an iterator over all stored chunks; None if the store does not list their versions."""
    place = array.store_path
    folder = local_folder(place)
    if folder is not None:
        return _files(folder)
    if not isinstance(place.store, RemoteStore):
        return None
    prefix = prefix_of(place)
    found = sync(place.store.details(prefix))
    if found is None or not all(tag for _, _, tag in found):
        return None
    below = ((key.removeprefix(prefix), size, tag) for key, size, tag in found)
    return (of_object(key, size, tag) for key, size, tag in below if key.partition("/")[0] not in NO_CHUNKS)


def _files(folder: str) -> Iterator[Version]:
    for key, path in chunk_files(folder, _NO_RECORD.match):
        status = status_of(path)
        if status is not None:
            yield of_path(key, status)


_NO_RECORD = re.compile(f"(?!({'|'.join(map(re.escape, NO_CHUNKS))})$)")


def of_object(key: str, size: int, tag: str) -> Version:
    return Version(key, size, word_of(tag))


def of_path(key: str, status: os.stat_result) -> Version:
    return Version(key, status.st_size, status.st_mtime_ns, status.st_ino)


WORDS = 2
"""Words of a chunk: the first is unchanged by a copy, the second differs in a copy."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """A source as recorded beside the array that was made from it."""

    place: str | None
    """Its folder or URL; None if it has neither."""
    kind: str
    """Digest of its data type, fill value, codecs and chunks."""
    grid: ChunkGrid
    """Its shape, and its stored chunks: shards, if it has any."""
    words: np.ndarray
    """Two words of each chunk or shard, in C order; 0 where nothing is stored."""

    @classmethod
    def seen(cls, array: zarr.Array) -> tuple[Source, Document] | None:
        """Return the state of an array and its fingerprint, from one listing; None if its store lists no versions."""
        grid = ChunkGrid.of(tuple(array.shape), tuple(array.shards or array.chunks))
        words = np.zeros((WORDS, grid.count), np.uint64)

        def add(chunks: Sequence[Version]) -> None:
            numbers = np.array([_number(key, grid, array) for key, *_ in chunks])
            mine = numbers >= 0
            _, *told = words_of(chunks, np.zeros(len(chunks), np.uint64))
            for kind, each in enumerate(told):
                words[kind, numbers[mine]] = each[mine] | np.uint64(1)

        read = fingerprint(array, add)
        if read is None:
            return None
        return cls(place=read["place"], kind=_kind(array, grid), grid=grid, words=words), read

    def changed(self, now: Source, array: zarr.Array | None = None) -> np.ndarray:
        """Return an array of booleans, True for chunks that changed or contain elements beyond the old shape.

        All are, if ``array``, the source now, was one chunk that has grown: coordinates of joined files.
        """
        same, one = self.kind == now.kind, self.grid.count == 1
        longer = not same and one and array is not None and self.kind == _kind(array, self.grid)
        if not (same or longer) or len(self.grid.shape) != len(now.grid.shape):
            raise JournalError("its dtype, fill value, codecs or chunks have changed")
        pairs = list(zip(self.grid.shape, now.grid.shape, self.grid.chunks, strict=True))
        if any(new < old for old, new, _ in pairs):
            raise JournalError(f"its shape was {self.grid.shape} and is {now.grid.shape}")
        if longer:
            return np.ones(now.grid.counts, bool)
        kinds = slice(0, WORDS) if self.place == now.place and self.place is not None else slice(0, 1)
        unlike = np.ones(now.grid.counts, bool)
        both = tuple(slice(n) for n in self.grid.counts)
        new = now.words.reshape(WORDS, *now.grid.counts)[(kinds, *both)]
        old = self.words.reshape(WORDS, *self.grid.counts)[kinds]
        unlike[both] = (old != new).any(axis=0)
        for axis, (before, after, chunk) in enumerate(pairs):
            if after > before:  # also of the chunk that was cut, whether or not it is stored
                unlike[(slice(None),) * axis + (slice(before // chunk, None),)] = True
        return unlike


def _number(key: str, grid: ChunkGrid, array: zarr.Array) -> int:
    """Return the number of a chunk in C order, by its key; -1 for a key that is not a chunk of this array."""
    index = index_of_chunk(key, array)
    inside = index is not None and all(i < n for i, n in zip(index, grid.counts, strict=True))
    return ravel(index, grid.counts) if index is not None and inside else -1


def _kind(array: zarr.Array, grid: ChunkGrid) -> str:
    """Return a digest of the metadata that must stay equal while an array grows."""
    metadata: Mapping[str, Any] = array.metadata.to_dict()
    names = ("data_type", "dtype", "fill_value", "codecs", "compressor", "filters", "order")
    told = {name: metadata.get(name) for name in names} | {"chunks": grid.chunks}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def metadata_digest(file: Any, name: str | None = None) -> str:
    """Return a digest of the metadata of an array or its file; with ``name``, its location, as before version 0.6."""
    array: zarr.Array = getattr(file, "zarr", file)
    told = array.metadata.to_dict()
    metadata = json.dumps(told if name is None else [name, told], sort_keys=True, default=str)
    return hashlib.sha256(metadata.encode()).hexdigest()


def is_of(file: ArrayFile, digest: Any, before: str | None = None) -> bool:
    """Return whether a digest matches an array's metadata, alone or with its current location or ``before``."""
    return digest in [metadata_digest(file, name) for name in (None, file.name, before or file.name)]


def can_keep(store: StoreLike) -> bool:
    """Return whether ``store`` can record a source: it is a local folder or an object store."""
    return local_folder(store) is not None or isinstance(store_path(store).store, RemoteStore)


def keep_source(store: StoreLike, source: Source, *, durable: bool = False) -> None:
    """Record the source of the array in ``store``, replacing an earlier record."""
    body = zlib.compress(source.words.astype("<u8").tobytes(), 1)
    head = {
        "place": source.place,
        "kind": source.kind,
        "shape": source.grid.shape,
        "chunks": source.grid.chunks,
        "digest": hashlib.sha256(body).hexdigest(),
    }
    with writing(store):
        entries_of(store).replace(SOURCE, json.dumps(head).encode() + b"\n" + body, durable=durable)


def kept_source(store: StoreLike) -> Source | None:
    with reading(store):
        text = entries_of(store).get(SOURCE)
    if text is None:
        return None
    line, _, body = text.partition(b"\n")
    try:
        head = json.loads(line)
        grid = ChunkGrid.of(tuple(map(int, head["shape"])), tuple(map(int, head["chunks"])))
        words = np.frombuffer(zlib.decompress(body), "<u8").reshape(WORDS, grid.count)
        if head["digest"] == hashlib.sha256(body).hexdigest():
            return Source(place=head["place"], kind=head["kind"], grid=grid, words=words)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error):
        pass
    raise JournalError(f"{SOURCE} in {store} is truncated or has been modified")


# ---------------------------------------------------------------------- sources of a run that continues


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Degree of trust in the state left by a run."""

    as_is: bool = False
    """Whether to continue with a source that has changed."""
    again: str = ""
    """Unique id of a new beginning with the current sources; empty unless the run starts over."""
    verify: bool = False
    """Whether stored chunks are read and verified, rather than only their sizes."""
    moved: bool = False
    """Whether the sources have new locations: they may have been copied, to other inodes."""


TRUSTED = Trust()


def trust_of(resume: Any) -> Trust | None:
    """Return the trust in recorded state for the option ``resume``; None to start anew."""
    if isinstance(resume, Trust):
        return resume
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume in ("verify", "as-is")):
        raise InputError(f"resume={resume!r} is not True, False, 'verify' or 'as-is'")
    return Trust(verify=resume == "verify", as_is=resume == "as-is") if resume else None


def check_sources(
    arrays: Sequence[zarr.Array] | Mapping[str, zarr.Array],
    content: Mapping[str, Any],
    target: StoreLike,
    trust: Trust,
) -> list[str]:
    """Return notices about changed sources, by name or in order; raise if ``trust`` does not accept the change."""
    if trust.again:
        return []
    ways = "start over (resume with again=True, --again), or continue anyway (as_is=True, --as-is)"
    if "pass" in content:
        ways = "start over (overwrite=True), or continue anyway (resume='as-is')"
    before = content.get(CHUNKS_READ) or [None] * len(arrays)
    if isinstance(arrays, Mapping):
        kept = content.get(CHUNKS_READ) or {}
        names = [name for name in kept if name in arrays]
        arrays, before = [arrays[name] for name in names], [kept[name] for name in names]
    if len(before) != len(arrays):
        raise JournalError(f"the journal in {target} has fingerprints of {len(before)} sources, not {len(arrays)}")
    since, pairs = f"{target} began: {ways}", zip(arrays, before, strict=True)
    return [notice for notice in (_notice(*pair, trust, since) for pair in pairs) if notice]


def _notice(array: zarr.Array, before: Mapping[str, Any] | None, trust: Trust, since: str) -> str | None:
    name = location(array)
    if before is None:
        return f"whether {name} has changed since is not known: no fingerprint of its chunks was kept"
    now = fingerprint(array)
    if now is None:
        if not trust.as_is:
            raise JournalError(f"{name} cannot be listed to check whether it has changed since the run in {since}")
        return None
    share = changed(before, now, moved=trust.moved)
    if not share:
        return None
    told = f"about {max(100 * share, 0.1):.3g} % of the chunks of {name} have changed since the run in {since}"
    if not trust.as_is:
        copied = not trust.moved and not changed(before, now, moved=True)
        raise JournalError(told + ("; if it was copied, pass it as source" if copied else ""))
    return told.partition(" began: ")[0] + " began: what was written before stays as it is"
