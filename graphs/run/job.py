"""Plan as a Dask collection, run on threads or on the workers of a cluster."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import dask.threaded
from dask.base import DaskMethodsMixin
from dask.utils import parse_timedelta

from oocarrays.errors import (
    CorruptChunkError,
    DiskFullError,
    KernelError,
    OocError,
    RunError,
    StoreFailure,
)
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import Disks, Worker, idle_workers
from oocarrays.graphs.cluster.workers import check_forked, check_forks, forked
from oocarrays.graphs.dashboard.page import Told
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.events import Counting, Move, listen, warn_of_missing
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.run.tasks import SETTLE_SECONDS, settled
from oocarrays.mapping.layouts.local import spread
from oocarrays.plan.machine import check_count
from oocarrays.storage.files.documents import remove_partials
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.meter import Expected, Meter

if TYPE_CHECKING:
    from distributed import Client
from oocarrays.graphs.cluster.workers import Cluster, check_reach

Graph = tuple[dict[Any, Any], Key]
"""Tasks by key, and the key of the last task."""
AnyRun = TypeVar("AnyRun", bound=Run[Any])
LOOK_SECONDS = 5
"""Seconds between two checks of a run's workers."""


class Threads(ThreadPoolExecutor):
    """Threads of one run. After a failure, Dask does not stop tasks that are queued or have just begun."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._submitted: weakref.WeakSet[Future[Any]] = weakref.WeakSet()

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(*args, **kwargs)
        self._submitted.add(future)
        return future

    def give_up(self) -> None:
        """Cancel queued tasks, and wait up to `SETTLE_SECONDS` for running ones."""
        self.shutdown(wait=False, cancel_futures=True)
        wait([future for future in self._submitted if not future.cancelled()], SETTLE_SECONDS)


LOG = logging.getLogger("oocarrays")


class GraphJob(DaskMethodsMixin, Generic[AnyRun]):
    """Run as a Dask collection of one value.

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

    _building: ClassVar = threading.RLock()
    """Lock held while a graph is built, so that all users of a job get the same graph."""

    def __init__(
        self, run: AnyRun, result: Callable[[str], Any], cluster: Cluster | None = None, disks: Disks | None = None
    ) -> None:
        self._run: AnyRun = run
        self._result = result
        self._cluster, self._disks = cluster, disks or Disks()
        if cluster:
            check_reach(run.stores)
            check_forks(run)
        self._addresses: Sequence[str] = self._disks.homes(self._put(cluster.workers() if cluster else ()))
        self._built: Graph | None = None
        self.measured_seconds: float | None = None
        """Duration of the last `run`, in seconds."""
        self.moves: list[Move] = []
        """Ranks that moved to another worker because their worker was lost: one entry per lost worker."""

    def _build(self) -> Graph:
        """Return the graph and the key of its last task."""
        return self._run.graph(tuple(self._addresses))

    @property
    def _run_plan(self) -> Any:
        """Plan of the tasks of one graph."""
        return self._run.plan

    def _tasks(self) -> int:
        """Return the number of tasks, known before the graph is built."""
        count: int = self._run_plan.traffic.tasks
        return count

    def _whole(self) -> Graph:
        """Return the graph, built on first use: a plan may have more tasks than a graph can hold."""
        with GraphJob._building:
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
        """Warn of missing chunks, then return the result."""
        warn_of_missing(self.meter, self._warned_of())
        return self._result(name)

    def _warned_of(self) -> str:
        """Return the names of the sources that warn of missing chunks."""
        return " and ".join(each.name for each in self._sources() if each.missing == "warn")

    def _sources(self) -> Sequence[Presence]:
        """Return the sources that the run reads and does not make itself."""
        return tuple(self._run.reads())

    def _on_threads(self) -> str:
        """Run the graph on as many threads as can be busy at once."""
        self._run.meter = Meter()
        threads = Threads(self._threads())
        try:
            name: str = dask.threaded.get(self._graph, self._key, pool=threads)
        except BaseException as error:
            self._run.abort(error)
            threads.give_up()
            self._run.settle(resumable=not isinstance(error, Exception))
            raise
        finally:
            threads.shutdown(wait=False)
        return name

    def _threads(self) -> int:
        return max((step.ranks * max(step.slabs, step.depth) for step in self._run_plan.passes), default=1)

    def _on_cluster(self, cluster: Cluster) -> str:
        client = cluster.client
        self._run.meter, self.moves = Meter(), []
        future = client.get(self._announced(), self._key, sync=False)
        try:
            name: str = self._awaited(cluster, future)
        except BaseException as error:
            taken_away = future.cancelled()  # not by us yet
            self._cancel(client, future)
            self._run.settle(resumable=resumable(error))
            if isinstance(error, KernelError):
                self._run.take_back()
            told = _explained(error, client, self._run, taken_away=taken_away)
            if told is error:
                raise
            raise told from error
        finally:
            with suppress(Exception):
                future.release()  # at once: while wanted, the last task is run again when its worker dies
                client.unsubscribe_topic(self._run.topic)
        forget(self._run.ends)
        if self.moves:  # a worker that died while it wrote a chunk has left a partial file
            remove_partials(self._run.destination.store)
        return name

    def _awaited(self, cluster: Cluster, future: Any) -> str:
        """Return the result; raise if the needed workers stay idle for longer than the `give-up` setting."""
        idle_since: dict[str, float] = {}
        while True:
            try:
                name: str = future.result(timeout=LOOK_SECONDS)
                return name
            except TimeoutError:
                if future.done():  # finished meanwhile, or a task raised TimeoutError
                    return future.result()  # type: ignore[no-any-return]
            mine = {*self._addresses, *(move.worker for move in self.moves)}
            idle = idle_workers(cluster.client, mine)
            now = time.monotonic()
            idle_since = {why: idle_since.get(why, now) for why in idle}
            for why, since in idle_since.items():
                if now - since > parse_timedelta(setting("give-up")):
                    raise RunError(f"{why} for {now - since:.0f} s; {self._run.leaves}")

    def _cancel(self, client: Client, future: Any) -> None:
        """Cancel the run and wait for its running tasks; if the scheduler is gone, its workers end too."""
        with suppress(Exception):
            if _is_lost(client):
                return
            future.cancel(force=True)
            client.run(settled, (self._run.id,), tuple(self._homes()))

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
            client, suffix = self._cluster.client, self._key[0].rpartition("-")[2]
            listen(client, self._run.topic, RunEvents(self._run, self.moves, {suffix: ends}, self._warned_of()))
            told = self._told()
            for suffix, addresses in self._homes().items():
                pin(client, suffix, addresses, self._run.topic, told)
        return self._graph

    def _told(self) -> Told:
        """Return the description of the run for the cluster's dashboard."""
        plan, traffic = self._run_plan, self._run_plan.traffic
        return Told(
            title=f"{type(self).__name__.removesuffix('Job')} → {self._run.destination.store}",
            budget=plan.budget or 0,
            peak_bytes=plan.peak_bytes,
            expected=Expected(traffic.read_requests, traffic.read_bytes, traffic.write_requests, traffic.written_bytes),
        )

    def _homes(self) -> Mapping[str, Sequence[str]]:
        """Return the worker of each rank, by the suffix in the keys of the pinned tasks."""
        return {self._key[0].rpartition("-")[2]: self._addresses}

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

    def _persisted(self, graph: dict[Key, Any], *, rename: dict[str, str] | None = None) -> GraphJob[AnyRun]:
        """Return the same job with its last task done."""
        job = object.__new__(type(self))
        job.__dict__.update(self.__dict__)
        name, *rest = self._key
        job._built = dict(graph), ((rename or {}).get(name, name), *rest)
        return job


