"""One task per rank and round: the whole exchange of a round, in the steps of its schedule.

    rank 0   own ─► step 1: received from 1, taken by 1 ─► step 2: received from 2, taken by 2 ─► … ─► region
    rank 1   own ─► step 1: received from 0, taken by 0 ─► step 2: received from 3, taken by 3 ─► … ─► region

The task is a coroutine: it leaves its worker's threads at once to other tasks (`secede`), and uses one only to unpack.
All ranks of a round run together, with any number of threads and in any order of the scheduler; so the schedule's
promise can be kept by waiting (DESIGN, promise 4):

    open      rank r offers its message of step k when it has finished step k − 1
    taken     it requests the message of its partner in step k, unpacks and acknowledges it: it has received
    went      its other partner in step k has acknowledged: its own message was taken; both end the step

Among the ranks of a round, the one that is furthest behind always finds its partners waiting or on their way: no cycle
of waiting ranks forms. A rank receives one message at a time, and sends one. If steps need not wait for each other
(asynchronous), a rank polls all ranks with data for it and fetches each part as soon as it is ready. It has credit for
a few messages at a time, and a late rank delays no other. Thakur 1995, sections 3.4, 4.2 and 4.3.

When a worker is lost, steps lose their meaning: some of its ranks begin the round again, and others have moved on. The
round abandons its schedule: each running rank fetches its missing parts straight from the ranks that packed them, as
soon as they are ready, one message at a time. Data that was read stays in place until all have written (`free`), and
the lost worker's data is read again; received parts stay, and are not requested again. A rank with its part written
fetches nothing: others may have released the data for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from distributed import Reschedule, Worker, get_worker
from distributed.worker_state_machine import SecedeEvent

from oocarrays.errors import RunError
from oocarrays.graphs.events import tell
from oocarrays.graphs.exchange.between import Delivered, Exchanges
from oocarrays.graphs.exchange.messages import (
    LOOK_SECONDS,
    Carried,
    NotYet,
    arrived_parts,
    arriving,
    bytes_for,
    carried_parts,
    exchange_of,
    held_key,
    sent_parts,
)
from oocarrays.graphs.run.live import is_given_up
from oocarrays.graphs.run.program import AROUND, SUFFIX
from oocarrays.plan.exchange.ordering import CREDIT
from oocarrays.plan.exchange.schedule import IDLE

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.nearby import Message
    from oocarrays.graphs.exchange.messages import Live, Round


async def whole_round(run: Any, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Run a round of one rank by its schedule, on a worker; return the rank's region."""
    return await _through(RankRound, run, key, args, held)


async def arrivals(run: Any, key: tuple[Any, ...], args: tuple[int, ...], held: Any, *after: Any) -> Any:
    """Fetch all parts for one rank as soon as each is ready, on a worker; return the result."""
    return await _through(Takes, run, key, args, held)


async def _through(kind: type[RankRound], run: Any, key: tuple[Any, ...], args: tuple[int, ...], held: Any) -> Any:
    *round, rank = args
    around = AROUND.get()
    key = around or key
    withdrawn: BaseException | None = None
    with run.during("round", args, key=key):
        worker = get_worker()
        if around is None:
            worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"oocarrays-{run.id}"))
        try:
            region = await kind(run.live, tuple(round), rank, held, worker, key).through()
        except asyncio.CancelledError as error:  # no failure of the run
            withdrawn = error
        except Stopped:
            if is_given_up(key):
                raise RunError(f"run {run.id} has been given up") from None
            withdrawn = Reschedule()
    if withdrawn is not None:
        raise withdrawn
    tell(run.topic, "round", args, run.meter)
    return region


T = TypeVar("T")
PAUSE_SECONDS = 0.05
"""Seconds that a rank waits for a part that is not ready, before it asks other ranks."""


class GivenUp(Exception):
    """Signal that a worker was lost, and the round continues without its schedule."""


