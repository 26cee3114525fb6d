"""Run of a rechunk: one object for all its tasks, with the files, buffers and journal that they share.

Threads share it; on a cluster it travels once to each worker, and opens its files there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import numpy as np

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.rechunk.assembly import Assembly, OpenPass
from oocarrays.graphs.run.journaled import OneTarget, check_room
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.settings import record_seconds
from oocarrays.plan.documents import Document, written
from oocarrays.plan.rechunk.assembled import on_sectors
from oocarrays.plan.rechunk.passes import ChunkBox, box_count
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.plan.rechunk.ways import STAGES
from oocarrays.storage.chunks.assembling import Assembler
from oocarrays.storage.chunks.reader import ChunkReader
from oocarrays.storage.chunks.writer import ChunkWriter
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.chunk_names import mark_of_plan
from oocarrays.storage.files.creating import create_scratch, is_scratch, remove_scratch
from oocarrays.storage.files.documents import remove_partials
from oocarrays.storage.files.places import StoreLike, local_folder, place_name
from oocarrays.storage.files.target import TargetSpec, written_file
from oocarrays.storage.journal.leftovers import discard, hold, scratch_below
from oocarrays.storage.journal.lock import Hold
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.storage.local import syncing
from oocarrays.storage.pool import Pool
from oocarrays.storage.stores.remote import RemoteStore, place_below

Part = tuple[int, ...]
"""Piece of work recorded when it is done: pass, partition or batch, rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(TargetSpec):
    """Destination of a rechunk: the target with its settings, its scratch and its use of the system's cache."""

    scratch: str | RemoteStore
    """Folder, or prefix in a store, for scratch arrays."""
    past_cache_above: int
    """Size in bytes above which a target is written past the system's cache."""


def journal_content(plan: RechunkPlan, source: ArrayFile, destination: Destination) -> Document:
    return {
        "plan": written(plan),
        "source": place_name(source.zarr.store_path.store, source.zarr.store_path.path),
        "source_metadata": metadata_digest(source),
        "scratch": str(destination.scratch),
        "missing": source.presence.missing,
    }


def usable_parts(plan: RechunkPlan, parts: AbstractSet[Part], scratch: str | RemoteStore) -> set[Part]:
    """Return the parts that need not be repeated; parts in missing scratch must be, unless a later pass is complete."""
    every = [set(step.parts(number)) for number, step in enumerate(plan.passes)]
    usable: set[Part] = set()
    for number, mine in reversed(list(enumerate(every))):
        if number == len(every) - 1 or is_scratch(place_below(scratch, str(number))):
            usable |= mine & parts
        if mine <= usable:
            return usable.union(*every[:number])
    return usable


