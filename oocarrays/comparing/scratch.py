"""Two arrays as they are best compared: where their chunks are unlike, one of them in the other's by way of scratch.

a   maps, zstd    ──► rechunked into scratch, each chunk decoded once ──┐
                                                                        ├─ whole chunks of both, slab by slab
b   series, zstd  ──────────────────────────────────────────────────────┘

Slabs of coded chunks that cross decode each of them as often as there are slabs in it: of maps and series of an array
forty times the budget, both in all some forty times.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import permutations
from math import inf
from typing import Any, NamedTuple, TypeVar

from zarr.storage import MemoryStore

from oocarrays.errors import BudgetError, OocError
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.rechunk.resume import journal_content
from oocarrays.graphs.rechunk.tasks import RechunkRun
from oocarrays.jobs.rechunking import RechunkJob, rechunk_job
from oocarrays.mapping.grid import Stored
from oocarrays.options.asked import resources_of, scratch_folder
from oocarrays.options.rechunks import Planner
from oocarrays.plan.slabs.blocks import seconds
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import free_bytes
from oocarrays.storage.journal.leftovers import discard, hold
from oocarrays.storage.journal.scratch import scratch_below
from oocarrays.stored.array import missing_of

T = TypeVar("T")
Planned = Callable[[Sequence[Stored]], SlabPlan]
"""Gives the slabs in which two arrays are compared."""
WORTH = 0.8
"""Of the time without scratch: what takes more is not worth the bytes that it writes."""


class _Copied(NamedTuple):
    """One array in scratch, and the other as it is."""

    folder: str
    """Where the copy is to be."""
    job: RechunkJob
    """Makes it."""
    plan: SlabPlan
    """Slabs of both."""
    place: int
    """Of the copy among the two."""

    @property
    def seconds(self) -> float:
        """Predicted: to make the copy, and to compare."""
        return self.job.plan.seconds + seconds(self.plan)

    @property
    def nbytes(self) -> int:
        """Of all that is in scratch at one time, at most."""
        return self.job.plan.scratch_bytes + self.job.plan.target.nbytes


@contextmanager
def alike(
    files: Sequence[ArrayFile], planned: Planned, budget: int, scratch: Any
) -> Iterator[tuple[Sequence[ArrayFile], SlabPlan]]:
    """Give two arrays as they are best compared, as long as they are, and the slabs.

    Parameters
    ----------
    files : sequence of ArrayFile
        Two of one shape.
    budget : int
        Bytes that may be held.
    scratch : path, optional
        The folder in which one of them may be written again.

    Raises
    ------
    BudgetError
        Where no slab fits, with scratch or without.
    """
    as_they_are = partial(planned, [file.stored for file in files])
    try:
        plan = as_they_are()
    except BudgetError:
        plan = None
    best = _best(files, planned, budget, scratch, WORTH * seconds(plan) if plan else inf)
    if best is None:
        yield files, plan or as_they_are()
        return
    held = hold(best.folder)
    try:
        made = array_file.describe_source(best.job.run().zarr, "fill")
        yield _with(files, best.place, made), best.plan
    finally:
        discard(best.folder, held)


def _best(files: Sequence[ArrayFile], planned: Planned, budget: int, scratch: Any, most: float) -> _Copied | None:
    """The copy that takes least; None where that is not less than ``most`` seconds, or scratch has no room."""
    if not any(file.stored.coded for file in files) or files[0].stored.grid.chunks == files[1].stored.grid.chunks:
        return None
    place = scratch_folder(scratch, MemoryStore())
    folder, room = str(scratch_below(place, uuid.uuid4().hex[:12])), free_bytes(place)
    copies = []
    for number, (file, other) in enumerate(permutations(files)):
        with suppress(OocError):  # it cannot be copied, or not in this budget
            job = _job(file, other.stored.grid.chunks, budget, folder, place)
            stored = _with([each.stored for each in files], number, job.plan.target)
            copies.append(_Copied(folder, job, planned(stored), number))
    fitting = [each for each in copies if each.seconds < most and each.nbytes < room]
    return min(fitting, key=lambda each: each.seconds, default=None)


def _with(things: Sequence[T], place: int, other: T) -> list[T]:
    """The same with another one in its place."""
    return [other if number == place else each for number, each in enumerate(things)]


def _job(file: ArrayFile, chunks: tuple[int, ...], budget: int, folder: str, scratch: str) -> RechunkJob:
    """Plan to write an array in the chunks of another one, not coded."""
    planner = Planner(
        orientation=None,
        method="auto",
        shards=None,
        zarr_format=None,
        compressors=None,
        filters=[],
        overwrite=False,
        scratch=scratch,
        missing=missing_of(file.presence),
        resources=resources_of(None, budget, ranks=setting("ranks")),
    )
    planned = planner.planned(file.zarr, f"{folder}/copy", chunks)  # the folder is made when the job runs
    return rechunk_job(RechunkRun(*planned, journal_content(*planned)), None)
