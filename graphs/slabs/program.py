"""Passes over slabs as programs.

    read 0 ──┬─► compute 0 ──► write 0      a band, into the middle of its window
             ▼ give    ▲ give
    read 1 ──┴─► compute 1 ──► write 1      other slabs' bands complete each window
             ▼ give    ▲ give
    read 2 ──┴─► …                          waits until compute 0 is done and its window is free

                                    └────► gather        for targets without whole chunks in a slab

    create ─┬─► make ─┬─► ready ┬─► a rank's slabs ─┬─► over ─┬─► close ─┬─► finish      if each rank has its own files;
            ├─► make ─┤         ├─► …  ▲ give       │         ├─► close ─┤               "over" in iterations only
            ╰─► make ─╯         ╰─► …  ▼ give       ╯         ╰─► close ─╯

Each rank reads one slab at a time, ``prefetch`` slabs ahead of the one it computes; every edge of the graph is memory.
A repeated task receives from other ranks the data that they have read: no scratch is removed before all have written.

    compute 0 ──► write 0 ──┐           whole chunks are written with each slab, the rest is returned
    compute 1 ──► write 1 ──┼─► gather ─► finish
    compute 2 ──► write 2 ──┘           joins the returned parts: each chunk is written once

A resumed run recomputes the parts that finished slabs had returned, those of a pyramid from the coarsest level that
slabs have written. A pass of an iteration reads the output of the previous one, and returns the largest residual of its
slabs. Its input is removed when it is over: an interrupted run resumes in the pass that it was in. Thakur 1995, section
5.4 (the local placement model), and 5.5.2, Figure 5.8.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from oocarrays.errors import DescriptorError, RunError
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Part, Program, Remaining, RoundsAhead
from oocarrays.graphs.run.recovery import Sections
from oocarrays.graphs.run.run import barrier
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs import tasks
from oocarrays.graphs.slabs.kernel import state_of
from oocarrays.graphs.slabs.scratch import Sweep
from oocarrays.plan.slabs.geometry import Slab, gathered, written
from oocarrays.plan.slabs.plan import RESULTS, SlabPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.local_files import RankFiles
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.journal.leftovers import remove_dead_scratch
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, kw_only=True)
class SlabPass(Program):
    """Pass over slabs.

    A recorded part is ``(rank,)`` for files that were made, and ``(number, rank)`` for a slab that was written; in an
    iteration with the number of the pass before them, and, for a residual, with its bits behind them.
    """

    phases: ClassVar[Mapping[str, str]] = {
        **{verb: verb for verb in ("read", "fetch", "give", "compute", "write")}, "regain": "read", "gather": "write",
    }  # fmt: skip
    plan: SlabPlan
    kernel: Any
    """Function of a window of each source, a `Kernel`; in an iteration that of one sweep."""
    reads: Sequence[ArrayFile | RankFiles]
    """Sources, aligned; those that are swept in the first pass of an iteration only."""
    writes: Sequence[TargetSpec]
    """Targets: arrays, a group of arrays, or local array files; the journal is beside the first."""
    workers: int | None = None
    """Number of worker processes; None for threads."""
    sweep: Sweep | None = None
    """Pass of an iteration; None for a pass by itself."""

    @property
    def processes(self) -> int | None:
        return self.workers

    @property
    def sources(self) -> Sequence[ArrayFile | RankFiles]:
        return self.reads

    @property
    def targets(self) -> Sequence[TargetSpec]:
        return self.writes

    @property
    def arrays(self) -> Sequence[TargetSpec]:
        return self.writes[0].members or self.writes

    @property
    def in_ranks(self) -> bool:
        """Whether each rank makes, writes and closes its own files."""
        return isinstance(self.writes[0], LocalTarget)

    @property
    def is_last(self) -> bool:
        """Whether it writes the targets, not scratch for another pass."""
        return self.sweep is None or self.sweep.last

    @property
    def removable(self) -> bool:
        """Return whether no pass was before it, and no file is on a worker's own disk or replaces one of a group."""
        first, later = self.writes[0], self.sweep is not None and self.sweep.number > 0
        return not later and not (self.in_ranks and (first.on_own_disks or first.overwrite))

    @property
    def merges(self) -> bool:
        return not (self.in_ranks or self.sweep)

    @property
    def made_place(self) -> StoreLike | None:
        """Return the first array; of local array files that of the first rank, or None on workers' own disks."""
        first = self.arrays[0]
        return None if first.on_own_disks else first.place(0)

    @property
    def scratch(self) -> Sequence[str | RemoteStore]:
        return self.sweep.scratch.folders if self.sweep else ()

    @property
    def located(self) -> dict[str, tuple[int, Any]]:
        """Rank and location of each file to write, by its name in the journal."""
        each = [(number, rank) for number, array in enumerate(self.arrays) for rank in range(len(array.places))]
        return {self.place_name(number, rank): (rank, self._place(number, rank)) for number, rank in each}

    def _place(self, number: int, rank: int) -> StoreLike | RemoteStore:
        if self.sweep is None or self.sweep.last:
            return self.arrays[number].place(rank)
        return self.sweep.scratch.place(self.sweep.number, number, rank)

    @property
    def places(self) -> Sequence[StoreLike | RemoteStore]:
        return [place for _, place in self.located.values()]

    @property
    def room(self) -> Mapping[str, int]:
        return room_for(self.arrays, self.plan) if self.sweep is None else self.sweep.room

    def check_visible(self) -> None:
        """Raise if this worker cannot open shared files; files on own disks are opened on their workers only."""
        for source in self.reads:
            try:
                if isinstance(source, RankFiles) and not source.files.descriptor.folders:
                    source.files.open(0)
            except DescriptorError as error:
                raise RunError(
                    f"{error} on this worker: files must be on a shared disk or on workers' own disks"
                ) from error

    def part(self, slab: Slab) -> Part:
        return slab if self.sweep is None else (self.sweep.number, *slab)

    def parts(self) -> Iterator[Part]:
        yield from ((rank,) for rank in range(self.plan.ranks) if self.in_ranks)
        yield from map(self.part, self.plan.all_slabs())

    def sections(self, part: Part) -> Sections:
        if len(part) == 1:
            return {}
        slab, plan = Slab(*part[-2:]), self.plan
        shares = ((n, self.arrays[n].share(slab.rank, plan.made(slab, n))) for n in written(plan))
        return {self.place_name(n, slab.rank): [section] for n, section in shares}

    def place_name(self, number: int, rank: int) -> str:
        """Return the name of the place at which a rank writes an array, as in the journal."""
        name = self.arrays[number].place_name(number, rank)
        return "" if self.sweep is not None and name == "0" else name  # of an iteration, the first array has none

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        if self.in_ranks or (self.sweep and part[0] != self.sweep.number):
            return None
        return next((each.store for n, each in enumerate(self.arrays) if self.place_name(n, 0) == name), None)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        share = 1 - sum(len(part) > 1 for part in done) / max(self.plan.count, 1)
        return Remaining.of(share, self.plan.passing)

    def begin(self, live: Live[Any]) -> None:
        """Make levels that a lost worker had not made, and scratch; raise if a target was replaced meanwhile."""
        first, sweep = self.writes[0], self.sweep
        if not live.state.made:
            if first.members and not live.journal.parts():
                first.create(live.id, durable=live.state.durable)
            places = [target.store for target in (*self.writes, *first.members)]
            gone = next((place for place in places if unfinished_run(place) != live.id), None)
            if gone is not None and not all(live.is_done(self.part(slab)) for slab in self.plan.all_slabs()):
                raise RunError(f"{gone} has changed since run {live.id} stopped")
        if sweep is None:
            return
        live.journal.forget(sweep.gone)
        if live.state.made:
            remove_dead_scratch(live.store, sweep.scratch.folders[0])
        if not (sweep.last or self.in_ranks):
            tasks.make_scratch(live)

    def settle(self, live: Live[Any], *, resumable: bool) -> None:
        """Release memory, threads and scratch; remove scratch that no resumed run can use."""
        state_of(live).release()
        for rank, folder in enumerate(self.scratch):
            live.give_up(folder, rank)
        if self.sweep and not resumable:
            self.sweep.scratch.remove()

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        created, ranks = builder.create(addresses), range(self.plan.ranks)
        if self.in_ranks:  # no read precedes the creation of every file
            made = [builder.add(tasks.make, rank, after=[created]) for rank in ranks]
            created = builder.add(barrier, name="ready", after=made, rank=0)
        ends = _SlabTasks(builder, self.plan, {Slab(*part[-2:]) for part in done if len(part) > 1}).build(created)
        residuals, after = ((), [created, *ends]) if self.sweep is None else (tuple(ends), [created])
        if self.in_ranks:
            over_all = [builder.add(tasks.over, after=[created, *ends], rank=0)] if self.sweep else []
            each = (over_all or [created, *(key for key in ends if key[-1] == rank)] for rank in ranks)
            after = [builder.add(tasks.close, rank, after=keys) for rank, keys in enumerate(each)]
        return builder.add(tasks.finish, buffers=residuals, after=after, rank=0)


