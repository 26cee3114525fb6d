"""The tasks of every exchange, counted and forwarded: messages between workers, and copies in place between threads.

    between workers    what a rank holds ─► packed ─► send ─╳─► receive ─► placed      a kind of exchange says what is
                                                            ╳─► carry ─► send …        packed, placed and copied, and
    between threads    what ranks hold ─► exchange ─► copied                           nothing else

A kind may keep what comes until it has all, and take it with what it holds itself: then each part is kept as it came,
but for one that rode with others, which would keep all of them. Thakur 1995, sections 4.2 and 4.3.

asks ─► answers                                       as a rule
asks ─► silent for a moment ─► scheduler: it is there ─► waits on
                               it is gone             ─► "not yet": what it had will be elsewhere
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from distributed import Worker

from oocarrays.graphs.run.steps import Carried, arrived_parts, arriving, carried_parts, sent_parts
from oocarrays.graphs.run.tasks import Tasks
from oocarrays.plan.exchange.schedule import Schedule

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message

T = TypeVar("T")
DIAL_SECONDS = 3
"""Seconds to wait for a worker that does not answer, before it is asked again where its ranks are."""
LOOK_SECONDS = 0.25
"""Seconds between two looks at whether something is still there, or wanted."""


class NotYet(Exception):
    """Answer that what was asked for is not there, or not any more where it was."""


class Peers:
    """Other workers, as one of them knows them: all of it in its event loop."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._gone: dict[str, float] = {}

    async def answer(self, home: str, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for what another worker answers."""
        if home in self._gone and not await self._is_there(home):
            asked.close()
            raise NotYet
        clock = asyncio.get_running_loop().time
        answer, end = asyncio.ensure_future(asked), clock() + DIAL_SECONDS
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
        """Whether the scheduler has a worker: of one that is gone it is asked now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._gone.get(home, now):
            return False
        if await self._worker.scheduler.ncores(workers=[home]):
            self._gone.pop(home, None)
            return True
        self._gone[home] = now + LOOK_SECONDS
        return False


Round = tuple[int, ...]
"""Which of a graph's exchanges: its plain arguments, none where there is only one."""
VERBS = ("send", "carry", "receive", "taken", "exchange")
"""Steps that ranks take in an exchange: the last arguments are its stage, from 1, and the rank."""


def held_key(suffix: str, rank: int) -> tuple[str, int]:
    """Return the key of what a rank holds until all have taken of it what they need, as they can."""
    return f"hold-{suffix}", rank


@dataclass(slots=True)
class Came:
    """Messages that have come for a rank so far; it does not tell Dask how large it is, as the plan has counted it."""

    messages: dict[int, np.ndarray]
    """Bytes by the rank that packed them."""


class Messages(Tasks):
    """The tasks of exchanges: those between threads make no messages."""

    phases: ClassVar[Mapping[str, str]] = {"read": "read", **dict.fromkeys(VERBS, "exchange"), "write": "write"}
    """The phase of a plan in which the seconds of each verb count."""

    # ------------------------------------------------------------------ what a kind of exchange says

    def order(self, round: Round) -> Schedule:
        """Who sends to whom in which step; by default as the plan says."""
        schedule: Schedule = self.plan.schedule  # type: ignore[attr-defined]
        return schedule

    def packed(self, round: Round, rank: int, held: Any, final: int) -> np.ndarray | None:
        """Pack what ``rank`` holds for another, contiguous; None where that is nothing. By default it has been.

        Asked when a message goes.
        """
        message: np.ndarray | None = held.messages[final]
        return message

    def placed(self, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Any:
        """Put what has come, by the rank that packed it, where it belongs; by default it is kept until all has come."""
        if self.order(round).forwards:
            came = {origin: part.copy() for origin, part in came.items()}
        return Came((there.messages if there else {}) | came)

    def sources(self, round: Round, stage: int, rank: int) -> Sequence[int]:
        """Name the ranks of which one takes in a stage, between threads: before the first step itself."""
        return arriving(self.order(round), stage, rank) if stage else (rank,)

    def copied(self, round: Round, stage: int, rank: int, there: Any, held: Mapping[int, Any]) -> Any:
        """Put what a rank takes where it belongs, straight from what other ranks hold: between threads."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what it says where one task holds a round

    homes: Sequence[str] = ()
    """The worker of each rank, when the graph was built."""
    sending: str = ""
    """What is in the keys of what ranks hold for others that take it as they can."""
    is_packed: ClassVar[bool] = True
    """Whether what a rank holds has been packed, so that a message of it is made at once."""

    def silent(self, round: Round, rank: int) -> Sequence[int]:
        """Name ranks that have nothing for one, where that is known."""
        return ()

    def waits(self, round: Round) -> bool:
        """Whether a step waits until the one before has been received and taken."""
        return True

    def is_over(self, round: Round, rank: int) -> bool:
        """Whether a rank needs nothing more of a round, which it has been through before a worker was lost."""
        return False

    def begun(self, round: Round, rank: int, held: Any) -> Any:
        """Make what a rank receives into, with what it has for itself."""
        return None

    def unpacked(self, round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> Any:
        """Put what has come, by the rank that packed it, where it belongs; None came where that has nothing."""
        return self.placed(round, 0, rank, there, {origin: part for origin, part in came.items() if part is not None})

    def bytes_for(self, round: Round, rank: int, held: Any, final: int) -> np.ndarray | None:
        """Pack what a rank holds for another, as bytes."""
        data = None if held is None else self.packed(round, rank, held, final)
        return None if data is None else data.reshape(-1).view(np.uint8)

    def message_for(self, round: Round, rank: int, held: Any, final: int) -> Message | None:
        """Make a message of what a rank holds for another."""
        from oocarrays.graphs.cluster.nearby import Message

        part = self.bytes_for(round, rank, held, final)
        return None if part is None else Message([part], [(rank, final)])

    # ------------------------------------------------------------------ the tasks

    def _do(self, verb: str, args: tuple[int, ...], inputs: tuple[Any, ...]) -> Any:
        if verb not in VERBS:
            return super()._do(verb, args, inputs)
        *round, stage, rank = args
        return getattr(self, f"_{verb}")(tuple(round), stage, rank, *inputs)

    def _send(self, round: Round, stage: int, rank: int, held: Any, carried: Carried | None) -> Message | None:
        """Make the message of a step, packed when it goes."""

        message = sent_parts(
            self.order(round), stage, rank, lambda final: self.bytes_for(round, rank, held, final), carried
        )
        if message is not None:
            self.meter.add(messages=1, sent_bytes=message.nbytes)
        return message

    def _carry(
        self, round: Round, stage: int, rank: int, carried: Carried | None, *messages: Message | None
    ) -> Carried:
        """Keep what this rank holds for others."""
        return carried_parts(self.order(round), stage, rank, carried, messages, self.rooms)

    def _receive(self, round: Round, stage: int, rank: int, there: Any, *messages: Message | None) -> Any:
        """Place or keep what has come for this rank."""
        return self.placed(round, stage, rank, there, arrived_parts(rank, messages))

    def _taken(self, round: Round, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""

    def _exchange(self, round: Round, stage: int, rank: int, there: Any, *held: Any) -> Any:
        """Take a rank's share of what others hold, in place: each take of another's counts as a message."""
        taken = dict(zip(self.sources(round, stage, rank), held, strict=True))
        self.meter.add(messages=len(taken.keys() - {rank}))
        return self.copied(round, stage, rank, there, taken)

    # ------------------------------------------------------------------ what has come, in the task that uses all of it

    def available(self, rank: int, inputs: Sequence[Any]) -> tuple[dict[int, Any], dict[int, np.ndarray]]:
        """Sort a task's inputs: what ranks hold of which it takes in place, and bytes that came; both by rank."""
        if not self.on_workers:
            return {origin: held for origin, held in enumerate(inputs) if held is not None}, {}
        own, came = inputs
        return {} if own is None else {rank: own}, dict(came.messages) if came else {}

    def parts_for(self, round: Round, rank: int, inputs: Sequence[Any]) -> dict[int, np.ndarray]:
        """Gather what all have packed for a rank, by the rank that packed it, of a task's inputs."""
        held, came = self.available(rank, inputs)
        packed = {origin: self.packed(round, origin, each, rank) for origin, each in held.items()}
        return {origin: part for origin, part in packed.items() if part is not None} | came
