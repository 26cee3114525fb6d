"""Two arrays as they are best compared: where their chunks are unlike, one of them in the other's by way of scratch.

a   maps, zstd    ──► rechunked into scratch, each chunk decoded once ──┐
                                                                        ├─ whole chunks of both, slab by slab
b   series, zstd  ──────────────────────────────────────────────────────┘

Slabs of coded chunks that cross decode each of them as often as there are slabs in it: of maps and series of an array
forty times the budget, both in all some forty times.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any, NamedTuple

from zarr.storage import MemoryStore

from oocarrays.errors import OocError
from oocarrays.jobs.rechunking import RechunkJob, rechunk
from oocarrays.mapping.grid import Stored
from oocarrays.options.asked import scratch_folder
from oocarrays.plan.slabs.blocks import seconds
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile

Planned = Callable[[Sequence[Stored]], SlabPlan]
"""Gives the slabs in which two arrays are compared."""
WORTH = 0.8
"""Of the time without scratch: what takes more is not worth the bytes that it writes."""


class _Way(NamedTuple):
    """One array in scratch."""

    seconds: float
    """Predicted: to make it, and to compare."""
    job: RechunkJob
    """Makes it."""
    first: bool
    """Whether it is the first of the two."""

    @property
    def nbytes(self) -> int:
        """Of all that is in scratch at one time, at most."""
        return self.job.plan.scratch_bytes + self.job.plan.target.nbytes


@contextmanager
def alike(files: Sequence[ArrayFile], planned: Planned, budget: int, scratch: Any) -> Iterator[Sequence[ArrayFile]]:
    """Give two arrays as they are best compared, as long as they are.

    Parameters
    ----------
    files : sequence of ArrayFile
        Two of one shape.
    budget : int
        Bytes that may be held.
    scratch : path, optional
        The folder in which one of them may be written again.
    """
    if not any(file.stored.coded for file in files) or files[0].stored.grid.chunks == files[1].stored.grid.chunks:
        yield files
        return
    with tempfile.TemporaryDirectory(
        prefix=".oocarrays-compare-", dir=scratch_folder(scratch, MemoryStore())
    ) as folder:
        way = _best(files, planned, budget, folder)
        if way is None:
            yield files
            return
        made = array_file.describe_source(way.job.run().zarr, "fill")
        yield (made, files[1]) if way.first else (files[0], made)


def _best(files: Sequence[ArrayFile], planned: Planned, budget: int, folder: str) -> _Way | None:
    """The way that takes least; None where it is as they are, or scratch has no room."""
    try:
        least = WORTH * seconds(planned([file.stored for file in files]))
    except OocError:
        least = float("inf")
    ways = []
    for number, (one, other) in enumerate(permutations(files)):
        try:
            job = _job(one, other, budget, os.path.join(folder, str(number)))
            compared = seconds(planned([job.plan.target, other.stored]))
        except OocError:
            continue
        ways.append(_Way(job.plan.seconds + compared, job, first=not number))
    room = shutil.disk_usage(folder).free
    fitting = [way for way in ways if way.seconds < least and way.nbytes < room]
    return min(fitting, key=lambda way: way.seconds, default=None)


def _job(one: ArrayFile, other: ArrayFile, budget: int, folder: str) -> RechunkJob:
    """Plan to write an array in the chunks of another one, not coded."""
    how: Any = {"compressors": None, "filters": [], "missing": one.presence.missing, "scheduler": "threads"}
    job: RechunkJob = rechunk(one.zarr, folder, chunks=other.stored.grid.chunks, memory=budget, **how)
    return job
