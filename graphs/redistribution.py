"""A redistribution as tasks: what every rank holds in another layout, made of what it holds in this one.

    between threads    part ─┬─► fill ─► part                 a rank's new part is filled straight from the others'
                       part ─┴─► fill ─► part

    between workers    part ─┬─► keep ─► receive 1 ─► receive 2 ─► part        asynchronous: each unpacked as it comes
                             └─► send 1 ─╳─► receive 1 …                       (a message is packed when it is sent)

                       part ─┬───────────────────────────► assemble ─► part    synchronous: when all have come
                             └─► send 1 ─╳─► receive 1 ─► receive 2 ─►┘

Old parts are only read, and a new one is handed on when it is full: whoever holds parts may use them again. While a
part is being filled, each of its elements is only ever given the one value that it will have: a task that is done again
after a worker was lost makes the same of it, however much is there already. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.task_spec import Task, TaskRef
from oocarrays.graphs.parts import Parts, home_addresses, itself
from oocarrays.graphs.rechunk import new_suffix
from oocarrays.graphs.steps import Carried, Exchange, Key, arrived_parts, carried_parts, sent_parts

from oocarrays.plan.assembly import Assembly, Messaging, squared
from oocarrays.plan.redistribution import Transfer
from oocarrays.plan.schedule import Schedule
from oocarrays.storage.packing import move, pack, unpack_all

if TYPE_CHECKING:
    from oocarrays.graphs.nearby import Message


def moved(parts: Parts, transfers: Sequence[Transfer], messaging: Messaging, workers: Sequence[str]) -> Parts:
    """The parts after transfers, one after the other; where nothing moves, they are what they were."""
    for transfer, schedule in zip(transfers, messaging.schedules, strict=True):
        if _stays(transfer):
            parts = replace(parts, layout=transfer.target)
        else:
            parts = exchanged(parts, transfer, schedule, messaging, workers) if schedule else filled(parts, transfer)
    return parts


def _stays(transfer: Transfer) -> bool:
    """Whether every rank is to hold what it holds; empty parts may yet be of another shape."""
    sides = transfer.source, transfer.target
    before, after = ([side.local_shape(rank) for rank in range(side.ranks)] for side in sides)
    return before == after and not transfer.work.moved


# ---------------------------------------------------------------------- between threads


def filled(parts: Parts, transfer: Transfer) -> Parts:
    """The parts after a transfer between threads: one task a rank."""
    suffix, sizes = new_suffix(), transfer.sizes()
    keys: list[Key] = [(f"fill-{suffix}", rank) for rank in range(transfer.target.ranks)]
    tasks = {}
    for key in keys:
        sources = [int(source) for source in np.roll(np.arange(len(sizes)), -key[-1]) if sizes[source, key[-1]]]
        held = [TaskRef(parts.keys[source]) for source in sources]
        tasks[key] = Task(key, fill, transfer, key[-1], parts.dtype, sources, *held)
    return parts.followed_by(suffix, tasks, transfer.target, keys, ())


def fill(transfer: Transfer, rank: int, dtype: np.dtype, sources: Sequence[int], *held: np.ndarray) -> np.ndarray:
    """What ``rank`` is to hold, taken from what each of ``sources`` holds, itself first."""
    part = np.empty(transfer.target.local_shape(rank), dtype)
    for source, array in zip(sources, held, strict=True):
        move(array, transfer, source, rank, part)
    return part


# ---------------------------------------------------------------------- between workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Moving:
    """A transfer between workers: what its tasks do."""

    transfer: Transfer
    """Who holds what before and afterwards."""
    schedule: Schedule
    """Who sends to whom in which step."""
    assembly: Assembly
    """When messages are unpacked."""
    dtype: np.dtype
    """Of the elements."""

    def task(self, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Do one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        return getattr(self, verb)(*args, *inputs[:buffers])

    def send(self, stage: int, rank: int, part: np.ndarray | None, carried: Carried | None) -> Message | None:
        """The message of a step, packed when it goes."""
        return sent_parts(self.schedule, stage, rank, _Packed(self.transfer, rank, part), carried)

    def carry(self, stage: int, rank: int, carried: Carried | None, *messages: Message | None) -> Carried:
        """What this rank holds for others."""
        return carried_parts(self.schedule, stage, rank, carried, messages)

    def taken(self, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""

    def keep(self, rank: int, part: np.ndarray | None) -> np.ndarray:
        """The new part, and in it what stays with this rank."""
        made = np.empty(self.transfer.target.local_shape(rank), self.dtype)
        if part is not None:
            move(part, self.transfer, rank, rank, made)
        return made

    def receive(self, stage: int, rank: int, there: Any, *messages: Message | None) -> Any:
        """What has come, unpacked or kept for later."""
        came = {origin: message.view(self.dtype) for origin, message in arrived_parts(rank, messages).items()}
        if self.assembly == "asynchronous":
            return self._unpacked(rank, there, came)
        if self.schedule.forwards:  # else it would keep what is for others, too
            came = {origin: message.copy() for origin, message in came.items()}
        return {**(there or {}), **came}

    def assemble(self, rank: int, part: np.ndarray | None, came: dict[int, np.ndarray] | None) -> np.ndarray:
        """The new part, of all that has come."""
        return self._unpacked(rank, self.keep(rank, part), came or {})

    def _unpacked(self, rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
        made = part if part.flags.writeable else part.copy()
        unpack_all(came, self.transfer, rank, made)
        return made


class _Packed(Sequence[np.ndarray | None]):
    """Messages of one rank as bytes, each packed when it is asked for."""

    def __init__(self, transfer: Transfer, rank: int, part: np.ndarray | None) -> None:
        self._transfer, self._rank, self._part = transfer, rank, part

    def __len__(self) -> int:
        return self._transfer.target.ranks

    def __getitem__(self, final: Any) -> Any:
        if self._part is None or final >= len(self):
            return None
        message = pack(self._part, self._transfer, self._rank, final)
        return message.view(np.uint8) if len(message) else None


def exchanged(
    parts: Parts, transfer: Transfer, schedule: Schedule, messaging: Messaging, workers: Sequence[str]
) -> Parts:
    """The parts after a transfer between workers."""
    moving = Moving(transfer=transfer, schedule=schedule, assembly=messaging.assembly, dtype=parts.dtype)
    builder, waits = _Builder(moving), messaging.assembly == "synchronous"
    ranks, old = range(transfer.target.ranks), _padded(parts.keys, schedule.ranks)
    new = [] if waits else [builder.add("keep", rank, buffers=(old[rank],)) for rank in ranks]
    exchange = Exchange(schedule, builder.add, synchronous=messaging.ordered)
    there = exchange.build(outboxes=old, regions=_padded(new, schedule.ranks), wants=_wants(transfer))
    if waits:
        there = [builder.add("assemble", rank, buffers=(old[rank], there[rank])) for rank in ranks]
    keys = [key for key in there[: len(ranks)] if key is not None]
    homes = home_addresses(schedule.ranks, workers)
    return parts.followed_by(builder.suffix, builder.tasks, transfer.target, keys, homes)


class _Builder:
    """Adds the tasks of one transfer."""

    def __init__(self, moving: Moving) -> None:
        self.suffix = new_suffix()
        first = (f"transfer-{self.suffix}", 0)  # one result that all tasks take: it travels once to each worker
        self.tasks: dict[Key, Task] = {first: Task(first, itself, moving)}
        self._moving = TaskRef(first)

    def add(
        self, verb: str, *args: Any, name: str = "", buffers: tuple[Key | None, ...] = (), after: Iterable[Key] = ()
    ) -> Key:
        """Add a task: a verb, plain arguments of which the last is its rank, what it takes and waits for."""
        key = (f"{name or verb}-{self.suffix}", *args)
        taken = [None if buffer is None else TaskRef(buffer) for buffer in buffers]
        self.tasks[key] = Task(key, Moving.task, self._moving, verb, args, len(taken), *taken, *map(TaskRef, after))
        return key


def _padded(keys: Sequence[Key], ranks: int) -> list[Key | None]:
    """The keys of the ranks that are there, and none for the others."""
    return [*keys, *[None] * (ranks - len(keys))]


def _wants(transfer: Transfer) -> Callable[[int, int], bool]:
    sizes = squared(transfer.sizes())
    return lambda origin, final: bool(sizes[origin, final])
