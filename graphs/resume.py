"""Going on with a run that stopped: what its journal keeps, and how it is trusted.

begin     plan, source and its fingerprint, where scratch is      ─► journal
resume    journal ─► the same plan, less what is recorded as done and is still as it was stored
          refused: a plan, source or target that is not the one the journal was written for
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import zarr
from oocarrays.graphs.looking import TRUSTED, Found, Stored, Trust, at_least, check_sources, look
from oocarrays.graphs.rechunk_tasks import Destination, Part, usable_parts
from oocarrays.graphs.settings import missing as policy_of
from oocarrays.graphs.settings import past_cache_above

from oocarrays.errors import JournalError, NotFoundError
from oocarrays.plan.as_json import from_json, to_json
from oocarrays.plan.rechunk import RechunkPlan
from oocarrays.storage import array_file
from oocarrays.storage.array_file import ArrayFile, StoreLike
from oocarrays.storage.journal import Journal
from oocarrays.storage.remote import RemoteStore, place_below
from oocarrays.storage.scratch import ID, scratch_below, trusted_scratch
from oocarrays.storage.urls import scratch_place

T = TypeVar("T")


def journal_content(plan: RechunkPlan, source: ArrayFile, destination: Destination) -> dict[str, Any]:
    """What the journal of a run keeps."""
    return {
        "plan": to_json(plan),
        "source": array_file.place_name(source.zarr.store_path.store, source.zarr.store_path.path),
        "source_metadata": metadata_digest(source),
        "scratch": str(destination.scratch),
        "missing": source.presence.missing,
    }


def metadata_digest(file: ArrayFile, name: str | None = None) -> str:
    """What tells one source from another: its metadata; with where it is, as versions before 0.6 kept it."""
    told = file.zarr.metadata.to_dict()
    metadata = json.dumps(told if name is None else [name, told], sort_keys=True, default=str)
    return hashlib.sha256(metadata.encode()).hexdigest()


def is_of(file: ArrayFile, digest: Any, before: str | None = None) -> bool:
    """Whether a digest is that of an array's metadata, at the place where it is or was ``before``."""
    return digest in [metadata_digest(file, name) for name in (None, file.name, before or file.name)]


def resumed(
    target: StoreLike,
    source: Any,
    place: Callable[[Any], Any],
    otherwise: str | RemoteStore,
    missing: str | None = None,
    trust: Trust = TRUSTED,
) -> tuple[RechunkPlan, ArrayFile, Destination, dict[str, Any]]:
    """A run that stopped: its plan, source and destination, and its id and what it has done.

    Parameters
    ----------
    place : callable
        Makes stores of URLs.
    missing : str, optional
        What is made of chunks that the source lacks; by default as the run was asked.
    otherwise : folder or prefix
        Where scratch goes, if there is none where the journal says.
    trust : Trust
        How far what it has left is trusted.

    Raises
    ------
    NotFoundError
        Where there is no unfinished array, no journal, or no source.
    JournalError
        Where the journal does not belong to what it stands beside, or the source has changed.
    """
    journal, id, content = journal_of(target, "array")
    plan = _plan(content, target)
    file = _source(content, source, target, place, missing)
    blocks = bool(content.get("blocks"))
    if blocks and trust.again:
        raise JournalError(f"{target} was being written from a lazy array: to start over, write it with overwrite")
    notices = [] if blocks else check_sources([file.zarr], content, target, trust, given=source is not None)
    there = array_file.describe(array_file.open_array(target, unfinished=True), written=True).stored
    if there.grid != plan.target.grid or file.stored.grid != plan.source.grid:
        raise JournalError(f"the journal in {target} plans for chunks {plan.target.grid.chunks}, which it has not")
    scratch = trusted_scratch(scratch_place(place(content["scratch"])), id, otherwise)
    destination = Destination(
        store=target,
        settings=None,
        overwrite=False,
        scratch=scratch,
        past_cache_above=past_cache_above(),
    )
    mine = scratch_below(scratch, id)
    known = _known({} if trust.again else journal.stored(), plan, target)
    found = _looked(plan, known, target, mine, verify=trust.verify)
    left_by = {"id": id, "done": usable_parts(plan, set(known) - found.lost, mine), "lost": found.lost}
    notices += [found.notice] if found.lost else []
    return plan, file, destination, left_by | {"trust": trust, "moved": source is not None, "notices": notices}


