"""Runs: executions of programs, as tasks that name plain functions.

    Program    frozen data that pickles: plan, sources, targets                        `graphs.run.program`
    Run        one execution of a program: one class for all kinds, subclassed by nothing
    Live       journal, syncer and open files of a run in one process; never pickled   `graphs.run.live`

    builder.add(reduce, rank) ─► Task(key, call, run, reduce, (rank,), …) ─► call ─► reduce(run.live, rank)

Threads share the run. On a cluster it travels once to each worker, which opens its own files.

A new kind of job is a plan, a program and its functions:

1. The program is frozen data, with `sources`, `targets` and `remaining`; `Program` says what else a kind may define.
   Targets check, create, open and finish themselves (`oocarrays.storage.files.target`).
2. A task is a function ``verb(live, *args, *inputs)`` of a module. Its name is in keys, events and phases; a task that
   only waits is ``builder.add(barrier, …, name=verb)``. A function that begins or ends a rank's share of a run calls
   ``live.look()``, as `create`, `probe` and `recording.end` do; the function that begins a run is named ``create``.
3. What a process opens once is made by ``live.once(key, make)``, a target is opened by ``live.target(number)``.
4. Messages are an `Exchange` (`graphs.exchange.messages`); ``steps_of(builder)`` adds their tasks.
5. `Program.graph` adds the tasks of a job. Lazy tasks are built around ``Builder(run.id, call, run)``: no task begins
   their run, so each fails by itself.
6. Several runs may be parts of one job: they report together, and a failure of one stops all.
"""

from __future__ import annotations

import threading
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any, Generic, TypeVar, final

from dask.task_spec import Task

from oocarrays.errors import DescriptorError, KernelError, NotFoundError, RunError, UnsupportedError
from oocarrays.graphs.cluster.placement import Probed
from oocarrays.graphs.events import tell, this_worker, topic_of
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import GIVEN_UP, LIVE, SETTLE_SECONDS, Live, P, RunState, Sealed, is_given_up
from oocarrays.graphs.run.program import Builder, InPlace, Part, Remaining, new_suffix
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import setting
from oocarrays.plan.documents import Document
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.meter import Meter

T = TypeVar("T")
BEGINS = "create"
"""Name of the function that begins a run: it is called after a failure, too, and its task returns the run."""


