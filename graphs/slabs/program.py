"""Passes over slabs, as tasks.

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
Thakur 1995, section 5.4 (the local placement model), and 5.5.2, Figure 5.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from dask.task_spec import Task

from oocarrays.graphs.run.builder import Builder, RoundsAhead, new_suffix
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.tasks import SlabRun
from oocarrays.plan.slabs.geometry import Slab, gathered
from oocarrays.plan.slabs.plan import RESULTS


class SlabBuilder(Builder):
    """Builder of the tasks of one pass, for all slabs that are not done."""

    def __init__(self, run: SlabRun, addresses: Sequence[str] = ()) -> None:
        super().__init__(new_suffix(), SlabRun.task, run)
        self.run, self.plan, self.done = run, run.plan, run.done
        self._addresses = addresses
        self._read: dict[Slab, Key] = {}
        self._given: dict[tuple[Slab, Slab], Key] = {}

    def build(self, after: Iterable[Key] = ()) -> tuple[dict[Key, Task], Key]:
        """Add every task, the first ones ``after`` others; return the graph and the key of its last task."""
        created = self.create(self._addresses, after)
        runs = [self._needed(rank) for rank in range(self.plan.ranks)]
        begun = [self._regained(rank, created) for rank in range(self.plan.ranks)]
        for rank, slabs in enumerate(runs):
            for position, slab in enumerate(slabs):
                before = self._former(slabs, position, (begun[rank] or [created])[-1])
                self._read[slab] = self.add("read", *slab, after=before)
        for slab in self._read:
            for taker in self._takers(slab):
                self._given[slab, taker] = self.add("give", *taker, *slab, buffers=(self._read[slab],))
        written = [key for slabs in runs for key in self._results(slabs)]
        if gathered(self.plan):
            written = [self.add("gather", buffers=(*chain(*begun), *written), after=[created], rank=0)]
        return self.graph, self._end(created, written)

    def create(self, addresses: Sequence[str], after: Iterable[Key] = ()) -> Key:
        """Add the tasks that begin a run: no read precedes the creation of every file."""
        created = super().create(addresses, after)
        if not self.run.own_files:
            return created
        made = [self.add("make", rank, after=[created]) for rank in range(self.plan.ranks)]
        return self.add("ready", after=made, rank=0)

    def _end(self, created: Key, written: Sequence[Key]) -> Key:
        """Add the tasks that end a pass; that of an iteration returns the maximum of its slabs' residuals."""
        residuals = tuple(written) if self.run.iterates else ()
        after = [created] if self.run.iterates else [created, *written]
        if self.run.own_files:
            over = [self.add("over", after=[created, *written], rank=0)] if self.run.iterates else []
            ranks = range(self.plan.ranks)
            ends = (over or [created, *(key for key in written if key[-1] == rank)] for rank in ranks)
            after = [self.add("close", rank, after=each) for rank, each in enumerate(ends)]
        return self.add("finish", buffers=residuals, after=after, rank=0)

    def _regained(self, rank: int, created: Key) -> list[Key]:
        """Recompute in sequence the gathered parts of finished slabs."""
        keys: list[Key] = []
        for slab in self.plan.slabs(rank) if gathered(self.plan) and self.done else ():
            if slab in self.done:
                keys.append(self.add("regain", *slab, after=keys[-1:] or [created]))
        return keys

    def _needed(self, rank: int) -> list[Slab]:
        """Return the slabs that a rank reads: those to compute, and those with a band for other slabs."""
        slabs = self.plan.slabs(rank)
        return [slab for slab in slabs if slab not in self.done or self._takers(slab)] if self.done else slabs

    def _takers(self, slab: Slab) -> list[Slab]:
        return [taker for taker in self.plan.takers(slab) if taker not in self.done]

    def _former(self, slabs: Sequence[Slab], position: int, created: Key) -> Iterator[Key]:
        """Yield the keys that a read waits for: the previous read, and the last uses of the window that it fills."""
        yield self._read[slabs[position - 1]] if position else created
        if position >= self.plan.held:
            yield from self._last_uses(slabs[position - self.plan.held])

    def _last_uses(self, slab: Slab) -> Iterator[Key]:
        """Yield the last uses of a window; without prefetch, its result is also written before the next read."""
        if slab not in self.done:
            yield self._key("compute" if self.plan.prefetch else "write", *slab)
        else:
            yield from (self._key("give", *taker, *slab) for taker in self._takers(slab))

    def _key(self, verb: str, *args: int) -> Key:
        return (f"{verb}-{self.suffix}", *args)

    def _results(self, slabs: Sequence[Slab]) -> Iterator[Key]:
        """Compute and write the slabs of a rank in sequence."""
        written = RoundsAhead[list[Key]](RESULTS, [])
        computed: list[Key] = []
        for slab in slabs:
            if slab in self.done:
                continue
            given = [self._given[giver, slab] for giver in self.plan.givers(slab)]
            given += [self.add("fetch", *slab, rank, after=[self._read[slab]]) for rank in self.plan.fetchers(slab)]
            after = [self._given[slab, taker] for taker in self._takers(slab)]  # a kernel may change its block
            after += [*written.before, *computed]  # the plan counts a kernel's memory once per rank
            computed = [self.add("compute", *slab, buffers=(self._read[slab], *given), after=after)]
            written.add([self.add("write", *slab, buffers=(*computed,), after=written.last)])
            yield from written.last
