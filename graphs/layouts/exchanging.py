"""Parts that are made anew of what every rank holds, by one exchange: a task for each thing that a rank does.

    between threads    part ─┬─► exchange ─► part              a rank's new part is filled straight from the others'
                       part ─┴─► exchange ─► part

    between workers    part ─┬─► begin ─► receive 1 ─► receive 2 ─► part        asynchronous: each unpacked as it comes
                             └─► send 1 ─╳──► receive 1 …                      (a message is packed when it is sent)

                       part ─┬───────────────────────────► assemble ─► part    synchronous: when all have come
                             └─► send 1 ─╳─► receive 1 ─► receive 2 ─►┘

Old parts are only read, and a new one is handed on when it is full: whoever holds parts may use them again. While a
part is being filled, each of its elements is only ever given the one value that it will have: a task that is done again
after a worker was lost makes the same of it, however much is there already. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from dask.task_spec import Task

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.exchange.messages import Came, Messages, Round
from oocarrays.graphs.exchange.whole import arrivals
from oocarrays.graphs.layouts.parts import RankParts, layered
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, arrived_parts
from oocarrays.graphs.run.telling import this_worker
from oocarrays.mapping.layouts.local import sides
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import Assembly, is_together
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message

SENDING = ("send", "lend", "hold", "gone")
"""Steps of a rank where its old part is; what it carries for others is where its new one is to be."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class HeldPart:
    """An old part that others take from, until all have; it does not tell Dask how large it is, as the part does."""

    run: Exchanging
    """Which packs it."""
    part: np.ndarray
    """What is held."""


