"""Looking at what a run that stopped has left: whether its source is as it was, and what it stored is still there.

source    ─► fingerprint now   ─► as when the run began?  else refused; or taken, where somebody asks for it
journal   ─► receipts ─► sizes ─► as they were stored?    else the part is done again, and said
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zarr

from oocarrays.errors import JournalError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import StoreLike, location
from oocarrays.storage.journal.receipts import Receipt, Store
from oocarrays.storage.journal.sources import changed, fingerprint

Part = tuple[int, ...]
Stored = Mapping[str, Mapping[str, Receipt]]
"""Receipts of a part, by the name of the place where they are."""
CHUNKS_READ = "chunks_read"
"""Where a journal keeps the fingerprints of what its run reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far what a run has left is trusted."""

    as_is: bool = False
    """Whether to go on with a source that has changed."""
    again: str = ""
    """Where a run is begun again, with the source as it is now: what tells this beginning from all others."""
    verify: bool = False
    """Whether what was stored is read, and not only its sizes looked at."""
    moved: bool = False
    """Whether sources were named anew: they may have been copied, to other inodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Findings of a look at the target."""

    lost: frozenset[Part] = frozenset()
    """The parts of which something is not as it was stored."""
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The keys of all that is not, by place."""
    of: int = 0
    """How many were looked at."""

    @property
    def notice(self) -> str:
        """The same for a person; empty where all is well."""
        if not self.lost:
            return ""
        odd = sum(map(len, self.odd.values()))
        return f"{odd} of {self.of} chunks that had been written are not as they were: they are written again"


TRUSTED, NOTHING = Trust(), Found()


# ---------------------------------------------------------------------- the source


def fingerprints(arrays: Iterable[zarr.Array]) -> list[Document | None]:
    return [fingerprint(array) for array in arrays]


def check_sources(
    arrays: Sequence[zarr.Array], content: Mapping[str, Any], target: StoreLike, trust: Trust
) -> list[str]:
    """Refuse to go on with sources that are not as they were when a run began; what a person is to know of them."""
    if trust.again:
        return []
    ways = WAYS_OF_PASSES if "pass" in content else WAYS_OUT
    before = content.get(CHUNKS_READ) or [None] * len(arrays)
    if len(before) != len(arrays):
        raise JournalError(f"the journal in {target} has fingerprints of {len(before)} sources, not {len(arrays)}")
    since, pairs = f"{target} began: {ways}", zip(arrays, before, strict=True)
    return [notice for notice in (_told(*pair, trust, since) for pair in pairs) if notice]


def _told(array: zarr.Array, before: Mapping[str, Any] | None, trust: Trust, since: str) -> str | None:
    name = location(array)
    if before is None:
        return f"whether {name} has changed since is not known: no fingerprint of its chunks was kept"
    now = fingerprint(array)
    if now is None:
        if not trust.as_is:
            raise JournalError(f"{name} is not listed, to see whether it has changed since the run in {since}")
        return None
    share = changed(before, now, moved=trust.moved)
    if not share:
        return None
    told = f"about {max(100 * share, 0.1):.3g} % of the chunks of {name} have changed since the run in {since}"
    if not trust.as_is:
        copied = not trust.moved and not changed(before, now, moved=True)
        raise JournalError(told + ("; if it was copied, name it as source" if copied else ""))
    return told.partition(" began: ")[0] + " began: what was written before stays as it is"


WAYS_OF_PASSES = "start over (overwrite=True), or go on all the same (resume='as-is')"
WAYS_OUT = "start over (again=True, --again), or go on all the same (as_is=True, --as-is)"


def metadata_digest(file: ArrayFile, name: str | None = None) -> str:
    """Return a digest of a source's metadata; with where it is, as versions before 0.6 kept it."""
    return array_digest(file.zarr, name)


def array_digest(array: zarr.Array, name: str | None = None) -> str:
    """Return the same of an array that is not described."""
    told = array.metadata.to_dict()
    metadata = json.dumps(told if name is None else [name, told], sort_keys=True, default=str)
    return hashlib.sha256(metadata.encode()).hexdigest()


def is_of(file: ArrayFile, digest: Any, before: str | None = None) -> bool:
    """Whether a digest is that of an array's metadata, at the place where it is or was ``before``."""
    return digest in [metadata_digest(file, name) for name in (None, file.name, before or file.name)]


# ---------------------------------------------------------------------- the target


def look(
    stored: Mapping[Part, Stored | None],
    place: Callable[[Part, str], StoreLike | None],
    expected: Callable[[Part], tuple[StoreLike | None, Mapping[str, Receipt]]],
    *,
    verify: bool,
) -> Found:
    """Which of what was stored is not there any more, or is otherwise; a warning says so.

    Of a chunk that two parts have written, which is then as the later one left it, either receipt will do.
    """
    kept: dict[str, tuple[StoreLike, dict[str, list[tuple[Part, Receipt]]]]] = {}
    for part, receipts in stored.items():
        here = [expected(part)] if receipts is None else [(place(part, name), keys) for name, keys in receipts.items()]
        for where, keys in here:
            if where is not None:
                _, by_key = kept.setdefault(str(where), (where, {}))
                for key, receipt in keys.items():
                    by_key.setdefault(key, []).append((part, receipt))
    lost: set[Part] = set()
    odd: dict[str, list[str]] = {}
    for name, (where, by_key) in kept.items():
        unlike = Store(where).unlike({key: [receipt for _, receipt in all] for key, all in by_key.items()}, verify)
        odd[name] = unlike
        lost.update(part for key in unlike for part, _ in by_key[key])
    of = sum(any(receipt is not None for _, receipt in all) for _, keys in kept.values() for all in keys.values())
    found = Found(lost=frozenset(lost), odd=odd, of=of)
    if lost:
        warnings.warn(found.notice, RuntimeWarning, stacklevel=2)
    return found


def at_least(file: ArrayFile, indices: Iterable[tuple[int, ...]]) -> dict[str, Receipt]:
    """Return the least that chunks without receipts must be: there, and of their size where nothing codes them."""
    exact = [file.stored.chunk_bytes] if file.chain.pipeline == "plain" and file.chain.shard is None else []
    return {file.chunk_key(index): list(exact) for index in indices}
