"""Versions of chunks that a plan without a target reads: a source that changes during reading is an error.

    begin   a word of each chunk: of size, time and inode, or of its ETag      one stat of each file, or one listing
    read    object stores: each response carries the ETag                      no extra request
    end     files: checked again                                               another word: RunError

Files are checked by name if few chunks of an array are read; otherwise their folders are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from oocarrays.errors import CorruptChunkError, RunError, StoreFailure
from oocarrays.mapping.selection import Axes, Taken
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.presence import PAGE
from oocarrays.storage.journal.sources import AT_ONCE, listed, of_object, of_path, word_of, words_of
from oocarrays.storage.journal.texts import NO_CHUNKS
from oocarrays.storage.local.fs import Version, status_of
from oocarrays.storage.stores.remote import tells_versions
from oocarrays.storage.stores.responses import ResponseCheck


@dataclass(frozen=True, eq=False)
class Versions:
    """Versions of an array's chunks at one time."""

    name: str
    """Name of the array's location for messages."""
    keys: np.ndarray
    """A word of the key of each stored chunk, ascending."""
    words: np.ndarray
    """A word of the version of each stored chunk."""

    @classmethod
    def of(cls, file: ArrayFile, requests: Sequence[Axes] | None = None) -> Versions | None:
        """Return the versions of an array's chunks; None if its store lists none, or only with too many requests."""
        return _seen(file, None if requests is None else keys_of(file, requests))

    def check(self, file: ArrayFile, request: Axes | None = None, *, compared: bool = True) -> None:
        """Raise if the chunks have changed, unless the store's responses have already been compared."""
        if compared and tells_versions(file.zarr.store_path.store):
            return
        keys = None if request is None else keys_of(file, [request])
        now = _seen(file, keys)
        if now is None:
            raise StoreFailure(f"{self.name} cannot be listed again to check whether it has changed")
        every = np.union1d(self.keys, now.keys) if keys is None else _words(map(word_of, keys))
        unlike = int(np.count_nonzero(self._at(every) != now._at(every)))
        if unlike:
            raise self._changed(unlike)

    def _at(self, keys: np.ndarray) -> np.ndarray:
        """Return the version of each chunk; 0 where it is not stored."""
        if not len(self.keys):
            return np.zeros(len(keys), np.uint64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.words[place], np.uint64(0))

    def _changed(self, count: int, then: str = "read it again") -> RunError:
        which = "changed, appeared or vanished"
        return RunError(f"{self.name} changed while it was read: {count} chunks {which}; {then}")

    def responses(self, file: ArrayFile) -> ResponseCheck | None:
        """Start comparing responses with the listing; return None if responses carry no versions.

        `check_responses` raises for the differences found.
        """
        place = file.zarr.store_path
        if not tells_versions(place.store):
            return None
        return ResponseCheck(f"{place.store}/{place.path}/" if place.path else f"{place.store}/", self._is_listed)

    def check_responses(self, file: ArrayFile, responses: ResponseCheck | None, **then: str) -> None:
        """Raise if a response showed that a chunk has changed or vanished."""
        unlike = self._unlike(file, dict(responses.unlike)) if responses is not None and responses.unlike else 0
        if unlike:
            raise self._changed(unlike, **then)

    @contextmanager
    def reading(self, file: ArrayFile) -> Iterator[None]:
        """Compare responses of a store with its listing while the context reads the array."""
        responses = self.responses(file)
        try:
            yield
        except CorruptChunkError as error:
            now = _seen(file, None)
            if now is not None and (unlike := int(np.count_nonzero(now._at(self.keys) != self.words))):
                raise self._changed(unlike) from error
            raise
        self.check_responses(file, responses)

    def _is_listed(self, key: str, version: str | None) -> bool:
        """Return whether a response matches the listing: missing, or this version; True for keys beside chunks."""
        if key.partition("/")[0] in NO_CHUNKS:
            return True
        known = self._at(_words([word_of(key)]))[0]
        return bool(known == (0 if version is None else _version_words([of_object(key, 0, version)])[0]))

    def _unlike(self, file: ArrayFile, responses: Mapping[str, str | None]) -> int:
        """Return the number of changed chunks among those with responses unlike the listing.

        A store may list other versions than its responses carry: in that case the new listing equals the old one.
        """
        keys, now = _words(map(word_of, responses)), _seen(file, None)
        if now is None:
            return len(keys)
        lost = np.array([version is None for version in responses.values()])
        return int(np.count_nonzero(lost | (now._at(keys) != self._at(keys))))


@contextmanager
def unchanged(files: Sequence[ArrayFile]) -> Iterator[None]:
    """Raise on leaving the context if an array has changed inside it."""
    seen = [(file, versions) for file in files if (versions := Versions.of(file)) is not None]
    with ExitStack() as stack:
        for file, versions in seen:
            stack.enter_context(versions.reading(file))
        yield
    for file, versions in seen:
        versions.check(file)


def keys_of(file: ArrayFile, requests: Iterable[Axes]) -> list[str]:
    """Return the keys of the chunks or shards that hold elements of the requested sections, each once."""
    lengths = file.zarr.shards or file.zarr.chunks
    indices: dict[tuple[int, ...], None] = {}
    for axes in requests:
        indices.update(dict.fromkeys(product(*map(_touched, axes, lengths))))
    return [file.zarr.metadata.encode_chunk_key(index) for index in indices]


def _touched(taken: Taken, length: int) -> Iterable[int]:
    """Return the chunks along an axis that hold any of the elements."""
    if isinstance(taken, range) and abs(taken.step) <= length:
        return range(min(taken[0], taken[-1]) // length, max(taken[0], taken[-1]) // length + 1) if taken else ()
    return np.unique(np.asarray(taken) // length).tolist()


def _seen(file: ArrayFile, keys: list[str] | None) -> Versions | None:
    found = _look(file, keys)
    return None if found is None else Versions(file.presence.name, *_table(found))


def _look(file: ArrayFile, keys: list[str] | None) -> Iterator[Version] | None:
    """Return the versions of the named chunks, listed if that is cheaper; None if it takes too many requests."""
    folder = file.folder
    if folder is not None:
        few = keys is not None and 2 * len(keys) < file.presence.chunks
        return _named(folder, keys or ()) if few else listed(file.zarr)
    if keys is not None and file.presence.chunks > max(PAGE, 10 * len(keys)):
        return None
    found = None
    with suppress(StoreFailure):  # some stores serve objects but do not list them
        found = listed(file.zarr)
    if found is not None and tells_versions(file.zarr.store_path.store):
        return (each._replace(size=0) for each in found)  # a response states its ETag alone
    return found


def _named(folder: str, keys: Iterable[str]) -> Iterator[Version]:
    for key in keys:
        status = status_of(f"{folder}/{key}")
        if status is not None:
            yield of_path(key, status)


def _table(found: Iterator[Version]) -> tuple[np.ndarray, np.ndarray]:
    """Return words of keys, ascending, and words of their versions."""
    keys, words = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    while some := list(islice(found, AT_ONCE)):
        keys.append(_words(word_of(key) for key, *_ in some))
        words.append(_version_words(some))
    joined, order = np.concatenate(keys), np.argsort(np.concatenate(keys))
    return joined[order], np.concatenate(words)[order]


def _version_words(chunks: Sequence[Version]) -> np.ndarray:
    *_, last = words_of(chunks, np.zeros(len(chunks), np.uint64))
    return last | np.uint64(1)  # 0 means not stored


def _words(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), np.uint64)
