"""Rechunk as a program: an array, or the blocks of a lazy array, is rewritten in other chunks.

A recorded part is a pass, a batch or a partition, and a rank; with a fourth number, the chunks so far of a part.

    create ─► start pass ─┬─► copy ─► copy ─► copy ──┬─► start next pass ─► … ─► finish   independent: one chain
                          └─► copy ─► copy ──────────┘                                    per rank

    read ──┬─► exchange step 0 ─► step 1 ─► … ─► write        two-phase: in each round of a partition every rank reads
    read ──┴─► exchange step 0 ─► step 1 ─► … ─► write        its slab, then copies from one partner per step

                          ┌─► assemble ─► assemble ──┬─► name ─► …             assembled: one chain per rank
                          └─► assemble ─► assemble ──┘

    read ─► exchange round ─► write ─┬─► free       between workers: see `oocarrays.graphs.exchange.whole`
    read ─► exchange round ─► write ─┴─► free

Every edge carries the buffer that the next task fills, or signals that a slab has been read. That bounds memory: a rank
never holds more than ``slabs`` slabs or outboxes and ``depth`` regions, in any order of the scheduler.

Every key ends with the rank that does the work: `placement` pins by it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.exchange.messages import Exchange, Round, arriving, steps_of
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.rechunk import exchange as between, tasks
from oocarrays.graphs.rechunk.passes import marks, usable_parts
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Part, Program, Remaining, RoundsAhead
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.graphs.run.run import Run, barrier
from oocarrays.graphs.run.steps import PHASES, Key, Order
from oocarrays.graphs.settings import record_seconds
from oocarrays.limits import STAGES
from oocarrays.mapping.section import Section
from oocarrays.plan.documents import Document, written
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec, is_scratch, remove_scratch, written_file
from oocarrays.storage.files.documents import remove_partials, unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder, place_below, place_name
from oocarrays.storage.journal.leftovers import remove_dead_scratch, scratch_below
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.storage.journal.texts import Kept, Receipt
from oocarrays.storage.local import syncing
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(TargetSpec):
    """Destination of a rechunk: the target with its settings, its scratch and its use of the system's cache."""

    scratch: str | RemoteStore
    """Folder, or prefix in a store, for scratch arrays."""
    past_cache_above: int
    """Size in bytes above which a target is written past the system's cache."""

    def resume(self, run: str, *, durable: bool) -> None:
        """Do nothing: the run itself knows its unfinished chunks among the partial files."""


