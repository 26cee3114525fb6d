"""What a finished array keeps of the source that it was made of, so that it can be brought up to date.

    kept    ▪ ▪ ▪ ▪              two words of each chunk: of its size and time, or ETag; and of these and its inode
    now     ▪ ▫ ▪ ▪ ▫ ▫          ▫ changed: another word, or elements beyond what there was

    target/  .oocarrays.source   a line of JSON, and the words of all chunks, or shards, in C order

Nothing is read of the source but what its folder or store lists.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import JournalError
from oocarrays.mapping.grid import ChunkGrid, ravel
from oocarrays.plan.documents import Document
from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.journal.entries import entries_of, reading, writing
from oocarrays.storage.journal.fingerprints import Listed, fingerprint, words_of
from oocarrays.storage.journal.texts import SOURCE
from oocarrays.storage.stores.remote import RemoteStore

WORDS = 2
"""Words of a chunk: one that a copy keeps, and one that tells it from a copy."""
KIND = ("data_type", "dtype", "fill_value", "codecs", "compressor", "filters", "order")
"""Entries of an array's metadata of which none may change while it grows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Source:
    """A source, as an array keeps it that was made of it."""

    place: str | None
    """Its folder or URL; None where it has none."""
    kind: str
    """A digest of its type of elements, fill value, codecs and chunks."""
    grid: ChunkGrid
    """Its shape, and the chunks in which it is stored: shards, where there are any."""
    words: np.ndarray
    """Two of each chunk, or shard, in C order; 0 where nothing is stored."""

    @classmethod
    def seen(cls, array: zarr.Array) -> tuple[Source, Document] | None:
        """See how an array is now, and with it the fingerprint of the same look; None where its store lists nothing."""
        grid = ChunkGrid.of(tuple(array.shape), tuple(array.shards or array.chunks))
        words = np.zeros((WORDS, grid.count), np.uint64)

        def add(chunks: Sequence[Listed]) -> None:
            numbers = [_number(key, grid, array) for key, *_ in chunks]
            mine = [number is not None for number in numbers]
            _, *told = words_of(chunks, np.zeros(len(chunks), np.uint64))
            for kind, each in enumerate(told):
                words[kind, [number for number in numbers if number is not None]] = each[mine] | np.uint64(1)

        read = fingerprint(array, add)
        if read is None:
            return None
        return cls(place=read["place"], kind=_kind(array, grid), grid=grid, words=words), read

    def changed(self, now: Source) -> np.ndarray:
        """Tell which chunks of a source are not as they were, or hold elements that there were not: True for these.

        >>> grid, words = ChunkGrid.of((4,), (2,)), np.array([[5, 7], [5, 7]], np.uint64)
        >>> before = Source(place="/a", kind="", grid=grid, words=words)
        >>> more = np.array([[5, 9, 0], [5, 9, 0]], np.uint64)
        >>> before.changed(Source(place="/a", kind="", grid=ChunkGrid.of((5,), (2,)), words=more)).tolist()
        [False, True, True]
        """
        if self.kind != now.kind or len(self.grid.shape) != len(now.grid.shape):
            raise JournalError("its type of elements, fill value, codecs or chunks are others now")
        pairs = list(zip(self.grid.shape, now.grid.shape, self.grid.chunks, strict=True))
        if any(new < old for old, new, _ in pairs):
            raise JournalError(f"its shape was {self.grid.shape} and is {now.grid.shape}")
        kinds = slice(0, WORDS) if self.place == now.place and self.place is not None else slice(0, 1)
        unlike = np.ones(now.grid.counts, bool)
        both = tuple(slice(n) for n in self.grid.counts)
        new = now.words.reshape(WORDS, *now.grid.counts)[(kinds, *both)]
        old = self.words.reshape(WORDS, *self.grid.counts)[kinds]
        unlike[both] = (old != new).any(axis=0)
        for axis, (before, after, chunk) in enumerate(pairs):
            if after > before:  # also of the chunk that was cut, whatever is stored there
                unlike[(slice(None),) * axis + (slice(before // chunk, None),)] = True
        return unlike


def _number(key: str, grid: ChunkGrid, array: zarr.Array) -> int | None:
    """The place of a chunk in C order, by its key; None of what is no chunk of this array."""
    names = key.replace(".", "/").split("/")
    names = [name for name in names if name != "c"][: len(grid.shape)]
    if not all(name.isascii() and name.isdigit() for name in names) or len(names) != len(grid.shape):
        return None
    index = tuple(map(int, names))
    inside = all(i < n for i, n in zip(index, grid.counts, strict=True))
    return ravel(index, grid.counts) if inside and array.metadata.encode_chunk_key(index) == key else None


def _kind(array: zarr.Array, grid: ChunkGrid) -> str:
    metadata: Mapping[str, Any] = array.metadata.to_dict()
    told = {name: metadata.get(name) for name in KIND} | {"chunks": grid.chunks}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


# ---------------------------------------------------------------------- beside an array


def can_keep(store: StoreLike) -> bool:
    """Return whether an array in ``store`` can keep what it was made of: in a folder, or an object store."""
    return local_folder(store) is not None or isinstance(store_path(store).store, RemoteStore)


def keep_source(store: StoreLike, source: Source, *, durable: bool = False) -> None:
    """Keep what the array in ``store`` is made of, in the place of what it kept."""
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
    """Read what the array in ``store`` was made of; None where it keeps nothing of that."""
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
    raise JournalError(f"{SOURCE} in {store} is cut short, or has been changed")


def drop_source(store: StoreLike) -> None:
    """Have the array in ``store`` keep nothing of what it was made of."""
    with writing(store):
        entries_of(store).delete([SOURCE])
