"""One task a rank and round: the whole exchange of a round, in the steps of its schedule.

    rank 0   own ─► step 1: taken from 1, and 1 has taken ─► step 2: taken from 2, and 2 has taken ─► … ─► region
    rank 1   own ─► step 1: taken from 0, and 0 has taken ─► step 2: taken from 3, and 3 has taken ─► … ─► region

The task is a coroutine: it leaves its worker's threads at once to other tasks (`secede`), and takes one only to unpack.
All ranks of a round are under way together, however few threads there are and whatever the scheduler starts first; so
the schedule's promise can be kept by waiting (DESIGN, promise 4):

    open      rank r gives what goes in step k to whoever asks for it, when it has done with step k − 1
    taken     it asks its partner of step k, unpacks what comes, says so: it has received
    went      its other partner of step k has said so: its own was taken; both end the step

Of all ranks under way, one that has come least far always finds its partners there, or on their way to it: nobody waits
in a circle. One message comes to a rank at a time, and one goes. Where steps need not wait for each other
(asynchronous), a rank goes round all that have something for it, and takes what is there, as it is there, with credit
for a few messages at a time: who is late holds nobody back. Thakur 1995, sections 3.4, 4.2 and 4.3.

When a worker is lost, steps have lost their meaning: some ranks of it begin the round again, and others have gone on.
The round is given up: each rank that is under way takes what it still lacks straight from those that packed it, as they
are there, one message at a time. What was read stays where it is until all have written (`free`), and the lost worker's
is read again; what has come stays, and is not asked for again. A rank whose part has been written takes nothing: others
may have let go what they had for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed import Reschedule, Worker
from distributed.worker_state_machine import SecedeEvent

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.wanted import Wanted
from oocarrays.graphs.exchange.between import Delivered, Exchanges, Place
from oocarrays.graphs.exchange.messages import LOOK_SECONDS, NotYet, held_key
from oocarrays.graphs.run.steps import Carried, arrived_parts, arriving, carried_parts, sent_parts
from oocarrays.graphs.run.tasks import GIVEN_UP
from oocarrays.graphs.run.telling import tell
from oocarrays.plan.exchange.ordering import CREDIT
from oocarrays.plan.exchange.schedule import IDLE

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message
    from oocarrays.graphs.exchange.messages import Messages, Round


async def whole_round(run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Take a rank through a round by its schedule, on a worker; returns what its region is then."""
    from oocarrays.graphs.exchange.whole import RankRound

    return await _through(RankRound, run, key, args, held)


