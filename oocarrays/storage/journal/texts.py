"""Texts of a journal: the plan of a run, entries of finished parts with receipts of their chunks, and notes.

    plan.json   {"run": "c0ffee", "content": {…}, "digest": "5f3a…"}
    done/0.3    5f3a…                                    the digest of that plan
                {"": {"c/0/0": [16384, 3829138921]}}     receipts of the chunks that the part stored

A receipt is the number of bytes stored under a key, and their checksum, for later verification:

    c/0/0   [16384, 3829138921]    stored: bytes, and their checksum
    c/0/1   [16384]                stored by other code, which does not expose the bytes
    c/0/2   []                     stored, length unknown
    c/0/3   null                   not stored: it holds only the fill value

Notes are beside a target: a write in progress to an existing array, and the result of an ended run:

    target/  .oocarrays.json            of a run that writes to an existing array, from its start to its end
             .oocarrays.made            the request that made a finished target, and the sources as they were
             .oocarrays/ended-c0ffee    the result of an ended run, until its client acknowledges it
             .oocarrays/first           of another target than a run's first one: where that is, and the journal

    np.s_[::2, [5, 0], None]   ─►   [{"slice": [0, 24, 2]}, [5, 0], None]
    "(block, *)" on 2 ranks    ─►   {"distribution": ["block", "*"], "ranks": [2, 1]}

The digest detects a truncated or mixed-up journal. It does not authenticate: anyone with write access beside the
target can write a valid journal. So a journal is treated as data, and trusted only with the needs of its run: only
paths with the name and the contents of that run's scratch are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from zarr.core.sync import sync

from oocarrays.errors import JournalError, OocError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.selection import Selection
from oocarrays.plan.documents import Document
from oocarrays.storage.files.entries import each_of, entries_of, reading, writing
from oocarrays.storage.files.places import StoreLike, local_folder, prefix_of, store_path
from oocarrays.storage.local.blobs import FOLDED_ABOVE, LocalBlobs, checksum
from oocarrays.storage.local.fs import OURS, SAYING, SHARED, size_of
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.underway import StoreBlobs

Receipt = list[int] | None
"""Receipt of one key: known bytes and checksum; None if nothing is stored."""


def contents(data: Any) -> int | None:
    """Return a checksum of an array's elements in C order, or of a dict of arrays; None for arrays of objects."""
    arrays, found = list(data.values()) if isinstance(data, dict) else [data], 0
    for array in arrays:
        if not isinstance(array, np.ndarray | np.generic) or array.dtype.hasobject or array.dtype.kind == "T":
            return None
        pieces: Any = np.nditer(
            np.asarray(array), ("external_loop", "buffered", "zerosize_ok"), order="C", buffersize=FOLDED_ABOVE
        )
        for some in pieces:
            found = google_crc32c.extend(found, np.ascontiguousarray(some).view(np.uint8))
    return found


class Receipts:
    """Receipts recorded from many threads; or discarded, for work that cannot be resumed."""

    def __init__(self, there: Container[str] = (), *, discarded: bool = False) -> None:
        self.kept: dict[str, Receipt] = {}
        self._there, self._discarded = there, discarded

    def stays(self, key: str) -> bool:
        """Return whether the object under ``key`` must not be stored again."""
        return key in self._there

    def put(self, key: str, data: Any) -> None:
        """Record the checksum and length of ``data`` stored under ``key``."""
        if not self._discarded:
            self.kept[key] = [len(data), checksum(data)]

    def stored(self, key: str, *nbytes: int) -> None:
        """Record that other code stored ``nbytes`` bytes, or an unknown number, under ``key``."""
        if not self._discarded:
            self.kept[key] = list(nbytes)

    def withdraw(self, keys: Iterable[str]) -> None:
        """Remove the records of objects that could not be stored."""
        for key in keys:
            self.kept.pop(key, None)

    def absent(self, key: str) -> None:
        """Record that nothing is stored under ``key``."""
        if not self._discarded:
            self.kept[key] = None


