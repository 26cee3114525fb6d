"""Tasks that read what others overwrite, on workers that may be lost: what is read again too late is never written.

    read 0 ─► add ─► write 0            a worker is lost, and with it what these tasks had made:
                                        read 0 after write 0 has been done      write 0 finds that, and writes nothing
                                        read 0 after write 0 has begun          it is as it was, or the run fails

A write says to the scheduler that it begins, and that it is done; who has read looks afterwards whether one had begun,
and if so compares with the checksum of what was read in time.
A scheduler keeps such notes under the key of the last task, and forgets them with it: a graph may be computed again.
Threads of one process are not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask.task_spec import GraphNode, Task

from oocarrays.errors import RunError
from oocarrays.graphs.run.telling import BEGUN, is_as_noted, noted, this_worker, write_down
from oocarrays.storage.journal.receipts import contents

Key = Any
DONE = "done"


class LastTask(Task):
    """A task that keeps its key, for others have notes under it: nothing that optimises a graph may fuse it."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        """Whether it stays by itself."""
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A function that writes, and writes nothing where it has been done before."""

    do: Callable[..., None]
    """Writes."""
    last: Key
    """Of the last task."""
    name: str
    """Of this write among those before it."""

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        if this_worker() is None:
            self.do(*args, **kwargs)
        elif noted(self.last, self.name) != DONE:
            write_down(self.last, self.name, BEGUN)
            self.do(*args, **kwargs)
            write_down(self.last, self.name, DONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InTime:
    """A function that reads, and fails where that was overwritten and somebody may still want it."""

    do: Callable[..., Any]
    """Reads."""
    last: Key
    """Of the last task."""
    name: str
    """Of this read among those before it."""
    writes: tuple[str, ...]
    """Names of those that overwrite any of what is read."""
    alone: bool
    """Whether nobody else takes what is made of it."""
    target: str
    """What is overwritten."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        read = self.do(*args, **kwargs)
        if this_worker() is None:
            return read
        states, found = {noted(self.last, name) for name in self.writes}, contents(read)
        if states == {None}:
            write_down(self.last, self.name, found)
        elif not (self.alone and states == {DONE}) and not is_as_noted(self.last, self.name, found):
            raise RunError(
                f"{self.target} holds old and new elements: a worker was lost while it was overwritten with what is "
                "computed of itself, and what was lost cannot be read again; write to another array instead"
            )
        return read


def in_time(
    graph: Mapping[Key, Any],
    last: Key,
    overwritten: Mapping[Key, set[Key]],
    shared: set[Key],
    target: Callable[..., str],
) -> dict[Key, Any]:
    """A graph of which no task is done again with what was read too late; its keys are its own, but for the last."""
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
    """A task whose function is another one around it; what only lists others does nothing itself."""
    if type(task) is not Task:
        return task
    return Task(task.key, made(do=task.func), *task.args, _data_producer=task.data_producer, **task.kwargs)


def _renamed(graph: Mapping[Key, Any], last: Key) -> dict[Key, Any]:
    """The same tasks by keys that no other graph has: Dask does a task once that several graphs have."""
    names = {key: _own(key, last) for key in graph if key != last}
    return {names.get(key, key): _renamed_node(node, names, names.get(key, key)) for key, node in graph.items()}


def _own(key: Key, last: Key) -> Key:
    return (f"{key[0]}-{last}", *key[1:]) if isinstance(key, tuple) else f"{key}-{last}"


def _renamed_node(node: Any, names: dict[Key, Key], key: Key) -> Any:
    return node.substitute(names, key=key) if isinstance(node, GraphNode) else node
