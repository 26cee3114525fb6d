"""Messages of whole rounds, from worker to worker: a rank's data is registered at its worker and sent on request.

    worker of rank 0                               worker of rank 1
    RankRound ─► fetch(stage, 1) ── request ────► take ─ waits until rank 1 is at that stage
                 a Message      ◄──── bytes ────       ─ a view of the held data, or packed now
                 unpacked       ───── taken ────►      ─ and rank 1 knows that it was taken

The receiver requests each message, so that none arrives without room for it, and none is kept for a rank that has not
asked. Requests use Dask's own connections. Messages within one machine are copied by `oocarrays.graphs.cluster.nearby`,
and ranks of one worker get views of each other's data. No thread waits here.

A rank is addressed at the worker on which it was placed. When that worker is lost, the scheduler tells every worker
(`pins`), and a worker that joins later asks the scheduler. The rounds of that graph abandon their schedule, and ranks
fetch their missing parts as these become available.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from distributed import Worker, WorkerPlugin
from distributed.core import Status
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import to_serialize

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.pins import EXCHANGES, homes_name
from oocarrays.graphs.exchange.messages import LOOK_SECONDS, NotYet, Peers, exchange_of, held_key, message_for
from oocarrays.graphs.run.live import GIVEN_UP
from oocarrays.plan.exchange.ordering import CREDIT

if TYPE_CHECKING:
    from distributed.comm.core import Comm

    from oocarrays.graphs.cluster.nearby import Message

T = TypeVar("T")
RankCourse = Any
"""Rank in the middle of a round, as seen by its worker: `oocarrays.graphs.exchange.whole.RankRound`."""
Place = tuple[str, tuple[int, ...], int]
"""Run id, round and rank."""
TAKE = "oocarrays_take"
"""Name of the request to a worker for a message."""
_SETUP = threading.Lock()


class AskedMessage(NamedTuple):
    place: Place
    """Run, round and rank of the sender."""
    stage: int
    """Stage of the message; 0 for the part of one rank for another, independent of stages."""
    destination: int
    """Requesting rank."""
    patience: float | None
    """Seconds to wait for the message; None for no limit."""


@dataclass(slots=True, eq=False)
class Held:
    """Memory that a rank holds for the other ranks of a round, from the read until all have written."""

    live: weakref.ref[Any]
    """Live state of the run that packs messages from it."""
    what: weakref.ref[Any]
    """Object that Dask keeps alive."""
    credit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CREDIT))
    """Limit on the messages from it that are in transit."""


@dataclass(frozen=True, slots=True)
class Delivered:
    message: Message | None
    """Parts of the message; None if empty."""
    taken: Callable[[], Awaitable[None]]
    """Acknowledgement to the sender, which holds the message until then; awaited once."""


def _answers(dask_worker: Worker) -> None:
    Exchanges.of(dask_worker)


class Exchanges(WorkerPlugin):
    """Exchanges of a worker, one object for all graphs.

    All methods run in the worker's event loop, except `of`, `hold` and `let_go`.
    """

    name = EXCHANGES

    @classmethod
    def of(cls, worker: Worker) -> Exchanges:
        """Return the exchanges of a worker, set up at the first call."""
        with _SETUP:
            if cls.name not in worker.extensions:
                cls().setup(worker)
        return worker.extensions[cls.name]

    def setup(self, worker: Worker) -> None:
        self.worker = worker
        self.courses: dict[Place, RankCourse] = {}
        self._held: dict[Place, Held] = {}
        self.moved: dict[str, dict[int, str]] = {}
        """Current workers of moved ranks, by the suffix of a graph that has lost a worker."""
        self._answer: set[str] = set()
        self._peers = Peers(worker)
        self._known: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        worker.handlers |= {TAKE: self.take}
        worker.extensions[self.name] = self

    def hold(self, live: Any, round: tuple[int, ...], rank: int, what: Any) -> None:
        """Register a rank's data for requests while the data exists; callable from any thread."""
        self.worker.loop.add_callback(self._hold, live, (live.id, round, rank), what)  # type: ignore[no-untyped-call]

    def _hold(self, live: Any, place: Place, what: Any) -> None:
        there = self._held.get(place)
        if there is None or there.what() is not what:
            self._held[place] = Held(weakref.ref(live), weakref.ref(what))
            self.changed()

    def let_go(self, place: Place) -> None:
        """Unregister data; callable from any thread."""
        self.worker.loop.add_callback(self._held.pop, place, None)  # type: ignore[no-untyped-call]

    def begin(self, course: RankCourse, live: Any, what: Any) -> None:
        """Register a rank in the middle of a round, and its data."""
        self._hold(live, course.place, what)
        self.enter(course)

    def enter(self, course: RankCourse) -> None:
        """Register a rank for notices about its round."""
        self.courses[course.place] = course
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        self.changed()

    def end(self, course: RankCourse) -> None:
        """Unregister a rank; its data stays registered."""
        place = course.place
        if self.courses.get(place) is course:
            del self.courses[place]
        self.changed()

    def changed(self) -> None:
        """Wake every coroutine that waits for a change on this worker."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, there: Callable[[], Any], patience: float | None = None) -> Any:
        """Wait up to ``patience`` seconds until ``there()`` is true; return its last value."""
        clock = asyncio.get_running_loop().time
        end = None if patience is None else clock() + patience
        while not (found := there()):
            left = None if end is None else end - clock()
            if left is not None and left <= 0:
                break
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                continue
        return found

    async def _watch(self) -> None:
        """Stop rounds that are no longer wanted: Dask does not interrupt a running task."""
        while self.courses:
            for course in list(self.courses.values()):
                task = self.worker.state.tasks.get(course.key)
                if task is None or task.state == "cancelled" or course.suffix in GIVEN_UP:
                    course.stop()
            self._held = {place: held for place, held in self._held.items() if held.what() is not None}
            await asyncio.sleep(LOOK_SECONDS)

    async def take(self, comm: Comm, *, place: Sequence[Any], **asked: Any) -> Any:
        """Send a rank of another worker its message, and wait until it was taken."""
        id, round, rank = place
        try:
            async with self._given(AskedMessage(place=(id, tuple(round), rank), **asked)) as (message, went):
                sent = None if message is None else to_serialize(message)  # type: ignore[no-untyped-call]
                await comm.write({"status": "OK", "message": sent})
                if await comm.read() == "taken":
                    went()
        except NotYet:
            return {"status": "not yet"}
        return Status.dont_reply

    @asynccontextmanager
    async def _given(self, asked: AskedMessage) -> AsyncIterator[tuple[Message | None, Callable[[], None]]]:
        """Wait for a message, and count it as in transit within this context; the callback is for when it was taken."""
        place, stage, destination, patience = asked
        if not await self.until(partial(self._can_give, place, stage), patience):
            raise NotYet
        held, course = self._held[place], self.courses.get(place) if stage else None
        async with held.credit:
            live, what = held.live(), held.what()
            if live is None or what is None:
                raise NotYet
            with live.meter.phase("send", (*place[1], stage, place[2])):
                packed = partial(message_for, live, place[1], place[2], what, destination)
                if course:
                    message = course.going[stage]
                else:
                    message = packed() if exchange_of(live).is_packed else await self.in_a_thread(packed)
                if message is not None:
                    live.meter.add(messages=1, sent_bytes=message.nbytes)
                yield message, partial(course.went, stage) if course else lambda: None

    def _can_give(self, place: Place, stage: int) -> bool:
        """Return whether a rank's message of a stage is ready."""
        held, course = self._held.get(place), self.courses.get(place)
        if (held is None or held.what() is None) and not self._is_kept(place):
            return False
        return course is not None and stage in course.going if stage else True

    def _is_kept(self, place: Place) -> bool:
        """Register data that came from another worker or from this worker's disk; return whether it is here."""
        key = held_key(place[0], place[2])
        if key not in self.worker.data:
            return False
        what: Any = self.worker.data[key]
        self._hold(what.live, place, what)
        return True

    async def in_a_thread(self, work: Callable[[], T]) -> T:
        """Run slow work on the worker's own threads, which are as many as it may use."""
        loop, context = asyncio.get_running_loop(), copy_context()
        return await asyncio.shield(loop.run_in_executor(self.worker.executors["default"], context.run, work))

    async def fetch(self, course: RankCourse, source: int, stage: int, patience: float | None) -> Delivered:
        """Fetch a message of another rank; the caller must acknowledge it."""
        asked = AskedMessage((course.live.id, course.round, source), stage, course.place[2], patience)
        home = course.home_of(source)
        return await (self._here(asked) if home == self.worker.address else self._from(home, asked))

    async def _here(self, asked: AskedMessage) -> Delivered:
        giving = self._given(asked)
        message, went = await giving.__aenter__()

        async def taken() -> None:
            went()
            await giving.__aexit__(None, None, None)

        return Delivered(message, taken)

    async def _from(self, home: str, asked: AskedMessage) -> Delivered:
        await self._have_answer(home)
        comm = await self._peers.answer(home, self.worker.rpc.connect(home))
        answer: Any = None
        try:
            await comm.write({"op": TAKE, **asked._asdict()})
            answer = await comm.read()
        except OSError as error:
            raise NotYet from error
        finally:
            if answer is None:  # a later request must not receive this answer
                comm.abort()
            if not isinstance(answer, Mapping) or answer["status"] != "OK":
                self.worker.rpc.reuse(home, comm)
        if answer is None or answer["status"] == "not yet":
            raise NotYet
        if answer["status"] != "OK":
            raise RunError(f"rank {asked.place[2]} cannot send: {answer.get('text')}")

        async def taken() -> None:
            try:
                await comm.write("taken")
            except OSError:  # the sender is gone
                comm.abort()
            finally:
                self.worker.rpc.reuse(home, comm)

        return Delivered(answer["message"], taken)

    async def _have_answer(self, home: str) -> None:
        """Set up the exchanges of another worker once: it may not have taken part in one yet."""
        if home not in self._answer:
            said = await self._peers.answer(home, self.worker.rpc(home).run(function=dumps(_answers)))
            if said["status"] == "OK":
                self._answer.add(home)

    async def know(self, suffix: str) -> None:
        """Ask the scheduler, at the first use of a graph here, whether a worker was lost before."""
        if suffix not in self._known:
            self._known[suffix] = asyncio.ensure_future(self._ask(suffix))
        await asyncio.shield(self._known[suffix])

    async def _ask(self, suffix: str) -> None:
        homes = await self.worker.scheduler.get_metadata(keys=[homes_name(suffix)], default=None)
        if homes is not None:
            self.lost(suffix, homes)

    def lost(self, suffix: str, homes: Sequence[tuple[int, str]]) -> None:
        """Record the new workers of the ranks that have moved, and abandon the schedules of that graph."""
        self.moved.setdefault(suffix, {}).update((rank, home) for rank, home in homes)
        for course in list(self.courses.values()):
            if course.suffix == suffix:
                course.give_up()
        self.changed()