@final
class Run(Generic[P]):
    """Execution of a program: its tasks are counted and reported, and the first failure stops them all."""

    def __init__(
        self,
        program: P,
        content: Document | None = None,
        recovered: Recovered = NOTHING_LEFT,
        id: str | None = None,
        parts: Sequence[Run[Any]] = (),
    ) -> None:
        id = recovered.id or id or uuid.uuid4().hex[:12]
        durable = bool(setting("durable"))
        self.state = RunState(
            id=id, processes=program.processes, durable=durable, content=content or {}, recovered=recovered
        )
        self._program = Sealed(program)
        self._arrive(parts)
        for part in parts:
            part._join(self)
        if parts:
            self.meter = self.live.meter
            self.live.parts = [part.live for part in parts]

    def _arrive(self, parts: Sequence[Run[Any]] = ()) -> None:
        self.running = 0
        """Number of tasks running in this process."""
        self.parts = tuple(parts)
        """Other runs of the same job, in the process that planned it."""
        self._whole: weakref.ref[Run[Any]] | None = None
        self._idle = threading.Condition()
        self._opening = threading.Lock()
        self._live: Live[P] | None = None
        LIVE[f"{self.id} {id(self)}"] = self  # runs of one job may have the same id

    def _join(self, whole: Run[Any]) -> None:
        """Become a part of another run: report to its listeners, and stop it after a failure."""
        self._whole = weakref.ref(whole)
        self.state.topic = whole.topic
        for part in self.parts:
            part._join(whole)

    def __getstate__(self) -> tuple[Sealed[P], RunState]:
        if self.processes is None and self.program.threads_stay:
            raise UnsupportedError(
                "this job was planned for threads of one process: compute it with scheduler='threads'"
            )
        return self._program, self.state

    def __setstate__(self, state: tuple[Sealed[P], RunState]) -> None:
        self._program, self.state = state
        self._arrive()

    @property
    def program(self) -> P:
        """Program; unpickled only where it is used: the scheduler may not see its stores."""
        return self._program.value

    @property
    def live(self) -> Live[P]:
        """State in this process, made at its first use."""
        with self._opening:
            if self._live is None:
                self._live = Live(self.program, self.state)
            return self._live

    def builder(self, addresses: Sequence[str] = (), after: Iterable[Key] = (), suffix: str = "") -> Builder:
        """Return a builder of the tasks of one graph, with new keys, the first ones ``after`` others."""
        self.state.homes = tuple(addresses) if self.program.whole else ()
        return Builder(suffix or new_suffix(), call, self, (create, probe), after)

    def graph(
        self, addresses: Sequence[str] = (), after: Iterable[Key] = (), suffix: str = ""
    ) -> tuple[dict[Key, Task], Key]:
        """Return the tasks, as `builder` makes them, and the key of the last one."""
        builder = self.builder(addresses, after, suffix)
        last = self.program.graph(builder, addresses, self.done)
        return builder.graph, last

    def call(self, function: Callable[..., T], args: tuple[Any, ...], given: Iterable[Any]) -> T:
        """Call the function of a task, and report it by its name and ``args``.

        After a failure, every task except `create` raises the first error, whichever task the scheduler hears of first.
        Tasks of lazy arrays fail one by one: no task begins their run, and they may be computed again.
        """
        live = self.live
        with self.during(function.__name__, args, begins=function.__name__ == BEGINS):
            result = function(live, *given)
        if self.on_workers:
            tell(self.topic, function.__name__, args, live.meter)  # on threads the counts stay in the meter
        return result

    @contextmanager
    def during(self, name: str, args: tuple[Any, ...], *, begins: bool = False, key: Any = None) -> Iterator[None]:
        """Measure a task while it runs, and stop the run if it fails; a coroutine gives its ``key``."""
        live = self.live
        with self._counted(live):
            if GIVEN_UP and is_given_up(key):
                raise RunError(f"run {self.id} has been given up")
            if live.failure and not begins:
                raise self.abort(live.failure)
            try:
                early = begins or not self.state.begun
                timed = nullcontext() if name in live.program.untimed else live.meter.phase(name, args)
                with timed, found(begins=early), live.compared():
                    yield
            except BaseException as error:  # noqa: BLE001  the first failure is passed on, of any type
                if begins:
                    live.failure = None  # of an earlier attempt in this process
                raise self.abort(error) from error.__cause__

    @contextmanager
    def _counted(self, live: Live[P]) -> Iterator[None]:
        """Count a task while it runs; after the last one of a failed run, release its targets for resuming."""
        with self._idle:
            self.running += 1
        try:
            yield
        finally:
            with self._idle:
                self.running -= 1
                if live.failure and not self.running:
                    live.release()
                    if self._whole and (whole := self._whole()):
                        whole.stop(live.failure)
                    if self.processes is None and isinstance(live.failure, KernelError):  # no other process takes part
                        recording.take_back(live)
                self._idle.notify_all()

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not run. Targets stay marked unfinished. Return the first failure.

        Parts done until then are recorded before the failure is reported: the run can be resumed at once.
        """
        if self.state.begun or self.program.targets:
            self.live.failure = error = self.live.failure or error
            self.live.syncer.stop()
        for part in self.parts:
            part.abort(error)
        return error

    def stop(self, failure: BaseException) -> None:
        """Record a failure outside the tasks of this process; the last running task, or else this, releases the run."""
        if self._live and (self.state.begun or self.program.targets):
            self._live.failure = self._live.failure or failure
            if not self.running:
                self._live.release()

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until running tasks have ended, so that nothing is written after a run has failed."""
        resumable &= not self.program.restarts
        for part in self.parts:
            part.settle(resumable=resumable)
        with self._idle:
            self._idle.wait_for(lambda: not self.running, SETTLE_SECONDS)
        self.live.syncer.stop()
        self.program.settle(self.live, resumable=resumable)
        self.live.release()

    def look_back(self) -> None:
        for part in self.parts:
            part.look_back()
        recording.look_back(self.live)

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def processes(self) -> int | None:
        return self.state.processes

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which report their work to the cluster."""
        return self.state.processes is not None

    @property
    def topic(self) -> str:
        return self.state.topic or topic_of(self.id)

    @property
    def meter(self) -> Meter:
        """Counts of the tasks that have run in this process, or have reported to it."""
        return self.live.meter

    @meter.setter
    def meter(self, meter: Meter) -> None:
        self.live.meter = meter
        for part in self.parts:
            part.meter = meter
        self.live.shares_meter |= bool(self.parts or self._whole)

    @property
    def destination(self) -> TargetSpec | InPlace:
        return self.program.destination

    @property
    def remaining(self) -> Remaining:
        return self.program.remaining(self.done, self.state.recovered.kept)

    @property
    def expected(self) -> tuple[float, float]:
        """Numbers of read requests and of chunk writes that remain."""
        each = [self.remaining[1:], *(part.expected for part in self.parts)]
        return sum(reads for reads, _ in each), sum(writes for _, writes in each)

    @property
    def done(self) -> frozenset[Part]:
        """Parts done before the run was resumed."""
        return self.state.recovered.done

    def reads(self) -> Iterable[Presence]:
        """Return the sources that the run reads and does not make, first those of its parts."""
        return chain(*(part.reads() for part in self.parts), self.program.presences)

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Journals and ids of end-of-run markers; empty on threads, which die together."""
        mine = self.on_workers and self.program.targets and not self.program.member
        own = [(Journal(self.live.store), self.id)] if mine else []
        return [*own, *(end for part in self.parts for end in part.ends)]

    @property
    def leaves(self) -> str:
        if not self.program.targets:
            return self.program.leaves
        begun = unfinished_run(self.live.store) == self.id
        return f"{self.live.store} is left unfinished: resume it" if begun else "nothing has been written"


@contextmanager
def found(*, begins: bool) -> Iterator[None]:
    """Raise RunError if data that existed at planning time is not found, by a task after the one that ``begins``."""
    try:
        yield
    except (NotFoundError, DescriptorError) as error:
        if begins:
            raise
        raise RunError(f"{error}; it was there when the run was planned") from error


def call(run: Run[Any], function: Callable[..., Any], args: tuple[Any, ...], count: int, *inputs: Any) -> Any:
    """Run a task with its plain arguments and its first ``count`` inputs; it only waits for the others."""
    result = run.call(function, args, (*args, *inputs[:count]))
    return run if function.__name__ == BEGINS else result


def probe(live: Live[Any], address: str, rank: int) -> Probed:
    """Return a rank, its planned worker and its actual worker; raise if that worker does not see the data."""
    live.look()
    live.program.check_visible()
    for target in live.program.targets:
        recording.check_folder(target.store)
    worker = this_worker()
    return rank, address, worker.address if worker else address


def create(live: Live[Any], *probes: Probed) -> None:
    """Begin a run; tasks that need it receive it from this one."""
    recording.begin(live, probes)


def barrier(live: Live[Any], *args: Any) -> None:
    """Do nothing: the task only waits for others."""