@dataclass(eq=False, kw_only=True)
class Exchanging(Messages):
    """The tasks of one exchange of parts; each kind says who has how much for whom, and what is made of it."""

    schedule: Schedule | None
    """Who sends to whom in which step; None between threads, which take what they need from each other's parts."""
    assembly: Assembly
    """When messages are unpacked."""
    dtype: np.dtype
    """Of the elements."""
    is_packed: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.id = new_suffix()
        self._arrive()

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which tell a cluster what they did."""
        return self.schedule is not None

    # ------------------------------------------------------------------ what a kind says

    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Count the elements that each origin has for each final rank: a square matrix."""

    @abstractmethod
    def made(self, rank: int) -> np.ndarray:
        """Make the new part of a rank, still empty."""

    @abstractmethod
    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Put what a rank takes of the old part of another, or its own, where it belongs."""

    @abstractmethod
    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Put what has come where it belongs, by the rank that packed it."""

    # ------------------------------------------------------------------ the tasks

    def order(self, round: Round) -> Schedule:
        """Who sends to whom in which step."""
        assert self.schedule is not None, "workers send messages"
        return self.schedule

    @cached_property
    def lenders(self) -> list[Sequence[int]]:
        """The ranks that have something for each: itself first, so that not all begin with the same.

        Only threads ask, whose exchange does not travel.
        """
        wants = self.sizes() > 0
        return [
            [int(each) for each in np.roll(np.arange(len(wants)), -to) if wants[each, to]] for to in range(len(wants))
        ]

    def sources(self, round: Round, stage: int, rank: int) -> Sequence[int]:
        """Name all ranks that have something for one."""
        return self.lenders[rank]

    def copied(self, round: Round, stage: int, rank: int, there: Any, held: Mapping[int, np.ndarray]) -> np.ndarray:
        """Make a rank's new part, straight from what others hold."""
        made = self.made(rank)
        for source, part in held.items():
            if part.size:
                self.take(source, part, rank, made)
        others = [source for source in held if source != rank]
        if others:
            self.meter.add(sent_bytes=int(self._sizes[others, rank].sum()) * self.dtype.itemsize)
        return made

    def placed(self, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Any:
        """Unpack what has come, or keep it for later."""
        if self.assembly == "asynchronous":
            return self._unpacked(rank, there, came)
        return super().placed(round, stage, rank, there, came)

    def _lend(self, rank: int, part: np.ndarray | HeldPart) -> Message | None:
        """Pack what a rank has for itself, where it is on another worker from now on."""
        from oocarrays.graphs.cluster.nearby import Message

        own = self.packed((), rank, part.part if isinstance(part, HeldPart) else part, rank)
        return None if own is None else Message([own.view(np.uint8)], [(rank, rank)])

    def _begin(self, rank: int, held: np.ndarray | Message | None) -> np.ndarray:
        """Make the new part, and in it what this rank has for itself: of what it holds, or lent by where it was."""
        if held is None or isinstance(held, np.ndarray):
            return self.copied((), 0, rank, None, {} if held is None else {rank: held})
        return self._unpacked(rank, self.made(rank), arrived_parts(rank, [held]))

    def _assemble(self, rank: int, held: np.ndarray | Message | None, came: Came | None) -> np.ndarray:
        """Make the new part, of all that has come."""
        return self._unpacked(rank, self._begin(rank, held), came.messages if came else {})

    # ------------------------------------------------------------------ where ranks take what is there, as it is there

    def silent(self, round: Round, rank: int) -> Sequence[int]:
        """Name ranks that have nothing for one."""
        found: list[int] = np.flatnonzero(self._sizes[:, rank] == 0).tolist()
        return found

    @cached_property
    def _sizes(self) -> np.ndarray:
        return self.sizes()

    def message_for(self, round: Round, rank: int, held: HeldPart, final: int) -> Message | None:
        """Pack what a rank has for another, as it is asked for."""
        return super().message_for(round, rank, held.part, final)

    def begun(self, round: Round, rank: int, held: HeldPart | Message | None) -> np.ndarray:
        """Make the new part, and in it what this rank has for itself."""
        return self._begin(rank, held.part if isinstance(held, HeldPart) else held)

    def _hold(self, rank: int, part: np.ndarray) -> HeldPart:
        """Have an old part found by those who take from it."""
        from oocarrays.graphs.exchange.between import Exchanges

        held, worker = HeldPart(self, part), this_worker()
        if worker is None:
            raise PlacementError("the exchange was made for a cluster, whose workers exchange: compute it there")
        Exchanges.of(worker).hold_as((self.sending, (), rank), self, held)
        return held

    def _took(self, rank: int) -> None:
        """Say that a rank has taken what it needs."""

    def _over(self, rank: int) -> None:
        """Say that all have taken what they need."""

    def _gone(self, rank: int, held: HeldPart) -> None:
        """Let an old part go."""

    def _freed(self, rank: int) -> None:
        """Say that old parts have been let go."""

    def _end(self, rank: int, part: np.ndarray) -> np.ndarray:
        """Hand on a new part."""
        return part

    def _unpacked(self, rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
        made = part if part.flags.writeable else part.copy()
        self.unpack({origin: data.view(self.dtype) for origin, data in came.items()}, rank, made)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """The tasks of one exchange."""

    suffix: str
    """Part of the keys of new parts."""
    tasks: dict[Key, Task]
    """All of them."""
    keys: list[Key]
    """The new part of each rank."""
    homes: Mapping[str, Sequence[str]]
    """The worker of each rank, by what is in the keys of the tasks that are to be there; none on threads."""


class _ExchangeBuilder(Builder):
    """Adds the tasks of one exchange: a rank sends where its old part is, and receives where its new one is to be.

    These are two workers where there are more ranks than workers, and more or fewer of them than before.
    """

    def __init__(self, exchanging: Exchanging, homes: tuple[Sequence[str], Sequence[str]]) -> None:
        super().__init__(exchanging.id, Exchanging.task, exchanging)
        self.share("exchange")
        sending, receiving = homes
        self._sending = self.suffix if sending == receiving else new_suffix()
        exchanging.sending, exchanging.homes = self._sending, sending
        self.homes = {self._sending: sending, self.suffix: receiving} if receiving else {}
        self.moved = [before != after for before, after in zip(sending, receiving, strict=True)]

    def _suffix_of(self, verb: str) -> str:
        return self._sending if verb in SENDING else self.suffix

    def held(self, rank: int, old: Key | None, wants: Callable[[int, int], bool]) -> Key | None:
        """Where a rank has what it has for itself: in its old part, or packed there where that is elsewhere."""
        if old is None or not (self.moved and self.moved[rank]):
            return old
        return self.add("lend", rank, buffers=(old,)) if wants(rank, rank) else None

    def together(self, old: Sequence[Key], ranks: int) -> list[Key]:
        """Add one task a rank that takes what others hold; old parts are held until all have taken."""
        held = [self.add("hold", rank, buffers=(key,)) for rank, key in enumerate(old)]
        own: list[Key | None] = [
            self.add("lend", rank, buffers=(key,)) if self.moved and self.moved[rank] else key
            for rank, key in enumerate(held)
        ]
        own += [None] * (ranks - len(own))
        came = [self.add_whole(arrivals, TOGETHER, rank, held=own[rank], after=()) for rank in range(ranks)]
        took = [self.add("took", rank, after=[key]) for rank, key in enumerate(came)]  # parts stay where they are
        over = self.add("over", 0, after=took)
        gone = [self.add("gone", rank, buffers=(key,), after=[over]) for rank, key in enumerate(held)]
        freed = self.add("freed", 0, after=gone)  # whoever wants one part has all held until all have taken
        return [self.add("end", rank, buffers=(key,), after=[freed]) for rank, key in enumerate(came)]


def exchange_tasks(
    exchanging: Exchanging,
    old: Sequence[Key],
    ranks: int,
    workers: Sequence[str],
    *,
    ordered: bool = True,
    meter: Meter | None = None,
) -> Exchanged:
    """Add the tasks of one exchange, after which there are so many ``ranks``."""
    if exchanging.schedule is None:
        exchanging.meter = meter or exchanging.meter
        return _between_threads(exchanging, old, ranks)
    builder = _ExchangeBuilder(exchanging, sides(len(old), ranks, workers))
    if is_together(exchanging.schedule, exchanging.assembly):
        keys = builder.together(old, ranks)
        return Exchanged(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=builder.homes)
    sizes, every, waits = exchanging.sizes(), exchanging.schedule.ranks, exchanging.assembly == "synchronous"

    def wants(origin: int, final: int) -> bool:
        return bool(sizes[origin, final])

    before = _padded(old, every)
    own = [builder.held(rank, before[rank], wants) for rank in range(ranks)]
    new = [] if waits else [builder.add("begin", rank, buffers=(own[rank],)) for rank in range(ranks)]
    exchange = ExchangeTasks(exchanging.schedule, builder.add, synchronous=ordered)
    there = exchange.build(outboxes=before, regions=_padded(new, every), wants=wants)
    if waits:
        there = [builder.add("assemble", rank, buffers=(own[rank], there[rank])) for rank in range(ranks)]
    keys = [key for key in there[:ranks] if key is not None]
    return Exchanged(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=builder.homes)


def _between_threads(exchanging: Exchanging, old: Sequence[Key], ranks: int) -> Exchanged:
    """Add one task a rank: it takes from all who have something for it."""
    builder = Builder(exchanging.id, Exchanging.task, exchanging)
    sources = (exchanging.sources((), 0, rank) for rank in range(ranks))
    held = [tuple(old[source] for source in each) for each in sources]
    keys = [builder.add("exchange", 0, rank, buffers=(None, *held[rank])) for rank in range(ranks)]
    return Exchanged(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes={})


def exchanged_arrays(name: str, parts: RankParts, made: Exchanged) -> RankParts:
    """Return what an exchange makes of parts: arrays of whatever shapes, in a layer of this name."""
    name = f"{name}-{made.suffix}"
    graph = layered(parts.graph, name, made.tasks, parts.name)
    homes = {**parts.homes, **made.homes}
    return RankParts(dtype=parts.dtype, graph=graph, name=name, keys=tuple(made.keys), homes=homes)


def _padded(keys: Sequence[Key], ranks: int) -> list[Key | None]:
    """Return the keys of the ranks that are there, and none for the others."""
    return [*keys, *[None] * (ranks - len(keys))]
