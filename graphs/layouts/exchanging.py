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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.events import this_worker
from oocarrays.graphs.exchange.messages import Came, Exchange, Round, arrived_parts, kept, message_for, steps_of
from oocarrays.graphs.exchange.whole import arrivals
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.live import Live, RunState, Sealed
from oocarrays.graphs.run.program import Builder, Program, new_suffix
from oocarrays.graphs.run.run import Run, barrier, call
from oocarrays.graphs.run.steps import ExchangeTasks, Key
from oocarrays.mapping.selection import index_of, lengths
from oocarrays.plan.exchange.prediction import square
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.assembly import Assembly, is_together
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import sides
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections import packing

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message


@dataclass(slots=True, weakref_slot=True, eq=False)
class HeldPart:
    """Old part held until all receivers have read it; Dask does not learn its size, as the part reports it."""

    live: Live[PartExchange]
    """Live state of the exchange that packs the part."""
    part: np.ndarray

    def __reduce__(self) -> Any:
        return _held, (Sealed(self.live.program), self.live.state, self.part)


def _held(program: Sealed[PartExchange], state: RunState, part: np.ndarray) -> HeldPart:
    return HeldPart(Live(program.value, state), part)


@dataclass(frozen=True, kw_only=True)
class Moving:
    """Elements that move from the parts of one layout to those of another, in one transfer."""

    transfer: Transfer

    def sizes(self) -> np.ndarray:
        """Return the number of elements from each origin to each final rank."""
        return square(self.transfer.sizes())

    def made(self, rank: int, dtype: np.dtype) -> np.ndarray:
        return np.empty(self.transfer.target.local_shape(rank), dtype)

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        packing.move(part, self.transfer, source, rank, made)

    def packed(self, rank: int, part: np.ndarray, final: int, rooms: Rooms) -> np.ndarray | None:
        if final >= self.transfer.target.ranks:
            return None
        message = packing.pack(part, self.transfer, rank, final, rooms.take)
        return message if len(message) else None

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        packing.unpack(came, self.transfer, rank, made)


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """Pieces of all ranks' parts that move to a new array of each rank: its window, or received rows."""

    of: HaloPlan | AlltoallPlan
    """Halo pieces, or rows, that each rank receives, by sender."""

    def sizes(self) -> np.ndarray:
        return self.of.sizes()

    def made(self, rank: int, dtype: np.dtype) -> np.ndarray:
        """Allocate the array of a rank, with its boundary values filled in."""
        made = np.empty(self.of.shape(rank), dtype)
        for place, constant in self.of.filled(rank):
            made[place] = constant
        return made

    def take(self, source: int, part: np.ndarray, rank: int, made: np.ndarray) -> None:
        found = part[index_of(self.of.taken(source, rank))]
        for there, among in self.of.strips(source, rank):
            made[there] = found[among]

    def packed(self, rank: int, part: np.ndarray, final: int, rooms: Rooms) -> np.ndarray | None:
        if rank not in self.of.lenders(final):
            return None
        return rooms.packed(part[index_of(self.of.taken(rank, final))]).reshape(-1)

    def unpack(self, came: dict[int, np.ndarray], rank: int, made: np.ndarray) -> None:
        for source, message in came.items():
            found = message.reshape(lengths(self.of.taken(source, rank)))
            for there, among in self.of.strips(source, rank):
                made[there] = found[among]


def pack(
    live: Live[PartExchange], round: Round, rank: int, held: np.ndarray | HeldPart, final: int
) -> np.ndarray | None:
    """Pack a rank's elements for another when they are sent."""
    return live.program.plan.packed(rank, _part(held), final, live.rooms)


def lenders(live: Live[PartExchange], round: Round, stage: int, rank: int) -> Sequence[int]:
    """Return all ranks with elements for this rank, itself first: not all ranks start with the same sender."""
    wants = live.once("sizes", live.program.plan.sizes)[:, rank] > 0
    return [int(each) for each in np.roll(np.arange(len(wants)), -rank) if wants[each]]


