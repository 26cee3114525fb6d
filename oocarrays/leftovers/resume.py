"""Going on with what any job has left: what its journal says is read, and the same is planned again."""

from __future__ import annotations

import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError, JournalError, NotFoundError, OocError, PlacementError
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.looking import Trust
from oocarrays.graphs.run.remains import journal_of
from oocarrays.jobs.collective_writes import CollectiveWriteJob
from oocarrays.jobs.converting import FilesJob
from oocarrays.jobs.group import GroupJob
from oocarrays.jobs.iterating import IterateJob
from oocarrays.jobs.pyramid import PyramidJob
from oocarrays.jobs.rechunking import RechunkJob
from oocarrays.jobs.shifting import ShiftJob
from oocarrays.jobs.slabs import SlabJob
from oocarrays.jobs.updating import UpdateJob
from oocarrays.leftovers.kinds import KINDS, StoppedJob, kind_of
from oocarrays.mapping.given import flag
from oocarrays.options.asked import ResumeMeans, cluster_of, scratch_of
from oocarrays.options.keywords import ResumeKeywords
from oocarrays.plan.documents import Document
from oocarrays.reductions.reducing import ReduceJob
from oocarrays.requests.request import chunks_done, chunks_text
from oocarrays.show.report import seconds_text
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.group_file import holds_group
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.calls import imported
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import FOLDER, REQUEST
from oocarrays.storage.stores.urls import check_replaces
from oocarrays.storage.stores.zipped import is_zip
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import StreamsJob, holds_streams

