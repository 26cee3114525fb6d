"""Execution of a graph: on threads of this process, or on the workers of a cluster."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dask.threaded
from dask.utils import parse_timedelta

from oocarrays.errors import CorruptChunkError, DiskFullError, KernelError, OocError, RunError, StoreFailure
from oocarrays.graphs.cluster.placement import idle_workers
from oocarrays.graphs.events import Counting, Move, warn_of_missing
from oocarrays.graphs.run.live import SETTLE_SECONDS, settled
from oocarrays.graphs.run.recording import take_back
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import setting
from oocarrays.storage.files.documents import remove_partials
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from distributed import Client

Graph = tuple[dict[Any, Any], Key]
"""Tasks by key, and the key of the last task."""
LOOK_SECONDS = 5
"""Seconds between two checks of a run's workers."""
LOG = logging.getLogger("oocarrays")


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


def on_threads(run: Run[Any], graph: Mapping[Key, Any], key: Key, count: int) -> Any:
    run.meter = Meter()
    threads = Threads(count)
    try:
        return dask.threaded.get(graph, key, pool=threads)
    except BaseException as error:
        run.abort(error)
        threads.give_up()
        run.settle(resumable=not isinstance(error, Exception))
        raise
    finally:
        threads.shutdown(wait=False)


def on_cluster(
    run: Run[Any], client: Client, graph: Mapping[Key, Any], key: Key, workers: Collection[str],
    suffixes: Collection[str], moves: Sequence[Move],
) -> Any:  # fmt: skip
    """Return the result of a task of a graph, computed on workers, which are pinned by the suffixes of the keys."""
    future = client.get(graph, key, sync=False)
    try:
        found = _awaited(run, client, future, workers, moves)
    except BaseException as error:
        taken_away = future.cancelled()  # not by us yet
        _cancel(run, client, future, suffixes)
        run.settle(resumable=resumable(error))
        if isinstance(error, KernelError):
            take_back(run.live)
        told = _explained(error, client, run, taken_away=taken_away)
        if told is error:
            raise
        raise told from error
    finally:
        with suppress(Exception):
            future.release()  # at once: while wanted, the last task is run again when its worker dies
            client.unsubscribe_topic(run.topic)
    forget(run.ends)
    if moves:  # a worker that died while it wrote a chunk has left a partial file
        remove_partials(run.destination.store)
    return found


def _awaited(run: Run[Any], client: Client, future: Any, workers: Collection[str], moves: Sequence[Move]) -> Any:
    """Return the result; raise if the needed workers stay idle for longer than the `give-up` setting."""
    idle_since: dict[str, float] = {}
    while True:
        try:
            return future.result(timeout=LOOK_SECONDS)
        except TimeoutError:
            if future.done():  # finished meanwhile, or a task raised TimeoutError
                return future.result()
        idle = idle_workers(client, {*workers, *(move.worker for move in moves)})
        now = time.monotonic()
        idle_since = {why: idle_since.get(why, now) for why in idle}
        for why, since in idle_since.items():
            if now - since > parse_timedelta(setting("give-up")):
                raise RunError(f"{why} for {now - since:.0f} s; {run.leaves}")


def _cancel(run: Run[Any], client: Client, future: Any, suffixes: Collection[str]) -> None:
    """Cancel the run and wait for its running tasks; if the scheduler is gone, its workers end too."""
    with suppress(Exception):
        if _is_lost(client):
            return
        future.cancel(force=True)
        client.run(settled, (run.id,), tuple(suffixes))


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
    return client.status != "running"