def copy(
    live: Live[PartExchange], round: Round, stage: int, rank: int, there: Any, held: Mapping[int, np.ndarray]
) -> np.ndarray:
    program = live.program
    made = program.plan.made(rank, program.dtype)
    for source, part in held.items():
        if part.size:
            program.plan.take(source, part, rank, made)
    others = [source for source in held if source != rank]
    if others:
        sizes = live.once("sizes", program.plan.sizes)
        live.meter.add(sent_bytes=int(sizes[others, rank].sum()) * program.dtype.itemsize)
    return made


def place(
    live: Live[PartExchange], round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]
) -> Any:
    """Unpack received messages, or keep them for later."""
    if live.program.assembly == "asynchronous":
        return _unpacked(live, rank, there, came)
    return kept(live, round, stage, rank, there, came)


def silent(live: Live[PartExchange], round: Round, rank: int) -> Sequence[int]:
    return np.flatnonzero(live.once("sizes", live.program.plan.sizes)[:, rank] == 0).tolist()


def begun(live: Live[PartExchange], round: Round, rank: int, held: HeldPart | Message | None) -> np.ndarray:
    return begin(live, rank, held.part if isinstance(held, HeldPart) else held)


@dataclass(frozen=True, kw_only=True)
class PartExchange(Program):
    exchange: ClassVar[Exchange] = Exchange(
        pack=pack, place=place, copy=copy, order=lambda live, round: live.program.schedule, sources=lenders,
        silent=silent, begin=begun, is_packed=False,
    )  # fmt: skip
    plan: Moving | Pieces
    schedule: Schedule | None
    """Steps, with their senders and receivers; None between threads, which copy from each other's parts."""
    assembly: Assembly
    """Time of unpacking: on arrival, or after all messages."""
    dtype: np.dtype

    @property
    def processes(self) -> int | None:
        return None if self.schedule is None else self.schedule.ranks


def lend(live: Live[PartExchange], rank: int, part: np.ndarray | HeldPart) -> Message | None:
    """Pack a rank's elements for itself, if its new part is on another worker."""
    return message_for(live, (), rank, part, rank)


def begin(live: Live[PartExchange], rank: int, held: np.ndarray | Message | None) -> np.ndarray:
    """Allocate the new part, and copy the rank's own elements from its old part or its message."""
    if held is None or isinstance(held, np.ndarray):
        return copy(live, (), 0, rank, None, {} if held is None else {rank: held})
    made = live.program.plan.made(rank, live.program.dtype)
    return _unpacked(live, rank, made, arrived_parts(rank, [held]))


def assemble(live: Live[PartExchange], rank: int, held: np.ndarray | Message | None, came: Came | None) -> np.ndarray:
    """Make the new part from the rank's own elements and all messages."""
    return _unpacked(live, rank, begin(live, rank, held), came.messages if came else {})


def hold(live: Live[PartExchange], rank: int, part: np.ndarray) -> HeldPart:
    """Register an old part, so that receivers find it."""
    from oocarrays.graphs.exchange.between import Exchanges

    held, worker = HeldPart(live, part), this_worker()
    if worker is None:
        raise PlacementError("the exchange was made for a cluster, whose workers exchange: compute it there")
    Exchanges.of(worker).hold(live, (), rank, held)
    return held


def gone(live: Live[PartExchange], rank: int, held: HeldPart) -> None:
    """Do nothing: until this task, a rank's old part is held."""


def end(live: Live[PartExchange], rank: int, part: np.ndarray) -> np.ndarray:
    return part


def _part(held: np.ndarray | HeldPart) -> np.ndarray:
    return held.part if isinstance(held, HeldPart) else held


def _unpacked(live: Live[PartExchange], rank: int, part: np.ndarray, came: dict[int, np.ndarray]) -> np.ndarray:
    made = part if part.flags.writeable else part.copy()
    live.program.plan.unpack({origin: data.view(live.program.dtype) for origin, data in came.items()}, rank, made)
    return made


