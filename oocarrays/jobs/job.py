"""Base class of all jobs: a planned run, its execution, and its report."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

import dask.threaded
from dask.base import DaskMethodsMixin
from dask.task_spec import Task

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import NotFoundError, OocError, TargetError
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import Cluster, Disks, Worker
from oocarrays.graphs.dashboard.page import Told
from oocarrays.graphs.events import LISTENERS, Events, Move, heard, listen, warn_of_missing
from oocarrays.graphs.run.execution import (
    Graph,
    RunEvents,
    check_forked,
    check_forks,
    check_reach,
    forked,
    on_cluster,
    on_threads,
)
from oocarrays.graphs.run.program import itself, new_suffix
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import local_cores
from oocarrays.mapping.given import flag
from oocarrays.options.given import EACH_RUN, Resources
from oocarrays.plan.documents import Document
from oocarrays.plan.machine import check_count, spread
from oocarrays.plan.plan import Plan
from oocarrays.requests import check_continues, made_before
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.show.progress import ProgressBar
from oocarrays.show.report import COUNTED, bytes_text, measured, missing_text
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.making_room import is_empty
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.sources import trust_of
from oocarrays.storage.journal.texts import REQUEST
from oocarrays.storage.meter import Expected, Meter
from oocarrays.stored.array import opened

if TYPE_CHECKING:  # the runtime of today's oldest Python knows no defaults
    from typing_extensions import TypeVar

    Result = TypeVar("Result", default=Any)
    AnyRun = TypeVar("AnyRun", bound=Run[Any], default=Run[Any])
    AnyPlan = TypeVar("AnyPlan", bound=Plan, default=Any)
else:
    from typing import TypeVar

    Result = TypeVar("Result")
    AnyRun = TypeVar("AnyRun", bound=Run[Any])
    AnyPlan = TypeVar("AnyPlan")

RESUMER = "recovery.resume"
"""Module of `oocarrays.resume`, which imports all kinds of jobs: imported only to continue a run."""
LOG = logging.getLogger("oocarrays")
OFTEN = 2
"""Decodes per chunk, on average, above which a notice is given."""


class RunLog(Events):
    """Listener that logs the plan and the end of a job to ``oocarrays``: INFO, and ERROR if it failed."""

    def on_begin(self, job: Any) -> None:
        self._title = title = job._title()
        if LOG.isEnabledFor(logging.INFO):
            LOG.info("%s begins\n%s", title, job._planned())
        for notice in job.notices:
            LOG.warning("%s: %s", title, notice)

    def on_end(self, run: Any, error: BaseException | None) -> None:
        if error is not None:
            LOG.error("%s stopped: %s", self._title, str(error) or type(error).__name__)
        elif LOG.isEnabledFor(logging.INFO):
            LOG.info(
                "%s is done: %.1f s, %s read, %s written", self._title, run.measured_seconds or 0.0,
                bytes_text(run.meter.read_bytes), bytes_text(run.meter.written_bytes),
            )  # fmt: skip


class Job(DaskMethodsMixin, Generic[AnyRun, Result, AnyPlan]):
    """Planned run, as a Dask collection of one value: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``.

    Parameters
    ----------
    run : Run
        Run that the tasks carry out.
    result : callable
        Function that turns the value of the last task into the user's result.
    cluster : Cluster, optional
        Cluster to run on; by default, threads of this process.
    disks : Disks, optional
        Workers' own disks with the files of the ranks, if any: ranks stay there.
    """

    _counted: Sequence[str] = tuple(COUNTED)
    """Names of the counts that are compared with the plan."""
    _restarts = False
    """Whether a stopped run starts over if its journal cannot be continued."""
    _finished: tuple[str, ...] = ()
    """Notices of a job that finds its target finished."""
    _building: ClassVar = threading.RLock()
    """Lock held while a graph is built, so that all users of a job get the same graph."""

    def __init__(
        self, run: AnyRun, result: Callable[[str], Any], cluster: Cluster | None = None, disks: Disks | None = None
    ) -> None:
        self._run: AnyRun = run
        self._result = result
        self._cluster, self._disks = cluster, disks or Disks()
        if cluster:
            check_reach(run.program.stores)
            check_forks(run)
        put = self._put(cluster.workers()) if cluster else ()
        self._addresses: Sequence[str] = put if disks is None else disks.homes(put)
        self._built: Graph | None = None
        self._pinned: Mapping[str, Sequence[str]] = {}
        """Worker of each rank, by the suffix in the keys of the pinned tasks of the graph that was built."""
        self.measured_seconds: float | None = None
        """Duration of the last `run`, in seconds."""
        self.moves: list[Move] = []
        """Ranks that moved to another worker because their worker was lost: one entry per lost worker."""

    @property
    def plan(self) -> AnyPlan:
        """Frozen plan: reads, computation, messages, writes and memory."""
        return self._run.program.plan

    @property
    def left(self) -> float:
        """Share of the work that is left: 1 for a new run, less for a resumed one, 0 for a finished target."""
        return 0.0 if self.is_finished else self._left()

    def _left(self) -> float:
        return self._run.remaining.share

    @property
    def is_finished(self) -> bool:
        """Whether an earlier run of the same request has finished the target, so that nothing is left to do."""
        return bool(self._finished)

    def run(self, *, progress: bool = False) -> Result:
        """Run the job, on threads of this process or on the workers that it was planned for.

        Parameters
        ----------
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        OutOfCoreArray, OutOfCoreGroup, xarray.Dataset or xarray.DataArray
            The target, of the same kind as the source.

        Raises
        ------
        RunError
            If a chunk is corrupt, a device is full, a store refuses or a scheduler is gone; the target then stays
            marked unfinished, and `resume` continues it. Exceptions of the tasks of a lazy source propagate unchanged.
        """
        bar = [self._bar()] if flag(progress, "progress") else []
        with heard(self, (*LISTENERS, *bar, RunLog())):
            target: Result = self._opened() if self._finished else self._execute()
        return target

    def _opened(self) -> Any:
        """Open a finished target; remove the journal of its run, if any is left."""
        self.measured_seconds, target = 0.0, self._run.destination.store
        with suppress(OocError):  # another run that has just finished it removes its journal itself
            Journal(target).sweep()
        return self._result(_name(target))

    def asked_for(self, request: Document) -> Self:
        """Set the request in the journal, unless the resumed run has set it; return the job."""
        self._run.state.content = {**request, **self._run.state.content}
        return self

    def again(self, resume: Any, *, overwrite: bool = False, means: Resources | None = None, **how: Any) -> Self:
        """Return the job for a call with ``resume``: this one, the rest of a stopped one, or a finished one.

        Raise if the target is of another request, unless it is finished and ``overwrite``, or cannot be continued. With
        ``means`` and ``how``, the source and other arguments of the call, `oocarrays.resume` continues a stopped run.
        """
        trust, target = trust_of(resume), self._run.destination.store
        if trust is None or trust is resume or is_empty(target):  # `oocarrays.resume` has looked
            return self
        request = self._run.state.content[REQUEST]
        if unfinished_run(target) is None:
            return self._made_before(request, overwrite)
        check_continues(target, request, as_is=trust.as_is, compared=self._resumes())
        if self._resumes():
            return self
        resumed = import_module(f"oocarrays.{RESUMER}").resume
        try:
            same = means and means._only(*EACH_RUN, "workers", "ranks")
            return resumed(target, as_is=trust.as_is, verify=trust.verify, resources=same, **how)
        except NotFoundError:
            if self._restarts:
                return self
            raise

    def _resumes(self) -> bool:
        """Whether it was planned from the recovery of another run."""
        return self._run.state.recovered.id is not None

    def _made_before(self, request: Document, overwrite: bool) -> Self:
        """Return a finished job; raise if another request made the target."""
        try:
            self._finished = made_before(self._run, request)
        except TargetError:
            if not overwrite:
                raise
            return self
        name = _name(self._run.destination.store)
        key = (f"finished-{new_suffix()}", 0)
        self._built = {key: Task(key, itself, name)}, key
        return self

    def _bar(self) -> ProgressBar:
        return ProgressBar(self.plan, self._run)

    # ------------------------------------------------------------------ the graph, and its execution

    def _build(self) -> Graph:
        graph, last = self._run.graph(tuple(self._addresses))
        self._pinned = {suffix_of(last): self._addresses}
        return graph, last

    @property
    def _run_plan(self) -> Any:
        """Plan of the tasks of one graph."""
        return self.plan

    def _tasks(self) -> Any:
        """Return the number of tasks, known before the graph is built."""
        return self._run_plan.traffic.tasks

    def _whole(self) -> Graph:
        """Return the graph, built on first use: a plan may have more tasks than a graph can hold."""
        with Job._building:
            if self._built is None:
                check_count(self._tasks())
                self._built = self._build()
            return self._built

    @property
    def _graph(self) -> dict[Any, Any]:
        return self._whole()[0]

    @property
    def _key(self) -> Key:
        return self._whole()[1]

    def _put(self, workers: Sequence[Worker]) -> Sequence[str]:
        """Return the worker of each rank, chosen from the given workers; empty on threads."""
        return spread(self._run_plan.ranks, [worker.address for worker in workers])

    def _find_workers(self, cluster: Cluster) -> None:
        """Place ranks again if a worker has gone since the job was planned."""
        there = cluster.workers()
        if not {worker.address for worker in there}.issuperset(self._addresses):
            self._addresses = self._put(there)
        self._addresses = self._disks.homes(self._addresses)

    @property
    def meter(self) -> Meter:
        """Meter of the actual reads and writes of the last run."""
        return self._run.meter

    @property
    def run_id(self) -> str:
        """Id of the run: in the target's unfinished mark, in its journal and in the name of its scratch folder."""
        return self._run.id

    @property
    def placement(self) -> dict[int, str]:
        """Worker of each rank; empty if ranks are threads."""
        return dict(enumerate(self._addresses))

    def _execute(self) -> Any:
        start = time.perf_counter()
        if self._cluster:
            self._find_workers(self._cluster)
        self._run.look_back()
        self._built = None  # keys are new in each run; parts done by an earlier run are left out
        self._whole()
        if self._cluster:
            with forked(self._run, self._cluster.client):
                name = self._on_cluster(self._cluster)
        else:
            name = self._on_threads()
        self.measured_seconds = time.perf_counter() - start
        return self._ended(name)

    def _ended(self, name: str) -> Any:
        warn_of_missing(self.meter, self._warned_of())
        return self._result(name)

    def _warned_of(self) -> str:
        return " and ".join(each.name for each in self._run.reads() if each.missing == "warn")

    def _on_threads(self) -> Any:
        """Run the graph on as many threads as can be busy at once."""
        return on_threads(self._run, self._graph, self._key, self._threads())

    def _threads(self) -> int:
        plan = self._run_plan
        if hasattr(plan, "passes"):
            return max((step.ranks * max(step.slabs, step.depth) for step in plan.passes), default=1)
        return max(min(plan.ranks, 2 * local_cores()), 1)

    def _on_cluster(self, cluster: Cluster) -> Any:
        self._run.meter, self.moves = Meter(), []
        graph, where = self._announced(), (self._addresses, tuple(self._pinned))
        return on_cluster(self._run, cluster.client, graph, self._key, *where, self.moves)

    # ------------------------------------------------------------------ reports

    def explain(self) -> str:
        """Return the plan with every alternative and its cost, and after a run the measurements."""
        text = "\n".join([self._planned(), *self.notices])
        text += f"\n\n{report.memory_text(self.plan.memory)}"
        rows = [(each.name, missing_text(each.count_missing(), each.chunks)) for each in self._run.reads()]
        if rows:
            text += f"\n\nchunks missing\n{report.table(rows, indent='  ')}"
        if self.measured_seconds is None:
            return text
        found = [*self._measured(), ("missing chunks", "", str(self.meter.missing_chunks))]
        moves = "".join(f"\n{report.move_text(move, self.placement)}" for move in self.moves)
        return f"{text}\n\nlast run: {report.verdict(found[:-1])}\n{report.table(found, indent='  ')}{moves}"

    @property
    def notices(self) -> tuple[str, ...]:
        """Return notices: cut chunks, chunks decoded more than twice, and, of a resumed run, data written again or not
        verified."""
        return self._finished or self._noticed()

    def _noticed(self) -> tuple[str, ...]:
        places = (self._run.destination, *self._run.program.targets)
        said = (notice for place in places for notice in getattr(place, "said", ()))
        times = getattr(self.plan, "times_decoded", 0.0)
        again = f"each chunk is decoded {times:.1f} times: give more memory=, or rechunk the source first"
        often = (again,) if times > OFTEN else ()
        return (*dict.fromkeys(said), *often, *self._run.state.recovered.notices)

    def _planned(self) -> str:
        return report.planned_text(self._rows(), self.plan.alternatives)

    def _measured(self) -> list[tuple[str, str, str]]:
        phases = self._run.program.phases
        return measured(self.plan, self.meter, self.measured_seconds or 0.0, phases, self._counted)

    def _ran(self) -> Sequence[tuple[str, ...]]:
        """Return planned and measured values after a run; before it, nothing."""
        return () if self.measured_seconds is None else self._measured()

    def _rows(self) -> list[tuple[str, str]]:
        beside = self._beside()
        return [(name, text + beside.get(name, "")) for name, text in report.plan_rows(self.plan)]

    def _beside(self) -> Mapping[str, str]:
        """Return texts shown beside rows of the plan, by name."""
        return {}

    def _title(self) -> str:
        return f"oocarrays.{type(self).__name__} → {self._run.destination.store}"

    def __repr__(self) -> str:
        return f"<{self._title()}>\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=self._title(), measured=self._ran())

    # ------------------------------------------------------------------ Dask's collection protocol

    @staticmethod
    def __dask_scheduler__(*args: Any, **kwargs: Any) -> Any:
        return dask.threaded.get(*args, **kwargs)

    def __dask_graph__(self) -> dict[Key, Any]:
        if self._cluster:
            check_forked(self._run)
        return self._announced(self._run.ends)

    def _announced(self, ends: Sequence[tuple[Journal, str]] = ()) -> dict[Key, Any]:
        """Return the graph; on a cluster, first pin its tasks to workers and subscribe to the run's events."""
        if self._cluster and self._is_fresh():
            client, suffix = self._cluster.client, suffix_of(self._key)
            listen(client, self._run.topic, RunEvents(self._run, self.moves, {suffix: ends}, self._warned_of()))
            told = self._told()
            for suffix, addresses in self._pinned.items():
                pin(client, suffix, addresses, self._run.topic, told)
        return self._graph

    def _told(self) -> Told:
        plan, traffic = self._run_plan, self._run_plan.traffic
        return Told(
            title=f"{type(self).__name__.removesuffix('Job')} → {self._run.destination.store}",
            budget=plan.budget or 0,
            peak_bytes=plan.peak_bytes,
            expected=Expected(traffic.read_requests, traffic.read_bytes, traffic.write_requests, traffic.written_bytes),
        )

    def _is_fresh(self) -> bool:
        """Return whether the graph is still to be run: after `persist` it holds the result."""
        return len(self._graph) > 1

    def __dask_keys__(self) -> list[Key]:
        return [self._key]

    def __dask_layers__(self) -> tuple[str, ...]:
        return (self._key[0],)

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **kwargs: Any) -> Any:
        return graph

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self._key[0]

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _first, (self._result if self._cluster else self._ended,)  # on a cluster it travels to a worker

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._persisted, ()

    def _persisted(self, graph: dict[Key, Any], *, rename: dict[str, str] | None = None) -> Self:
        job = object.__new__(type(self))
        job.__dict__.update(self.__dict__)
        name, *rest = self._key
        job._built = dict(graph), ((rename or {}).get(name, name), *rest)
        return job


def _first(values: list[str], result: Callable[[str], Any]) -> Any:
    return result(values[0])


def suffix_of(key: Key) -> str:
    return key[0].rpartition("-")[2]


def array_at(store: StoreLike) -> OutOfCoreArray:
    return OutOfCoreArray(opened(store))


def opener(open: Callable[[Any], Result], store: StoreLike) -> Callable[[str], Result]:
    """Return the function that opens a result: in a local folder, at the name that the last task returns."""
    return open if local_folder(store) else lambda _: open(store)


def _name(store: StoreLike) -> str:
    """Return the name of a target as the run's last task returns it: its folder, or its store."""
    return local_folder(store) or str(store)