async def arrivals(run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Have a rank take what others hold for it, as it is there, on a worker; returns what it has then."""
    from oocarrays.graphs.exchange.whole import Takes

    return await _through(Takes, run, key, args, held)


async def _through(kind: type[RankRound], run: Messages, key: tuple[Any, ...], args: tuple[int, ...], held: Any) -> Any:
    from distributed import Reschedule

    from oocarrays.graphs.exchange.whole import go_through

    *round, rank = args
    withdrawn: BaseException | None = None
    with run._counted(), run._during("round", args):
        try:
            region = await go_through(run, key, tuple(round), rank, held, kind)
        except (Reschedule, asyncio.CancelledError) as error:  # no fault of the run's
            withdrawn = error
    if withdrawn is not None:
        raise withdrawn
    tell(run.topic, "round", args, run.meter)
    return region


T = TypeVar("T")
PAUSE_SECONDS = 0.05
"""Seconds that a rank waits for what is not there, before it asks others."""

MOST_PAUSE_SECONDS = 5.0
"""Seconds at most between two looks at where something is: more and more, as long as it is not there."""
GONE = (None, "released", "forgotten")
"""What the scheduler says of what was let go."""


class GivenUp(Exception):
    """A worker was lost: the round goes on without its schedule."""


class Stopped(Exception):
    """Nobody wants the round any more."""


class RankRound:
    """One rank in one round."""

    def __init__(self, run: Messages, round: Round, rank: int, held: Any, worker: Worker, key: tuple[Any, ...]) -> None:
        self.run, self.round, self.rank, self.held = run, round, rank, held
        self.key, self.suffix = key, key[0].rpartition("-")[2]
        self.place = run.id, round, rank
        self.order = run.order(round)
        self.given_up = False
        self._worker, self._exchanges = worker, Exchanges.of(worker)
        self._stage = 0
        self._region: Any = None
        self._came = {rank}
        self._carried: Carried | None = None
        self._going: dict[int, Message | None] = {}
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped = False
        self._unpacking = asyncio.Lock()

    # ------------------------------------------------------------------ what its worker asks of it

    def held_by(self, source: int) -> Place:
        """Name what a rank holds for the others."""
        return self.run.id, self.round, source

    def home_of(self, source: int) -> str:
        return self._exchanges.home(self.suffix, source, self.run.homes[source])

    def is_at(self, stage: int) -> bool:
        return stage in self._going

    def message(self, stage: int, destination: int) -> Message | None:
        """Give what goes in a stage: it stays until it was taken."""
        return self._going[stage]

    def went(self, stage: int) -> None:
        """Take note that the message of a stage was taken."""
        self._going.pop(stage, None)
        self._exchanges.changed()

    def give_up(self) -> None:
        """Go by the schedule no longer."""
        if not self.given_up:
            self.given_up = True
            self._interrupt()

    def stop(self) -> None:
        self._stopped = True
        self._interrupt()

    def _interrupt(self) -> None:
        if not self._interrupted.done():
            self._interrupted.set_result(None)

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for what comes from others, unless there is something else to be done."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._interrupted}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            came = task.done()
            while not task.done():  # who connects may take a cancellation for a time that is over
                task.cancel()
                await asyncio.wait({task}, timeout=PAUSE_SECONDS)
        finally:
            task.cancel()
        if came:
            return task.result()
        late: Any = None if task.cancelled() or task.exception() else task.result()
        if isinstance(late, Delivered):
            await late.taken()  # it comes again
        raise Stopped if self._stopped else GivenUp

    # ------------------------------------------------------------------ the round

    async def through(self) -> Any:
        """Go through the round; returns the rank's region."""
        self._exchanges.begin(self, self.run, self.held)
        try:
            await self._exchanges.know(self.suffix)
            self.given_up = self.given_up or self._exchanges.is_broken(self.suffix)
            self._region = await self._in_a_thread(lambda: self.run.begun(self.round, self.rank, self.held))
            if not self.given_up:
                with suppress(GivenUp):
                    await self._by_schedule()
            over = self.run.is_over
            if self.given_up and not await self._in_a_thread(lambda: over(self.round, self.rank)):
                await self._as_they_come(1)
            return self._region
        finally:
            self._exchanges.end(self)

    async def _by_schedule(self) -> None:
        """Go step by step; or take as they come what ranks have for each other, where steps need not wait."""
        waits = self.run.waits(self.round)
        if not (waits or self.order.forwards):
            await self._as_they_come(CREDIT)
            return
        for stage, step in enumerate(self.order, 1):
            came = []
            if step.destinations[self.rank] != IDLE:
                self._open(stage)
            for source in step.sources(self.rank):
                delivered = await self._unless_interrupted(self._fetched(source, stage))
                came.append(delivered.message)
                await self._take(stage, delivered, source)
            if waits:
                await self._unless_interrupted(self._exchanges.until(lambda: not self._going))
            if self.order.forwards:
                self._carried = await self._in_a_thread(partial(self._kept, stage, came))
        await self._unless_interrupted(self._exchanges.until(lambda: not self._going))

    def _open(self, stage: int) -> None:
        """Give what goes in a stage from now on to who asks for it."""
        self._going[stage] = sent_parts(self.order, stage, self.rank, self._own, self._carried)
        self._exchanges.changed()

    def _kept(self, stage: int, came: Sequence[Message | None]) -> Carried:
        """Keep what this rank holds for others."""
        return carried_parts(self.order, stage, self.rank, self._carried, came, self.run.rooms)

    def _own(self, final: int) -> Any:
        return self.run.bytes_for(self.round, self.rank, self.held, final)

    async def _fetched(self, source: int, stage: int) -> Delivered:
        """Get what comes in a stage: where a worker does not answer, the scheduler will say what has become of it."""
        while True:
            try:
                return await self._exchanges.fetch(self, source, stage, None)
            except NotYet:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _take(self, stage: int, delivered: Delivered, source: int) -> None:
        """Put what has come where it belongs, and say so."""
        parts = arrived_parts(self.rank, [delivered.message])
        due = arriving(self.order, stage, self.rank) if stage and self.order.forwards else (source,)
        async with self._unpacking:
            with self.run.meter.phase("receive", (*self.round, stage, self.rank)):
                came = {origin: parts.get(origin) for origin in due if origin not in self._came}
                region, unpacked = self._region, self.run.unpacked
                self._region = await self._in_a_thread(lambda: unpacked(self.round, self.rank, region, came))
                self._came.update(came)
        await delivered.taken()

    async def _as_they_come(self, credit: int) -> None:
        """Take from all that it has not heard of, in the order in which they are there."""
        if not self._stopped:
            self._interrupted = asyncio.get_running_loop().create_future()
        others = np.roll(np.arange(self.order.ranks), -self.rank)
        left = deque(int(origin) for origin in others if origin not in self._came)
        asked = len(left)

        async def take_some() -> None:
            nonlocal asked
            while left:
                origin, asked = left.popleft(), asked - 1
                patience = 0 if asked >= 0 else PAUSE_SECONDS  # first who is there already
                try:
                    fetch = self._exchanges.fetch(self, origin, 0, patience)
                    delivered = await self._unless_interrupted(fetch)
                except NotYet:
                    left.append(origin)
                    if asked < 0:
                        await self._missed(origin)
                    continue
                await self._take(0, delivered, origin)

        ends = await asyncio.gather(*(self._or_all_stop(take_some()) for _ in range(credit)), return_exceptions=True)
        errors = [end for end in ends if end is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, GivenUp | Stopped)):
            raise error

    async def _missed(self, origin: int) -> None:
        """Wait for a moment, as nobody has been found who has something."""
        await asyncio.sleep(PAUSE_SECONDS / 10)

    async def _or_all_stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something, and have nobody else of this round wait for anything where it fails."""
        try:
            await work
        except BaseException:
            self._interrupt()
            raise

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        """Do what takes time in one of the worker's threads, of which there are as many as it may use."""
        return await self._exchanges.in_a_thread(work)


