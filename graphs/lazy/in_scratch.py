"""Blocks of a lazy array in scratch, as a program: the source of the rechunk that follows.

    make scratch ──┬─► block ─► put ──┬─► join ─► create ─► start pass ─► …
                   └─► block ─► put ──┘

Scratch is renamed when it holds every block, so scratch under its final name is complete. Until then, a target to be
replaced is unchanged, as the blocks may be computed from it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from oocarrays.errors import NotFoundError, RunError
from oocarrays.graphs.run.journaled import check_room
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import InPlace, Part, Program, Remaining
from oocarrays.kernels.results import block_of
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.storage.chunks.writer import PieceWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_scratch, remove_scratch
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, kw_only=True)
class BlocksInScratch(Program):
    """Writes of blocks into a scratch array."""

    threads_stay: ClassVar[bool] = True
    plan: BlocksPlan
    like: ArrayFile
    """Array with the same dtype and fill value."""
    below: str
    """Folder with the scratch arrays of the rechunk."""
    store: StoreLike
    """Target of the rechunk."""

    @property
    def destination(self) -> InPlace:
        return InPlace(self.store)

    @property
    def scratch(self) -> Sequence[str | RemoteStore]:
        """Scratch, from which a resumed run continues."""
        return [self.below]

    @property
    def whole_place(self) -> str:
        """Folder of the array with every block."""
        return os.path.join(self.below, "blocks")

    @property
    def partial_place(self) -> str:
        """Folder of the array that is still being filled."""
        return os.path.join(self.below, "blocks.partial")

    @property
    def is_whole(self) -> bool:
        """Whether scratch holds every block."""
        return os.path.isdir(self.whole_place)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return the pieces of all blocks; the rechunk counts its own work."""
        return Remaining(1.0, 0.0, self.plan.pieces)

    def settle(self, live: Live[Any], *, resumable: bool) -> None:
        """Leave scratch to the rechunk, unless no resumed run can use it."""
        if live.give_up(self.below) and not resumable:
            remove_scratch(self.below)


def create(live: Live[BlocksInScratch]) -> None:
    """Make the scratch array, unless it already holds every block."""
    program = live.program
    if not live.on_workers:
        live.begin_anew()
    live.state.begun = True
    if program.is_whole:
        return
    check_room({program.below: program.plan.scratch_bytes})
    live.use(program.below)
    create_scratch(program.partial_place, program.like, program.plan.stored)


def put(live: Live[BlocksInScratch], *args: Any) -> None:
    """Write a block's own bytes, unless scratch already holds every block."""
    program, (*index, block) = live.program, args
    if program.is_whole:
        return
    section = program.plan.section(tuple(index))
    writer = live.once("writer", partial(_writer, live))
    writer.write(section, block_of(block, section, program.like.dtype))


def _writer(live: Live[BlocksInScratch]) -> PieceWriter:
    try:
        array = array_file.open_array(live.program.partial_place, mode="r+")
    except NotFoundError as error:
        raise RunError(f"{error} on this worker: scratch must be shared") from error
    live.use(live.program.below)
    return PieceWriter(array_file.describe(array), live.meter)


def join(live: Live[BlocksInScratch]) -> None:
    """Rename scratch to its final name, as every block is written."""
    program = live.program
    if not program.is_whole:
        live.syncer.finish()
        os.rename(program.partial_place, program.whole_place)
