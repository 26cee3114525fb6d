"""Messages of whole rounds, from worker to worker: what ranks hold here is found here, and given when it is asked for.

    worker of rank 0                               worker of rank 1
    RankRound ─► fetch(stage, 1) ──── asks ─────► take ─ waits until rank 1 is at that stage
                 a Message      ◄──── bytes ────       ─ a view of what it holds, or packed now
                 unpacked       ───── taken ────►      ─ and rank 1 knows that it was taken

Who receives asks, so that nothing comes for which there is no room, and nothing is kept for those who have not asked.
What is asked goes over Dask's own connections; messages of one machine are copied by `oocarrays.graphs.cluster.nearby`,
and ranks of one worker have each other's views. No thread waits for anything here.

A rank is asked at the worker on which it was put. When that is lost, the scheduler tells every worker (`pins`), and one
that comes later asks the scheduler: the rounds of that graph are given up, and ranks take what they lack as they can.
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
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from distributed import Worker, WorkerPlugin
from distributed.core import Status
from distributed.protocol.pickle import dumps
from distributed.protocol.serialize import to_serialize

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.pins import LOST, homes_name
from oocarrays.graphs.exchange.messages import LOOK_SECONDS, NotYet, Peers, held_key
from oocarrays.graphs.run.tasks import GIVEN_UP
from oocarrays.plan.exchange.ordering import CREDIT

if TYPE_CHECKING:
    from distributed.comm.core import Comm

    from oocarrays.graphs.cluster.nearby import Message

T = TypeVar("T")
Place = tuple[str, tuple[int, ...], int]
"""A run's id, a round of it, and a rank."""
TAKE = "oocarrays_take"
"""What is asked of a worker."""
NAME = "oocarrays-exchanges"
"""Under which a worker has its exchanges."""
_SETUP = threading.Lock()


class AskedMessage(NamedTuple):
    """A message that is wanted."""

    place: Place
    """Of the rank that has packed it."""
    stage: int
    """The stage in which it goes; 0 for what a rank has for another, whatever the stage."""
    destination: int
    """The rank that asks."""
    patience: float | None
    """Seconds to wait for it; None for as long as it takes."""


class RankCourse(Protocol):
    """A rank in the middle of a round, as its worker knows it: see `oocarrays.graphs.exchange.whole.RankRound`."""

    place: Place
    key: Any
    suffix: str
    given_up: bool

    def held_by(self, source: int) -> Place:
        """Name what a rank holds for the others."""

    def home_of(self, source: int) -> str:
        """Return the worker at which that is asked for."""

    def is_at(self, stage: int) -> bool:
        """Whether it gives what goes in a stage."""

    def message(self, stage: int, destination: int) -> Message | None:
        """Give what goes in a stage."""

    def went(self, stage: int) -> None:
        """Take note that the message of a stage was taken."""

    def give_up(self) -> None:
        """Go by the schedule no longer."""

    def stop(self) -> None:
        """Do nothing more."""


@dataclass(slots=True, eq=False)
class Held:
    """Memory that a rank holds for the others of a round: there from when it is read until all have written."""

    run: weakref.ref[Any]
    """Which packs it."""
    what: weakref.ref[Any]
    """What Dask keeps."""
    credit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CREDIT))
    """Messages of it that may be under way."""


