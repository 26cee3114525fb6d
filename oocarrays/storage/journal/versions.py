"""Versions of chunks that a plan without a target reads: a source that changes meanwhile is an error, not a mixture.

    begin   a word of each chunk: of size, time and inode, or of its ETag      one look at files, or one listing
    read    object stores: each response carries the ETag                      no request more
    end     files: looked at again                                             another word: RunError

Files are looked at by their names where few of an array are read; else their folders are listed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice, product

import numpy as np

from oocarrays.errors import CorruptChunkError, RunError, StoreFailure
from oocarrays.mapping.selection import Axes, Taken
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.chunk_names import PAGE
from oocarrays.storage.journal.sources import (
    AT_ONCE,
    NO_CHUNKS,
    Listed,
    listed,
    of_object,
    of_path,
    word_of,
    words_of,
)
from oocarrays.storage.local.fs import ABSENT, translated
from oocarrays.storage.stores.remote import tells_versions
from oocarrays.storage.stores.responses import ResponseCheck

LISTED_SHARE = 2
"""Folders are listed where one of so many chunks is read, or more."""
LISTED_PER_READ = 10
"""Chunks that are listed in a store for each that is read, at most, where they take more than one request."""


@dataclass(frozen=True, eq=False)
class Versions:
    """Versions of chunks of an array, as they were at one time."""

    name: str
    """Where the array is, as a person writes it."""
    keys: np.ndarray
    """A word of the key of each chunk that is stored, ascending."""
    words: np.ndarray
    """A word of the version of each."""

    @classmethod
    def of(cls, file: ArrayFile, requests: Sequence[Axes] | None = None) -> Versions | None:
        """Look at the chunks of an array; None where its store does not list them, or at too high a price."""
        return _seen(file, None if requests is None else keys_of(file, requests))

    def check(self, file: ArrayFile, request: Axes | None = None, *, compared: bool = True) -> None:
        """Look again, unless the responses of the store have been compared."""
        if compared and tells_versions(file.zarr.store_path.store):
            return
        keys = None if request is None else keys_of(file, [request])
        now = _seen(file, keys)
        if now is None:
            raise StoreFailure(f"{self.name} cannot be listed again, to see whether it has changed")
        every = np.union1d(self.keys, now.keys) if keys is None else _words(map(word_of, keys))
        unlike = int(np.count_nonzero(self._at(every) != now._at(every)))
        if unlike:
            raise self._changed(unlike)

    def _at(self, keys: np.ndarray) -> np.ndarray:
        """The version of each chunk; 0 where it is not stored."""
        if not len(self.keys):
            return np.zeros(len(keys), np.uint64)
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.words[place], np.uint64(0))

    def _changed(self, count: int, then: str = "read it again") -> RunError:
        which = f"{count} chunk{'s' * (count > 1)}"
        return RunError(f"{self.name} changed while it was read: {which} changed, appeared or vanished; {then}")

    def responses(self, file: ArrayFile) -> ResponseCheck | None:
        """Begin to compare responses with the listing; None where they do not carry versions.

        `check_responses` ends it.
        """
        place = file.zarr.store_path
        if not tells_versions(place.store):
            return None
        return ResponseCheck(f"{place.store}/{place.path}/" if place.path else f"{place.store}/", self._is_listed)

    def check_responses(self, file: ArrayFile, responses: ResponseCheck | None, **then: str) -> None:
        """Raise if a chunk has had another version, or had gone, in a response."""
        unlike = self._unlike(file, dict(responses.unlike)) if responses is not None and responses.unlike else 0
        if unlike:
            raise self._changed(unlike, **then)

    @contextmanager
    def reading(self, file: ArrayFile) -> Iterator[None]:
        """Return a context for reading the array, in which responses of a store are compared with its listing."""
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
        """Whether a response is as the listing said: nothing, or this version; any of what is no chunk."""
        if key.partition("/")[0] in NO_CHUNKS:
            return True
        known = self._at(_words([word_of(key)]))[0]
        return bool(known == (0 if version is None else _version_words([of_object(key, version)])[0]))

    def _unlike(self, file: ArrayFile, responses: Mapping[str, str | None]) -> int:
        """The chunks that have changed, of those whose responses did not look like their listing.

        A store may list other versions than its responses carry: the listing is then the same as before.
        """
        keys, now = _words(map(word_of, responses)), _seen(file, None)
        if now is None:
            return len(keys)
        lost = np.array([version is None for version in responses.values()])
        return int(np.count_nonzero(lost | (now._at(keys) != self._at(keys))))


@contextmanager
def unchanged(files: Sequence[ArrayFile]) -> Iterator[None]:
    """Raise on leaving the context if an array has changed in it."""
    seen = [(file, versions) for file in files if (versions := Versions.of(file)) is not None]
    with ExitStack() as stack:
        for file, versions in seen:
            stack.enter_context(versions.reading(file))
        yield
    for file, versions in seen:
        versions.check(file)


def keys_of(file: ArrayFile, requests: Iterable[Axes]) -> list[str]:
    """Return the keys of the chunks, or shards, that hold any of some sections, each once."""
    lengths = file.zarr.shards or file.zarr.chunks
    indices: dict[tuple[int, ...], None] = {}
    for axes in requests:
        indices.update(dict.fromkeys(product(*map(_touched, axes, lengths))))
    return [file.zarr.metadata.encode_chunk_key(index) for index in indices]


def _touched(taken: Taken, length: int) -> Iterable[int]:
    """The chunks along an axis that hold any of some elements."""
    if isinstance(taken, range) and abs(taken.step) <= length:
        return range(min(taken[0], taken[-1]) // length, max(taken[0], taken[-1]) // length + 1) if taken else ()
    return np.unique(np.asarray(taken) // length).tolist()  # type: ignore[no-any-return]


def _seen(file: ArrayFile, keys: list[str] | None) -> Versions | None:
    """Look at some chunks, or at all."""
    found = _look(file, keys)
    return None if found is None else Versions(file.presence.name, *_table(found))


def _look(file: ArrayFile, keys: list[str] | None) -> Iterator[Listed] | None:
    folder = file.folder
    if folder is not None:
        few = keys is not None and len(keys) * LISTED_SHARE < file.presence.chunks
        return _named(folder, keys or ()) if few else listed(file.zarr)
    if keys is not None and file.presence.chunks > max(PAGE, len(keys) * LISTED_PER_READ):
        return None
    with suppress(StoreFailure):  # it may give objects, and no list of them
        return listed(file.zarr)
    return None


def _named(folder: str, keys: Iterable[str]) -> Iterator[Listed]:
    """The chunks in a folder that have certain names."""
    for key in keys:
        with suppress(*ABSENT):
            with translated("look at", f"{folder}/{key}", but=ABSENT):
                status = os.stat(f"{folder}/{key}")
            yield of_path(key, status)


def _table(found: Iterator[Listed]) -> tuple[np.ndarray, np.ndarray]:
    """Words of keys, ascending, and of versions."""
    keys, words = [np.zeros(0, np.uint64)], [np.zeros(0, np.uint64)]
    while some := list(islice(found, AT_ONCE)):
        keys.append(_words(word_of(key) for key, *_ in some))
        words.append(_version_words(some))
    joined, order = np.concatenate(keys), np.argsort(np.concatenate(keys))
    return joined[order], np.concatenate(words)[order]


def _version_words(chunks: Sequence[Listed]) -> np.ndarray:
    *_, last = words_of(chunks, np.zeros(len(chunks), np.uint64))
    return last | np.uint64(1)  # 0 is nothing


def _words(numbers: Iterable[int]) -> np.ndarray:
    return np.array(list(numbers), np.uint64)
