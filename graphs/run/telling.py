"""What workers tell of their work, and who hears it: one way for jobs and for arrays.

worker      tell    ─► {verb, args, worker, what was counted since}   ─┐
scheduler   Pins    ─► {moved, lost, worker}, {ended}                 ─┴─ a topic ─► listen      client
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from oocarrays.errors import MissingChunksWarning
from oocarrays.graphs.cluster.placement import Move
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from distributed import Client, Worker


def warn_of_missing(meter: Meter, name: str, *, so_far: bool = False) -> None:
    """Warn of the chunks that have been counted for it, once for a meter; on a worker, its client is told."""
    count = meter.to_warn()
    if not count:
        return
    least = "at least " if so_far else ""
    warn_person(f"{name} lacks {least}{count} chunk{'s' * (count > 1)}: taken for the fill value", MissingChunksWarning)


def warn_person(text: str, category: type[Warning]) -> None:
    """Warn of something; on a worker, its client is told."""
    if this_worker():
        from distributed import warn

        warn(text, category)
    else:
        warnings.warn(text, category, stacklevel=2)


BEGUN = "begun"
"""What is noted when something that others read begins to be overwritten."""


def topic_of(suffix: str) -> str:
    """Name what a cluster tells of the tasks with a suffix."""
    return f"oocarrays-{suffix}"


def this_worker() -> Worker | None:
    """The worker that runs this task; None on threads."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


def write_down(last: Any, name: str, value: Any) -> None:
    """Have the scheduler keep a note, from a task on a worker, until it forgets a task."""
    _ask_scheduler("set_metadata", keys=[last, name], value=value)


def noted(last: Any, name: str) -> Any:
    """Return what is kept under a name; None where nothing is."""
    return _ask_scheduler("get_metadata", keys=[last, name], default=None)


def is_as_noted(last: Any, name: str, value: Any) -> bool:
    """Whether a note says the same as a value; nothing does that cannot be compared."""
    return value is not None and value == noted(last, name)


def _ask_scheduler(what: str, **given: Any) -> Any:
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    return sync(worker.loop, getattr(worker.scheduler, what), **given)


def tell(topic: str, verb: str, args: tuple[int, ...], meter: Meter) -> None:
    """Say, on a worker, what has been done and counted here since the last time; elsewhere it stays in the meter."""
    worker = this_worker()
    if worker:
        worker.log_event(topic, {"verb": verb, "args": args, "worker": worker.address, **meter.take()})


def _ignore(told: Any) -> None:
    """Do nothing about it."""


def listen(client: Client, topic: str, meter: Callable[[], Meter | None], **others: Callable[..., None]) -> None:
    """Hear what is told under a topic, as `hearing` does with what is given."""
    client.subscribe_topic(topic, hearing(meter, **others))


def hearing(
    meter: Callable[[], Meter | None],
    *,
    moved: Callable[[Move], None] = _ignore,
    ended: Callable[[str], None] = _ignore,
) -> Callable[[tuple[float, Mapping[str, Any]]], None]:
    """Make what hears of work; a client keeps it for ever, and so it is to keep no run and no array."""

    def hear(event: tuple[float, Mapping[str, Any]]) -> None:
        _, told = event
        if "moved" in told:
            moved(Move.of_event(told))
        elif "ended" in told:
            ended(told["ended"])
        elif (counted := meter()) is not None:
            counted.put(told)

    return hear