class Stopped(Exception):
    """Signal that the round is no longer wanted."""


class RankRound:
    def __init__(self, live: Live, round: Round, rank: int, held: Any, worker: Worker, key: tuple[Any, ...]) -> None:
        self.live, self.round, self.rank, self.held = live, round, rank, held
        self.exchange = exchange_of(live)
        self.key, self.suffix = key, SUFFIX.findall(key[0])[0]
        self.place = live.id, round, rank
        self.order = self.exchange.order(live, round)
        self.given_up = False
        self._worker, self._exchanges = worker, Exchanges.of(worker)
        self._in_a_thread = self._exchanges.in_a_thread
        self._stage = 0
        self._region: Any = None
        self._came = {rank}
        self._carried: Carried | None = None
        self.going: dict[int, Message | None] = {}
        """Message of each stage that is offered, until it was taken."""
        self._interrupted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stopped = False
        self._unpacking = asyncio.Lock()

    def home_of(self, source: int) -> str:
        planned: str = self.live.state.homes[source]
        return self._exchanges.moved.get(self.suffix, {}).get(source, planned)

    def went(self, stage: int) -> None:
        """Record that the message of a stage was taken."""
        self.going.pop(stage, None)
        self._exchanges.changed()

    def give_up(self) -> None:
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
        """Wait for data from other ranks, unless the round is stopped or loses its schedule."""
        task = asyncio.ensure_future(work)
        try:
            either: set[asyncio.Future[Any]] = {task, self._interrupted}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            came = task.done()
            while not task.done():  # a task that connects may take a cancellation for a timeout
                task.cancel()
                await asyncio.wait({task}, timeout=PAUSE_SECONDS)
        finally:
            task.cancel()
        if came:
            return task.result()
        late: Any = None if task.cancelled() or task.exception() else task.result()
        if isinstance(late, Delivered):
            await late.taken()  # it will be sent again
        raise Stopped if self._stopped else GivenUp

    async def through(self) -> Any:
        """Run the round; return the rank's region."""
        self._exchanges.begin(self, self.live, self.held)
        try:
            await self._exchanges.know(self.suffix)
            self.given_up = self.given_up or self.suffix in self._exchanges.moved
            self._region = await self._in_a_thread(self._begun)
            if not self.given_up:
                with suppress(GivenUp):
                    await self._by_schedule()
            over = self.exchange.is_over
            if self.given_up and not await self._in_a_thread(lambda: over(self.live, self.round, self.rank)):
                await self._as_they_come(1)
            return self._region
        finally:
            self._exchanges.end(self)

    async def _by_schedule(self) -> None:
        """Run step by step; or fetch parts as soon as they are ready, if steps need not wait."""
        waits = self.exchange.waits(self.live, self.round)
        if not (waits or self.order.forwards):
            await self._as_they_come(CREDIT)
            return
        for stage, step in enumerate(self.order, 1):
            came = []
            if step.destinations[self.rank] != IDLE:
                self._open(stage)
            for source in step.sources(self.rank):
                delivered = await self._unless_interrupted(self._fetched(source, stage))
                if self.order.forwards:
                    came.append(delivered.message)
                await self._take(stage, delivered, source)
            if waits:
                await self._unless_interrupted(self._exchanges.until(lambda: not self.going))
            if self.order.forwards:
                given = self.order, stage, self.rank, self._carried, came, self.live.rooms
                self._carried = await self._in_a_thread(partial(carried_parts, *given))
        await self._unless_interrupted(self._exchanges.until(lambda: not self.going))

    def _open(self, stage: int) -> None:
        """Offer the message of a stage from now on."""
        own = partial(bytes_for, self.live, self.round, self.rank, self.held)
        self.going[stage] = sent_parts(self.order, stage, self.rank, own, self._carried)
        self._exchanges.changed()

    def _begun(self) -> Any:
        return self.exchange.begin(self.live, self.round, self.rank, self.held)

    async def _fetched(self, source: int, stage: int) -> Delivered:
        """Fetch the message of a stage; retry, because the scheduler will report on a worker that does not answer."""
        while True:
            try:
                return await self._exchanges.fetch(self, source, stage, None)
            except NotYet:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _take(self, stage: int, delivered: Delivered, source: int) -> None:
        """Unpack a message, and acknowledge it."""
        parts = arrived_parts(self.rank, [delivered.message])
        due = arriving(self.order, stage, self.rank) if stage and self.order.forwards else (source,)
        async with self._unpacking:
            with self.live.meter.phase("receive", (*self.round, stage, self.rank)):
                came = {origin: parts.get(origin) for origin in due if origin not in self._came}
                region, unpack = self._region, self.exchange.unpack
                self._region = await self._in_a_thread(lambda: unpack(self.live, self.round, self.rank, region, came))
                self._came.update(came)
        await delivered.taken()

    async def _as_they_come(self, credit: int) -> None:
        """Fetch all missing parts, each as soon as it is ready."""
        if not self._stopped:
            self._interrupted = asyncio.get_running_loop().create_future()
        others = np.roll(np.arange(self.order.ranks), -self.rank)
        left = deque(int(origin) for origin in others if origin not in self._came)
        asked = len(left)

        async def take_some() -> None:
            nonlocal asked
            while left:
                origin, asked = left.popleft(), asked - 1
                patience = 0 if asked >= 0 else PAUSE_SECONDS  # first the ranks that are ready
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
        """Pause, because the last rank asked was not ready."""
        await asyncio.sleep(PAUSE_SECONDS / 10)

    async def _or_all_stop(self, work: Coroutine[Any, Any, None]) -> None:
        """Await ``work``; if it fails, end all waits of this round."""
        try:
            await work
        except BaseException:
            self._interrupt()
            raise


