"""Texts of a journal: the plan of a run, notes, and entries of finished parts, each with a digest.

    plan.json   {"run": "c0ffee", "content": {…}, "digest": "5f3a…"}
    done/0.3    5f3a…                                    the digest of that plan
                {"": {"c/0/0": [16384, 3829138921]}}     receipts of the chunks that the part stored

The digest detects a truncated or mixed-up journal. It does not authenticate: anyone with write access beside the
target can write a valid journal. So a journal is treated as data, and trusted only with the needs of its run: only
paths with the name and the contents of that run's scratch are removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from oocarrays.errors import JournalError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.local.names import OURS, SHARED

FOLDER = OURS
"""Folder of a journal below its target."""
NOTE = ".oocarrays.json"
"""Key, below an existing array, of the note about a write in progress."""
SOURCE, MADE = SHARED
"""Keys of a finished array's recorded source, and of the request that made it."""
REQUEST = "request"
"""Field of the request: plain values, equal for a second call with the same arguments."""
PARTS = "parts"
"""Key of a note's checksums, one per part in order; None for a part without a checksum."""
ID = re.compile(r"[0-9a-f]{12}")
"""Pattern of a run id."""
PLAN, DONE, LOCK, ENDED, KEPT, FIRST = "plan.json", "done", "lock", "ended-", "kept", "first"
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