class _SlabTasks:
    """Tasks of all slabs that are not done."""

    def __init__(self, builder: Builder, plan: SlabPlan, done: Collection[Slab]) -> None:
        self.builder, self.plan, self.done = builder, plan, done
        self._read: dict[Slab, Key] = {}
        self._given: dict[tuple[Slab, Slab], Key] = {}

    def build(self, created: Key) -> list[Key]:
        """Add the tasks, after that which begins the run; return the keys of the last ones."""
        ranks = range(self.plan.ranks)
        regained = [self._regained(rank, created) for rank in ranks]
        for rank in ranks:
            self._reads(rank, (regained[rank] or [created])[-1])
        for slab, key in self._read.items():
            for taker in self._takers(slab):
                self._given[slab, taker] = self.builder.add(tasks.give, *taker, *slab, buffers=(key,))
        ends = [key for rank in ranks for key in self._results(rank)]
        if not gathered(self.plan):
            return ends
        return [self.builder.add(tasks.gather, buffers=(*chain(*regained), *ends), after=[created], rank=0)]

    def _regained(self, rank: int, created: Key) -> list[Key]:
        """Recompute in sequence the gathered parts of finished slabs."""
        keys: list[Key] = []
        for slab in self.plan.slabs(rank) if gathered(self.plan) and self.done else ():
            if slab in self.done:
                keys.append(self.builder.add(tasks.regain, *slab, after=keys[-1:] or [created]))
        return keys

    def _takers(self, slab: Slab) -> list[Slab]:
        return [taker for taker in self.plan.takers(slab) if taker not in self.done]

    def _reads(self, rank: int, before: Key) -> None:
        """Read in sequence the slabs to compute, and those with a band for others, each once its window is free."""
        slabs = [slab for slab in self.plan.slabs(rank) if slab not in self.done or self._takers(slab)]
        verb = "compute" if self.plan.prefetch else "write"  # without prefetch, the result is written, too
        for slab, former in zip(slabs, [*[None] * self.plan.held, *slabs], strict=False):
            uses: list[tuple[Any, ...]] = []
            if former is not None:  # the last uses of its window
                given = [("give", *taker, *former) for taker in self._takers(former)]
                uses = given if former in self.done else [(verb, *former)]
            after = [before, *((f"{name}-{self.builder.suffix}", *args) for name, *args in uses)]
            before = self._read[slab] = self.builder.add(tasks.read, *slab, after=after)

    def _results(self, rank: int) -> Iterator[Key]:
        """Compute and write the slabs of a rank in sequence."""
        ends = RoundsAhead[list[Key]](RESULTS, [])
        computed: list[Key] = []
        for slab in self.plan.slabs(rank):
            if slab in self.done:
                continue
            given, mine = [self._given[giver, slab] for giver in self.plan.givers(slab)], self._read[slab]
            given += [self.builder.add(tasks.fetch, *slab, each, after=[mine]) for each in self.plan.fetchers(slab)]
            after = [self._given[slab, taker] for taker in self._takers(slab)]  # a kernel may change its block
            after += [*ends.before, *computed]  # the plan counts a kernel's memory once per rank
            computed = [self.builder.add(tasks.compute, *slab, buffers=(mine, *given), after=after)]
            ends.add([self.builder.add(tasks.write, *slab, buffers=(*computed,), after=ends.last)])
            yield from ends.last


def room_for(arrays: Sequence[TargetSpec], plan: SlabPlan) -> dict[str, int]:
    """Return the bytes of plain targets by folder, without files of ranks."""
    each = zip(arrays, plan.targets, strict=True)
    plain = [(local_folder(array.store), known) for array, known in each if not known.coded]
    wants = {folder: known.grid.count * known.chunk_bytes for folder, known in plain if folder}
    return {} if isinstance(arrays[0], LocalTarget) else wants
