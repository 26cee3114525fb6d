"""Writes of a lazy array's blocks, in one graph with the tasks that compute them.

    aligned      create ──┬─► block ─► put ──┬─► finish                    written to target chunks directly
                          └─► block ─► put ──┘

    otherwise    make scratch ──┬─► block ─► put ──┬─► join ─► create ─► start pass ─► …    an ordinary rechunk
                                └─► block ─► put ──┘

The tasks of a block belong to the user: they are not pinned, and their memory is not counted in the plan. A put runs on
the worker of its block.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from dask.core import flatten
from dask.task_spec import Task, TaskRef

from oocarrays.graphs.lazy import in_scratch, straight
from oocarrays.graphs.lazy.in_scratch import BlocksInScratch
from oocarrays.graphs.lazy.straight import Straight, straight_content
from oocarrays.graphs.rechunk.program import Destination, Rechunk, rechunk_run
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.run import Run, call
from oocarrays.graphs.run.steps import Key
from oocarrays.plan.lazy.blocks import BlocksPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.leftovers import scratch_below

LazyRun = Run[Straight] | Run[Rechunk]


def plan_of(run: LazyRun) -> BlocksPlan:
    """Return the plan of a lazy array."""
    plan: BlocksPlan = run.program.plan if isinstance(run.program, Straight) else run.parts[0].program.plan
    return plan


def straight_run(plan: BlocksPlan, dtype: np.dtype, target: Destination) -> Run[Straight]:
    """Return a run that writes aligned blocks to the target."""
    return Run(Straight(plan=plan, dtype=dtype, target=target), straight_content(plan))


def staged_run(plan: BlocksPlan, like: ArrayFile, target: Destination) -> Run[Rechunk]:
    """Return the rechunk of blocks in scratch, with the run that writes them there as its part."""
    id = uuid.uuid4().hex[:12]
    writing = BlocksInScratch(plan=plan, like=like, below=str(scratch_below(target.scratch, id)), store=target.store)
    return rechunk_run(plan.rechunk, None, target, id=id, parts=[Run(writing, id=f"{id}-blocks")])


class BlockTasks:
    """Tasks that write one lazy array."""

    def __init__(self, run: LazyRun, addresses: Sequence[str], keys: Any) -> None:
        self.run, self.addresses, self.suffix = run, addresses, new_suffix()
        self.graph: dict[Any, Any] = {}
        plan = plan_of(run)
        self._indices = product(*(range(len(lengths)) for lengths in plan.blocks)) if plan.stored.nbytes else ()
        self._blocks = list(flatten(keys))

    def blocks(self, after: Iterable[Any]) -> Key:
        """Add the writes of the blocks; return the key of the task that waits for all of them."""
        if isinstance(self.run.program, Straight):
            builder = self.run.builder(self.addresses, after, self.suffix)
            created = builder.create(self.addresses)
            last = builder.add(straight.finish, after=self._puts(builder, straight.put, created), rank=0)
        else:
            builder = Builder(self.suffix, call, self.run.parts[0])
            created = builder.add(in_scratch.create, name="make scratch", after=after, rank=0)
            if self.addresses:
                builder.receive(created)
            last = builder.add(in_scratch.join, after=self._puts(builder, in_scratch.put, created), rank=0)
        self.graph |= builder.graph
        return last

    def rest(self, after: Iterable[Any]) -> Key | None:
        """Add the tasks that follow the last block, if any."""
        if isinstance(self.run.program, Straight):
            return None
        graph, last = self.run.graph(self.addresses, after, self.suffix)
        self.graph |= graph
        return last

    def _puts(self, builder: Builder, put: Callable[..., Any], created: Key) -> list[Any]:
        """Add a task for each block, under a key that is not a tuple, so that it is not pinned."""
        puts = []
        for index, block in zip(self._indices, self._blocks, strict=False):
            key: Any = "-".join(("put block", self.suffix, *map(str, index)))
            builder.graph[key] = Task(key, call, builder.shared, put, index, 1, TaskRef(block), TaskRef(created))
            puts.append(key)
        return puts or [created]


def build_graph(run: LazyRun, addresses: Sequence[str], tasks: Mapping[Any, Any], keys: Any) -> tuple[Any, Key]:
    """Return the graph of a lazy array, with the tasks that compute its blocks, and the key of the last task."""
    mine = BlockTasks(run, addresses, keys)
    written = mine.blocks(())
    last = mine.rest([written]) or written
    return {**tasks, **mine.graph}, last
