"""Resumption of a stopped run of any job: its journal is read, and the same call is planned again."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from oocarrays.errors import InputError, JournalError, NotFoundError, OocError, PlacementError
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.jobs.job import Job
from oocarrays.mapping.given import flag
from oocarrays.options.asked import as_list
from oocarrays.options.given import Resources, means_of, verb
from oocarrays.recovery.resumers import RESUMERS, ResumeRequest, kind_of
from oocarrays.requests import chunks_done, chunks_text
from oocarrays.show.report import seconds_text
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.calls import imported
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.sources import TRUSTED, Trust
from oocarrays.storage.journal.texts import FOLDER, REQUEST, Notes
from oocarrays.storage.local.fs import files_below, status_of
from oocarrays.storage.stores.sessions import is_zip
from oocarrays.storage.stores.urls import check_replaces
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import StreamsJob, holds_streams

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Progress of a run."""

    by: str | None
    """Function that planned it; None if its journal does not record it."""
    chunks: tuple[int, int] | None
    """Numbers of written and of all chunks of its target; None if its journal does not record them."""
    done: float | None
    """Share of its bytes that are read and written; None if it cannot be planned again."""
    seconds_ago: float | None
    """Seconds since its last journal entry; None if its journal is not in a local folder."""
    plan: str | None
    """Its plan in a line."""
    why: str | None
    """Reason that it cannot be planned again, or None."""

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.done is not None:
            yield "done", f"{100 * self.done:.0f} % by {self.by}"
        if self.chunks is not None:
            yield "written", chunks_text(self.chunks)
        if self.seconds_ago is not None:
            yield "last written", f"{seconds_text(self.seconds_ago)} ago"
        if self.plan or self.why:
            yield "plan", self.plan or f"unknown: {self.why}"


