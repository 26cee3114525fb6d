"""Texts of a journal: the plan of a run, notes, and the entries of parts that are finished, each with a digest.

    plan.json   {"run": "c0ffee", "content": {…}, "digest": "5f3a…"}
    done/0.3    5f3a…                                    the digest of that plan
                {"": {"c/0/0": [16384, 3829138921]}}     receipts of what the part has stored

The digest tells a journal that was cut short or mixed up from a whole one. It does not tell who wrote it: whoever may
write beside the target may write a journal that fits. So what a journal says is taken as data, never trusted with more
than its run needs: nothing is removed but what has the name and the contents of that run's scratch.
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
"""Where a journal is, below its target."""
NOTE = ".oocarrays.json"
"""The key of a note below an array that is there, of what is being written to it."""
SOURCE, MADE = SHARED
"""The keys of what a finished array keeps of the source that it was made of, and of the request that made it."""
REQUEST = "request"
"""Where a journal keeps the request: plain values, equal where a second call asks for the same."""
PLAN, DONE, LOCK, ENDED, KEPT = "plan.json", "done", "lock", "ended-", "kept"
STATES = f"{DONE}-states"
"""Where the bytes of parts are that are not in the target; it goes with what is recorded."""
Kept = Mapping[str, Mapping[str, Receipt]]
"""Receipts of chunks, by the name of the place where they are."""
BEGINNING = "again"
"""Where what a run was asked to do has what tells the beginning of its plan from all others of the same run."""
NAME = re.compile(r"-|(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*")
"""How a part is called in the name of its entry."""


class PlanText(NamedTuple):
    """The text of a plan, or of a note."""

    run: str
    """The id of the run."""
    content: Document
    """All that it was asked to do."""
    digest: str
    """The digest of both."""
    folder: str
    """The folder of the entries of its parts."""


def plan_text(run: str, content: Document, *, replaced: bool = False) -> tuple[PlanText, bytes]:
    """Write the text of a plan, or of one that was ``replaced``: its entries lie in a folder of their own."""
    digest = digest_of(run, content)
    data = {"run": run, "content": content, "digest": digest} | ({"replaced": True} if replaced else {})
    return PlanText(run, content, digest, _folder_of(digest, replaced)), json.dumps(data).encode()


def plan_in(text: bytes, store: StoreLike, name: str = PLAN) -> PlanText:
    """Read the text of a plan, or of a note, in the journal of ``store``."""
    try:
        data = json.loads(text)
        run, content, digest = data["run"], data["content"], data["digest"]
        folder = _folder_of(digest, bool(data.get("replaced")))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise JournalError(f"{name} in the journal of {store} is cut short, or no journal's") from None
    if not (isinstance(run, str) and isinstance(content, dict) and digest == digest_of(run, content)):
        raise JournalError(f"{name} in the journal of {store} has been changed: its digest does not fit")
    return PlanText(run, content, digest, folder)


def _folder_of(digest: str, replaced: bool) -> str:
    return f"{DONE}-{digest[:12]}" if replaced else DONE


def digest_of(run: str, content: Document) -> str:
    """Return the digest of a plan: the same for what goes to JSON as for what comes back from it."""
    plain = json.loads(json.dumps({"run": run, "content": content}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def entry_text(digest: str, receipts: Kept | None) -> bytes:
    """Write the entry of a part: the digest of its plan, and receipts of what it has stored, where it has any."""
    return digest.encode() + (b"" if receipts is None else b"\n" + json.dumps(receipts, separators=(",", ":")).encode())


def check_entry(entry: bytes, digest: str, name: str, store: StoreLike) -> None:
    """Refuse an entry that was written for another plan."""
    if entry.partition(b"\n")[0] != digest.encode():
        raise JournalError(f"{name} in the journal of {store} was finished by a run of another plan")


def receipts_in(entry: bytes, name: str, store: StoreLike) -> dict[str, dict[str, Receipt]] | None:
    """Read the receipts in an entry; None where it was written without any."""
    _, _, text = entry.partition(b"\n")
    if not text:
        return None
    try:
        found: dict[str, dict[str, Receipt]] = json.loads(text)
        if all(_is_below(key) and _is_receipt(each) for at in found.values() for key, each in at.items()):
            return found
    except (ValueError, AttributeError, RecursionError):
        pass
    raise JournalError(f"{name} in the journal of {store} is cut short, or no journal's")


def _is_below(key: str) -> bool:
    """Whether a key leads nowhere but into its array."""
    return not {"", ".", ".."}.intersection(key.split("/"))


def _is_receipt(given: Any) -> bool:
    """Whether something in an entry is what a receipt is."""
    return given is None or (
        isinstance(given, list) and len(given) < 3 and all(isinstance(each, int) for each in given)
    )


def name_of_part(part: tuple[int, ...]) -> str:
    return ".".join(map(str, part)) or "-"


def part_named(name: str, store: StoreLike) -> tuple[int, ...]:
    if not NAME.fullmatch(name):
        raise JournalError(f"{name!r} in the journal of {store} is not the name of a part")
    return () if name == "-" else tuple(map(int, name.split(".")))
