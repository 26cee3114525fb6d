"""Checks of an interrupted run: whether its sources are unchanged, and whether its stored chunks are intact.

source    ─► fingerprint now   ─► as when the run began?  else an error, unless the caller accepts the change
journal   ─► receipts ─► sizes ─► as they were stored?    else the part is done again, with a warning
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import zarr

from oocarrays.errors import InputError, JournalError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import StoreLike, location
from oocarrays.storage.journal.receipts import Receipt, Store
from oocarrays.storage.journal.sources import changed, fingerprint

Part = tuple[int, ...]
Stored = Mapping[str, Mapping[str, Receipt]]
"""Receipts of a part, by the name of their location."""
CHUNKS_READ = "chunks_read"
"""Key of the source fingerprints in a journal."""


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


def trust_of(resume: Any) -> Trust | None:
    """Return the trust in recorded state for the option ``resume``; None to start anew."""
    if isinstance(resume, Trust):
        return resume
    if not isinstance(resume, bool) and not (isinstance(resume, str) and resume in ("verify", "as-is")):
        raise InputError(f"resume={resume!r} is not True, False, 'verify' or 'as-is'")
    return Trust(verify=resume == "verify", as_is=resume == "as-is") if resume else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Result of checking the target."""

    lost: frozenset[Part] = frozenset()
    """Parts with a chunk that is not as it was stored."""
    odd: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Keys of the chunks that are not as they were stored, by location."""
    of: int = 0
    """Number of chunks checked."""

    @property
    def notice(self) -> str:
        """Notice for the user; empty if nothing is lost."""
        if not self.lost:
            return ""
        odd = sum(map(len, self.odd.values()))
        return f"{odd} of {self.of} chunks that had been written are not as they were: they are written again"


TRUSTED = Trust()


# ---------------------------------------------------------------------- the sources


def fingerprints(arrays: Iterable[zarr.Array]) -> list[Document | None]:
    return [fingerprint(array) for array in arrays]


def check_sources(
    arrays: Sequence[zarr.Array], content: Mapping[str, Any], target: StoreLike, trust: Trust
) -> list[str]:
    """Return notices about changed sources; raise if ``trust`` does not accept the change."""
    if trust.again:
        return []
    ways = "start over (again=True, --again), or continue anyway (as_is=True, --as-is)"
    if "pass" in content:
        ways = "start over (overwrite=True), or continue anyway (resume='as-is')"
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


def metadata_digest(file: Any, name: str | None = None) -> str:
    """Return a digest of the metadata of an array or its file; with ``name``, its location, as before version 0.6."""
    array: zarr.Array = getattr(file, "zarr", file)
    told = array.metadata.to_dict()
    metadata = json.dumps(told if name is None else [name, told], sort_keys=True, default=str)
    return hashlib.sha256(metadata.encode()).hexdigest()


def is_of(file: ArrayFile, digest: Any, before: str | None = None) -> bool:
    """Return whether a digest matches an array's metadata, alone or with its current location or ``before``."""
    return digest in [metadata_digest(file, name) for name in (None, file.name, before or file.name)]


# ---------------------------------------------------------------------- the target


def look(
    stored: Mapping[Part, Stored | None],
    place: Callable[[Part, str], StoreLike | None],
    expected: Callable[[Part], tuple[StoreLike | None, Mapping[str, Receipt]]],
    *,
    verify: bool,
) -> Found:
    """Return the stored chunks that are missing or changed, and warn if a part is lost.

    A chunk that two parts have written is as the later part left it, so either receipt may match.
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
    """Return minimal receipts for chunks without receipts: the chunk exists, with its full size if not encoded."""
    exact = [file.stored.chunk_bytes] if file.chain.pipeline == "plain" and file.chain.shard is None else []
    return {file.chunk_key(index): list(exact) for index in indices}