class Takes(RankRound):
    """Fetch of all parts for one rank, each as soon as it is ready: no step waits for another.

    The other ranks need not be running, only their data must exist. It is kept until all ranks have fetched their
    parts, and found where it was placed, or where the scheduler reports it.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._came |= set(self.exchange.silent(self.live, self.round, self.rank))
        self._homes: list[str] = list(self.live.state.homes)
        self._look_at, self._pause = 0.0, LOOK_SECONDS
        self._wanted: set[Any] = set()
        self._by = f"oocarrays-{self._worker.address}-{self.live.id}-{self.rank}"

    def home_of(self, source: int) -> str:
        return self._homes[source]

    def give_up(self) -> None:
        """Do nothing: this exchange has no schedule to abandon."""

    async def through(self) -> Any:
        self._exchanges.enter(self)
        try:
            self._region = await self._in_a_thread(self._begun)
            await self._as_they_come(CREDIT)
            return self._region
        finally:
            self._exchanges.end(self)
            if self._wanted:
                await self._worker.scheduler.oocarrays_release(by=self._by)

    async def _missed(self, origin: int) -> None:
        """Pause, and at growing intervals ask the scheduler for the location of missing data."""
        await super()._missed(origin)
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        self._look_at, self._pause = now + self._pause, min(2 * self._pause, 5.0)
        others = (rank for rank in range(self.order.ranks) if rank not in self._came)
        left = {held_key(self.live.id, rank): rank for rank in others}
        scheduler = self._worker.scheduler
        states, there = await scheduler.get_task_status(keys=[*left]), await scheduler.who_has(keys=[*left])
        gone = [key for key in left if states[key] in (None, "released", "forgotten")]
        self._wanted.update(gone)
        if gone and not await scheduler.oocarrays_want(keys=gone, by=self._by):
            raise RunError(
                f"a worker was lost after others had released parts that rank {self.rank} needs: compute it once more"
            )
        for key, rank in left.items():
            if there[key]:
                self._homes[rank] = there[key][int(now / LOOK_SECONDS) % len(there[key])]
