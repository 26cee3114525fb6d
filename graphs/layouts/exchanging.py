"""Parts that are made anew of what every rank holds, by one exchange: a task for each thing that a rank does.

    between workers    part ─┬─► begin ─► receive 1 ─► receive 2 ─► part        asynchronous: each unpacked as it comes
                             └─► send 1 ─╳──► receive 1 …                      (a message is packed when it is sent)

                       part ─┬───────────────────────────► assemble ─► part    synchronous: when all have come
                             └─► send 1 ─╳─► receive 1 ─► receive 2 ─►┘

Old parts are only read, and a new one is handed on when it is full: whoever holds parts may use them again. While a
part is being filled, each of its elements is only ever given the one value that it will have: a task that is done again
after a worker was lost makes the same of it, however much is there already. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.task_spec import Task

from oocarrays.graphs.exchange.messages import Came, Messages, Round
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.steps import Exchange, Key, arrived_parts
from oocarrays.mapping.layouts.placing import sides
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import Assembly

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message

SENDING = ("send", "lend")
"""What a rank does where its old part is; what it carries for others is where its new one is to be."""


@dataclass(eq=False, kw_only=True)
class Exchanging(Messages):
    """The tasks of an exchange between workers; each kind says what is packed, kept and unpacked."""

    schedule: Schedule
    """Who sends to whom in which step."""
    assembly: Assembly
    """When messages are unpacked."""
    dtype: np.dtype
    """Of the elements."""

    def __post_init__(self) -> None:
        self.id = new_suffix()
        self._here()

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers: threads take what they need without an exchange."""
        return True

    # ------------------------------------------------------------------ what a kind says

    def keep(self, rank: int, part: np.ndarray | None) -> np.ndarray:
        """The new part, and in it what stays with this rank."""
        raise NotImplementedError

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it belongs, by the rank that packed it."""
        raise NotImplementedError

    # ------------------------------------------------------------------ the tasks

    def order(self, round: Round) -> Schedule:
        """Who sends to whom in which step."""
        return self.schedule

    def placed(self, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Any:
        """What has come, unpacked or kept for later."""
        if self.assembly == "asynchronous":
            return self._unpacked(rank, there, came)
        return super().placed(round, stage, rank, there, came)

    def _lend(self, rank: int, part: np.ndarray) -> Message | None:
        """What a rank has for itself, where it is on another worker from now on."""
        from oocarrays.graphs.cluster.nearby import Message

        own = self.packed((), rank, part, rank)
        return None if own is None else Message([own.view(np.uint8)], [(rank, rank)])

    def _begin(self, rank: int, held: np.ndarray | Message | None) -> np.ndarray:
        """The new part, and in it what this rank has for itself: of what it holds, or lent by where it was."""
        if held is None or isinstance(held, np.ndarray):
            return self.keep(rank, held)
        return self._unpacked(rank, self.keep(rank, None), arrived_parts(rank, [held]))

    def _assemble(self, rank: int, held: np.ndarray | Message | None, came: Came | None) -> np.ndarray:
        """The new part, of all that has come."""
        return self._unpacked(rank, self._begin(rank, held), came.messages if came else {})

    def _unpacked(self, rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
        made = part if part.flags.writeable else part.copy()
        self.unpack({origin: data.view(self.dtype) for origin, data in came.items()}, rank, made)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """The tasks of one exchange."""

    suffix: str
    """What is in the keys of new parts."""
    tasks: dict[Key, Task]
    """All of them."""
    keys: list[Key]
    """The new part of each rank."""
    homes: Mapping[str, Sequence[str]]
    """The worker of each rank, by what is in the keys of the tasks that are to be there."""


class _Builder(Builder):
    """Adds the tasks of one exchange: a rank sends where its old part is, and receives where its new one is to be.

    These are two workers where there are more ranks than workers, and more or fewer of them than before.
    """

    def __init__(self, exchanging: Exchanging, homes: tuple[Sequence[str], Sequence[str]]) -> None:
        super().__init__(exchanging.id, Exchanging.task, exchanging)
        self.share("exchange")
        sending, receiving = homes
        self._sending = self.suffix if sending == receiving else new_suffix()
        self.homes = {self._sending: sending, self.suffix: receiving} if receiving else {}
        self.moved = [before != after for before, after in zip(sending, receiving, strict=True)]

    def _suffix_of(self, verb: str) -> str:
        return self._sending if verb in SENDING else self.suffix

    def held(self, rank: int, old: Key | None, wants: Callable[[int, int], bool]) -> Key | None:
        """Where a rank has what it has for itself: in its old part, or packed there where that is elsewhere."""
        if old is None or not (self.moved and self.moved[rank]):
            return old
        return self.add("lend", rank, buffers=(old,)) if wants(rank, rank) else None


def exchange_tasks(
    exchanging: Exchanging,
    old: Sequence[Key],
    ranks: int,
    wants: Callable[[int, int], bool],
    workers: Sequence[str],
    *,
    ordered: bool = True,
) -> Exchanged:
    """The tasks of one exchange, after which there are so many ``ranks``.

    Parameters
    ----------
    old : sequence of keys
        What each rank holds before.
    wants : callable
        Whether an origin has something for a final rank.
    workers : sequence of str
        Where ranks are put.
    ordered : bool
        Whether a step waits for the one before.
    """
    builder = _Builder(exchanging, sides(len(old), ranks, workers))
    every, waits = exchanging.schedule.ranks, exchanging.assembly == "synchronous"
    before = _padded(old, every)
    own = [builder.held(rank, before[rank], wants) for rank in range(ranks)]
    new = [] if waits else [builder.add("begin", rank, buffers=(own[rank],)) for rank in range(ranks)]
    exchange = Exchange(exchanging.schedule, builder.add, synchronous=ordered)
    there = exchange.build(outboxes=before, regions=_padded(new, every), wants=wants)
    if waits:
        there = [builder.add("assemble", rank, buffers=(own[rank], there[rank])) for rank in range(ranks)]
    keys = [key for key in there[:ranks] if key is not None]
    return Exchanged(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=builder.homes)


def _padded(keys: Sequence[Key], ranks: int) -> list[Key | None]:
    """The keys of the ranks that are there, and none for the others."""
    return [*keys, *[None] * (ranks - len(keys))]
