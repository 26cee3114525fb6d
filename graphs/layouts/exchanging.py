"""Parts assembled from the parts of all ranks by one exchange, with one task for each action of a rank.

    between threads    part ─┬─► exchange ─► part              a rank's new part is copied from the others' parts
                       part ─┴─► exchange ─► part

    between workers    part ─┬─► begin ─► receive 1 ─► receive 2 ─► part        asynchronous: each unpacked on arrival
                             └─► send 1 ─╳──► receive 1 …                      (a message is packed when it is sent)

                       part ─┬───────────────────────────► assemble ─► part    synchronous: when all have come
                             └─► send 1 ─╳─► receive 1 ─► receive 2 ─►┘

Old parts are only read, and a new one is returned only when complete, so both can be used again. While a part is being
filled, each element is only ever assigned its final value: a task repeated after the loss of a worker yields the same
part. Thakur 1995, sections 3.4 and 4.2.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange.messages import Came, Messages, Round
from oocarrays.graphs.exchange.whole import arrivals
from oocarrays.graphs.layouts.parts import RankParts, layered
from oocarrays.graphs.run.builder import Builder, RankTasks, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, arrived_parts
from oocarrays.mapping.layouts.local import sides
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.assembly import Assembly, is_together
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message


@dataclass(slots=True, weakref_slot=True, eq=False)
class HeldPart:
    """Old part held until all receivers have read it; Dask does not learn its size, as the part reports it."""

    run: Exchanging
    """Exchange that packs the part."""
    part: np.ndarray
    """Held array."""


@dataclass(eq=False, kw_only=True)
class Exchanging(Messages):
    """Tasks of one exchange of parts; subclasses define the sizes of messages and the assembly of parts."""

    schedule: Schedule | None
    """Steps, with their senders and receivers; None between threads, which copy from each other's parts."""
    assembly: Assembly
    """Time of unpacking: on arrival, or after all messages."""
    dtype: np.dtype
    """Dtype of the elements."""
    is_packed: ClassVar[bool] = False

    @property
    def on_workers(self) -> bool:
        """Return whether ranks are on workers, which report to a scheduler."""
        return self.schedule is not None

    # ------------------------------------------------------------------ methods of subclasses

    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Return the number of elements from each origin to each final rank: a square matrix."""

    @abstractmethod
    def made(self, rank: int) -> np.ndarray:
        """Allocate the new part of a rank."""

    @abstractmethod
    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        """Copy the share of a rank from an old part into its new part."""

    @abstractmethod
    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        """Copy received messages, by the rank that packed them, into the new part."""

    # ------------------------------------------------------------------ tasks

    def order(self, round: Round) -> Schedule:
        """Return the schedule of a round."""
        assert self.schedule is not None, "workers send messages"
        return self.schedule

    @cached_property
    def lenders(self) -> list[Sequence[int]]:
        """Ranks with elements for each rank: itself first, so that not all ranks start with the same sender.

        Used on threads only, so the list is not sent to workers.
        """
        wants = self.sizes() > 0
        return [
            [int(each) for each in np.roll(np.arange(len(wants)), -to) if wants[each, to]] for to in range(len(wants))
        ]

    def sources(self, round: Round, stage: int, rank: int) -> Sequence[int]:
        """Return all ranks with elements for this rank."""
        return self.lenders[rank]

    def copied(self, round: Round, stage: int, rank: int, there: Any, held: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return a rank's new part, copied from the held parts."""
        made = self.made(rank)
        for source, part in held.items():
            if part.size:
                self.take(source, part, rank, made)
        others = [source for source in held if source != rank]
        if others:
            self.meter.add(sent_bytes=int(self._sizes[others, rank].sum()) * self.dtype.itemsize)
        return made

    def placed(self, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Any:
        """Unpack received messages, or keep them for later."""
        if self.assembly == "asynchronous":
            return self._unpacked(rank, there, came)
        return super().placed(round, stage, rank, there, came)

    def _lend(self, rank: int, part: np.ndarray | HeldPart) -> Message | None:
        """Pack a rank's elements for itself, if its new part is on another worker."""
        from oocarrays.graphs.cluster.nearby import Message

        own = self.packed((), rank, part.part if isinstance(part, HeldPart) else part, rank)
        return None if own is None else Message([own.view(np.uint8)], [(rank, rank)])

    def _begin(self, rank: int, held: np.ndarray | Message | None) -> np.ndarray:
        """Allocate the new part, and copy the rank's own elements from its old part or its message."""
        if held is None or isinstance(held, np.ndarray):
            return self.copied((), 0, rank, None, {} if held is None else {rank: held})
        return self._unpacked(rank, self.made(rank), arrived_parts(rank, [held]))

    def _assemble(self, rank: int, held: np.ndarray | Message | None, came: Came | None) -> np.ndarray:
        """Make the new part from the rank's own elements and all messages."""
        return self._unpacked(rank, self._begin(rank, held), came.messages if came else {})

    # ------------------------------------------------------------------ receipt in order of arrival

    def silent(self, round: Round, rank: int) -> Sequence[int]:
        """Return the ranks that have no elements for this rank."""
        found: list[int] = np.flatnonzero(self._sizes[:, rank] == 0).tolist()
        return found

    @cached_property
    def _sizes(self) -> np.ndarray:
        return self.sizes()

    def message_for(self, round: Round, rank: int, held: HeldPart, final: int) -> Message | None:
        """Pack a rank's elements for another, on request."""
        return super().message_for(round, rank, held.part, final)

    def begun(self, round: Round, rank: int, held: HeldPart | Message | None) -> np.ndarray:
        """Allocate the new part, and copy the rank's own elements."""
        return self._begin(rank, held.part if isinstance(held, HeldPart) else held)

    def _hold(self, rank: int, part: np.ndarray) -> HeldPart:
        """Register an old part, so that receivers find it."""
        from oocarrays.graphs.exchange.between import Exchanges

        held, worker = HeldPart(self, part), this_worker()
        if worker is None:
            raise PlacementError("this exchange was planned for a cluster's workers: compute it on that cluster")
        Exchanges.of(worker).hold_as((self.sending, (), rank), self, held)
        return held

    def _end(self, rank: int, part: np.ndarray) -> np.ndarray:
        return part

    def _unpacked(self, rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
        made = part if part.flags.writeable else part.copy()
        self.unpack({origin: data.view(self.dtype) for origin, data in came.items()}, rank, made)
        return made


class _ExchangeBuilder(Builder):
    """Builder of one exchange: a rank sends on the worker of its old part, and receives on that of its new part.

    The two workers may differ if ranks outnumber workers and the number of ranks changes.
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
        """Return the suffix of the old parts for tasks on their workers; forwarding tasks run on those of new parts."""
        return self._sending if verb in ("send", "lend", "hold", "gone") else self.suffix

    def held(self, rank: int, old: Key | None, wants: Callable[[int, int], bool]) -> Key | None:
        """Return the key of a rank's elements for itself: its old part, or a message if the new part is elsewhere."""
        if old is None or not (self.moved and self.moved[rank]):
            return old
        return self.add("lend", rank, buffers=(old,)) if wants(rank, rank) else None

    def together(self, old: Sequence[Key], ranks: int) -> list[Key]:
        """Add one task per rank that receives from all others; old parts are held until all ranks have received."""
        held = [self.add("hold", rank, buffers=(key,)) for rank, key in enumerate(old)]
        own: list[Key | None] = [
            self.add("lend", rank, buffers=(key,)) if self.moved and self.moved[rank] else key
            for rank, key in enumerate(held)
        ]
        own += [None] * (ranks - len(own))
        came = [self.add_whole(arrivals, TOGETHER, rank, held=own[rank], after=()) for rank in range(ranks)]
        took = [self.add("took", rank, after=[key]) for rank, key in enumerate(came)]  # parts stay on their workers
        over = self.add("freed", 0, name="over", after=took)
        gone = [self.add("gone", rank, buffers=(key,), after=[over]) for rank, key in enumerate(held)]
        freed = self.add("freed", 0, after=gone)  # a request for any part waits until all ranks have received
        return [self.add("end", rank, buffers=(key,), after=[freed]) for rank, key in enumerate(came)]


def exchange_tasks(
    exchanging: Exchanging,
    old: Sequence[Key],
    ranks: int,
    workers: Sequence[str],
    *,
    ordered: bool = True,
    meter: Meter | None = None,
) -> RankTasks:
    """Return the tasks of one exchange to this number of ``ranks``."""
    if exchanging.schedule is None:
        exchanging.meter = meter or exchanging.meter
        return _between_threads(exchanging, old, ranks)
    builder = _ExchangeBuilder(exchanging, sides(len(old), ranks, workers))
    if is_together(exchanging.schedule, exchanging.assembly):
        keys = builder.together(old, ranks)
        return RankTasks(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=builder.homes)
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
    return RankTasks(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes=builder.homes)


def _between_threads(exchanging: Exchanging, old: Sequence[Key], ranks: int) -> RankTasks:
    """Add one task per rank that copies from the parts of the others."""
    builder = Builder(exchanging.id, Exchanging.task, exchanging)
    sources = (exchanging.sources((), 0, rank) for rank in range(ranks))
    held = [tuple(old[source] for source in each) for each in sources]
    keys = [builder.add("exchange", 0, rank, buffers=(None, *held[rank])) for rank in range(ranks)]
    return RankTasks(suffix=builder.suffix, tasks=builder.graph, keys=keys, homes={})


def exchanged_arrays(name: str, parts: RankParts, made: RankTasks) -> RankParts:
    """Return the results of an exchange as arrays of any shapes, in a layer of this name."""
    name = f"{name}-{made.suffix}"
    graph = layered(parts.graph, name, made.tasks, parts.name)
    homes = {**parts.homes, **made.homes}
    return RankParts(dtype=parts.dtype, graph=graph, name=name, keys=tuple(made.keys), homes=homes)


def _padded(keys: Sequence[Key], ranks: int) -> list[Key | None]:
    """Return the keys, padded with None to this number of ranks."""
    return [*keys, *[None] * (ranks - len(keys))]
