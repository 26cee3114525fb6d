"""Requests as plain values: equal where two calls would write the same target.

    rechunk(a, t, chunks=(8, 1), memory="1GiB")  ─►  {"function": "rechunk", "source": ["/data/a"], "chunks": [8, 1], …}
    rechunk(a, t, chunks=(8, 1), ranks=4)        ─►  the same: means are no part of it

A journal keeps the request of its run, and a finished target the request that made it.

receipts in the journal of parts that write the target  ─►  n of m chunks
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import zarr

from oocarrays.errors import OocError
from oocarrays.graphs.run.remains import journal_of
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.group_file import member_store
from oocarrays.storage.files.places import Place, StoreLike, local_folder
from oocarrays.storage.journal.calls import code_of, name_of, named
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


COUNT = "count"
"""Where a request has the number of chunks, or shards, of its targets: no part of what is asked for."""
METADATA, CODE = "metadata of the source", "code"
SHOWN = 60
"""Characters of a value that a message shows."""


def requested(
    function: str,
    sources: Sequence[str | None],
    metadata: Sequence[Any],
    targets: Sequence[tuple[Settings, int]],
    *,
    functions: Sequence[Callable[..., Any]] = (),
    count: int = 0,
    **said: Any,
) -> Document:
    """Write down a request, as `REQUEST` of a journal."""
    forms = [form(settings) for settings, _ in targets]
    each = {name: [form[name] for form in forms] for name in (forms[0] if forms else ())}
    kernels = {"kernel": list(map(name_of, functions)), CODE: list(map(code_of, functions))} if functions else {}
    found = {
        "function": function,
        **{name: values[0] if len(values) == 1 else values for name, values in each.items()},
        **said,
        **kernels,
        "source": list(sources),
        METADATA: list(metadata),
        COUNT: sum((each for _, each in targets), count),
    }
    plain: Document = json.loads(json.dumps(found, default=repr))
    return {REQUEST: plain}


def unnamed(source: Any) -> Any:
    """Return a source that a journal cannot name, as `oocarrays.resume` takes it; None for one that it can."""
    place = source if isinstance(source, Place) else getattr(source, "zarr", source).store_path
    return source if named(place) is None else None


def form(settings: Settings) -> Document:
    """How an array is stored, by the names that a person knows."""
    array = zarr.create_array({}, **settings)
    told = array.metadata.to_dict()
    codecs = told["codecs"] if array.metadata.zarr_format == 3 else [told[name] for name in ("filters", "compressor")]
    return {
        "shape": array.shape,
        "chunks": array.chunks,
        "shards": array.shards,
        "dtype": str(array.dtype),
        "zarr_format": array.metadata.zarr_format,
        "fill_value": repr(array.fill_value),
        "codecs": codecs,
    }


def difference(was: Mapping[str, Any], now: Mapping[str, Any], *, but: Collection[str] = ()) -> str:
    """Name the first difference between two requests; empty where they ask for the same.

    >>> difference({"chunks": [8, 1], "count": 1}, {"chunks": [4, 1], "count": 2}), difference({"a": 1}, {"a": 1})
    ('chunks=[8, 1], not [4, 1]', '')
    """
    for name in {**now, **was}:
        before, after = was.get(name), now.get(name)
        if name not in (COUNT, *but) and before != after:
            return _told(name, before, after, was)
    return ""


def _told(name: str, before: Any, after: Any, was: Mapping[str, Any]) -> str:
    if name == METADATA:
        return f"another source than {', '.join(map(str, was['source']))} is now: its metadata has changed"
    if name == CODE:
        return f"other code of {', '.join(was['kernel'])}"
    return f"{name}={_short(before)}, not {_short(after)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
