"""Progress of a run that has not finished its target: how many chunks of it the journal records.

receipts in the journal of parts that write the target  ─►  n of m chunks
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from typing import Any

from oocarrays.errors import OocError
from oocarrays.graphs.run.remains import journal_of
from oocarrays.requests.request import COUNT
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.group_file import member_store
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.lock import Busy, let_go, try_lock
from oocarrays.storage.journal.texts import FOLDER, LOCK, REQUEST

LAST = "last"
"""Where a journal keeps the number of the pass that writes the target, where parts begin with that of their pass."""


def chunks_done(target: StoreLike) -> tuple[int, int] | None:
    """Count the chunks, or shards, that are written, and all; None where the journal does not tell."""
    try:
        journal, _, content = journal_of(target, "array")
        request = content.get(REQUEST)
        if not request:
            return None
        return (_of_group(target, content) if "members" in content else _recorded(journal, content)), request[COUNT]
    except OocError:
        return None


def chunks_text(done: tuple[int, int]) -> str:
    """Say how many chunks are written.

    >>> chunks_text((3, 12)), chunks_text((0, 1))
    ('3 of 12 chunks', '0 of 1 chunk')
    """
    return f"{done[0]} of {done[1]} chunk{'' if done[1] == 1 else 's'}"


def _recorded(journal: Journal, content: Mapping[str, Any]) -> int:
    last = len(content["plan"]["passes"]) - 1 if "plan" in content else content.get(LAST)
    stored = {part: each for part, each in journal.stored().items() if last is None or part[:1] == (last,)}
    here = len((content.get("so_far") or {}).get("residuals", ()))
    kept = journal.kept() if last is None or "plan" in content or here == last else {}
    written = (each.items() for each in (*stored.values(), kept) if each)
    return len({(name, key) for places in written for name, keys in places for key in keys})


def _of_group(target: StoreLike, content: Mapping[str, Any]) -> int:
    places = {name: member_store(target, name) for name in content["members"]}
    counts = content[REQUEST]["arrays"]
    return sum(
        counts[name] if is_finished(place) else (chunks_done(place) or (0, 0))[0] for name, place in places.items()
    )


def is_at_work(target: StoreLike) -> bool:
    """Whether a living process writes the target; only local folders can tell."""
    folder = local_folder(target)
    if folder is None or unfinished_run(target) is None:
        return False
    try:
        file = try_lock(os.path.join(folder, FOLDER, LOCK), fcntl.LOCK_EX)
    except Busy:
        return True
    except OSError:
        return False
    if file is not None:
        let_go(file)
    return False
