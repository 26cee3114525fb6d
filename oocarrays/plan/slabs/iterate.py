"""Iterated stencils: passes over the disk, in each of which a slab is swept several times before it is written.

    source ─► k sweeps ─► scratch/0 ─► k sweeps ─► scratch/1 ─► … ─► k sweeps ─► target
                             └── removed when the next one is whole

A pass reads and writes the array once; k sweeps in it cost a halo of k · depth, whose rows two slabs sweep both. The
more sweeps are fused, the less goes through the disk, and the more is swept twice: the cost model finds the least sum.
Thakur 1995, section 5.4, is the sweep that is written each time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain, repeat
from typing import Any, Literal

from oocarrays.errors import BudgetError, InputError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.boundary import Boundary
from oocarrays.plan.cost import Costs, Traffic
from oocarrays.plan.slabs.cuts import WORKSPACE, checked, plan_slabs
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.plan.slabs.sweeps import Sweeps, fitting_tile

SWEEP_COPIES = 1.5
"""Copies of an array that one core makes in the time of one sweep of it in cache: a guess, for any kernel."""
NOTICED = 8
"""Passes, at least, in which a residual that is waited for is looked at, where there are so many sweeps."""
MOST_FUSED = 128
"""Sweeps that are fused at most, where nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPass:
    """One pass: so many sweeps of every slab."""

    slabs: SlabPlan
    """What is read, held and written: the halo is that of all its sweeps."""
    sweeps: Sweeps
    """What is made of a slab."""
    threads: int
    """Tiles of a slab that are swept at one time: where there are fewer ranks than processors."""
    together: bool
    """Whether several threads of a process sweep at the same time."""

    @property
    def nbytes(self) -> int:
        """Bytes, decoded, that it writes."""
        return self.slabs.targets[0].nbytes

    def seconds(self, costs: Costs) -> float:
        """Predicted seconds: of disk or processors, whichever is slower, and one slab's of the other."""
        slabs, sweeps = self.slabs, self.sweeps
        source, target = slabs.sources[0], slabs.targets[0]
        disk = slabs.read_bytes * costs.stored_ratio(source) / costs.read_bandwidth
        disk += self.nbytes * costs.stored_ratio(target) / costs.write_bandwidth
        count = max(sweeps.count, 1)
        _, cost = fitting_tile(sweeps.shape, count, sweeps.depth, source.itemsize, together=self.together)
        depth = sweeps.depth[slabs.axis]
        twice = 1 + max(sweeps.count - 1, 0) * depth / min(slabs.height, max(slabs.shape[slabs.axis], 1))
        copies = 2 + sweeps.count * cost * twice * SWEEP_COPIES
        compute = self.nbytes * copies / costs.copy_bandwidth / min(slabs.ranks * self.threads, costs.cores)
        turns = max(slabs.count // slabs.ranks, 1)
        return max(disk, compute) + min(disk, compute) / turns + 4 * slabs.count * costs.task_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class IteratePlan:
    """How an array is swept many times."""

    fuse: int
    """Sweeps of one pass, at most."""
    passes: tuple[SweptPass, ...]
    """One after the other; each reads what the one before has written."""
    copy: SweptPass | None
    """How the target is written where the residual is small enough before the last pass; None where none is wanted."""
    seconds: float
    """Predicted seconds of all passes."""

    @property
    def sweeps(self) -> int:
        """Sweeps in all, at most."""
        return sum(each.sweeps.count for each in self.passes)

    @property
    def ranks(self) -> int:
        """Ranks of a pass."""
        return self.passes[0].slabs.ranks

    @property
    def budget(self) -> int:
        """Bytes that each process may hold."""
        return self.passes[0].slabs.budget

    @property
    def traffic(self) -> Traffic:
        """Requests and bytes of all passes, without faults."""
        each = (repeat(step.slabs.traffic, count) for step, count in alike(self.passes))
        return sum(chain.from_iterable(each), Traffic())

    @property
    def read_bytes(self) -> int:
        """Bytes, decoded, that all passes read."""
        return sum(count * each.slabs.read_bytes for each, count in alike(self.passes))

    @property
    def written_bytes(self) -> int:
        """Bytes, decoded, that all passes write."""
        return sum(each.nbytes for each in self.passes)

    @property
    def peak_bytes(self) -> int:
        """Bytes that one process holds at one time, at most."""
        copy = [(self.copy, 1)] if self.copy else []
        return max(each.slabs.peak_bytes for each, _ in [*alike(self.passes), *copy])

    @property
    def scratch_bytes(self) -> int:
        """Bytes on the disk beside source and target, at most."""
        return min(len(self.passes) - 1, 2) * self.passes[0].nbytes


def alike(passes: Iterable[SweptPass]) -> list[tuple[SweptPass, int]]:
    """Different passes, and how often each comes: most are the same object."""
    counts = Counter(map(id, passes))
    return [(each, counts[number]) for number, each in {id(each): each for each in passes}.items()]


def plan_iterate(
    source: Stored,
    scratch: Stored,
    target: Stored,
    *,
    sweeps: int,
    budget: int,
    costs: Costs,
    depth: int | Sequence[int] = 1,
    boundary: Boundary = "none",
    fuse: int | Literal["auto"] = "auto",
    watched: bool = False,
    threads: int = 1,
    workspace: int | float | None = None,
    axis: int | None = None,
    height: int | None = None,
    **how: Any,
) -> IteratePlan:
    """Choose how many sweeps are fused, and the slabs.

    Parameters
    ----------
    source, scratch, target : Stored
        Of one shape.
    sweeps : int
        How many there are in all, at most.
    budget : int
        Bytes that each process may hold.
    costs : Costs
        What the machine takes.
    fuse : int or str
        Sweeps of one pass, at most; ``"auto"``: those with which all takes least.
    watched : bool
        Whether a residual is looked at after each pass: auto then leaves at least `NOTICED` passes.
    threads : int
        Processors of a process: what its ranks leave idle, they use for tiles.
    workspace : int or float
        What the kernel holds beside its block and its result: bytes, or as a float multiples of its block.
    axis, height, how
        As in `plan_slabs`.

    Raises
    ------
    InputError
        Where something cannot be.
    BudgetError
        Where no slab fits, or with a number that is asked for none.
    """
    shape = source.grid.shape
    depths = checked(depth, shape, how.get("prefetch", 1), axis, height)
    _check_counts(sweeps, fuse)
    pass_of = _Passes(
        source=source, scratch=scratch, target=target, depth=depths, boundary=boundary, workspace=workspace,
        watched=watched, threads=threads, budget=budget, costs=costs, axis=axis, height=height, how=how,
    )  # fmt: skip
    if fuse != "auto":
        return pass_of.plan(sweeps, fuse)
    plans, refused = [], None
    for count in _candidates(sweeps, max(sweeps // NOTICED, 1) if watched else sweeps):
        try:
            plans.append(pass_of.plan(sweeps, count))
        except BudgetError as error:
            refused = refused or error
            break
    if not plans:
        assert refused is not None, "there is a candidate"
        raise refused
    return min(plans, key=lambda plan: plan.seconds)


def _check_counts(sweeps: int, fuse: Any) -> None:
    if not isinstance(sweeps, int) or isinstance(sweeps, bool) or sweeps < 0:
        raise InputError(f"sweeps={sweeps!r} is not a whole number from 0 on")
    if fuse != "auto" and (not isinstance(fuse, int) or isinstance(fuse, bool) or fuse < 1):
        raise InputError(f"fuse={fuse!r} is not 'auto' or a whole number from 1 on")


def _candidates(sweeps: int, most: int) -> Iterator[int]:
    """Numbers of sweeps of a pass that are looked at: not all of the larger ones.

    >>> list(_candidates(40, 40)), list(_candidates(0, 0))
    ([1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 20, 40], [1])
    """
    last = 0
    for fuse in range(1, min(max(most, 1), MOST_FUSED) + 1):
        count = ceil_div(sweeps, max(ceil_div(sweeps, fuse), 1))
        if fuse == 1 or (count > last and (count <= 8 or 5 * count >= 6 * last)):
            yield max(count, 1)
            last = count


def shares(sweeps: int, fuse: int) -> list[int]:
    """Sweeps of each pass: as even as can be.

    >>> shares(10, 4), shares(0, 4)
    ([3, 3, 4], [0])
    """
    passes = max(ceil_div(sweeps, fuse), 1)
    return [sweeps * (i + 1) // passes - sweeps * i // passes for i in range(passes)]


@dataclass(frozen=True, kw_only=True)
class _Passes:
    """Passes of any number of sweeps between the source, scratch and the target."""

    source: Stored
    scratch: Stored
    target: Stored
    depth: tuple[int, ...]
    boundary: Boundary
    workspace: int | float | None
    watched: bool
    threads: int
    budget: int
    costs: Costs
    axis: int | None
    height: int | None
    how: dict[str, Any]

    def plan(self, sweeps: int, fuse: int) -> IteratePlan:
        """All passes, of slabs of one height: the best for the one that holds most."""
        counts = shares(sweeps, fuse)
        most = self._best(max(counts)).slabs

        @cache
        def one(count: int, first: bool, last: bool) -> SweptPass:
            ends = self.source if first else self.scratch, self.target if last else self.scratch
            above = self.how.get("past_cache_above", math.inf) / len(counts)  # the cache takes what all of them write
            same: Any = {"axis": most.axis, "height": most.height, "edges": most.edges}
            return self._pass(count, *ends, past_cache_above=above, **same)

        passes = tuple(one(n, i == 0, i == len(counts) - 1) for i, n in enumerate(counts))
        return IteratePlan(
            fuse=max(*counts, 1),
            passes=passes,
            copy=one(0, False, True) if self.watched and len(passes) > 1 else None,
            seconds=sum(count * each.seconds(self.costs) for each, count in alike(passes)),
        )

    def _best(self, count: int) -> SweptPass:
        """Slabs twice as tall again and again, where a higher halo is worth it."""
        best = self._pass(count, self.source, self.target, axis=self.axis, height=self.height)
        while self.height is None and best.slabs.height < max(best.slabs.shape[best.slabs.axis], 1):
            taller = {"axis": best.slabs.axis, "height": 2 * best.slabs.height, "ranks": best.slabs.ranks}
            try:
                other = self._pass(count, self.source, self.target, **taller)
            except BudgetError:
                break
            if other.slabs.ranks < best.slabs.ranks or other.seconds(self.costs) >= best.seconds(self.costs):
                break
            best = other
        return best

    def _pass(self, count: int, source: Stored, target: Stored, **cut: Any) -> SweptPass:
        """One pass: where threads sweep together and what suits them is too large, in blocks as for one thread."""
        if self.threads > 1:
            with suppress(BudgetError):
                return self._cut(count, source, target, together=True, **cut)
        return self._cut(count, source, target, together=False, **cut)

    def _cut(
        self, count: int, source: Stored, target: Stored, threads: int = 1, *, together: bool, **cut: Any
    ) -> SweptPass:
        shape, itemsize = source.grid.shape, source.itemsize
        sweeps = Sweeps.of(shape, count, self.depth, self.boundary, itemsize, together=together)
        slabs = plan_slabs(
            [source],
            [target],
            budget=self.budget,
            depth=sweeps.reach,
            boundary="periodic" if self.boundary == "periodic" else "none",
            workspace=threads * self._held(sweeps, source.itemsize),
            **(self.how | cut),
        )
        idle = self.threads // ceil_div(slabs.ranks, slabs.processes)
        if idle > threads == 1:
            with suppress(BudgetError):  # where they do not fit, they stay idle
                same = cut | {"axis": slabs.axis, "height": slabs.height, "edges": slabs.edges}
                return self._cut(count, source, target, idle, together=together, **same)
        return SweptPass(slabs=slabs, sweeps=sweeps, threads=threads, together=together)

    def _held(self, sweeps: Sweeps, itemsize: int) -> int:
        """Bytes that sweeping a tile holds: buffers, a kernel's result and its workspace, residuals."""
        block = sweeps.block_bytes(itemsize)
        multiple = WORKSPACE if self.workspace is None else self.workspace
        kernel = multiple if isinstance(multiple, int) else int(multiple * block)
        return sweeps.held_bytes(itemsize) + kernel + (1 + 3 * self.watched) * block
