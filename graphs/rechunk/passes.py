"""Files, buffers and scratch of the passes of a rechunk, in one process.

source ─► pass 0 ─► scratch/0 ─► pass 1 ─► … ─► target        each opened once; used buffers are kept for one pass
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.rechunk.assembly import Assembly, OpenPass
from oocarrays.graphs.run.live import Live
from oocarrays.mapping.grid import Index
from oocarrays.plan.rechunk.assembled import on_sectors
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.chunk_names import mark_of_plan
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.pool import Pool
from oocarrays.storage.stores.remote import RemoteStore, place_below


def source(live: Live[Any]) -> ArrayFile:
    """Return the source; that of a lazy array is in scratch, and complete once every block has been written."""
    file = live.program.source
    return file if isinstance(file, ArrayFile) else live.once("source", partial(scratch_array, live, "blocks"))


def scratch_array(live: Live[Any], name: str | int) -> ArrayFile:
    """Open an array in scratch, and mark scratch as in use."""
    live.use(live.program.below)
    return array_file.describe(array_file.open_array(scratch_place(live, name), mode="r+"))


def scratch_place(live: Live[Any], name: str | int) -> str | RemoteStore:
    """Return the location of an array in scratch: the output of a pass, by its number, or blocks."""
    return place_below(live.program.below, str(name))


def opened(live: Live[Any], number: int) -> OpenPass:
    """Return the files that a pass reads from and writes to."""
    return live.once(("pass", number), lambda: _open(live, number))


def _open(live: Live[Any], number: int) -> OpenPass:
    program, made = live.program, live.state.made
    step: Pass = program.plan.passes[number]
    past_cache = program.plan.target.nbytes > program.target.past_cache_above and not step.target.cached
    reads = scratch_array(live, number - 1) if number else source(live)
    writes = live.target() if number == len(program.plan.passes) - 1 else scratch_array(live, number)
    assembly = None
    if step.assembled:
        assembler = Assembler(writes, live.meter, mark(live, number), past_cache=past_cache and on_sectors(step))
        counts = not live.on_workers
        assembly = Assembly(step, assembler, counts=counts, fresh=made, kept=kept(live, number))
    return OpenPass(
        step=step,
        reader=ChunkReader(reads, live.meter, read_ahead=step.read_ahead, requests=step.requests),
        writer=ChunkWriter(
            writes, live.meter, past_cache=past_cache, behind=step.write_behind, requests=step.requests, fresh=made
        ),
        assembly=assembly,
        fill_value=source(live).fill_value,
    )


def assembly_of(live: Live[Any], number: int) -> Assembly:
    """Return the state that ranks of this process share while they assemble the target of a pass."""
    assembly = opened(live, number).assembly
    assert assembly is not None, "chunks are assembled in passes of that method"
    return assembly


def mark(live: Live[Any], number: int) -> str:
    """Return the mark in the names of chunks that a pass has not finished."""
    return mark_of_plan(live.id, live.state.recovered.beginning, number)


def marks(live: Live[Any]) -> set[str]:
    """Return the marks of all passes."""
    return {mark(live, number) for number in range(len(live.program.plan.passes))}


def pool(live: Live[Any], number: int) -> Pool:
    """Return the pool of used buffers of a pass; its first use drops that of the pass before."""
    return live.once(("pool", number), lambda: _new_pool(live, number))


def _new_pool(live: Live[Any], number: int) -> Pool:
    if number:
        live.forget(("pool", number - 1))
        live.rooms = Rooms()
    return Pool()


def is_repeated(live: Live[Any]) -> bool:
    """Return whether a task is repeated after the end of its run: all chunks have their final names."""
    return live.ended or (live.on_workers and not live.journal.is_there() and is_finished(live.store))


# ---------------------------------------------------------------------- chunks


def kept(live: Live[Any], number: int) -> Mapping[str, Receipt]:
    """Return the receipts of chunks that a pass need not write, because an earlier plan of this run has."""
    found: Mapping[str, Receipt] = live.program.kept(live.state.recovered.kept, number)
    return found


def has_left(live: Live[Any], number: int, box: ChunkBox) -> bool:
    """Return whether a box has a chunk that no earlier plan of this run has stored."""
    there = kept(live, number)
    if not there:
        return True
    key = opened(live, number).writer.file.chunk_key
    return any(key(index) not in there for index in product(*map(range, *box)))


def store(live: Live[Any], number: int, box: ChunkBox, region: np.ndarray, receipts: Receipts) -> None:
    """Write the chunks of a region, except kept ones; stop if the run has failed."""
    there = opened(live, number)

    def chunks() -> Iterator[tuple[Index, np.ndarray]]:
        for chunk in there.chunks(box, region, kept(live, number)):
            if live.failure:
                raise live.failure
            yield chunk

    there.writer.write_all(chunks(), receipts)