class RechunkState(OneTarget):
    """State shared by the tasks of one rechunk run."""

    threads_stay: ClassVar[bool] = True
    merges: ClassVar[bool] = True
    plan: RechunkPlan
    destination: Destination
    scratch: str | RemoteStore

    def __init__(
        self,
        plan: RechunkPlan,
        source: ArrayFile | None,
        destination: Destination,
        content: Document,
        *,
        remains: Recovered = NOTHING_LEFT,
        id: str | None = None,
    ) -> None:
        self.plan = plan
        self._source = None if source is None else Sealed(source)
        self.destination = destination
        self.content = content
        self.remains = remains
        super().__init__(destination.store, plan.processes, remains.id or id)
        self.scratch = scratch_below(destination.scratch, self.id)
        self.record_seconds = record_seconds()

    def _here(self) -> None:
        super()._here()
        self.buffers = Pool()
        self._pool_of = 0
        self._passes: dict[int, OpenPass] = {}
        self._looked_at: ArrayFile | None = None
        self._hold: Hold | None = None
        self._uses_scratch = False
        self._remove_scratch: weakref.finalize | None = None

    @property
    def written_places(self) -> list[StoreLike]:
        """Target, and scratch that is to outlive a restart of the system."""
        scratch = [self.scratch] if len(self.plan.passes) > 1 and not self.caches_scratch else []
        return [self.destination.store, *scratch]

    @property
    def caches_scratch(self) -> bool:
        """Whether scratch stays in the system's cache; the boot id then tells whether it is still complete."""
        return self.plan.scratch_is_cached and bool(syncing.boot())

    @property
    def cached_places(self) -> list[StoreLike]:
        """Scratch, if it stays in the cache."""
        return [self.scratch] if self.caches_scratch else []

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until running tasks have ended, so that nothing is written after a run has failed.

        Remove scratch too, unless it is reusable or belongs to another run: a run on threads that failed at its start
        holds none.
        """
        self._wait()
        self._close(keep_scratch=resumable or not (self._uses_scratch or self.processes))

    def _close(self, *, keep_scratch: bool = False) -> None:
        if self._remove_scratch:
            self._remove_scratch.detach()
        if self._hold:
            self._hold.close()
        self._hold = self._remove_scratch = None
        self._uses_scratch = False
        if not keep_scratch:
            remove_scratch(self.scratch)
        self.journal.release()

    # ------------------------------------------------------------------ beginning and end

    def _forget_what_is_gone(self) -> None:
        """Delete records of lost parts and of parts in missing scratch; raise if a part counted as done needs one."""
        parts, last = self.journal.parts(), len(self.plan.passes) - 1
        gone = {part for part in parts if part[0] < last and not is_scratch(self._scratch_folder(part[0]))}
        gone |= self.remains.lost
        mine = self.done if self._kept(last) else ()
        kept = {part for part in mine if part[0] == last and not self._left_of(part)}
        for known in (parts - gone | kept, set(self.done)):
            if not self.done <= usable_parts(self.plan, known, self.scratch):
                raise RunError(f"what {self.destination.store} had in scratch is missing: resume it again")
        self.journal.forget(gone)

    def _restart(self) -> None:
        for number in range(STAGES.stop - 1):  # the passes of any plan; other files stay
            remove_scratch(self._scratch_folder(number))
        super()._restart()

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._passes.clear()

    def _check_room(self) -> None:
        """Raise if the sizes known beforehand exceed the free space of the devices."""
        plan, wants = self.plan, {}
        folder = local_folder(self.destination.store)
        if folder and not plan.target.coded:
            wants[folder] = plan.target.grid.count * plan.target.chunk_bytes
        if plan.scratch_bytes and isinstance(self.scratch, str):
            wants[self.scratch] = plan.scratch_bytes
        check_room(wants)

    def _start(self, number: int) -> None:
        """Begin a pass, which reads the output of the previous one."""
        if number > 1:
            self.syncer.wait()  # to resume, either a pass's source or the record of its end must exist
            remove_scratch(self._scratch_folder(number - 2))
        if number < len(self.plan.passes) - 1:
            self._hold_scratch()
            create_scratch(
                self._scratch_folder(number),
                self.source,
                self.plan.passes[number].target,
                durable=self.durable and not self.caches_scratch,
                boot=syncing.boot() if self.caches_scratch else "",
            )

    def _hold_scratch(self) -> None:
        """Mark scratch as in use until this process no longer needs it."""
        self._uses_scratch = True
        if self._hold is None and isinstance(self.scratch, str):
            self._hold = hold(self.scratch, self.destination.store)
            if self.processes is None:
                self._remove_scratch = weakref.finalize(self, discard, self.scratch, self._hold)

    def opened(self, number: int) -> OpenPass:
        """Return the files that a pass reads from and writes to, opened once in each process."""
        with self._opening:
            if number not in self._passes:
                self._passes[number] = self._open(number)
            return self._passes[number]

    def _open(self, number: int) -> OpenPass:
        step = self.plan.passes[number]
        past_cache = self.plan.target.nbytes > self.destination.past_cache_above and not step.target.cached
        reads = self._scratch_array(number - 1) if number else self.source
        writes = self._scratch_array(number) if number < len(self.plan.passes) - 1 else self.target
        return OpenPass(
            step=step,
            reader=ChunkReader(reads, self.meter, read_ahead=step.read_ahead, requests=step.requests),
            writer=ChunkWriter(
                writes,
                self.meter,
                past_cache=past_cache,
                behind=step.write_behind,
                requests=step.requests,
                fresh=self.made,
            ),
            assembly=self._assembly_of(number, writes, past_cache=past_cache) if step.assembled else None,
            fill_value=self.source.fill_value,
        )

    def _assembly_of(self, number: int, file: ArrayFile, *, past_cache: bool) -> Assembly:
        step = self.plan.passes[number]
        assembler = Assembler(file, self.meter, self.mark(number), past_cache=past_cache and on_sectors(step))
        counts = self.processes is None
        return Assembly(step, assembler, counts=counts, fresh=self.made, kept=self._kept(number))

    def assembly(self, number: int) -> Assembly:
        """Return the state that ranks of this process share while they assemble the target of a pass."""
        assembly = self.opened(number).assembly
        assert assembly is not None, "chunks are assembled in passes of that method"
        return assembly

    def mark(self, number: int) -> str:
        """Return the mark in the names of chunks that a pass has not finished."""
        return mark_of_plan(self.id, self.remains.beginning, number)

    def _remove_partials(self) -> None:
        remove_partials(self.destination.store, self.marks)

    @property
    def marks(self) -> set[str]:
        """Marks of all passes."""
        return set(map(self.mark, range(len(self.plan.passes))))

    def _scratch_array(self, number: int) -> ArrayFile:
        self._hold_scratch()
        return array_file.describe(array_file.open_array(self._scratch_folder(number), mode="r+"))

    def _scratch_folder(self, number: int) -> str | RemoteStore:
        return place_below(self.scratch, str(number))

    def _finish(self) -> str:
        if self.caches_scratch:  # before the sync, which then need not write scratch
            remove_scratch(self.scratch)
        name: str = self._end(self.target.name)
        self._close()
        return name

    def _finishing(self) -> Callable[[], None]:
        self._keep_source()
        return super()._finishing()

    # ------------------------------------------------------------------ shared by all tasks

    def pool(self, number: int) -> Pool:
        """Return the pool of used buffers of a pass; drop the pool of the previous pass."""
        with self._opening:
            if number != self._pool_of:
                self.buffers, self.rooms, self._pool_of = Pool(), Rooms(), number
            return self.buffers

    @property
    def left(self) -> float:
        """Share of all passes' bytes that is still to be read and written."""
        traffic = [step.traffic for step in self.plan.passes]
        sizes = [max(each.read_bytes + each.written_bytes, 1) for each in traffic]
        left = sum(self.left_of(number) * size for number, size in enumerate(sizes))
        return left / sum(sizes) if sizes else 1.0

    def left_of(self, number: int) -> float:
        """Return the share of a pass's chunks that is still to be written."""
        step = self.plan.passes[number]
        if self._kept(number):
            rest = (part for part in step.parts(number) if part not in self.done)
            return sum(map(self._left_of, rest)) / step.writes
        return 1 - sum(self._left_of(part) for part in self.done if part[0] == number) / step.writes

    @property
    def expected(self) -> tuple[float, float]:
        """Numbers of read requests and of chunk writes that remain in all passes."""
        shares = [(self.left_of(number), step.traffic) for number, step in enumerate(self.plan.passes)]
        reads, writes = (t.read_requests * left for left, t in shares), (t.write_requests * left for left, t in shares)
        return sum(reads), sum(writes)

    def _kept(self, number: int) -> Mapping[str, Receipt]:
        """Return the receipts of chunks that a pass need not write, because an earlier plan of this run has."""
        return self.remains.kept.get("", {}) if number == len(self.plan.passes) - 1 else {}

    def _left_in(self, number: int, box: ChunkBox) -> int:
        """Return the number of chunks in a box, without kept ones."""
        kept = self._kept(number)
        if not kept:
            return box_count(box)
        return sum(self._names.chunk_key(index) not in kept for index in product(*map(range, *box)))

    @property
    def _names(self) -> ArrayFile:
        """Target file for the names of its chunks, opened without joining the journal."""
        with self._opening:
            if self._looked_at is None:
                self._looked_at = written_file(self.destination.store)
            return self._looked_at

    def _left_of(self, part: Part) -> int:
        """Return the number of chunks in a part, without kept ones."""
        step, (number, first, rank) = self.plan.passes[part[0]], part
        return sum(self._left_in(number, box) for box in step.boxes(first, rank))

    def units(self, number: int) -> list[int]:
        """Return the partitions of a pass in which the part of at least one rank is not done."""
        return sorted({part[1] for part in self.plan.passes[number].parts(number) if part not in self.done})

    def _place_of(self, part: Part, name: str) -> StoreLike | None:
        return self.destination.store if part[0] == len(self.plan.passes) - 1 else None

    def record_chunks(self, part: Part, receipts: Receipts) -> None:
        """Record a part as done, with its receipts."""
        self.record(part, {"": receipts.kept})

    def record_some(self, part: Part, unit: int, receipts: Receipts) -> None:
        """Record the receipts so far of a part of the last pass: a resumed run does not write those chunks again."""
        if part[0] == len(self.plan.passes) - 1:
            self.record((*part, unit), {"": dict(receipts.kept)})

    def store(self, number: int, box: ChunkBox, region: np.ndarray, receipts: Receipts) -> None:
        """Write the chunks of a region, except kept ones; stop if the run has failed."""
        opened = self.opened(number)

        def chunks() -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
            for chunk in opened.chunks(box, region, self._kept(number)):
                if self.failure:
                    raise self.failure
                yield chunk

        opened.writer.write_all(chunks(), receipts)

    def fill(self, data: np.ndarray | None) -> Any:
        """Return the elements of a chunk, or the fill value if the chunk is missing."""
        return self.source.fill_value if data is None else data
