"""Requests as plain values: equal if two calls would write the same target.

    rechunk(a, t, chunks=(8, 1), memory="1GiB")  ─►  {"function": "rechunk", "source": ["/data/a"], "chunks": [8, 1], …}
    rechunk(a, t, chunks=(8, 1), ranks=4)        ─►  the same: ranks are not part of it

A journal keeps the request of its run, and a finished target the request that made it.

receipts in the journal of parts that write the target  ─►  n of m chunks

nothing there              start
    unfinished, same request   continue from the journal       else refused: the first difference is named
    unfinished, at work        refused
    unfinished, no journal     refused: overwrite=True starts over
    finished, same request     nothing to do                   else refused: the target exists

Without ``resume`` an existing target is an error, which names the next step for its state.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import zarr

from oocarrays.errors import JournalError, OocError, TargetError, plural
from oocarrays.graphs.run.recording import read_now
from oocarrays.mapping.given import flag
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import Place, StoreLike, local_folder, member_store, named
from oocarrays.storage.journal.calls import CALL, code_of, name_of
from oocarrays.storage.journal.journal import Journal, journal_of, way_out
from oocarrays.storage.journal.lock import is_locked
from oocarrays.storage.journal.sources import CHUNKS_READ, changed, trust_of
from oocarrays.storage.journal.texts import FOLDER, LOCK, PARTS, REQUEST, Notes


def checked(check: Callable[..., None], *given: Any, overwrite: Any, resume: Any = False) -> None:
    """Check a target, the last argument; for an unfinished one, the error states its progress and how to continue."""
    may_replace = flag(overwrite, "overwrite") or trust_of(resume) is not None
    try:
        check(*given, overwrite=may_replace)
    except TargetError as error:
        target = given[-1]
        if may_replace or "exists" not in str(error) or not isinstance(target, Place) or not unfinished_run(target):
            raise
        raise TargetError(unfinished_text(target)) from None


def unfinished_text(target: StoreLike) -> str:
    """Return one line on the progress of an unfinished target's run, and on how to continue."""
    begun = f"the target {target} already exists and is unfinished"
    content, at_work = journaled(target), is_at_work(target)
    if content is None and not at_work:
        return f"{begun}, and its journal cannot be read; {way_out(target)}"
    if content is not None and _is_update(content):
        return f"{begun}: an update {'is running' if at_work else 'was stopped; continue it with update or resume'}"
    done = chunks_done(target)
    told = "" if done is None else f": {chunks_text(done)} are written"
    if at_work:
        return f"{begun}, and a run is writing to it{told}; when it has ended, pass resume=True"
    return f"{begun}{told}; pass resume=True to continue, or overwrite=True to start over"


def journaled(target: StoreLike) -> Document | None:
    """Return the journal of an unfinished target; None if it cannot be read."""
    try:
        return journal_of(target)[2]
    except OocError:
        return None


def is_resumable(target: StoreLike) -> bool:
    """Return whether a stopped run, other than an update, has left a target unfinished."""
    return unfinished_run(target) is not None and not _is_update(journaled(target) or {})


def _is_update(content: Mapping[str, Any]) -> bool:
    return bool(content.get(CALL, {}).get("function") == "update")


def left_content(target: StoreLike) -> Document:
    """Return the journal of an unfinished target; raise if it cannot be read."""
    if (content := journaled(target)) is None:
        raise JournalError(unfinished_text(target))
    return content


def check_continues(target: StoreLike, now: Mapping[str, Any], *, as_is: bool, compared: bool) -> None:
    """Raise if the run of an unfinished target is of another request."""
    content = left_content(target)
    if _is_update(content):
        raise JournalError(unfinished_text(target))
    if REQUEST not in content and not compared:
        raise JournalError(f"{target} was begun by a version that kept no requests: continue it with oocarrays.resume")
    but = [*([CODE] if as_is else []), *(["source"] if compared else [])]  # moved: its chunks have been compared
    if REQUEST in content and (told := difference(content[REQUEST], now, but=but)):
        raise JournalError(
            f"{target} was begun with {told}: pass the same arguments to continue, or overwrite=True "
            "(--overwrite) to start over"
        )


def noted_parts(target: StoreLike, note: Mapping[str, Any], resume: Any) -> list[int | None]:
    """Return the checksums of the parts of an interrupted write to an existing array, or an empty list."""
    trust = trust_of(resume)
    before = None if trust is None else Journal(target).notes.noted()
    if before is None:
        return []
    was, now = _in_place(before), json.loads(json.dumps(_in_place(note)))
    if told := difference(was, now):
        raise JournalError(
            f"{target} was being written with {told}: pass the same arguments to continue, or omit resume"
        )
    return [] if trust is None or trust.as_is or trust.again else list(before[PARTS])


def _in_place(note: Mapping[str, Any]) -> Document:
    """Return the request of a note, without memory, ranks and workers."""
    call = note.get(CALL, {})
    options = {name: each for name, each in call.get("options", {}).items() if name in ("sections", "boundary")}
    return {"function": call.get("function"), **options}