def journal_content(plan: RechunkPlan, source: ArrayFile, destination: Destination) -> Document:
    return {
        "plan": written(plan),
        "source": place_name(source.zarr.store_path),
        "source_metadata": metadata_digest(source),
        "scratch": str(destination.scratch),
        "missing": source.presence.missing,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of a lazy array, which tasks of their own write: to the target, or to scratch, the source of a rechunk."""

    plan: BlocksPlan
    like: ArrayFile
    """Array in memory with the same dtype and fill value."""


@dataclass(frozen=True, kw_only=True)
class Rechunk(Program):
    """Rechunk of an array, one of many of a group, or of a lazy array's blocks."""

    phases: ClassVar[Mapping[str, str]] = {**PHASES, "put": "write"}
    threads_stay: ClassVar[bool] = True
    untimed: ClassVar[Collection[str]] = ("copy", "assemble", "name", "round")
    exchange: ClassVar[Exchange] = Exchange(
        copy=tasks.gather, is_over=between.is_over, begin=between.begin, unpack=between.unpack,
        order=lambda live, round: live.program.plan.passes[round[0]].schedule,
        waits=lambda live, round: live.program.plan.passes[round[0]].synchronous,
    )  # fmt: skip
    plan: RechunkPlan
    source: ArrayFile | Blocks
    """Array to read, or blocks of a lazy array."""
    target: Destination
    below: str | RemoteStore
    """Folder, or prefix in a store, with the scratch arrays of the run."""
    record_seconds: float
    """Interval at which progress within a part is recorded."""
    member: str = ""

    @property
    def whole(self) -> bool:
        return any(step.packed for step in self.plan.passes)

    @property
    def sources(self) -> Sequence[ArrayFile]:
        return () if isinstance(self.source, Blocks) else (self.source,)

    @property
    def blocks(self) -> Blocks:
        assert isinstance(self.source, Blocks), "other rechunks read a stored array"
        return self.source

    @property
    def merges(self) -> bool:
        return True

    @property
    def removable(self) -> bool:
        """Whether all writes to the target are recorded: those of aligned blocks are not."""
        return not (isinstance(self.source, Blocks) and self.source.plan.aligned)

    @property
    def scratch(self) -> Sequence[str | RemoteStore]:
        """Scratch that is to outlive a restart of the system."""
        return [self.below] if len(self.plan.passes) > 1 and not self.cached else []

    @property
    def cached(self) -> Sequence[str | RemoteStore]:
        """Scratch in the system's cache; the boot id tells whether it is still complete."""
        return [self.below] if self.plan.scratch_is_cached and syncing.boot() else []

    @property
    def room(self) -> Mapping[str, int]:
        made, folder = self.plan.target, local_folder(self.target.store)
        wants = {folder: made.grid.count * made.chunk_bytes} if folder and not made.coded else {}
        staged = self.plan.scratch_bytes if isinstance(self.below, str) else 0
        return wants | ({str(self.below): staged} if staged else {})

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        return self.target.store if part[0] == len(self.plan.passes) - 1 else None

    def content_of(self, source: ArrayFile) -> Document:
        """Return the content of the journal for a source that is a lazy array's blocks in scratch."""
        return journal_content(self.plan, source, self.target) | {"blocks": True}

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        return add_tasks(builder, self.plan, addresses, done)

    # ------------------------------------------------------------------ the work that is left

    def kept(self, kept: Kept, number: int) -> Mapping[str, Receipt]:
        """Return the receipts of chunks that a pass need not write, of those stored by earlier plans."""
        return kept.get("", {}) if number == len(self.plan.passes) - 1 else {}

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        each = [(self._share(number, done, kept), step.traffic) for number, step in enumerate(self.plan.passes)]
        sizes = [max(traffic.read_bytes + traffic.written_bytes, 1) for _, traffic in each]
        share = sum(left * size for (left, _), size in zip(each, sizes, strict=True)) / sum(sizes) if sizes else 1.0
        reads = sum(left * traffic.read_requests for left, traffic in each)
        pieces = self.source.plan.pieces if isinstance(self.source, Blocks) else 0
        return Remaining(share, reads, pieces + sum(left * traffic.write_requests for left, traffic in each))

    def _share(self, number: int, done: Collection[Part], kept: Kept) -> float:
        """Return the share of a pass's chunks that is still to be written."""
        step = self.plan.passes[number]
        if there := self.kept(kept, number):
            return sum(self._left_of(part, there) for part in step.parts(number) if part not in done) / step.writes
        return 1 - sum(self._left_of(part, {}) for part in done if part[0] == number) / step.writes

    def _left_of(self, part: Part, kept: Mapping[str, Receipt]) -> int:
        """Return the number of chunks in a part, without kept ones."""
        boxes = self.plan.passes[part[0]].boxes(*part[1:])
        if not kept:
            return sum(Section(*box).size for box in boxes)
        key = written_file(self.target.store).chunk_key
        return sum(key(index) not in kept for box in boxes for index in product(*map(range, *box)))

    # ------------------------------------------------------------------ scratch, and parts in it

    def restart(self, live: Live[Any]) -> None:
        """Remove the output of the passes of any plan; other scratch stays."""
        for number in range(STAGES.stop - 1):
            remove_scratch(place_below(self.below, str(number)))

    def begin(self, live: Live[Any]) -> None:
        """Remove what dead runs have left; delete records of parts in missing scratch."""
        if live.state.made:
            remove_dead_scratch(live.store, self.below)
            return
        self._forget_parts_gone(live)
        if not live.on_workers or live.state.recovered.id is not None:
            remove_partials(live.store, marks(live))

    def _forget_parts_gone(self, live: Live[Any]) -> None:
        """Delete records of parts in missing scratch; raise if a part counted as done needs one."""
        recovered, last = live.state.recovered, len(self.plan.passes) - 1
        parts, there = live.journal.parts(), self.kept(recovered.kept, last)
        gone = {part for part in parts if part[0] < last and not is_scratch(place_below(self.below, str(part[0])))}
        mine = recovered.done if there else ()
        kept = {part for part in mine if part[0] == last and not self._left_of(part, there)}
        for known in (parts - gone | kept, set(recovered.done)):
            if not recovered.done <= usable_parts(self.plan, known, self.below):
                raise RunError(f"what {live.store} had in scratch is missing: resume it again")
        live.journal.forget(gone)

    def settle(self, live: Live[Any], *, resumable: bool) -> None:
        """Remove scratch, unless a resumed run can use it, or it belongs to another run.

        A run on threads that failed at its start uses none. Blocks are useless until the target has been begun.
        """
        begun = not isinstance(self.source, Blocks) or unfinished_run(live.store) == live.id
        used = live.give_up(self.below)
        if not (begun and (resumable or not (used or live.on_workers))):
            remove_scratch(self.below)


def rechunk_run(
    plan: RechunkPlan,
    source: ArrayFile | Blocks,
    target: Destination,
    content: Document | None = None,
    recovered: Recovered = NOTHING_LEFT,
    *,
    id: str | None = None,
    member: str = "",
) -> Run[Rechunk]:
    """Return a run; by default, its journal has the content of a new rechunk."""
    id = recovered.id or id or uuid.uuid4().hex[:12]
    if content is None:
        content = {} if isinstance(source, Blocks) else journal_content(plan, source, target)
    program = Rechunk(
        plan=plan, source=source, target=target, below=scratch_below(target.scratch, id),
        record_seconds=record_seconds(), member=member,
    )  # fmt: skip
    return Run(program, content, recovered, id)


# ---------------------------------------------------------------------- tasks


def add_tasks(builder: Builder, plan: RechunkPlan, addresses: Sequence[str], done: Collection[Part]) -> Key:
    """Add the tasks of a plan, less parts that are done; return the key of the last one."""
    builder.begins = tasks.create, tasks.probe
    before = [builder.create(addresses)]
    for number, step in enumerate(plan.passes):
        start = builder.add(tasks.start, number, after=before, rank=0)
        before = _PassTasks(builder, number, step, start, done).build() or [start]
    return builder.add(tasks.finish, after=before, rank=0)


@dataclass(frozen=True, slots=True)
class _PassTasks:
    builder: Builder
    number: int
    step: Pass
    start: Key
    """Key of the task that begins the pass."""
    done: Collection[Part]

    def build(self) -> list[Key]:
        if self.step.assembled:
            ends = self._chains(tasks.assemble)
            return [self.builder.add(tasks.name, self.number, after=ends or [self.start], rank=0)]
        if self.step.alone:
            return self._chains(tasks.copy)
        return self._packed() if self.step.packed else self._two_phase()

    @property
    def ranks(self) -> range:
        return range(self.step.ranks)

    def units(self) -> list[int]:
        """Return the partitions in which the part of at least one rank is not done."""
        return sorted({part[1] for part in self.step.parts(self.number) if part not in self.done})

    def _chains(self, work: Callable[..., Any]) -> list[Key]:
        """Add the batches of each rank as a chain; return the last key of each chain."""
        ends = []
        for rank in self.ranks:
            last = None
            for batch in self.step.batches(rank):
                if (self.number, batch, rank) not in self.done:
                    after = [self.start] if last is None else []
                    last = self.builder.add(work, self.number, batch, rank, buffers=(last,), after=after)
            ends += [] if last is None else [last]
        return ends

    def _two_phase(self) -> list[Key]:
        """Add the tasks of partitions that are exchanged between threads."""
        step, ranks, order = self.step, self.ranks, Order(self.step.ranks)
        nothing: list[Key | None] = [None] * step.ranks
        regions = RoundsAhead[Sequence[Key | None]](step.depth, nothing)
        slabs = RoundsAhead[tuple[Sequence[Key | None], list[list[Key]]]](
            step.slabs, (nothing, [[self.start]] * step.ranks)
        )  # fmt: skip
        for unit in self.units():
            filled = list(regions.before)
            for turn in range(step.rounds(unit)):
                former, takers = slabs.before
                round = self.number, unit, turn
                reads = [
                    self.builder.add(tasks.read, *round, rank, buffers=(former[rank],), after=takers[rank])
                    for rank in ranks
                ]
                takers = [[] for _ in ranks]
                for stage in range(len(step.schedule) + 1):
                    for source, taker in self._exchange(round, stage, filled, reads, order):
                        takers[source].append(taker)
                slabs.add((reads, takers))
            regions.add(
                [self.builder.add(tasks.write, self.number, unit, rank, buffers=(filled[rank],)) for rank in ranks]
            )
        return [key for keys in regions for key in keys if key is not None]

    def _exchange(
        self, round: Round, stage: int, filled: list[Key | None], reads: Sequence[Key], order: Order
    ) -> Iterator[tuple[int, Key]]:
        """Add one step: each rank copies from its partners, after it has received and been copied from in the step
        before.

        Yield each source rank with the key of the task that copies from it.
        """
        add, schedule, now = steps_of(self.builder), self.step.schedule, {}
        sources = {rank: arriving(schedule, stage, rank) if stage else (rank,) for rank in self.ranks}
        for rank, partners in sources.items():
            if partners:
                now[rank] = add(
                    "exchange",
                    *round,
                    stage,
                    rank,
                    name=f"exchange step {stage}",
                    buffers=(filled[rank], *(reads[source] for source in partners)),
                    after=[key for key in order.before(rank) if key != filled[rank]],
                )
        for rank, key in now.items():
            filled[rank] = key
        pairs = [(source, rank) for rank, partners in sources.items() for source in partners]
        order.went(pairs, now)
        yield from ((source, now[rank]) for source, rank in pairs)

    def _packed(self) -> list[Key]:
        """Add the tasks of partitions between workers: one per rank for the whole exchange."""
        add, number, ranks, gone = self.builder.add, self.number, self.ranks, [self.start] * self.step.ranks
        freed, done = RoundsAhead(self.step.slabs, gone), RoundsAhead(self.step.depth, gone)
        for unit in self.units():
            outboxes = [add(between.read, number, unit, rank, after=[freed.before[rank]]) for rank in ranks]
            gone = [
                self.builder.add_whole(
                    whole_round, TOGETHER, number, unit, rank,
                    held=outboxes[rank], after={done.before[rank], gone[rank]},
                )
                for rank in ranks
            ]  # fmt: skip
            done.add([add(tasks.write, number, unit, rank, buffers=(gone[rank],)) for rank in ranks])
            over = [add(barrier, number, unit, name="written", after=done.last, rank=0)]
            freed.add([add(between.free, number, unit, rank, buffers=(outboxes[rank],), after=over) for rank in ranks])
        return [key for keys in freed for key in keys if key != self.start]