def run_status(target: StoreLike) -> RunStatus | None:
    """Return the progress of the run of a target; None if it is finished, or does not exist."""
    if unfinished_run(target) is None:
        return None
    kind = done = plan = why = None
    try:
        kind = kind_left(target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the resuming call warns again
            job, why = _looked_at(target)
        done = 1 - job.left
        plan = None if why else _in_a_line(getattr(job, "plan", job))
    except OocError as error:
        why = str(error)
    return RunStatus(by=kind, chunks=chunks_done(target), done=done, seconds_ago=_age(target), plan=plan, why=why)


def _in_a_line(plan: Any) -> str:
    """Return a plan as text of one line: its own, or its title, ranks and memory."""
    said = repr(plan)
    if not said.startswith("<oocarrays."):
        return f"{type(plan).__name__} {getattr(plan, 'title', '')}, ranks {plan.ranks}, {plan.peak_text}"
    return said.removeprefix("<oocarrays.").removesuffix(">")


def _looked_at(target: StoreLike) -> tuple[Any, str | None]:
    """Return the job of the rest, and why it cannot be run as it is: a changed source, or workers that are not here."""
    why = None
    for how in ({}, {"as_is": True}, {"as_is": True, "scheduler": "threads"}):
        try:
            return resume(target, **how), why  # type: ignore[arg-type]
        except (JournalError, PlacementError) as error:
            why = why or str(error)
    raise JournalError(str(why))


def _age(target: StoreLike) -> float | None:
    """Return the seconds since the last entry beside a target."""
    folder = local_folder(target)
    journal = os.path.join(folder or "", FOLDER)
    found = (status_of(os.path.join(journal, name)) for name in files_below(journal)) if folder else ()
    times = [status.st_mtime for status in found if status is not None]
    return max(time.time() - max(times), 0.0) if times else None


Kind = Literal[
    "rechunk", "map_slabs", "pyramid", "iterate", "scatter_files", "gather_files", "write_sections", "shift", "update",
    "open_streams", "reduce",
]  # fmt: skip


@verb(resources=("workers", "ranks"))
def resume(
    target: StoreLike,
    *,
    source: Any = None,
    kind: Kind | None = None,
    kernel: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None = None,
    parts: Any = None,
    again: bool = False,
    as_is: bool = False,
    verify: bool = False,
    memory: int | float | str | None = None,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Job[Any, Any]:
    """Plan to continue a stopped run from its journal. Reads no data, except with ``verify``.

    The source must be unchanged since the run began: the journal keeps sizes and times of its chunks, or their ETags.
    Each written chunk is checked: a missing one, or one of another size, is written again, and ``job.notices`` and a
    warning report it. All jobs that write a new target can be resumed, by any function that planned them: `rechunk`,
    `update`, `map_slabs`, `pyramid`, `iterate`, `reduce`, `scatter_files`, `gather_files`. `write_sections` and `shift`
    write to existing arrays, which others may change too: all their data is written again. A stream file
    (`open_streams`) is rebuilt from all its blocks, and closed.

    Parameters
    ----------
    target : path, URL or Zarr store
        The target of the stopped run, or one of several.
    source : path, URL, Zarr store, array or group, or a list of them
        The source of the stopped run; needed if that was no path or URL, or has been moved or copied since. Chunks of a
        copy must have the same sizes and times, or ETags: ``cp -a`` and ``rsync -a`` preserve them.
    kernel : callable, str, or a list of them
        The function of a pass over slabs, or its name as ``"module:name"``, which no journal keeps; for `iterate` also
        its residual, if it had one. It must have the same name and code; functions that it calls are not compared.
        Functions of numpy and ``oocarrays.kernels`` need not be given.
    parts : DistributedArray, SectionArrays, or sequence of arrays
        The parts of `write_sections`, one a rank, which no journal keeps: the same as before, by their checksums.
    kind : str
        The function that planned the run, such as ``"iterate"``; any other is an error.
    again : bool
        Whether to start over: with the same plan, and with the source as it is now.
    as_is : bool
        Whether to continue even if chunks of the source, the code of the kernel, or parts have changed: written chunks
        stay as they are.
    verify : bool
        Whether to read written chunks, too, and compare them with the checksums in the journal; chunks without a
        checksum are written again.
    memory : int or str
        As in `rechunk`; by default as the run was planned. If other memory, ranks or workers need another plan, written
        chunks stay, and intermediate data in scratch is written again.
    scheduler : Client, address or "threads"
        As in `rechunk`. By default a run that was planned for threads continues on threads, and one for workers on
        those of the active client. With fewer workers, it is planned anew.
    resources : Resources
        ``ranks``, by default as before (those of local array files are those of their layout), ``workers``, and
        ``missing``, by default that of the stopped run.
    storage_options : mapping
        As in `rechunk`: the journal does not keep these options.

    Returns
    -------
    Job
        With the plan of the stopped run, or its replacement, for a group without finished arrays; ``job.run()`` does
        the rest, and ``job.left`` is the share that is left.

    Raises
    ------
    NotFoundError
        If there is no unfinished target.
    BudgetError, PlacementError
        If the memory is too little, or there are no workers.
    JournalError
        If the journal belongs to another plan or another source, or the source has changed; if a required kernel is
        missing, or is another one.
    InputError
        With both ``again`` and ``as_is``.

    Examples
    --------
    >>> resume("/no/such.zarr")
    Traceback (most recent call last):
        ...
    oocarrays.errors.NotFoundError: nothing to resume: no unfinished array in /no/such.zarr
    """
    again, as_is, verify = flag(again, "again"), flag(as_is, "as_is"), flag(verify, "verify")
    if again and as_is:
        raise InputError("again=True (start over) and as_is=True (continue) exclude each other")
    means = means_of(resources, resume, memory=memory, scheduler=scheduler, storage_options=storage_options)
    place, beginning = placer(means.storage_options), uuid.uuid4().hex if again else ""
    trust = Trust(again=beginning, as_is=as_is, verify=verify, moved=source is not None)
    target = place(target)
    if is_zip(target):
        raise NotFoundError(
            f"nothing to resume: {target} is a zip file, which a single run must write from beginning to end"
        )
    check_replaces(target)
    if unfinished_run(target) is not None and (first := Notes(target).first()) is not None:
        target = place(first)
    if holds_streams(target):
        if kind not in (None, "open_streams"):
            raise JournalError(f"{target} was being written by open_streams: not by {kind}")
        return StreamsJob(target)  # type: ignore[return-value]  # it is planned and run like a job
    left = _interrupted(target, trust)
    found = kind_of(left.content)
    if found not in RESUMERS or kind not in (None, found):
        wanted = "a version that has it goes on with that" if kind is None else f"not by {kind}"
        raise JournalError(f"{target} was being written by {found}: {wanted}")
    if parts is not None and found != "write_sections":
        raise InputError(f"{target} was being written by {found}, which has no parts: omit parts=")
    asked = ResumeRequest(
        left=left, given=source if source is None else as_list(source), place=place,
        functions=[] if kernel is None else list(map(imported, as_list(kernel))),
        parts=parts, asked=means,
    )  # fmt: skip
    job = RESUMERS[found](asked)
    return job.asked_for({REQUEST: left.content[REQUEST]}) if REQUEST in left.content else job


def kind_left(target: StoreLike) -> str:
    """Return the name of the function that planned the run of a target."""
    return kind_of(_interrupted(target, TRUSTED).content)


def _interrupted(target: StoreLike, trust: Trust) -> Interrupted:
    """Return the run in the journal of an unfinished target, or in the note of an existing array."""
    noted = Journal(target).notes.noted() if unfinished_run(target) is None else None
    if noted:
        return Interrupted(target=target, id="", content=noted, trust=trust)
    return Interrupted.at(target, trust)
