"""Multicast as tasks.

    part ─► give ─╮                     each rank's piece of the section
    part ─► give ─┴─► gather ─┬─► pass on ─┬─► pass on        a task a message, in the order of the tree
                              │            ╰─► pass on
                              ╰─► pass on ─── pass on         on threads all ranks share one array

    look ─┬─► read ─┬─► unchanged       pieces of files, each read once, between two checks of all files
    look ─┴─► read ─┴─► unchanged

Thakur 1995, section 5.4 (PASSION_oc_multicast).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Program
from oocarrays.graphs.run.run import Run, barrier, call
from oocarrays.graphs.run.steps import Key
from oocarrays.mapping.selection import Axes, index_of, lengths, moved
from oocarrays.plan.layouts.multicast import MulticastPlan
from oocarrays.plan.machine import spread
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import read_section


@dataclass(frozen=True, kw_only=True)
class Multicast(Program):
    plan: MulticastPlan
    """Pieces, their holders, and the tree of senders."""
    dtype: np.dtype
    files: LocalFiles | None
    """Files that ranks read; None if their parts are in memory."""
    workers: int
    """Number of workers; 0 for threads, which send no messages."""

    @property
    def processes(self) -> int | None:
        return self.workers or None

    def file(self, rank: int) -> ArrayFile:
        assert self.files is not None, "ranks without parts have files"
        return self.files.file(rank)

    def axes(self, rank: int) -> Axes:
        assert self.files is not None, "ranks without parts have files"
        return tuple(map(moved, self.plan.piece(rank)[1], self.files.descriptor.depth))


def give(live: Live[Multicast], rank: int, part: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(part[index_of(live.program.plan.piece(rank)[1])])


def look(live: Live[Multicast], rank: int) -> Versions | None:
    """Record the versions of the wanted chunks of a rank's file, before any is read."""
    return Versions.of(live.program.file(rank), [live.program.axes(rank)])


def read(live: Live[Multicast], rank: int, versions: Versions | None) -> np.ndarray:
    file = live.program.file(rank)
    with versions.reading(file) if versions else nullcontext():
        return read_section(file, live.program.axes(rank), meter=live.meter, threads=1)


def unchanged(live: Live[Multicast], rank: int, piece: np.ndarray, versions: Versions | None) -> np.ndarray:
    """Return a rank's piece after checking, once all ranks have read, that its file has not changed."""
    if versions:
        versions.check(live.program.file(rank), live.program.axes(rank))
    return piece


def gather(live: Live[Multicast], rank: int, *pieces: np.ndarray) -> np.ndarray:
    """Join the pieces of the section, read-only: other ranks share the array."""
    plan = live.program.plan
    made = np.empty(lengths(plan.selection.axes), live.program.dtype)
    for holder, piece in zip(plan.holders, pieces, strict=True):
        made[index_of(plan.piece(holder)[0])] = piece
        _count(live, piece, holder, rank)
    whole = np.asarray(plan.selection.arranged(made), order="C")  # a single element keeps zero axes
    whole.flags.writeable = False
    return whole


def pass_on(live: Live[Multicast], rank: int, whole: np.ndarray) -> np.ndarray:
    _count(live, whole, None, rank)
    return whole


def _count(live: Live[Multicast], data: np.ndarray, source: int | None, rank: int) -> None:
    if live.on_workers and source != rank:
        live.meter.add(messages=1, sent_bytes=data.nbytes)


def _read_alike(builder: Builder, plan: MulticastPlan) -> list[Key]:
    """Add the tasks that read pieces between two checks of all files, each rank checking its own."""
    looked = {rank: builder.add(look, rank) for rank in plan.holders}
    begun = builder.add(barrier, plan.root, name="begun", after=looked.values())
    done = {rank: builder.add(read, rank, buffers=(looked[rank],), after=[begun]) for rank in plan.holders}
    ended = builder.add(barrier, plan.root, name="ended", after=done.values())
    return [builder.add(unchanged, rank, buffers=(done[rank], looked[rank]), after=[ended]) for rank in plan.holders]


def cast(
    plan: MulticastPlan,
    dtype: np.dtype,
    workers: Sequence[str],
    *,
    parts: Parts | None = None,
    files: LocalFiles | None = None,
    meter: Meter | None = None,
) -> Parts:
    """Return the section at every rank, as tasks."""
    run = Run(Multicast(plan=plan, dtype=dtype, files=files, workers=len(workers)))
    run.meter = meter or run.meter
    builder = Builder(run.id, call, run)
    if workers:
        builder.share("multicast")
    given = (
        [builder.add(give, rank, buffers=(parts.keys[rank],)) for rank in plan.holders]
        if parts
        else _read_alike(builder, plan)
    )
    keys: dict[int, Key] = {plan.root: builder.add(gather, plan.root, buffers=tuple(given))}
    for rank in ((plan.root + place) % plan.ranks for place in range(1, plan.ranks)):
        parent, before = plan.parent(rank), plan.before(rank)
        assert parent is not None, "only the root has none"
        after = [] if before is None else [keys[before]]
        keys[rank] = builder.add(pass_on, rank, buffers=(keys[parent],), after=after)
    homes = {run.id: spread(plan.ranks, workers)} if workers else {}
    every = [keys[rank] for rank in range(plan.ranks)]
    return Parts.of(builder.graph, every, dtype, homes, *([parts] if parts else []), name="multicast")