class Takes(RankRound):
    """One rank that takes what others hold for it, in the order in which it is there: no step waits for another.

    It needs nobody to be under way with it, but what they hold: that is kept until all have taken it, and is found
    where it was to be, or where the scheduler says that it is.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._came |= set(self.run.silent(self.round, self.rank))
        self._homes = list(self.run.homes)
        self._look_at, self._pause = 0.0, LOOK_SECONDS
        self._wanted = Wanted(self._worker, f"{self.run.id}-{self.rank}")

    def held_by(self, source: int) -> Place:
        """Name what a rank holds for the others."""
        return self.run.sending, self.round, source

    def home_of(self, source: int) -> str:
        return self._homes[source]

    def give_up(self) -> None:
        """Go on: there is no schedule to give up."""

    async def through(self) -> Any:
        """Take all; returns what the rank has then."""
        self._exchanges.enter(self)
        try:
            self._region = await self._in_a_thread(lambda: self.run.begun(self.round, self.rank, self.held))
            await self._as_they_come(CREDIT)
            return self._region
        finally:
            self._exchanges.end(self)
            await self._wanted.release()

    async def _missed(self, origin: int) -> None:
        """Ask the scheduler, now and then, where all is that was not where it was to be."""
        await super()._missed(origin)
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        self._look_at, self._pause = now + self._pause, min(2 * self._pause, MOST_PAUSE_SECONDS)
        left = {held_key(self.run.sending, rank): rank for rank in range(self.order.ranks) if rank not in self._came}
        scheduler = self._worker.scheduler
        states, there = await scheduler.get_task_status(keys=[*left]), await scheduler.who_has(keys=[*left])
        gone = [key for key in left if states[key] in GONE]
        if gone and not await self._wanted.add(gone):
            raise RunError(
                f"a worker was lost when others had let go their parts, of which rank {self.rank} needs some: "
                "compute it once more"
            )
        for key, rank in left.items():
            if there[key]:
                self._homes[rank] = there[key][int(now / LOOK_SECONDS) % len(there[key])]


async def go_through(
    run: Messages, key: tuple[Any, ...], round: Round, rank: int, held: Any, kind: type[RankRound] = RankRound
) -> Any:
    from distributed import get_worker

    worker = get_worker()
    worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"oocarrays-{run.id}"))
    try:
        return await kind(run, round, rank, held, worker, key).through()
    except Stopped:
        if any(suffix in str(key) for suffix in GIVEN_UP):
            raise RunError(f"run {run.id} has been given up") from None
        raise Reschedule from None
