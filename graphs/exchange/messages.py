"""Tasks common to all exchanges: counted and forwarded messages between workers, copies in place between threads.

    between workers    held data ─► packed ─► send ─╳─► receive ─► placed      a kind of exchange defines only how
                                                    ╳─► carry ─► send …        parts are packed, placed and copied
    between threads    held data ─► exchange ─► copied

A kind may keep received parts until it has all of them, and use them together with its own data. Each part is then kept
as it came. A part that shared its message with others is copied, because it would keep the whole message alive. Thakur
1995, sections 4.2 and 4.3.

request ─► answer                                        as a rule
request ─► no answer yet ─► scheduler: worker is present ─► waits on
                                       worker is gone    ─► "not yet": its data will be elsewhere
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed import Worker

from oocarrays.graphs.run.program import Builder
from oocarrays.graphs.run.steps import Add, Pair
from oocarrays.plan.exchange.schedule import Schedule

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message
    from oocarrays.graphs.cluster.shared import Rooms

T = TypeVar("T")
LOOK_SECONDS = 0.25
"""Seconds between two checks whether a worker is present, or a round is still wanted."""


class NotYet(Exception):
    """Error for a message that is not ready, or no longer at the worker that was asked."""


class Peers:
    """Other workers as seen by one worker; used in its event loop only."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._gone: dict[str, float] = {}

    async def answer(self, home: str, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for the answer of another worker; raise NotYet if the worker is gone or too late."""
        if home in self._gone and not await self._is_there(home):
            asked.close()
            raise NotYet
        clock = asyncio.get_running_loop().time
        answer, end = asyncio.ensure_future(asked), clock() + 3  # seconds, before its ranks are located again
        try:
            while not answer.done() and clock() < end:
                await asyncio.wait({answer}, timeout=LOOK_SECONDS)
                if not answer.done() and not await self._is_there(home):
                    raise NotYet
            if not answer.done():
                raise NotYet
            return answer.result()
        except OSError as error:
            await self._is_there(home)
            raise NotYet from error
        finally:
            answer.cancel()

    async def _is_there(self, home: str) -> bool:
        """Return whether the scheduler has a worker; query a missing worker at intervals only."""
        now = asyncio.get_running_loop().time()
        if now < self._gone.get(home, now):
            return False
        if await self._worker.scheduler.ncores(workers=[home]):
            self._gone.pop(home, None)
            return True
        self._gone[home] = now + LOOK_SECONDS
        return False


@dataclass(slots=True)
class Carried:
    """Parts that a rank carries for others; their size is not reported to Dask, because the plan has counted it."""

    parts: dict[Pair, np.ndarray]
    """Contiguous bytes by origin and final rank."""


def sent_parts(
    schedule: Schedule, stage: int, rank: int, own: Callable[[int], np.ndarray | None], carried: Carried | None
) -> Message | None:
    """Return the message of ``rank`` in a stage, labelled by origin and final rank, or None if empty."""
    from oocarrays.graphs.cluster.nearby import Message

    others = carried.parts if carried else {}
    parts = {
        (origin, final): own(final) if origin == rank else others.get((origin, final))
        for origin, final in schedule.ride(stage - 1, rank).pairs
    }
    there = {pair: part for pair, part in parts.items() if part is not None}
    return Message(list(there.values()), list(there)) if there else None


def carried_parts(
    schedule: Schedule,
    stage: int,
    rank: int,
    carried: Carried | None,
    messages: Iterable[Message | None],
    rooms: Rooms,
) -> Carried:
    """Return the parts that ``rank`` carries after a stage: those not yet sent, and those received to be forwarded."""
    step = schedule.step(stage - 1)
    gone = set(schedule.ride(stage - 1, rank).pairs) if rank in step.senders else set()
    kept = {pair: part for pair, part in (carried.parts if carried else {}).items() if pair not in gone}
    return Carried(kept | {pair: rooms.forwarded(part) for pair, part in _parts(messages) if pair[1] != rank})


def arrived_parts(rank: int, messages: Iterable[Message | None]) -> dict[int, np.ndarray]:
    """Return the parts received for ``rank`` itself, by the rank that packed them."""
    return {origin: part for (origin, final), part in _parts(messages) if final == rank}


def _parts(messages: Iterable[Message | None]) -> Iterator[tuple[Pair, np.ndarray]]:
    for message in messages:
        if message is not None:
            yield from zip(message.labels, message.arrays, strict=True)


@lru_cache(maxsize=4096)
def arriving(schedule: Schedule, stage: int, rank: int) -> tuple[int, ...]:
    """Return the ranks that packed the parts received by ``rank`` in a stage."""
    sources = schedule.step(stage - 1).sources(rank)
    pairs = [pair for source in sources for pair in schedule.ride(stage - 1, source).pairs]
    return tuple(origin for origin, final in pairs if final == rank)


Live = Any
"""Live state of a run, `oocarrays.graphs.run.live.Live`; a run of the old ladder itself."""
Round = tuple[int, ...]
"""Name of one of a graph's exchanges: its plain arguments, empty for a single exchange."""


def held_key(suffix: str, rank: int) -> tuple[str, int]:
    """Return the key of the data that a rank holds until all ranks have fetched their parts."""
    return f"hold-{suffix}", rank


@dataclass(slots=True)
class Came:
    """Messages that a rank has received so far; their size is not reported to Dask, because the plan has counted it."""

    messages: dict[int, np.ndarray]
    """Bytes by the rank that packed them."""


def kept(live: Live, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Came:
    """Keep received parts until all have arrived; copy a part that shared its message with others."""
    if exchange_of(live).order(live, round).forwards:
        came = {origin: part.copy() for origin, part in came.items()}
    return Came((there.messages if there else {}) | came)


def placed_on_arrival(live: Live, round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> Any:
    """Place received parts as those of stage 0."""
    found = {origin: part for origin, part in came.items() if part is not None}
    return exchange_of(live).place(live, round, 0, rank, there, found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """Functions by which the ranks of a program exchange data; a program has it as ``exchange``."""

    pack: Callable[..., np.ndarray | None] = lambda live, round, rank, held, final: held.messages[final]
    """Return the contiguous part of a rank's held data for a final rank, or None if empty, when the message is sent; by
    default, it was packed when the data was read.
    """
    place: Callable[[Live, Round, int, int, Any, dict[int, np.ndarray]], Any] = kept
    """Place parts received in a stage, given by origin, in what the rank has received before; return both."""
    copy: Callable[[Live, Round, int, int, Any, Mapping[int, Any]], Any] | None = None
    """Copy a rank's elements straight from other ranks' buffers, between threads; None if no task does only that."""
    order: Callable[[Live, Round], Schedule] = lambda live, round: live.program.plan.schedule
    """Return the schedule of a round; by default, that of the plan."""
    sources: Callable[[Live, Round, int, int], Sequence[int]] = lambda live, round, stage, rank: (
        arriving(exchange_of(live).order(live, round), stage, rank) if stage else (rank,)
    )
    """Return the ranks from which one copies in a stage, between threads; by default, those that pack parts for it."""

    # functions of a round held by one task: see `whole`; its run has the ``homes`` of the data

    silent: Callable[[Live, Round, int], Sequence[int]] = lambda live, round, rank: ()
    """Return the ranks known to have nothing for a rank."""
    waits: Callable[[Live, Round], bool] = lambda live, round: True
    """Return whether each step waits until the previous one has been received and taken."""
    is_over: Callable[[Live, Round, int], bool] = lambda live, round, rank: False
    """Return whether a rank needs nothing more of a round, which it finished before a worker was lost."""
    begin: Callable[[Live, Round, int, Any], Any] = lambda live, round, rank, held: None
    """Return the object that a rank receives into, with the rank's own part."""
    unpack: Callable[[Live, Round, int, Any, dict[int, np.ndarray | None]], Any] = placed_on_arrival
    """Place received parts, given by origin; None for an origin without a part."""
    is_packed: bool = True
    """Whether held data is packed already, so that a message from it is made at once."""


def exchange_of(live: Live) -> Exchange:
    return live.program.exchange


def bytes_for(live: Live, round: Round, rank: int, held: Any, final: int) -> np.ndarray | None:
    """Return the part of one rank for another, as bytes."""
    data = None if held is None else exchange_of(live).pack(live, round, rank, held, final)
    return None if data is None else data.reshape(-1).view(np.uint8)


def message_for(live: Live, round: Round, rank: int, held: Any, final: int) -> Message | None:
    """Return a message with the part of one rank for another; None if empty."""
    from oocarrays.graphs.cluster.nearby import Message

    part = bytes_for(live, round, rank, held, final)
    return None if part is None else Message([part], [(rank, final)])


def send(live: Live, round: Round, stage: int, rank: int, held: Any, carried: Carried | None) -> Message | None:
    """Return the message of a step, packed when it is sent."""
    own = partial(bytes_for, live, round, rank, held)
    message = sent_parts(exchange_of(live).order(live, round), stage, rank, own, carried)
    if message is not None:
        live.meter.add(messages=1, sent_bytes=message.nbytes)
    return message


def carry(
    live: Live, round: Round, stage: int, rank: int, carried: Carried | None, *messages: Message | None
) -> Carried:
    return carried_parts(exchange_of(live).order(live, round), stage, rank, carried, messages, live.rooms)


def receive(live: Live, round: Round, stage: int, rank: int, there: Any, *messages: Message | None) -> Any:
    return exchange_of(live).place(live, round, stage, rank, there, arrived_parts(rank, messages))


def taken(live: Live, round: Round, stage: int, rank: int) -> None:
    """Mark the messages to a rank in a step as received."""


def exchange(live: Live, round: Round, stage: int, rank: int, there: Any, *held: Any) -> Any:
    """Copy a rank's share from other ranks' buffers in place; each other rank counts as a message."""
    found = dict(zip(exchange_of(live).sources(live, round, stage, rank), held, strict=True))
    live.meter.add(messages=len(found.keys() - {rank}))
    copy = exchange_of(live).copy
    assert copy, "the ranks of this exchange are on workers, or read others' buffers in the task that uses them"
    return copy(live, round, stage, rank, there, found)


STEPS: Mapping[str, Callable[..., Any]] = {each.__name__: each for each in (send, carry, receive, taken, exchange)}


def step(run: Any, function: Callable[..., Any], args: tuple[int, ...], count: int, *inputs: Any) -> Any:
    """Run a task of an exchange: its plain arguments are those of the round, the stage and the rank."""
    *round, stage, rank = args
    return run.call(function, args, (tuple(round), stage, rank, *inputs[:count]))


def steps_of(builder: Builder) -> Add:
    """Return the function by which `ExchangeTasks` adds the tasks of a program's exchange."""
    return lambda verb, *args, **how: builder.add(STEPS[verb], *args, do=step, **how)


def available(live: Live, rank: int, inputs: Sequence[Any]) -> tuple[dict[int, Any], dict[int, np.ndarray]]:
    """Split a task's inputs into buffers to read in place and received parts, both by rank."""
    if not live.on_workers:
        return {origin: held for origin, held in enumerate(inputs) if held is not None}, {}
    own, came = inputs
    return {} if own is None else {rank: own}, dict(came.messages) if came else {}


def parts_for(live: Live, round: Round, rank: int, inputs: Sequence[Any]) -> dict[int, np.ndarray]:
    """Return all parts packed for a rank, by origin, from a task's inputs."""
    held, came = available(live, rank, inputs)
    packed = {origin: exchange_of(live).pack(live, round, origin, each, rank) for origin, each in held.items()}
    return {origin: part for origin, part in packed.items() if part is not None} | came