def exchange_parts(
    program: PartExchange,
    parts: Parts,
    ranks: int,
    workers: Sequence[str],
    *,
    ordered: bool = True,
    meter: Meter | None = None,
    name: str = "parts",
) -> Parts:
    """Return the results of one exchange to this number of ``ranks``, in a layer of this name.

    A rank sends on the worker of its old part, and receives on that of its new part. The two workers may differ if
    ranks outnumber workers and the number of ranks changes.
    """
    if program.schedule is None:
        return _between_threads(program, parts, ranks, meter, name)
    sending, receiving = sides(len(parts.keys), ranks, workers)
    moved = [before != after for before, after in zip(sending, receiving, strict=True)]
    new = new_suffix()
    old = new_suffix() if any(moved) else new
    run = Run(program, id=old)
    run.state.homes = tuple(sending)
    builder = Builder(new, call, run)
    builder.elsewhere = dict.fromkeys(("send", "lend", "hold", "gone"), old)  # parts are carried where new ones are
    builder.share("exchange")

    def own(rank: int, key: Key | None, wanted: bool) -> Key | None:
        """Return the key of a rank's elements for itself: its old part, or a message if the new part is elsewhere."""
        if key is None or not (moved and moved[rank]):
            return key
        return builder.add(lend, rank, buffers=(key,)) if wanted else None

    if is_together(program.schedule, program.assembly):
        keys = _together(builder, parts.keys, ranks, own)
    else:
        keys = _in_steps(builder, program, parts.keys, ranks, own, ordered)
    homes = {old: sending, new: receiving} if receiving else {}
    return Parts.of(builder.graph, keys, parts.dtype, homes, parts, name=name)


Own = Callable[[int, Key | None, bool], Key | None]


def _together(builder: Builder, old: Sequence[Key], ranks: int, own: Own) -> list[Key]:
    """Add one task per rank that receives from all others; old parts are held until all ranks have received."""
    held = [builder.add(hold, rank, buffers=(key,)) for rank, key in enumerate(old)]
    mine = _padded([own(rank, key, True) for rank, key in enumerate(held)], ranks)
    came = [builder.add_whole(arrivals, TOGETHER, rank, held=mine[rank], after=()) for rank in range(ranks)]
    took = [builder.add(barrier, rank, name="took", after=[key]) for rank, key in enumerate(came)]  # parts stay there
    over = builder.add(barrier, 0, name="over", after=took)
    left = [builder.add(gone, rank, buffers=(key,), after=[over]) for rank, key in enumerate(held)]
    freed = builder.add(barrier, 0, name="freed", after=left)  # a request for any part waits until all have received
    return [builder.add(end, rank, buffers=(key,), after=[freed]) for rank, key in enumerate(came)]


def _in_steps(
    builder: Builder, program: PartExchange, old: Sequence[Key], ranks: int, own: Own, ordered: bool
) -> list[Key]:
    schedule, sizes, waits = program.schedule, program.plan.sizes(), program.assembly == "synchronous"
    assert schedule is not None, "there are steps"

    def wants(origin: int, final: int) -> bool:
        return bool(sizes[origin, final])

    before = _padded(old, schedule.ranks)
    mine = [own(rank, before[rank], wants(rank, rank)) for rank in range(ranks)]
    new = [] if waits else [builder.add(begin, rank, buffers=(mine[rank],)) for rank in range(ranks)]
    exchange = ExchangeTasks(schedule, steps_of(builder), synchronous=ordered)
    there = exchange.build(outboxes=before, regions=_padded(new, schedule.ranks), wants=wants)
    if waits:
        there = [builder.add(assemble, rank, buffers=(mine[rank], there[rank])) for rank in range(ranks)]
    return [key for key in there[:ranks] if key is not None]


def _between_threads(program: PartExchange, parts: Parts, ranks: int, meter: Meter | None, name: str) -> Parts:
    """Add one task per rank that copies from the parts of the others."""
    run = Run(program)
    run.meter = meter or run.meter
    builder = Builder(run.id, call, run)
    held = [tuple(parts.keys[source] for source in lenders(run.live, (), 0, rank)) for rank in range(ranks)]
    add = steps_of(builder)
    keys = [add("exchange", 0, rank, buffers=(None, *held[rank])) for rank in range(ranks)]
    return Parts.of(builder.graph, keys, parts.dtype, {}, parts, name=name)


def _padded(keys: Sequence[Key | None], ranks: int) -> list[Key | None]:
    return [*keys, *[None] * (ranks - len(keys))]