@dataclass(frozen=True, slots=True)
class Given:
    """A message that is under way."""

    message: Message | None
    """Its parts; None where there is nothing."""
    went: Callable[[], None]
    """Takes note that it was taken."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """A message that has come."""

    message: Message | None
    """Its parts; None where there is nothing."""
    taken: Callable[[], Awaitable[None]]
    """Says once that it was taken, to who holds it until then."""


def _answers(dask_worker: Worker) -> None:
    Exchanges.of(dask_worker)


def _nothing() -> None:
    """Take no note."""


class Exchanges(WorkerPlugin):
    """The exchanges of a worker, one for all graphs: all but `of`, `hold` and `let_go` is done in its event loop."""

    name = NAME

    @classmethod
    def of(cls, worker: Worker) -> Exchanges:
        """Return those of a worker, which answers for them from now on."""
        with _SETUP:
            if NAME not in worker.extensions:
                cls().setup(worker)
        there: Exchanges = worker.extensions[NAME]
        return there

    def setup(self, worker: Worker) -> None:
        """Answer whoever asks this worker."""
        self.worker = worker
        self.courses: dict[Place, RankCourse] = {}
        self._held: dict[Place, Held] = {}
        self._moved: dict[str, dict[int, str]] = {}
        self._answer: set[str] = set()
        self._peers = Peers(worker)
        self._known: dict[str, asyncio.Future[None]] = {}
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        worker.handlers |= {TAKE: self.take, LOST: self.lost}
        worker.extensions[NAME] = self

    # ------------------------------------------------------------------ what is held here

    def hold(self, run: Any, round: tuple[int, ...], rank: int, what: Any) -> None:
        """Have what a rank holds found, as long as it is there; from any thread."""
        self.hold_as((run.id, round, rank), run, what)

    def hold_as(self, place: Place, run: Any, what: Any) -> None:
        """Have it found under a name."""
        self.worker.loop.add_callback(self._hold, run, place, what)  # type: ignore[no-untyped-call]

    def _hold(self, run: Any, place: Place, what: Any) -> None:
        there = self._held.get(place)
        if there is None or there.what() is not what:
            self._held[place] = Held(weakref.ref(run), weakref.ref(what))
            self.changed()

    def let_go(self, place: Place) -> None:
        """Have it found no more; from any thread."""
        self.worker.loop.add_callback(self._held.pop, place, None)  # type: ignore[no-untyped-call]

    def begin(self, course: RankCourse, run: Any, what: Any) -> None:
        """Have a rank found that is in the middle of a round."""
        self._hold(run, course.place, what)
        self.enter(course)

    def enter(self, course: RankCourse) -> None:
        """Have a rank told of what happens to its round."""
        self.courses[course.place] = course
        if self._watching is None or self._watching.done():
            self._watching = asyncio.ensure_future(self._watch())
        self.changed()

    def end(self, course: RankCourse) -> None:
        """Have it found no more; what it holds is."""
        if self.courses.get(course.place) is course:
            del self.courses[course.place]
        self.changed()

    def changed(self) -> None:
        """Have all look again who wait for something here."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, there: Callable[[], Any], patience: float | None = None) -> Any:
        """Wait until something is there, for so many seconds at most; returns it, or what says that it is not."""
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
        """Stop rounds that nobody wants any more: Dask does not interrupt what has begun."""
        while self.courses:
            for course in list(self.courses.values()):
                task = self.worker.state.tasks.get(course.key)
                if task is None or task.state == "cancelled" or course.suffix in GIVEN_UP:
                    course.stop()
            self._held = {place: held for place, held in self._held.items() if held.what() is not None}
            await asyncio.sleep(LOOK_SECONDS)

    # ------------------------------------------------------------------ giving

    async def take(self, comm: Comm, *, place: Sequence[Any], **asked: Any) -> Any:
        """Give a rank of another worker its message, and wait until it has taken it."""
        id, round, rank = place
        try:
            async with self._given(AskedMessage(place=(id, tuple(round), rank), **asked)) as given:
                message = None if given.message is None else to_serialize(given.message)  # type: ignore[no-untyped-call]
                await comm.write({"status": "OK", "message": message})
                if await comm.read() == "taken":
                    given.went()
        except NotYet:
            return {"status": "not yet"}
        return Status.dont_reply

    @asynccontextmanager
    async def _given(self, asked: AskedMessage) -> AsyncIterator[Given]:
        """Wait for a message, and have it under way as long as this lasts."""
        place, stage, destination, patience = asked
        if not await self.until(partial(self._can_give, place, stage), patience):
            raise NotYet
        held, course = self._held[place], self.courses.get(place) if stage else None
        async with held.credit:
            run, what = held.run(), held.what()
            if run is None or what is None:
                raise NotYet
            with run.meter.phase("send", (*place[1], stage, place[2])):
                if course:
                    message = course.message(stage, destination)
                elif run.is_packed:
                    message = run.message_for(place[1], place[2], what, destination)
                else:
                    message = await self.in_a_thread(partial(run.message_for, place[1], place[2], what, destination))
                if message is not None:
                    run.meter.add(messages=1, sent_bytes=message.nbytes)
                yield Given(message, partial(course.went, stage) if course else _nothing)

    def _can_give(self, place: Place, stage: int) -> bool:
        """Whether a rank can give what goes in a stage."""
        held, course = self._held.get(place), self.courses.get(place)
        if (held is None or held.what() is None) and not self._is_kept(place):
            return False
        return course is not None and course.is_at(stage) if stage else True

    def _is_kept(self, place: Place) -> bool:
        """Whether this worker has what a rank holds, as it came from another worker, or was on its disk for a while."""
        key = held_key(place[0], place[2])
        if key not in self.worker.data:
            return False
        what: Any = self.worker.data[key]
        self._hold(what.run, place, what)
        return True

    async def in_a_thread(self, work: Callable[[], T]) -> T:
        """Do what takes time in one of the worker's threads, of which there are as many as it may use."""
        loop, context = asyncio.get_running_loop(), copy_context()
        done: T = await asyncio.shield(loop.run_in_executor(self.worker.executors["default"], context.run, work))
        return done

    # ------------------------------------------------------------------ taking

    async def fetch(self, course: RankCourse, source: int, stage: int, patience: float | None) -> Delivered:
        """Get a message of another rank, wherever that is; whoever takes it says so."""
        asked = AskedMessage(course.held_by(source), stage, course.place[2], patience)
        home = course.home_of(source)
        return await (self._here(asked) if home == self.worker.address else self._from(home, asked))

    async def _here(self, asked: AskedMessage) -> Delivered:
        """Get a message of a rank of this worker."""
        giving = self._given(asked)
        given = await giving.__aenter__()

        async def taken() -> None:
            given.went()
            await giving.__aexit__(None, None, None)

        return Delivered(given.message, taken)

    async def _from(self, home: str, asked: AskedMessage) -> Delivered:
        """Get a message of a rank of another worker."""
        await self._have_answer(home)
        comm = await self._peers.answer(home, self.worker.rpc.connect(home))
        answer: Any = None
        try:
            await comm.write({"op": TAKE, **asked._asdict()})
            answer = await comm.read()
        except OSError as error:
            raise NotYet from error
        finally:
            if answer is None:  # nothing else may come of what was asked over it
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
            except OSError:  # whoever sent it is gone
                comm.abort()
            finally:
                self.worker.rpc.reuse(home, comm)

        return Delivered(answer["message"], taken)

    async def _have_answer(self, home: str) -> None:
        """Have another worker answer, which may have had nothing to do with exchanges yet; once."""
        if home not in self._answer:
            said = await self._peers.answer(home, self.worker.rpc(home).run(function=dumps(_answers)))
            if said["status"] == "OK":
                self._answer.add(home)

    # ------------------------------------------------------------------ workers that are lost

    def home(self, suffix: str, source: int, planned: str) -> str:
        """Return the worker of a rank of a graph, wherever it has moved."""
        return self._moved.get(suffix, {}).get(source, planned)

    def is_broken(self, suffix: str) -> bool:
        """Whether a worker was lost that had ranks of a graph."""
        return suffix in self._moved

    async def know(self, suffix: str) -> None:
        """Ask the scheduler, when something of a graph is first done here, whether a worker was lost before."""
        if suffix not in self._known:
            self._known[suffix] = asyncio.ensure_future(self._ask(suffix))
        await asyncio.shield(self._known[suffix])

    async def _ask(self, suffix: str) -> None:
        homes = await self.worker.scheduler.get_metadata(keys=[homes_name(suffix)], default=None)
        if homes is not None:
            self.lost(suffix, homes)

    def lost(self, suffix: str, homes: Sequence[tuple[int, str]]) -> None:
        """Hear that a worker was lost, and where those ranks are that have moved."""
        self._moved.setdefault(suffix, {}).update((rank, home) for rank, home in homes)
        for course in list(self.courses.values()):
            if course.suffix == suffix:
                course.give_up()
        self.changed()