def forget(ends: Sequence[tuple[Journal, str]]) -> None:
    """Delete end-of-run markers that the client has acknowledged."""
    for journal, id in ends:
        with suppress(OocError):  # the marker is small, and no other run reads it
            journal.notes.was_heard(id)


class RunEvents(Counting):
    """Listener of a run on a cluster: it counts, records moves, warns of missing chunks, and acknowledges the end."""

    def __init__(
        self, run: Run[Any], moves: list[Move], ends: Mapping[str, Sequence[tuple[Journal, str]]], warned_of: str
    ) -> None:
        there = weakref.ref(run)
        super().__init__(lambda: None if (run := there()) is None else run.meter)
        self._moves, self._ends, self._warned_of = moves, ends, warned_of

    def on_moved(self, move: Move) -> None:
        """Record a move once: each array of a group reports it."""
        if move not in self._moves:
            self._moves.append(move)
            LOG.warning("worker %s was lost: ranks %s went to %s", move.lost, list(move.ranks), move.worker)

    def on_end(self, run: Any, error: BaseException | None) -> None:
        """Warn of missing chunks, and delete the end-of-run markers of the graph with this suffix."""
        if (counted := self.meter()) is not None:
            warn_of_missing(counted, self._warned_of)
        if found := self._ends.get(run):  # in a thread: a store may answer late, and the event loop must not wait
            threading.Thread(target=forget, args=(found,), name="oocarrays-heard").start()


def _first(values: list[str], result: Callable[[str], Any]) -> Any:
    return result(values[0])


def resumable(error: BaseException) -> bool:
    """Return whether scratch left by a failed run is reusable: neither the data nor the device caused the failure."""
    return not isinstance(error, CorruptChunkError | DiskFullError | StoreFailure)


def _explained(error: BaseException, client: Client, run: Any, *, taken_away: bool = False) -> BaseException:
    """Return an error that explains a failure of the cluster; return an error of the work unchanged."""
    from distributed import KilledWorker

    if taken_away and not isinstance(error, OocError | KeyboardInterrupt | SystemExit) and not _is_lost(client):
        return RunError(f"run {run.id} was cancelled, or its cluster restarted; {run.leaves}")
    if isinstance(error, KilledWorker):
        return RunError(f"workers died repeatedly, the last one {error.last_worker.address}; {run.leaves}")
    if isinstance(error, OocError) or not isinstance(error, Exception) or not _is_lost(client):
        return error
    address = getattr(client.scheduler, "address", "its address")
    return RunError(f"the scheduler at {address} is gone; {run.leaves}")


def _is_lost(client: Client) -> bool:
    """Return whether the connection to the scheduler is lost."""
    return client.status != "running"