def made_before(run: Any, now: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notices on a target that the same request has finished; raise if another request made it."""
    exists = f"the target {run.destination.store} already exists"
    place = run.program.made_place
    made = None if place is None else Notes(place).made()
    if not made or not made.get(REQUEST):
        raise TargetError(
            f"{exists}, and has no request to compare with; pass overwrite=True (--overwrite) to replace it"
        )
    if told := difference(made[REQUEST], now):
        raise TargetError(f"{exists}, and was made with {told}; pass overwrite=True (--overwrite) to replace it")
    made_all = (each for target in run.program.targets for each in (target, *target.members))
    gone = next((each.store for each in made_all if not is_finished(each.store)), None)
    if gone is not None:
        raise TargetError(
            f"{exists}, but not {gone}, which the same run made; pass overwrite=True (--overwrite) to replace both"
        )
    unknown = _check_sources(run, made.get(CHUNKS_READ), exists)
    count = made[REQUEST][COUNT]
    return (f"{chunks_text((count, count))}, nothing to do", *unknown)


def _check_sources(run: Any, before: Any, exists: str) -> tuple[str, ...]:
    """Raise if a source of the target has changed since; return a notice if that is unknown."""
    now = read_now(run.program)
    names = list(now) if isinstance(now, Mapping) else range(len(now))
    pairs = [(_at(before, name), now[name]) for name in names]
    known = [pair for pair in pairs if None not in pair]
    if any(changed(then, since) for then, since in known):
        raise TargetError(
            f"{exists}, and its source has changed since it was made; pass overwrite=True (--overwrite) to replace it, "
            "or call update where rechunk made it"
        )
    if known and len(known) == len(pairs):
        return ()
    return ("whether the sources have changed since the target was made is not known",)


def _at(kept: Any, name: Any) -> Any:
    """Return one of several values kept by name or in order; None if it is missing."""
    if isinstance(name, str):
        return kept.get(name) if isinstance(kept, Mapping) else None
    return kept[name] if isinstance(kept, list) and name < len(kept) else None


LAST = "last"
"""Journal key of the last pass's number, for parts that begin with the number of their pass."""


def chunks_done(target: StoreLike) -> tuple[int, int] | None:
    """Return the numbers of written and of all chunks, or shards; None if the journal does not record them."""
    try:
        journal, _, content = journal_of(target)
        request = content.get(REQUEST)
        if not request:
            return None
        return (_of_group(target, content) if "members" in content else _recorded(journal, content)), request[COUNT]
    except OocError:
        return None


def chunks_text(done: tuple[int, int]) -> str:
    return f"{done[0]} of {plural(done[1], 'chunk')}"


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
    """Return whether a living process writes the target; only known for local folders."""
    folder = local_folder(target)
    if folder is None or unfinished_run(target) is None:
        return False
    return is_locked(os.path.join(folder, FOLDER, LOCK)) is True


COUNT = "count"
"""Key of a request for the number of chunks, or shards, of its targets, which is not compared."""
METADATA, CODE = "metadata of the source", "code"


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
    """Return a request, as `REQUEST` of a journal."""
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
    """Return a source without a name for a journal, as `oocarrays.resume` takes it; None for one with a name."""
    place = source if isinstance(source, Place) else getattr(getattr(source, "zarr", source), "store_path", None)
    return source if place is None or named(place) is None else None


def form(settings: Settings) -> Document:
    """Return the storage settings of an array, by their public names."""
    array = zarr.create_array({}, **settings)
    told = array.metadata.to_dict()
    codecs = told["codecs"] if array.metadata.zarr_format == 3 else [told[name] for name in ("filters", "compressor")]
    lengths = {name: getattr(array, name) for name in ("shape", "chunks", "shards")}
    kinds = {"dtype": str(array.dtype), "zarr_format": array.metadata.zarr_format, "fill_value": repr(array.fill_value)}
    return lengths | kinds | {"codecs": codecs}


def difference(was: Mapping[str, Any], now: Mapping[str, Any], *, but: Collection[str] = ()) -> str:
    """Return the first difference between two requests as text; empty if they are equal."""
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
    return "{}={}, not {}".format(name, *apart(before, after))


def apart(before: Any, after: Any) -> tuple[str, str]:
    """Return the parts of two JSON values that differ as texts of at most 60 characters."""
    one, other = _apart(before, after)
    return _short(one), _short(other)


def _apart(one: Any, other: Any) -> tuple[Any, Any]:
    """Return the parts of two JSON values that differ; of codecs and other mappings also their names."""
    if isinstance(one, dict) and isinstance(other, dict):
        names = [name for name in {**one, **other} if name in ("name", "id") or one.get(name) != other.get(name)]
        pairs = {name: _apart(one.get(name), other.get(name)) for name in names}
        return {name: each for name, (each, _) in pairs.items()}, {name: each for name, (_, each) in pairs.items()}
    if isinstance(one, list) and isinstance(other, list) and "{" in json.dumps([one, other]):
        while one and other and one[0] == other[0]:
            one, other = one[1:], other[1:]
        while one and other and one[-1] == other[-1]:
            one, other = one[:-1], other[:-1]
        return _apart(one[0], other[0]) if len(one) == len(other) == 1 else (one, other)
    return one, other


def _short(value: Any) -> str:
    """Return a value as text of at most 60 characters."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