UNKEPT = Receipts(discarded=True)


class Store:
    """Objects stored in a location, compared with receipts."""

    def __init__(self, place: StoreLike) -> None:
        self._folder, self._place = local_folder(place), store_path(place)
        there = self._place
        self._blobs = LocalBlobs(self._folder) if self._folder else StoreBlobs(there.store, there.path)
        self._listed: dict[str, int] | None = None

    def receipts(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Return receipts of the objects currently stored: sizes, where the store reports them, without checksums."""
        return {key: None if size is None else [size][: size >= 0] for key, size in self._sizes(list(keys)).items()}

    def unlike(self, receipts: Mapping[str, Sequence[Receipt]], verify: bool) -> list[str]:
        """Return the keys that match none of their receipts."""
        sizes = self._sizes(list(receipts))
        fitting = {key: [each for each in all if _fits(sizes[key], each)] for key, all in receipts.items()}
        odd = [key for key, left in fitting.items() if not left]
        stored = {key: left for key, left in fitting.items() if left and None not in left}
        return odd + (self._unread(stored) if verify else [])

    def _sizes(self, keys: list[str]) -> dict[str, int | None]:
        """Return the size of each key in bytes; None if it does not exist, -1 if the store does not report sizes."""
        if self._folder is not None:
            return {key: size_of(os.path.join(self._folder, key)) for key in keys}
        listed = self._all()
        if listed is not None:
            return {key: listed.get(key) for key in keys}
        return dict(zip(keys, each_of(self._size, keys), strict=True))

    def _all(self) -> dict[str, int] | None:
        """List all keys with their sizes, once; return None if the store has no such listing."""
        store, prefix = self._place.store, prefix_of(self._place)
        if self._listed is None and isinstance(store, RemoteStore):
            found = sync(store.details(prefix))
            self._listed = None if found is None else {key.removeprefix(prefix): size for key, size, _ in found}
        return self._listed

    async def _size(self, key: str) -> int | None:
        store, path = self._place.store, (self._place / key).path
        if not await store.exists(path):
            return None
        return -1 if isinstance(store, RemoteStore) else await store.getsize(path)

    def _unread(self, receipts: Mapping[str, Sequence[Receipt]]) -> list[str]:
        """Return the keys that match no checksum in their receipts, or have none to compare."""
        sums = {key: {each[1] for each in all if each and len(each) == 2} for key, all in receipts.items()}
        known = [key for key, each in sums.items() if each]
        with ThreadPoolExecutor(4, "verify") as pool:
            found = pool.map(self._checksum, known)
            bad = [key for key, there in zip(known, found, strict=True) if there not in sums[key]]
        return bad + [key for key, each in sums.items() if not each]

    def _checksum(self, key: str) -> int | None:
        data = self._blobs.read(key)
        return None if data is None else checksum(data)


def _fits(size: int | None, receipt: Receipt) -> bool:
    if receipt is None or size is None:
        return receipt is None and size is None
    return not receipt or size in (receipt[0], -1)


# ---------------------------------------------------------------------- plans and entries


FOLDER = OURS
"""Folder of a journal below its target."""
NOTE = ".oocarrays.json"
"""Key, below an existing array, of the note about a write in progress."""
SOURCE, MADE = SHARED
"""Keys of a finished array's recorded source, and of the request that made it."""
FIRST, ENDED = f"{FOLDER}/first", f"{FOLDER}/ended-"
"""Key of the location of a run's first target; start of the key of a run's result."""
NO_CHUNKS = frozenset((*SAYING, FOLDER, NOTE, MADE, SOURCE))
"""Names beside the chunks that are not chunks."""
REQUEST = "request"
"""Field of the request: plain values, equal for a second call with the same arguments."""
PARTS = "parts"
"""Key of a note's checksums, one per part in order; None for a part without a checksum."""
ID = re.compile(r"[0-9a-f]{12}")
"""Pattern of a run id."""
PLAN, DONE, LOCK, KEPT = "plan.json", "done", "lock", "kept"
STATES = f"{DONE}-states"
"""Folder of the bytes of parts that are not in the target; deleted together with the entries."""
Kept = Mapping[str, Mapping[str, Receipt]]
"""Receipts of chunks, by location name."""
BEGINNING = "again"
"""Field that distinguishes the beginning of a plan from those of other plans of the same run."""


class PlanText(NamedTuple):
    """Content of a plan's text, or of a note's."""

    run: str
    """The id of the run."""
    content: Document
    """The request of the run."""
    digest: str
    """Digest of the run id and the content."""
    folder: str
    """Folder of the entries of its parts."""


def plan_text(run: str, content: Document, *, replaced: bool = False) -> tuple[PlanText, bytes]:
    """Return the text of a plan; the entries of one that ``replaced`` another lie in a folder of their own."""
    digest = digest_of(run, content)
    data = {"run": run, "content": content, "digest": digest} | ({"replaced": True} if replaced else {})
    return PlanText(run, content, digest, _folder_of(digest, replaced)), json.dumps(data).encode()


def plan_in(text: bytes, store: StoreLike, name: str = PLAN) -> PlanText:
    """Parse the text of a plan, or of a note, in the journal of ``store``."""
    try:
        data = json.loads(text)
        run, content, digest = data["run"], data["content"], data["digest"]
        folder = _folder_of(digest, bool(data.get("replaced")))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise JournalError(f"{name} in the journal of {store} is truncated, or not part of a journal") from None
    if not (isinstance(run, str) and isinstance(content, dict) and digest == digest_of(run, content)):
        raise JournalError(f"{name} in the journal of {store} has been modified: its digest is wrong")
    return PlanText(run, content, digest, folder)


def _folder_of(digest: str, replaced: bool) -> str:
    return f"{DONE}-{digest[:12]}" if replaced else DONE


def digest_of(run: str, content: Document) -> str:
    """Return the digest of a plan, equal before and after conversion to JSON."""
    plain = json.loads(json.dumps({"run": run, "content": content}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def entry_text(digest: str, receipts: Kept | None) -> bytes:
    """Return the entry of a part: the digest of its plan, and receipts of its stored chunks if given."""
    return digest.encode() + (b"" if receipts is None else b"\n" + json.dumps(receipts, separators=(",", ":")).encode())


def check_entry(entry: bytes, digest: str, name: str, store: StoreLike) -> None:
    """Raise if an entry was written for another plan."""
    if entry.partition(b"\n")[0] != digest.encode():
        raise JournalError(f"{name} in the journal of {store} was finished by a run with another plan")


def receipts_in(entry: bytes, name: str, store: StoreLike) -> dict[str, dict[str, Receipt]] | None:
    """Parse the receipts in an entry; return None if it has none."""
    _, _, text = entry.partition(b"\n")
    if not text:
        return None
    try:
        found: dict[str, dict[str, Receipt]] = json.loads(text)
        if all(_is_below(key) and _is_receipt(each) for at in found.values() for key, each in at.items()):
            return found
    except (ValueError, AttributeError, RecursionError):
        pass
    raise JournalError(f"{name} in the journal of {store} is truncated, or not part of a journal")


def _is_below(key: str) -> bool:
    """Return whether a key stays inside its array."""
    return not {"", ".", ".."}.intersection(key.split("/"))


def _is_receipt(given: Any) -> bool:
    return given is None or (
        isinstance(given, list) and len(given) < 3 and all(isinstance(each, int) for each in given)
    )


def name_of_part(part: tuple[int, ...]) -> str:
    return ".".join(map(str, part)) or "-"


def part_named(name: str, store: StoreLike) -> tuple[int, ...]:
    if not re.fullmatch(r"-|(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*", name):
        raise JournalError(f"{name!r} in the journal of {store} is not the name of a part")
    return () if name == "-" else tuple(map(int, name.split(".")))


# ---------------------------------------------------------------------- notes beside a target


def kept_sections(layout: Layout | None, selections: Sequence[Selection]) -> Any:
    """Return the section of each rank as JSON values: the layout if given, else the selections."""
    if layout is not None:
        return {"distribution": list(map(str, layout.distributions)), "ranks": list(layout.grid)}
    return [
        [{"slice": [entry.start, entry.stop, entry.step]} if isinstance(entry, slice) else entry for entry in each.key]
        for each in selections
    ]


def sections_again(kept: Any, shape: Sequence[int]) -> Any:
    """Return sections that `kept_sections` encoded, as arguments of `write_sections`."""
    try:
        if isinstance(kept, dict):
            return Layout.of(tuple(shape), list(kept["distribution"]), grid=kept["ranks"])
        return [tuple(slice(*e["slice"]) if isinstance(e, dict) else e for e in each) for each in kept]
    except (OocError, KeyError, TypeError, ValueError):
        raise JournalError(f"the journal keeps sections {kept!r}, which are outside an array of {shape}") from None


class Notes:
    """Notes beside one target."""

    def __init__(self, store: StoreLike) -> None:
        self.store = store
        self._entries = entries_of(store)

    def _get(self, key: str) -> bytes | None:
        with reading(self.store):
            return self._entries.get(key)

    def keep(self, key: str, run: str, content: Document) -> None:
        """Write a note of ``run``, replacing an earlier one; it is synced later with other files."""
        with writing(self.store):
            self._entries.replace(key, plan_text(run, content)[1], durable=False)

    def drop(self, key: str) -> None:
        with writing(self.store):
            self._entries.delete([key])

    def noted(self) -> Document | None:
        """Return the request of an interrupted run that wrote to the existing array; None without such a note."""
        text = self._get(NOTE)
        return None if text is None else plan_in(text, self.store, NOTE).content

    def is_noted(self) -> bool:
        """Return whether a run is writing to the existing array, or was interrupted; the note may be damaged."""
        return self._get(NOTE) is not None

    def take(self, run: str) -> None:
        """Delete the note of ``run``; keep the note of another run."""
        text = self._get(NOTE)
        if text and plan_in(text, self.store, NOTE).run == run:
            self.drop(NOTE)

    def made(self) -> Document | None:
        """Return the request that made the target; None if it is missing or unreadable."""
        text = self._get(MADE)
        with suppress(JournalError):
            return None if text is None else plan_in(text, self.store, MADE).content
        return None

    def point_to(self, first: str) -> None:
        """Record the first target of the run that writes this one."""
        with writing(self.store):
            self._entries.make_folder(FOLDER)
            self._entries.replace(FIRST, first.encode(), durable=False)

    def first(self) -> str | None:
        """Return the first target of the run that writes this one, which has the journal; None if it is this one."""
        text = self._get(FIRST)
        return None if text is None else text.decode(errors="replace")

    def say_ended(self, run: str, gives: Any = None) -> None:
        """Record that ``run`` has ended, with its result, so that a retry of its last task can return it."""
        with writing(self.store):
            self._entries.make_folder(FOLDER)
            self._entries.create(f"{ENDED}{run}", json.dumps([gives]).encode())

    def ended(self, run: str) -> list[Any] | None:
        """Return the result of ``run`` in a list of one, if it has ended and its client has not acknowledged that."""
        text = self._get(f"{ENDED}{run}")
        return None if text is None else list(json.loads(text))

    def was_heard(self, run: str) -> None:
        """Delete the end marker of ``run`` after its client has acknowledged it; keep markers of other runs."""
        self.drop(f"{ENDED}{run}")
        entries_of(self.store, FOLDER).clear_if_empty()
