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


Round = tuple[int, ...]
"""Name of one of a graph's exchanges: its plain arguments, empty for a single exchange."""
VERBS = ("send", "carry", "receive", "taken", "exchange")
"""Tasks of ranks in an exchange; their last arguments are the stage, from 1, and the rank."""


def held_key(suffix: str, rank: int) -> tuple[str, int]:
    """Return the key of the data that a rank holds until all ranks have fetched their parts."""
    return f"hold-{suffix}", rank


@dataclass(slots=True)
class Came:
    """Messages that a rank has received so far; their size is not reported to Dask, because the plan has counted it."""

    messages: dict[int, np.ndarray]
    """Bytes by the rank that packed them."""


class Messages(Tasks):
    """Tasks of exchanges; those between threads send no messages."""

    phases: ClassVar[Mapping[str, str]] = {"read": "read", **dict.fromkeys(VERBS, "exchange"), "write": "write"}
    """Phase of a plan to which the seconds of each verb count."""

    # ------------------------------------------------------------------ methods of each kind of exchange

    def order(self, round: Round) -> Schedule:
        """Return the schedule of a round; by default the plan's."""
        schedule: Schedule = self.plan.schedule  # type: ignore[attr-defined]
        return schedule

    def packed(self, round: Round, rank: int, held: Any, final: int) -> np.ndarray | None:
        """Return the contiguous part of ``rank`` for ``final``, or None if empty; called when the message is sent.

        By default the part has been packed before.
        """
        message: np.ndarray | None = held.messages[final]
        return message

    def placed(self, round: Round, stage: int, rank: int, there: Any, came: dict[int, np.ndarray]) -> Any:
        """Place received parts, given by origin; by default keep them until all have arrived."""
        if self.order(round).forwards:
            came = {origin: part.copy() for origin, part in came.items()}
        return Came((there.messages if there else {}) | came)

    def sources(self, round: Round, stage: int, rank: int) -> Sequence[int]:
        """Return the ranks from which one copies in a stage, between threads; in stage 0 only itself."""
        return arriving(self.order(round), stage, rank) if stage else (rank,)

    def copied(self, round: Round, stage: int, rank: int, there: Any, held: Mapping[int, Any]) -> Any:
        """Copy a rank's elements straight from other ranks' buffers, between threads."""
        raise NotImplementedError

    # ------------------------------------------------------------------ methods for a round held by one task

    homes: Sequence[str] = ()
    """Worker of each rank when the graph was built."""
    sending: str = ""
    """Suffix in the keys of data held for ranks that fetch it in any order."""
    is_packed: ClassVar[bool] = True
    """Whether held data is packed already, so that a message from it is made at once."""

    def silent(self, round: Round, rank: int) -> Sequence[int]:
        """Return the ranks known to have nothing for ``rank``."""
        return ()

    def waits(self, round: Round) -> bool:
        """Return whether each step waits until the previous one has been received and taken."""
        return True

    def is_over(self, round: Round, rank: int) -> bool:
        """Return whether a rank needs nothing more of a round, which it finished before a worker was lost."""
        return False

    def begun(self, round: Round, rank: int, held: Any) -> Any:
        """Return the object that a rank receives into, with the rank's own part."""
        return None

    def unpacked(self, round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> Any:
        """Place received parts, given by origin; None for an origin without a part."""
        return self.placed(round, 0, rank, there, {origin: part for origin, part in came.items() if part is not None})

    def bytes_for(self, round: Round, rank: int, held: Any, final: int) -> np.ndarray | None:
        """Return the part of one rank for another, as bytes."""
        data = None if held is None else self.packed(round, rank, held, final)
        return None if data is None else data.reshape(-1).view(np.uint8)

    def message_for(self, round: Round, rank: int, held: Any, final: int) -> Message | None:
        """Return a message with the part of one rank for another; None if empty."""
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
        """Return the message of a step, packed when it is sent."""

        message = sent_parts(
            self.order(round), stage, rank, lambda final: self.bytes_for(round, rank, held, final), carried
        )
        if message is not None:
            self.meter.add(messages=1, sent_bytes=message.nbytes)
        return message

    def _carry(
        self, round: Round, stage: int, rank: int, carried: Carried | None, *messages: Message | None
    ) -> Carried:
        """Return the parts that this rank carries for others after a step."""
        return carried_parts(self.order(round), stage, rank, carried, messages, self.rooms)

    def _receive(self, round: Round, stage: int, rank: int, there: Any, *messages: Message | None) -> Any:
        """Place or keep the parts received for this rank."""
        return self.placed(round, stage, rank, there, arrived_parts(rank, messages))

    def _taken(self, round: Round, stage: int, rank: int) -> None:
        """Mark the messages to a rank in a step as received."""

    def _exchange(self, round: Round, stage: int, rank: int, there: Any, *held: Any) -> Any:
        """Copy a rank's share from other ranks' buffers in place; each other rank counts as a message."""
        taken = dict(zip(self.sources(round, stage, rank), held, strict=True))
        self.meter.add(messages=len(taken.keys() - {rank}))
        return self.copied(round, stage, rank, there, taken)

    # ------------------------------------------------------------------ received parts, in the task that uses them

    def available(self, rank: int, inputs: Sequence[Any]) -> tuple[dict[int, Any], dict[int, np.ndarray]]:
        """Split a task's inputs into buffers to read in place and received parts, both by rank."""
        if not self.on_workers:
            return {origin: held for origin, held in enumerate(inputs) if held is not None}, {}
        own, came = inputs
        return {} if own is None else {rank: own}, dict(came.messages) if came else {}

    def parts_for(self, round: Round, rank: int, inputs: Sequence[Any]) -> dict[int, np.ndarray]:
        """Return all parts packed for a rank, by origin, from a task's inputs."""
        held, came = self.available(rank, inputs)
        packed = {origin: self.packed(round, origin, each, rank) for origin, each in held.items()}
        return {origin: part for origin, part in packed.items() if part is not None} | came