if TYPE_CHECKING:
    import zarr
    from distributed import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How far a run came."""

    kind: str | None
    """The function that planned it; None where its journal does not tell."""
    chunks: tuple[int, int] | None
    """The chunks of its target that are written, and all; None where its journal does not tell."""
    done: float | None
    """The share of its bytes that are read and written, of 1; None where it cannot be planned again as it is."""
    age: float | None
    """Seconds since it last wrote something down; None where its journal is in no local folder."""
    plan: str | None
    """How it was planned, in a line."""
    why: str | None
    """Why it cannot be planned again, where it cannot."""

    def rows(self) -> Iterator[tuple[str, str]]:
        if self.done is not None:
            yield "done", f"{100 * self.done:.0f} % by {self.kind}"
        if self.chunks is not None:
            yield "written", chunks_text(self.chunks)
        if self.age is not None:
            yield "last written", f"{seconds_text(self.age)} ago"
        if self.plan or self.why:
            yield "plan", self.plan or f"unknown: {self.why}"

    def as_json(self) -> Document:
        return {
            "by": self.kind,
            "chunks": self.chunks,
            "done": self.done,
            "seconds_ago": self.age,
            "plan": self.plan,
            "why": self.why,
        }


def standing(target: StoreLike) -> Standing | None:
    """Look how far the run came that was writing a target; None where it is finished, or there is none."""
    if unfinished_run(target) is None:
        return None
    kind = done = plan = why = None
    try:
        kind = kind_left(target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # who resumes is told
            job = resume(target)
        done, plan = 1 - job.left, repr(getattr(job, "plan", job)).removeprefix("<oocarrays.").removesuffix(">")
    except OocError as error:
        why = str(error)
    return Standing(kind=kind, chunks=chunks_done(target), done=done, age=_age(target), plan=plan, why=why)


def _age(target: StoreLike) -> float | None:
    """Seconds since anything was written down beside a target."""
    folder = local_folder(target)
    times = []
    for at, _, names in os.walk(os.path.join(folder, FOLDER)) if folder else ():
        for name in names:
            with suppress(OSError):
                times.append(os.stat(os.path.join(at, name)).st_mtime)
    return max(time.time() - max(times), 0.0) if times else None


Kind = Literal[
    "rechunk",
    "map_slabs",
    "pyramid",
    "iterate",
    "scatter_files",
    "gather_files",
    "write_sections",
    "shift",
    "update",
    "open_streams",
    "reduce",
]
Resumed = (
    RechunkJob
    | GroupJob
    | SlabJob[Any]
    | IterateJob[Any]
    | FilesJob[Any]
    | CollectiveWriteJob
    | ShiftJob
    | UpdateJob
    | StreamsJob
    | ReduceJob
)


@overload
def resume(
    target: StoreLike,
    *,
    source: zarr.Group | OutOfCoreGroup,
    kind: Literal["rechunk"] | None = None,
    **keywords: Unpack[ResumeKeywords],
) -> GroupJob: ...


@overload
def resume(
    target: StoreLike,
    *,
    source: zarr.Array | OutOfCoreArray,
    kind: Literal["rechunk"],
    **keywords: Unpack[ResumeKeywords],
) -> RechunkJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["rechunk"], **keywords: Unpack[ResumeKeywords]
) -> RechunkJob | GroupJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["map_slabs"], **keywords: Unpack[ResumeKeywords]
) -> SlabJob[Any]: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["pyramid"], **keywords: Unpack[ResumeKeywords]
) -> PyramidJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["iterate"], **keywords: Unpack[ResumeKeywords]
) -> IterateJob[Any]: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["scatter_files"], **keywords: Unpack[ResumeKeywords]
) -> FilesJob[LocalArrays]: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["gather_files"], **keywords: Unpack[ResumeKeywords]
) -> FilesJob[OutOfCoreArray]: ...


@overload
def resume(
    target: StoreLike, *, kind: Literal["write_sections"], **keywords: Unpack[ResumeKeywords]
) -> CollectiveWriteJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["update"], **keywords: Unpack[ResumeKeywords]
) -> UpdateJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: Literal["reduce"], **keywords: Unpack[ResumeKeywords]
) -> ReduceJob: ...


@overload
def resume(target: StoreLike, *, kind: Literal["shift"], **keywords: Unpack[ResumeKeywords]) -> ShiftJob: ...


@overload
def resume(target: StoreLike, *, kind: Literal["open_streams"], **keywords: Unpack[ResumeKeywords]) -> StreamsJob: ...


@overload
def resume(
    target: StoreLike, *, source: Any = None, kind: None = None, **keywords: Unpack[ResumeKeywords]
) -> Resumed: ...


def resume(
    target: StoreLike,
    *,
    source: Any = None,
    kind: Kind | None = None,
    kernel: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None = None,
    parts: Any = None,
    memory: int | float | str | None = None,
    ranks: int | None = None,
    again: bool = False,
    as_is: bool = False,
    verify: bool = False,
    missing: Literal["fill", "warn", "error"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> Any:
    """Plan to go on with a run that stopped, from what its journal says is done. Reads no data, unless to ``verify``.

    The source must be as it was when the run began: the journal keeps sizes and times of its chunks, or their ETags.
    Each chunk that was written is looked at: one that has gone, or has another size, is written again, and
    ``job.notices`` and a warning say so. Any job goes on that writes a target of its own, by whichever function it was
    planned: `rechunk`, `update`, `map_slabs`, `pyramid`, `iterate`, `reduce`, `scatter_files`, `gather_files`.
    `write_sections` and `shift` write to what is there, where anybody else may: what they had to write is written
    again, all of it. A stream file (`open_streams`) is made whole with all blocks that are there, and closed.

    Parameters
    ----------
    target : path, URL or Zarr store
        Where the run was writing.
    source : path, URL, Zarr store, array or group, or a list of them
        What it was reading; needed where that was no path or URL, or has been moved or copied since. Chunks of a copy
        must have the same sizes and times, or ETags: copies made by ``cp -a`` and ``rsync -a`` have.
    kernel : callable, str, or a list of them
        The function of a pass over slabs, or its name as ``"module:name"``, which no journal keeps; of `iterate` its
        residual, too, where one was given. It must be of the same name and code; the functions that it calls are not
        looked at. Functions of numpy and ``oocarrays.kernels`` need not be given.
    parts : DistributedArray, SectionArrays, or sequence of arrays
        What every rank writes, of `write_sections`, which no journal keeps: the same as that had, by their checksums.
    kind : str
        The function by which the run was planned, such as ``"iterate"``, where any other is to be refused; type
        checkers take from it what is returned.
    memory, ranks
        As in `rechunk`; by default as the run was planned. Where other memory, ranks or workers make another plan,
        chunks that have been written stay; what was on its way in scratch is done again. Ranks of local array files
        are those of their layout.
    again : bool
        Whether to start over: with the same plan, and with the source as it is now.
    as_is : bool
        Whether to go on though chunks of the source, the code of the kernel, or parts have changed: what was written
        before stays as it is.
    verify : bool
        Whether what was written is read, too, and held against the checksums in the journal; chunks of which it has
        none are written again.
    missing : str
        What is made of chunks that the source lacks, as in `open_array`; by default as the run was asked.
    storage_options : mapping
        As in `rechunk`: how URLs are opened is not written down.
    scheduler, workers
        As in `rechunk`. By default a run goes on on threads that was planned for threads, and on the workers of the
        active client one that was planned for workers. Where there are fewer workers, it is planned anew.

    Returns
    -------
    RechunkJob, GroupJob, SlabJob, PyramidJob, IterateJob, FilesJob, CollectiveWriteJob, ShiftJob, UpdateJob, StreamsJob
    or ReduceJob
        With the plan of the run that stopped, or the one in its place, of a group without finished arrays;
        ``job.run()`` does what is missing, ``job.left`` says how much that is.

    Raises
    ------
    NotFoundError
        Where nothing was left there.
    BudgetError, PlacementError
        Where the memory is too little, or there are no workers.
    JournalError
        Where the journal belongs to another plan or another source, or the source has changed; where a kernel is
        needed that is not given, or is another one.
    InputError
        Where both ``again`` and ``as_is`` are asked for.

    Examples
    --------
    >>> resume("/no/such.zarr")
    Traceback (most recent call last):
        ...
    oocarrays.errors.NotFoundError: nothing to resume: no unfinished array in /no/such.zarr
    """
    again, as_is, verify = flag(again, "again"), flag(as_is, "as_is"), flag(verify, "verify")
    if again and as_is:
        raise InputError("again=True starts over, as_is=True goes on: one of them is taken")
    place, beginning = placer(storage_options), uuid.uuid4().hex if again else ""
    trust = Trust(again=beginning, as_is=as_is, verify=verify, moved=source is not None)
    target = place(target)
    if is_zip(target):
        raise NotFoundError(f"nothing to resume: {target} is a zip file, which one run writes from beginning to end")
    check_replaces(target)
    if holds_streams(target):
        return _streams(target, kind)
    content = _content(target)
    found = kind_of(content)
    if found not in KINDS or kind not in (None, found):
        wanted = "a version that has it goes on with that" if kind is None else f"not by {kind}"
        raise JournalError(f"{target} was being written by {found}: {wanted}")
    if parts is not None and found != "write_sections":
        raise InputError(f"{target} was being written by {found}, which takes no parts: leave parts= out")
    asked = StoppedJob(
        target=target, content=content, given=source if source is None else _listed(source),
        functions=[] if kernel is None else list(map(imported, _listed(kernel))), trust=trust, place=place,
        scratch=scratch_of(place(setting("scratch")), target), missing=missing,
        parts=parts, means=partial(_means, memory=memory, ranks=ranks, scheduler=scheduler, workers=workers),
    )  # fmt: skip
    job = KINDS[found](asked)
    return job.asked_for({REQUEST: content[REQUEST]}) if REQUEST in content else job


def _streams(target: StoreLike, kind: Kind | None) -> StreamsJob:
    if kind not in (None, "open_streams"):
        raise JournalError(f"{target} was being written by open_streams: not by {kind}")
    return StreamsJob(target)


def kind_left(target: StoreLike) -> str:
    """Name the function by which the run was planned that was writing a target."""
    return kind_of(_content(target))


def _content(target: StoreLike) -> Document:
    noted = Journal(target).notes.noted() if unfinished_run(target) is None else None
    return noted or journal_of(target, "group" if holds_group(target) else "array")[2]


def _listed(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]


def _means(
    processes: int | None,
    budget: int | None,
    planned_ranks: int | None = None,
    *,
    memory: Any,
    ranks: int | None,
    scheduler: Client | str | None,
    workers: Sequence[str] | None,
) -> ResumeMeans:
    """Arrange where a plan that was made before is to go on, and with what, where it is not to stay."""
    on_threads = processes is None
    asked = scheduler is not None or workers is not None
    cluster = cluster_of(scheduler, workers) if asked or not on_threads else None
    if cluster is None and not on_threads and scheduler is None:
        raise PlacementError(
            f"the run was planned for {processes} workers: give scheduler=, or make a client; "
            "scheduler='threads' plans it anew for threads"
        )
    moved = (cluster is None) is not on_threads
    most = min(processes or 0, processes or 0 if planned_ranks is None else planned_ranks)
    fewer = cluster is not None and len(cluster.workers()) < most
    return ResumeMeans(
        cluster=cluster,
        scheduler="threads" if cluster is None else cluster.client,
        workers=workers,
        memory=budget if memory is None and not moved else memory,
        ranks=ranks,
        same=memory is ranks is None and not (moved or fewer),
    )