def _looked(
    plan: RechunkPlan, stored: Mapping[Part, Stored | None], target: StoreLike, scratch: Any, *, verify: bool
) -> Found:
    """What of all that is recorded is not as it was stored: in the target, and in scratch that is still there."""
    last = len(plan.passes) - 1

    @cache
    def opened(where: Any) -> ArrayFile:
        """An array, opened once."""
        return array_file.describe(array_file.open_array(where, unfinished=True), written=True)

    def place(part: Part, name: str = "") -> StoreLike | None:
        folder = target if part[0] == last else place_below(scratch, str(part[0]))
        return folder if part[0] == last or array_file.is_scratch(folder) else None  # type: ignore[arg-type]

    def expected(part: Part) -> tuple[StoreLike | None, dict[str, Any]]:
        where: Any = place(part)
        return where, {} if where is None else at_least(opened(where), plan.passes[part[0]].written(*part[1:]))

    return look(stored, place, expected, verify=verify)


def journal_of(target: StoreLike, kind: str) -> tuple[Journal, str, dict[str, Any]]:
    """The journal of an unfinished array or group, the run that it is of, and what that was asked to do.

    Raises
    ------
    NotFoundError
        Where nothing unfinished is there, or no journal.
    JournalError
        Where the journal is of another run.
    """
    mark = array_file.unfinished_run(target)
    if mark is None:
        raise NotFoundError(f"nothing to resume: no unfinished {kind} in {target}")
    journal = Journal(target)
    id, content = journal.read()
    if not ID.fullmatch(id):
        raise JournalError(f"the journal in {target} is of run {id!r}, which is the name of none")
    if id != mark:
        raise JournalError(f"the journal in {target} is of run {id}, the {kind} of run {mark}")
    if "files" in content:
        raise JournalError(f"{target} was being written by {content['files']}_files: write it again with overwrite")
    return journal, id, content


def _plan(content: dict[str, Any], target: StoreLike) -> RechunkPlan:
    if "pass" in content:
        again = f"{content['pass']}(..., resume=True)"
        raise JournalError(f"{target} was being written by a kernel: call {again} as before to go on")
    missing = {"plan", "source", "source_metadata", "scratch"} - content.keys()
    if missing:
        raise JournalError(f"the journal in {target} lacks {', '.join(sorted(missing))}")
    return from_json(content["plan"])


def _source(
    content: dict[str, Any],
    given: StoreLike | zarr.Array | None,
    target: StoreLike,
    place: Callable[[Any], Any],
    missing: str | None,
) -> ArrayFile:
    there = content["source"] if given is None else getattr(given, "zarr", given)
    if content.get("blocks") and not (isinstance(there, str) and os.path.isdir(there)):
        raise NotFoundError(
            f"{target} was being written from a lazy array, whose blocks are not kept: write it again with overwrite"
        )
    if there is None:
        raise NotFoundError(f"the source of {target} is no path or URL: give source=")
    policy = policy_of(content.get("missing") if missing is None else missing)
    file = array_file.describe_source(array_file.open_array(place(there)), policy)
    if not is_of(file, content["source_metadata"], content["source"]):
        raise JournalError(f"the journal in {target} was written for another source than {file.name} is now")
    return file


def _known(parts: Mapping[Part, T], plan: RechunkPlan, target: StoreLike) -> Mapping[Part, T]:
    strange = set(parts).difference(*(step.parts(number) for number, step in enumerate(plan.passes)))
    if strange:
        raise JournalError(f"the journal in {target} has part {min(strange)}, which its plan has not")
    return parts
