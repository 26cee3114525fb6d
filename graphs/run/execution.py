"""Execution of a graph: on threads of this process, or on the workers of a cluster."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import dask.threaded
from dask.utils import parse_timedelta
from zarr.storage import MemoryStore, StorePath

from oocarrays.errors import (
    CorruptChunkError,
    DiskFullError,
    KernelError,
    OocError,
    PlacementError,
    RunError,
    StoreFailure,
)
from oocarrays.graphs.cluster.placement import idle_workers
from oocarrays.graphs.events import Counting, Move, warn_of_missing
from oocarrays.graphs.run.live import SETTLE_SECONDS, settled
from oocarrays.graphs.run.recording import take_back
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import setting
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import remove_partials
from oocarrays.storage.files.places import store_path
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.meter import Meter
from oocarrays.storage.stores.joined import innermost, layers
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.sessions import SessionStore, taken_fork

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


# ---------------------------------------------------------------------- stores that workers reach


def check_forks(run: Any) -> None:
    """Raise if a run on workers writes groups, local files or several passes to an icechunk session."""
    program = run.program
    for name, store in program.stores.items():
        if name.startswith("target") and _session_of(store) is not None and not program.merges:
            raise PlacementError(
                f"the {name} {store} is an icechunk session, to which workers write single arrays in one pass: for "
                "groups, local array files and iterations pass scheduler='threads'"
            )


def check_forked(run: Any) -> None:
    """Raise if a graph for a cluster writes to a session that is not forked."""
    if any(store is not None and not store.is_shared for store in (_session_of(t.store) for t in _targets(run))):
        raise PlacementError("an icechunk session can be forked for workers by job.run() only, not by dask.compute")


@contextmanager
def forked(run: Any, client: Client) -> Iterator[None]:
    """Fork written sessions for the duration of the block; merge the writes if it ends without error."""
    stores = {id(store): store for target in _targets(run) if (store := _session_of(target.store)) is not None}
    if not stores:
        yield
        return
    if len(stores) > 1:
        raise PlacementError("in one run, workers write to a single icechunk session: pass targets in the same session")
    ((_, store),) = stores.items()
    arrays = {store_path(t.store).path: t.settings for t in _targets(run)}
    asked = getattr(run.destination, "scratch", None) or setting("scratch")
    scratch = asked if isinstance(asked, str) else None
    name, folder = uuid.uuid4().hex, tempfile.mkdtemp(prefix=".oocarrays-forks-", dir=scratch)
    try:
        store.begin_sharing(name, arrays, folder)
        yield
        store.merge(_taken(client, name))
    finally:
        store.end_sharing()
        with suppress(Exception):  # the workers may be gone
            _taken(client, name)
        shutil.rmtree(folder, ignore_errors=True)


def _taken(client: Client, name: str) -> Mapping[str, bytes]:
    """Return the bytes of each process's fork, by process signature."""
    found = client.run(taken_fork, name, on_error="ignore")
    return dict(each for each in found.values() if each is not None)


def _targets(run: Any) -> list[TargetSpec]:
    return [array for each in run.program.targets for array in each.members or (each,)]


def _session_of(place: Any) -> SessionStore | None:
    store = place.store if isinstance(place, StorePath) else place
    return store if isinstance(store, SessionStore) else None


def check_reach(stores: Mapping[str, Any]) -> None:
    """Raise if a store is in this process's memory, out of workers' reach, or if a target allows one writer only."""
    for name, store in stores.items():
        if is_here(store):
            raise PlacementError(f"the {name} {store} is in this process's memory: pass scheduler='threads'")
        if name.startswith("target") and (why := why_one_writer(store)):
            raise PlacementError(f"the {name} {store} {why}")


def why_one_writer(store: Any) -> str:
    """Return the reason why several workers cannot write to a store; empty if they can."""
    store = store.store if isinstance(store, StorePath) else store
    return next((why for each in layers(store) if (why := str(getattr(each, "one_writer", "")))), "")


def is_here(store: Any) -> bool:
    here = isinstance(store, RemoteStore) and store.name.startswith("memory://")
    return here or isinstance(innermost(store), MemoryStore)
