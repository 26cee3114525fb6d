"""Plan of writing a lazy array: each block is computed once and written separately.

    aligned     block ──► the target chunks that it contains
    otherwise   block ──► its own bytes of plain scratch chunks ──► rechunk ──► target

Blocks are aligned if each target chunk (or shard) has elements of one block only, so that each has one writer.
Otherwise each block writes its own bytes of plain scratch chunks, and an ordinary `RechunkPlan` reads them later. The
user's tasks account for the memory of a block; this plan counts the additional memory of writing it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import add

from oocarrays.errors import plural
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.overlap import BlockLengths, grouping, largest_block, singly
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases, Traffic
from oocarrays.plan.machine import within_budget
from oocarrays.plan.plan import (
    TAKEN,
    Alternative,
    Bytes,
    Facts,
    Holding,
    Memory,
    Resources,
    first_fitting,
    largest_memory,
    of_members,
    shared_facts,
)
from oocarrays.plan.rechunk.candidates import at_least
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk


def are_aligned(blocks: BlockLengths, grid: ChunkGrid) -> bool:
    axes = zip(blocks, grid.shape, grid.chunks, strict=True)
    return all(edge % c == 0 for lengths, n, c in axes for edge in accumulate(lengths) if edge != n)


def scratch_of(blocks: BlockLengths, shape: tuple[int, ...], itemsize: int) -> Stored:
    """Return a plain scratch array with chunks of the longest block in each axis, enlarged to avoid tiny files."""
    longest = tuple(max((*lengths, 1)) for lengths in blocks)
    chunks = tuple(max(c, 1) for c in at_least(longest, tuple(max(n, 1) for n in shape), itemsize))
    return Stored(grid=ChunkGrid.of(shape, chunks), itemsize=itemsize, local=True)


def plan_blocks(blocks: BlockLengths, target: Stored, resources: Resources, *, straight: bool = True) -> BlocksPlan:
    """Choose the way of writing the blocks of a lazy array to the chunks of ``target`` within a budget."""
    aligned = target.nbytes == 0 or (straight and are_aligned(blocks, target.grid))
    stored = target if aligned else scratch_of(blocks, target.grid.shape, target.itemsize)
    still = RechunkPlan(source=stored, target=target, budget=resources.budget, processes=resources.workers)
    writing = BlocksPlan(blocks=blocks, stored=stored, aligned=aligned, threads=resources.threads, rechunk=still)

    def moves() -> RechunkPlan:
        return still if aligned else plan_rechunk(stored, target, resources)

    def writes() -> RechunkPlan:
        return first_fitting([writing], resources.budget, "writing the blocks")[0].rechunk

    _, rechunk = within_budget([writes, moves])
    return replace(writing, rechunk=rechunk)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlocksPlan(Holding):
    """Frozen plan of writing a lazy array."""

    blocks: BlockLengths
    """Lengths of the blocks along each axis, in elements."""
    stored: Stored
    """Array that receives the blocks: the target if they are aligned, otherwise a scratch array."""
    aligned: bool
    """Whether blocks are written directly to the target."""
    threads: int
    """Maximum number of blocks written concurrently in a process."""
    rechunk: RechunkPlan
    """Rechunk from the scratch array to the target; empty if blocks are aligned."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.grid.shape

    @property
    def count(self) -> int:
        return math.prod(map(len, self.blocks))

    @property
    def block_bytes(self) -> int:
        """Bytes of the largest block: held by the user's own tasks, and not in `peak_bytes`."""
        return largest_block(self.blocks) * self.stored.itemsize

    @property
    def memory(self) -> Memory:
        """Peak memory of a process, without the user's own tasks."""
        stored, of_block = self.stored, min(self.block_bytes, self.stored.chunk_bytes)  # beside the block itself
        if self.aligned:
            of_block = stored.chunk_bytes + stored.encode_workspace + stored.behind_workspace
        writing = Memory.of(chunks=of_block * min(self.threads, self.count))
        return largest_memory(writing, self.rechunk.memory)

    @property
    def scratch_bytes(self) -> int:
        mine = 0 if self.aligned else self.stored.grid.count * self.stored.chunk_bytes
        return mine + self.rechunk.scratch_bytes

    @property
    def pieces(self) -> int:
        """Number of intersections of blocks with chunks; each is one visit to a stored chunk."""
        axes = zip(self.shape, self.blocks, self.stored.grid.chunks, strict=True)
        return math.prod(grouping(range(n), blocks, c, singly(len(blocks))).visits for n, blocks, c in axes)

    @property
    def traffic(self) -> Traffic:
        """Traffic of all passes together; tasks exclude the user's own."""
        nbytes = self.stored.nbytes
        mine = Traffic(
            pieces=self.pieces,
            write_requests=self.pieces,
            written_bytes=nbytes,
            encoded_bytes=nbytes if self.stored.coded else 0,
            tasks=self.count + 2,
        )
        return mine + self.rechunk.traffic

    def facts(self) -> Facts:
        ends = "straight to target" if self.aligned else "through scratch"
        return [
            ("array", (self.shape, ", ", Bytes(self.stored.nbytes))),
            ("blocks", (f"{self.count}, each computed once; at most ", Bytes(self.block_bytes), " each")),
            ("written", (f"{ends} chunks of ", self.stored.grid.chunks, f": {self.pieces} pieces")),
            ("target chunks", (self.rechunk.target.grid.chunks,)),
            *shared_facts(self, scratch="", peak_memory=", ours", predicted=" after the blocks"),
            ("blocks' tasks", (f"need memory of their own, and a block on each of {self.threads} threads",)),
        ]

    @property
    def budget(self) -> int:
        return self.rechunk.budget

    @property
    def processes(self) -> int | None:
        return self.rechunk.processes

    @property
    def ranks(self) -> int:
        return self.rechunk.ranks

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        """Ways from scratch to the target; a single one if blocks are written directly."""
        straight = Alternative(name="straight", seconds=0.0, peak_bytes=self.peak_bytes, reason=TAKEN)
        return (straight,) if self.aligned else self.rechunk.alternatives

    @property
    def phases(self) -> Phases:
        """Predicted seconds of the work after the blocks, by phase; computing the blocks is not included."""
        return self.rechunk.phases

    @property
    def seconds(self) -> float:
        """Predicted seconds of the work after the blocks."""
        return self.rechunk.seconds

    def __repr__(self) -> str:
        where = "straight" if self.aligned else f"through scratch chunks {self.stored.grid.chunks}"
        chunks, peak = self.rechunk.target.grid.chunks, self.peak_bytes / 2**20
        blocks = plural(self.count, "block")
        return f"<oocarrays.BlocksPlan {self.shape} in {blocks} → {chunks}, {where}, peak {peak:.1f} MiB>"

    def section(self, index: tuple[int, ...]) -> Section:
        lower = tuple(sum(lengths[:i]) for i, lengths in zip(index, self.blocks, strict=True))
        sizes = (lengths[i] for i, lengths in zip(index, self.blocks, strict=True))
        return Section(lower, tuple(l + n for l, n in zip(lower, sizes, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan(Holding):
    """Frozen plan of writing the lazy arrays of a dataset: all blocks first, then one array after the other."""

    arrays: tuple[tuple[str, BlocksPlan], ...]
    budget: int
    """Bytes that each process may hold above its idle level, excluding the blocks' own tasks."""
    processes: int | None
    """Workers of the target cluster; None for threads of one process."""

    def facts(self) -> Facts:
        ways = {True: "straight", False: "through scratch"}
        return [
            *(
                (name, (f"{plan.count} blocks → chunks ", plan.rechunk.target.grid.chunks, f", {ways[plan.aligned]}"))
                for name, plan in self.arrays
            ),
            *shared_facts(self, scratch="", peak_memory=", ours", predicted=" after the blocks"),
            ("blocks' tasks", (f"need memory of their own, and a block on each of {self.threads} threads",)),
        ]

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        return of_members(self.arrays)

    @property
    def passes(self) -> tuple[Pass, ...]:
        return tuple(step for _, plan in self.arrays for step in plan.rechunk.passes)

    @property
    def ranks(self) -> int:
        return max((plan.ranks for _, plan in self.arrays), default=1)

    @property
    def threads(self) -> int:
        return max((plan.threads for _, plan in self.arrays), default=1)

    @property
    def memory(self) -> Memory:
        return largest_memory(*(plan.memory for _, plan in self.arrays))

    @property
    def scratch_bytes(self) -> int:
        return sum(plan.scratch_bytes for _, plan in self.arrays)

    @property
    def traffic(self) -> Traffic:
        return reduce(add, (plan.traffic for _, plan in self.arrays), Traffic(tasks=2))

    @property
    def phases(self) -> Phases:
        return reduce(add, (plan.phases for _, plan in self.arrays), Phases())

    @property
    def seconds(self) -> float:
        return sum(plan.seconds for _, plan in self.arrays)
