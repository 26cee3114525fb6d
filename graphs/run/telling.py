"""Reports of tasks: counts and warnings for the client, notes for later tasks on the scheduler."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from oocarrays.errors import MissingChunksWarning
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from distributed import Worker


def warn_of_missing(meter: Meter, name: str, *, so_far: bool = False) -> None:
    """Warn of the missing chunks that a meter has counted, once per meter; on a worker, warn on the client."""
    count = meter.to_warn()
    if not count:
        return
    least = "at least " if so_far else ""
    warn_person(f"{name} lacks {least}{count} chunk{'s' * (count > 1)}: taken for the fill value", MissingChunksWarning)


def warn_person(text: str, category: type[Warning]) -> None:
    """Warn the user; on a worker, warn on the client."""
    if this_worker():
        from distributed import warn

        warn(text, category)
    else:
        warnings.warn(text, category, stacklevel=2)


BEGUN = "begun"
"""Name of the note made when an array that other tasks read begins to be overwritten."""


def topic_of(suffix: str) -> str:
    """Return the name of the topic for a run id or key suffix."""
    return f"oocarrays-{suffix}"


def this_worker() -> Worker | None:
    """Return the worker that runs this task; None on threads."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def write_down(last: Any, name: str, value: Any) -> None:
    """Store a note on the scheduler, from a task on a worker, until the scheduler forgets the task ``last``."""
    _ask_scheduler("set_metadata", keys=[last, name], value=value)


def noted(last: Any, name: str) -> Any:
    """Return the note stored under a name; None if absent."""
    return _ask_scheduler("get_metadata", keys=[last, name], default=None)


def is_as_noted(last: Any, name: str, value: Any) -> bool:
    """Return whether a note equals ``value``; False if ``value`` is None, which stands for an unknown state."""
    return value is not None and value == noted(last, name)


def _ask_scheduler(what: str, **given: Any) -> Any:
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    return sync(worker.loop, getattr(worker.scheduler, what), **given)


def tell(topic: str, verb: str, args: tuple[int, ...], meter: Meter) -> None:
    """Report, on a worker, a task and the counts since the last report; on threads the counts stay in the meter."""
    worker = this_worker()
    if worker:
        worker.log_event(topic, {"verb": verb, "args": args, "worker": worker.address, **meter.take()})
