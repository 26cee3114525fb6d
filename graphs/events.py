"""Events of a run: one protocol for the log, the progress bar, the dashboard, recordings and counters.

client      a job begins, ends or fails                              ─► on_begin, on_end
worker      a task is done: {verb, args, worker, new counts}  ─┐
scheduler   ranks move: {moved: `Move`}; the last task     ├─ a topic ─► on_task, on_moved, on_end
            of a graph is done: {ended}                       ─┘
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from oocarrays.errors import MissingChunksWarning, plural
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from distributed import Client, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Ranks moved to another worker after theirs was lost."""

    ranks: tuple[int, ...]
    """All ranks of the lost worker."""
    lost: str
    """Address of the lost worker."""
    worker: str
    """Address of the ranks' new worker."""


def this_worker() -> Worker | None:
    """Return the worker that runs this task; None on threads."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def topic_of(suffix: str) -> str:
    """Return the name of the topic for a run id or key suffix."""
    return f"oocarrays-{suffix}"


class Events:
    """Listener of runs; by default it ignores every event. Missing chunks are among the counts of tasks."""

    def on_begin(self, job: Any) -> None:
        """Begin with a job that is about to run."""

    def on_task(self, counts: Mapping[str, Any]) -> None:
        """Take the counts of a task on a worker, since that worker's last report; threads share the run's meter."""

    def on_moved(self, move: Move) -> None:
        """Take note of ranks that moved to another worker."""

    def on_end(self, run: Any, error: BaseException | None) -> None:
        """End with a job, and its error if it failed; on a cluster, with the key suffix of a graph that is done."""


LISTENERS: list[Events] = []
"""Listeners of every job of this process."""


@contextmanager
def heard(job: Any, listeners: Sequence[Events]) -> Iterator[None]:
    """Report the begin and the end of a job to listeners, at the end in reverse order."""
    for each in listeners:
        each.on_begin(job)
    failure: BaseException | None = None
    try:
        yield
    except BaseException as error:
        failure = error
        raise
    finally:
        for each in reversed(listeners):
            each.on_end(job, failure)


class Counting(Events):
    """Listener that adds the counts of workers to a meter, as long as there is one."""

    def __init__(self, meter: Callable[[], Meter | None]) -> None:
        self.meter = meter

    def on_task(self, counts: Mapping[str, Any]) -> None:
        if (meter := self.meter()) is not None:
            meter.put(counts)


def tell(topic: str, verb: str, args: tuple[int, ...], meter: Meter) -> None:
    """Report, on a worker, a task and the counts since the last report; on threads the counts stay in the meter."""
    worker = this_worker()
    if worker:
        worker.log_event(topic, {"verb": verb, "args": args, "worker": worker.address, **meter.take()})


def deliver(listener: Events, event: Mapping[str, Any]) -> None:
    """Report an entry of a scheduler's event log to a listener."""
    if "moved" in event:
        listener.on_moved(Move(**event["moved"]))
    elif "ended" in event:
        listener.on_end(event["ended"], None)
    else:
        listener.on_task(event)


def listen(client: Client, topic: str, listener: Events) -> None:
    """Report a topic's events to a listener, which the client keeps for ever: it must hold no run and no array."""
    client.subscribe_topic(topic, partial(_arrived, listener))


def _arrived(listener: Events, event: tuple[float, Mapping[str, Any]]) -> None:
    deliver(listener, event[1])


def warn_of_missing(meter: Meter, name: str, *, so_far: bool = False) -> None:
    """Warn of the missing chunks that a meter has counted, once per meter; on a worker, warn on the client."""
    count = meter.to_warn()
    if not count:
        return
    least = "at least " if so_far else ""
    warn_person(f"{name} lacks {least}{plural(count, 'chunk')}: read as the fill value", MissingChunksWarning)


def warn_person(text: str, category: type[Warning]) -> None:
    """Warn the user; on a worker, warn on the client."""
    if this_worker():
        from distributed import warn

        warn(text, category)
    else:
        warnings.warn(text, category, stacklevel=2)


BEGUN = "begun"
"""Name of the note made when an array that other tasks read begins to be overwritten."""


def write_down(last: Any, name: str, value: Any) -> None:
    """Store a note on the scheduler, from a task on a worker, until the scheduler forgets the task ``last``."""
    ask_scheduler("set_metadata", keys=[last, name], value=value)


def noted(last: Any, name: str) -> Any:
    """Return the note stored under a name; None if absent."""
    return ask_scheduler("get_metadata", keys=[last, name], default=None)


def is_as_noted(last: Any, name: str, value: Any) -> bool:
    """Return whether a note equals ``value``; False if ``value`` is None, which stands for an unknown state."""
    return value is not None and value == noted(last, name)


def ask_scheduler(what: str, **given: Any) -> Any:
    """Call a method of the scheduler, from a task on a worker."""
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    return sync(worker.loop, getattr(worker.scheduler, what), **given)
