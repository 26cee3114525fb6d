"""Update of an array to match its source, as tasks.

    create ─┬─► part 0 ─► part 2 ─► …  ─┬─► finish       a part reads changed elements of the source, and replaces the
            └─► part 1 ─► part 3 ─► …  ─┘                target chunks that contain them; no other part writes these

`create` marks the target unfinished and resizes it. A part overwrites elements regardless of their old values, so an
interrupted part is simply repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import zarr

from oocarrays.errors import RunError
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Program, Remaining
from oocarrays.graphs.run.recovery import Part
from oocarrays.graphs.run.steps import Key
from oocarrays.mapping.section import Section
from oocarrays.plan.files.update import UpdatePlan
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.plan.sections.sieve import BUFFER_BYTES
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec, finish_target
from oocarrays.storage.files.documents import document_store
from oocarrays.storage.files.group_file import refresh_consolidated
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.texts import Kept, Store
from oocarrays.storage.local.fs import MARK
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Growing(TargetSpec):
    """Existing array with its shape before and after the update."""

    before: tuple[int, ...] = ()
    """Shape when the update was planned."""
    after: tuple[int, ...] = field(default=())
    """Shape of the source."""

    def check(self, *sources: Any) -> None:
        """Raise if the target has changed since the update was planned."""
        if self.open().stored.grid.shape not in (self.before, self.after):
            raise RunError(f"{self.store} has changed since the update was planned: plan the update again")

    def create(self, run: str, *, durable: bool) -> None:
        """Mark the target and resize it: at every moment it is the old array, or a marked one."""
        array = zarr.open_array(document_store(self.store, durable=durable), mode="r+")  # type: ignore[arg-type]
        array.attrs.put({**array.attrs.asdict(), MARK: run})
        if tuple(array.shape) != self.after:
            array.resize(self.after)

    def resume(self, run: str, *, durable: bool) -> None:
        """Resize the target again: the source may have grown since."""
        super(Growing, self).resume(run, durable=durable)  # a class with slots is made twice
        self.create(run, durable=durable)


@dataclass(frozen=True, kw_only=True)
class Update(Program):
    """Update of an array to match its source; a recorded part is ``(number,)``."""

    phases: ClassVar[Mapping[str, str]] = {"part": "write", "read": "read", "write": "write"}
    threads_stay: ClassVar[bool] = True
    plan: UpdatePlan
    source: ArrayFile
    target: Growing

    @property
    def sources(self) -> Sequence[ArrayFile]:
        return (self.source,)

    @property
    def removable(self) -> bool:
        return False

    @property
    def places(self) -> Sequence[StoreLike]:
        """Return nothing: chunks that are not as they were stored may be the array's own."""
        return ()

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        parts = len(list(self.plan.parts()))
        return Remaining.of(1 - len(done) / parts if parts else 0.0, self.plan.traffic)

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        if not self.plan.changed:
            return builder.add(nothing, rank=0)
        created = builder.create(addresses)
        ends: list[Key] = []
        for rank in range(self.plan.ranks):
            last: Key | None = None
            for number in self.plan.mine(rank):
                if (number,) not in done:
                    last = builder.add(part, number, rank, buffers=(last,), after=[created] if last is None else [])
            ends += [] if last is None else [last]
        return builder.add(finish, after=ends or [created], rank=0)


def nothing(live: Live[Update]) -> str:
    """Return the name of the target, which is up to date; remove its mark if it has one."""
    file: ArrayFile = live.program.target.open()
    if MARK in file.zarr.attrs:
        finish_target(file, durable=live.state.durable)
    return file.name


def part(live: Live[Update], number: int, rank: int, former: None = None) -> None:
    """Read changed elements, and replace the chunks that contain them."""
    if live.is_done((number,)):
        return
    live.journal.join()
    plan, target = live.program.plan, live.target()
    with live.meter.phase("read"):
        data = [(piece.axes, _read(live, piece)) for piece in plan.pieces(number)]
    with live.meter.phase("write"):
        write_pieces(target, data, plan.units(number), at_once=plan.at_once, meter=live.meter)
    keys = [target.chunk_key(index) for index in plan.units(number)]
    live.record((number,), {"": Store(live.store).receipts(keys)})


def _read(live: Live[Update], piece: Section) -> np.ndarray:
    if live.failure:
        raise live.failure
    plan = live.program.plan
    return read_section(
        live.program.source, piece.axes, meter=live.meter, buffer_bytes=BUFFER_BYTES, requests=REQUESTS,
        threads=plan.threads, costs=plan.costs,
    )  # fmt: skip


def finish(live: Live[Update]) -> str:
    """End the run; record the source last: if the record is lost, changed elements are written once more."""
    durable = live.state.durable

    def then() -> None:
        refresh_consolidated(live.store, durable=durable)
        recording.keep_source_of(live.journal, [live.program.source.zarr], durable=durable)

    return recording.end(live, live.target().name, then=then)
