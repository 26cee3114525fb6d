"""Verification of tasks that read an overwritten array, on workers that may be lost: late reads are never written.

    read 0 ─► add ─► write 0            a worker is lost, with the results of these tasks:
                                        read 0 after write 0 has been done      write 0 detects it, and writes nothing
                                        read 0 after write 0 has begun          the data is unchanged, or the run fails

A write reports its beginning and end to the scheduler. A read checks afterwards whether a write had begun; if so, it
compares its data with the checksum of the earlier read. A scheduler keeps such notes under the key of the last task and
forgets them with it, so a graph can be computed again. Threads of one process are not lost.

    kept 0 ─► note 0 ──┬─► all noted ──────┐
    kept 1 ─► note 1 ──┘                   ├─► write 0        a worker is lost, and kept 0 with it:
    kept 0 ─► same 0 ─► add ───────────────┘                  its checksum is the noted one, or the run fails

Blocks that workers keep may have been computed from the target. The graph does not contain their tasks: the scheduler
determines whether they read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask.task_spec import DataNode, GraphNode, Task, TaskRef

from oocarrays.errors import RunError
from oocarrays.graphs.events import BEGUN, is_as_noted, noted, this_worker, write_down
from oocarrays.graphs.lazy.read_first import names_read
from oocarrays.graphs.run.builder import itself
from oocarrays.storage.journal.receipts import contents

Key = Any
DONE = "done"


class LastTask(Task):
    """Task that keeps its key during graph optimisation, since notes are kept under it."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        """Return True, so that the task is not fused."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """Function that writes once, and does nothing if the write is already done."""

    do: Callable[..., None]
    """Function that writes."""
    last: Key
    """Key of the last task."""
    name: str
    """Name of this write."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if this_worker() is None:
            self.do(*args, **kwargs)
        elif noted(self.last, self.name) != DONE:
            write_down(self.last, self.name, BEGUN)
            self.do(*args, **kwargs)
            write_down(self.last, self.name, DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """Function that reads, and raises if its data was overwritten, unlike what it first read, and may be needed."""

    do: Callable[..., Any]
    """Function that reads."""
    last: Key
    """Key of the last task."""
    name: str
    """Name of this read."""
    target: str
    """Name of the overwritten array."""
    writes: tuple[str, ...] = ()
    """Names of the writes that overwrite any of the data; empty for a block that a worker keeps: any may."""
    alone: bool = False
    """Whether only these writes need the data."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        read = self.do(*args, **kwargs)
        if this_worker() is None:
            return read
        states, found = {noted(self.last, name) for name in self.writes or (self.name,)}, contents(read)
        if states == {None}:
            write_down(self.last, self.name, found)
        elif not (self.alone and states == {DONE}) and not is_as_noted(self.last, self.name, found):
            raise RunError(
                f"{self.target} holds old and new elements: a worker was lost while it was overwritten with what is "
                "computed from itself, and the lost values cannot be read again; write to another array instead"
            )
        return read


def in_time(
    graph: Mapping[Key, Any],
    last: Key,
    overwritten: Mapping[Key, set[Key]],
    shared: set[Key],
    target: Callable[..., str],
) -> dict[Key, Any]:
    """Return a graph without results from late reads; all keys but the last are new."""
    made = dict(graph)
    for key, writes in overwritten.items():
        reads = partial(
            InTime,
            last=last,
            name=f"read {key}",
            writes=tuple(map(_name, sorted(writes))),
            alone=key not in shared,
            target=target(min(writes)),
        )
        made[key] = _around(graph[key], reads)
    for key in graph[last].dependencies:
        made[key] = _around(graph[key], partial(Once, last=last, name=_name(key)))
    made[last] = LastTask(last, graph[last].func, *graph[last].args)
    return _renamed(made, last)


def _name(key: Key) -> str:
    return "-".join(map(str, key[1:]))


def _around(task: Task, made: Callable[..., Callable[..., Any]]) -> Task:
    """Return a task with its function wrapped; leave nodes that only list others."""
    if type(task) is not Task:
        return task
    return Task(task.key, made(do=task.func), *task.args, _data_producer=task.data_producer, **task.kwargs)


def _renamed(graph: Mapping[Key, Any], last: Key) -> dict[Key, Any]:
    """Return the tasks under keys unique to this graph, as Dask runs a key shared by several graphs only once."""
    names = {key: _own(key, last) for key in graph if key != last}
    return {
        (own := names.get(key, key)): node.substitute(names, key=own) if isinstance(node, GraphNode) else node
        for key, node in graph.items()
    }


def _own(key: Key, last: Key) -> Key:
    return (f"{key[0]}-{last}", *key[1:]) if isinstance(key, tuple) else f"{key}-{last}"


# ---------------------------------------------------------------------- blocks that workers keep


def note(same: InTime, block: Any) -> None:
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
    same = {key: InTime(do=itself, last=last, name=f"kept {number}", target=target) for number, key in enumerate(kept)}
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
