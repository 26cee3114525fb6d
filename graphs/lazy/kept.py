"""Verification of blocks kept by workers and read from an overwritten target: a recomputed block may have changed.

    kept 0 ─► note 0 ──┬─► all noted ──────┐
    kept 1 ─► note 1 ──┘                   ├─► write 0        a worker is lost, and kept 0 with it:
    kept 0 ─► same 0 ─► add ───────────────┘                  its checksum is the noted one, or the run fails

The graph does not contain the tasks of a kept block: the scheduler determines whether they read a target.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask.task_spec import DataNode, GraphNode, Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.lazy.in_time import Key
from oocarrays.graphs.lazy.read_first import names_read
from oocarrays.graphs.run.telling import noted, this_worker, write_down
from oocarrays.storage.journal.receipts import contents


@dataclass(frozen=True, slots=True, kw_only=True)
class Same:
    """Function that returns a kept block, and raises if the block has changed since before the first write."""

    last: Key
    """Key of the last task; notes are kept under it."""
    name: str
    """Name of this block among the kept ones."""
    target: str
    """Name of the overwritten array."""

    def __call__(self, block: Any) -> Any:
        if this_worker() is None:
            return block
        found, before = [contents(block)], noted(self.last, self.name)
        if before is None:
            write_down(self.last, self.name, found)
        elif list(before) != found:
            raise RunError(
                f"{self.target} holds old and new elements: a worker was lost while it was overwritten, and a block "
                "that it kept cannot be read again; write to another array instead"
            )
        return block


def note(same: Same, block: Any) -> None:
    """Note the checksum of a block, before anything is written."""
    same(block)


def noted_all(*notes: None) -> None:
    """Mark all kept blocks as noted."""


def kept_blocks(graph: Mapping[Key, Any], targets: Collection[str]) -> list[Key]:
    """Return the keys of futures in a graph that were computed from any of the targets."""
    futures = {key: found for key, node in graph.items() if (found := _future(node)) is not None}
    if not futures:
        return []
    client = next(iter(futures.values())).client
    if client is None or client.asynchronous:
        return list(futures)
    asked = [future.key for future in futures.values()]
    reading = client.run_on_scheduler(reads_of_kept, keys=asked, targets=tuple(targets))
    return [key for key, future in futures.items() if future.key in reading]


def without_kept(graph: Mapping[Key, Any]) -> dict[Key, Any]:
    """Return the graph for inspection, with futures as plain data."""
    return {key: node if _future(node) is None else DataNode(key, None) for key, node in graph.items()}


def _future(node: Any) -> Any:
    thing = node.value if isinstance(node, DataNode) else node
    return thing if type(thing).__name__ == "Future" and hasattr(thing, "client") else None


def reads_of_kept(keys: Sequence[Key], targets: Sequence[str], dask_scheduler: Any) -> set[Key]:
    """Return, on the scheduler, the keys computed from reads of the target arrays."""
    reads: dict[Key, bool] = {}
    for key in keys:
        stack = [dask_scheduler.tasks[key]] if key in dask_scheduler.tasks else []
        while stack:
            state = stack[-1]
            left = [each for each in state.dependencies if each.key not in reads]
            if left:
                stack.extend(left)
                continue
            stack.pop()
            of_others = any(reads[each.key] for each in state.dependencies)
            reads[state.key] = of_others or names_read(state.run_spec, targets)
    return {key for key in keys if reads.get(key)}


def with_kept_noted(
    graph: Mapping[Key, Any], kept: Sequence[Key], last: Key, target: str
) -> tuple[dict[Key, Any], dict[Key, Key], Key]:
    """Return the tasks with verified blocks, the new keys of kept blocks, and the key that writes wait for."""
    same = {key: Same(last=last, name=f"kept {number}", target=target) for number, key in enumerate(kept)}
    names: dict[Key, Any] = {key: (f"same-{last}", number) for number, key in enumerate(kept)}
    made = {
        key: node if key in names or not isinstance(node, GraphNode) else node.substitute(names)
        for key, node in graph.items()
    }
    notes: list[Key] = []
    for number, key in enumerate(kept):
        notes.append((f"note-{last}", number))
        made[notes[-1]] = Task(notes[-1], note, same[key], TaskRef(key))
        made[names[key]] = Task(names[key], same[key], TaskRef(key))
    barrier: Key = f"noted-{last}"
    made[barrier] = Task(barrier, noted_all, *map(TaskRef, notes))
    return made, names, barrier
