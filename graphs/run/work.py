"""State common to the tasks of one run: they are counted and reported, and the first failure stops them all.

A run is one object for all its tasks. Threads share it; on a cluster it travels once to each worker.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

from oocarrays.errors import (
    DescriptorError,
    DiskFullError,
    KernelError,
    NotFoundError,
    PlacementError,
    RunError,
    StoreFailure,
    UnsupportedError,
)
from oocarrays.graphs.cluster.placement import known_workers
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.events import ask_scheduler, this_worker, warn_person
from oocarrays.graphs.run.tasks import SETTLE_SECONDS, Tasks
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, folders_of, name_of
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.journal.texts import FOLDER
from oocarrays.storage.local import syncing
from oocarrays.storage.local.syncing import Syncer

SUFFIX = re.compile(r"-([0-9a-f]{12})")
"""Suffix in every key of a graph; Dask may append to it."""
Probed = tuple[int, str, str]
"""Rank, its planned worker and its actual worker."""


class Work(Tasks):
    """Run, shared by its tasks."""

    phases: ClassVar[Mapping[str, str]] = {"read": "read", "write": "write"}
    """Phase of a plan to which the seconds of each verb count; other verbs count as beginning and end."""
    threads_stay: ClassVar[bool] = False
    """Whether a run planned for threads cannot leave its process."""
    merges: ClassVar[bool] = False
    """Whether workers may write to copies of its target arrays, to be merged at the end."""
    plan: Any
    """Plan of the run: frozen data."""
    destination: Any
    """Destination of the run; it writes to ``destination.store``."""

    def __init__(self, store: StoreLike, processes: int | None, id: str | None) -> None:
        self.id = id or uuid.uuid4().hex[:12]
        self.processes = processes
        self.journal = Journal(store, durable=bool(setting("durable")))
        self._arrive()

    def __getstate__(self) -> dict[str, Any]:
        if self.threads_stay and self.processes is None:
            raise UnsupportedError(
                "this job was planned for threads of one process: compute it with scheduler='threads'"
            )
        return super().__getstate__()

    def _here(self) -> None:
        super()._here()
        there = weakref.ref(self)
        patience = syncing.GROUP_SECONDS if self.processes is None else 0.0
        self.syncer = Syncer(
            lambda: local_folders(run.written_places if (run := there()) else ()),
            active=self.durable,
            patience=patience,
            spare=lambda: local_folders(run.cached_places if (run := there()) else ()),
        )

    @property
    def durable(self) -> bool:
        """Whether data is synced to its device before it is recorded as written."""
        return self.journal.durable

    @property
    def written_places(self) -> list[StoreLike]:
        """Stores and scratch folders that are synced to their device before any record in a journal."""
        return []

    @property
    def cached_places(self) -> list[StoreLike]:
        """Scratch folders that stay in the system's cache; records of them hold until the system restarts."""
        return []

    def record(self, part: tuple[int, ...], stored: Mapping[str, Mapping[str, Receipt]] | None = None) -> None:
        """Record that a part is done, once it is on its device.

        Threads do not wait for that: they end together, and their records are written in groups. A worker's task
        waits: if the worker dies, Dask does not repeat a finished task to make up for a missing record.
        """
        self.syncer.then(partial(self.journal.prepare, part, stored), ahead=self.plan.ranks)
        if self.processes is not None:
            self.syncer.wait()

    def look_back(self) -> None:
        """Check, before a job is run again, whether it can continue from its finished parts."""

    @property
    def stores(self) -> dict[str, Any]:
        """Store that the run writes to, and the store that it reads from if any."""
        return {"target": self.destination.store}

    @property
    def left(self) -> float:
        """Share of the work that remains: less than 1 for a resumed run."""
        return 1.0

    @property
    def expected(self) -> tuple[float, float]:
        """Numbers of read requests and of chunk writes that remain."""
        return self.left * self.plan.traffic.read_requests, self.left * self.plan.traffic.write_requests

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Journals and run ids of end-of-run markers, which stay until the client has acknowledged them."""
        return []

    @property
    def leaves(self) -> str:
        """Description of the state that an interrupted run leaves."""
        begun = unfinished_run(self.destination.store) == self.id
        return f"{self.destination.store} is left unfinished: resume it" if begun else "nothing has been written"

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which report their work to the cluster."""
        return self.processes is not None

    @contextmanager
    def _during(self, verb: str, args: tuple[int, ...]) -> Iterator[None]:
        """Measure a task while it runs; after a failure, all tasks but ``create`` raise the first error.

        The sources are checked when a run, or a rank's share of it, begins and ends.
        """
        if self.failure and verb != "create":
            raise self.abort(self.failure)
        try:
            if verb in ("probe", "create", "make", "close", "done", "finish"):
                self.look()
            if verb == "create":
                self.look_for_lost()
            measures_itself = verb in ("copy", "assemble", "name", "round")
            with nullcontext() if measures_itself else self.meter.phase(verb, args), found(begins=verb == "create"):
                yield
        except BaseException as error:  # noqa: BLE001  the first failure is passed on, of any type
            if verb == "create":
                self.failure = None  # of an earlier attempt in this process
            raise self.abort(error) from error.__cause__

    def look(self) -> None:
        """Check the sources, as far as they are visible here."""
        for presence in self.reads():
            presence.check()

    def look_for_lost(self) -> None:
        """Raise if a source has lost chunks since the run was planned."""
        for presence in self.reads():
            presence.check_planned()

    def reads(self) -> Iterable[Presence]:
        """Return the sources that this run reads and does not make."""
        return ()

    def _probe(self, address: str, rank: int) -> Probed:
        """Return a rank, its planned worker and its actual worker; raise if that worker does not see the data."""
        self._check_visible()
        return probed(address, rank)

    def _check_visible(self) -> None:
        """Raise if this worker does not see the sources or the target."""

    def check_placement(self, probes: tuple[tuple[int, str, str], ...]) -> None:
        check_placement(probes)

    def take_back(self) -> None:
        """Remove the targets of a failed kernel in which nothing has been written; by default none."""

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until running tasks have ended, so that nothing is written after a run has failed."""
        self._wait()
        self.journal.release()

    def _wait(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._running, SETTLE_SECONDS)
        self.syncer.stop()

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not run. The target stays marked unfinished.

        Every later task raises the first failure, whichever task the scheduler hears of first. Parts done until then
        are recorded before the failure is reported: the run can be resumed at once.
        """
        self.failure = self.failure or error
        self.syncer.stop()
        return self.failure

    def _let_go(self) -> None:
        """Release the target of a failed run for resuming, even if `settle` is not called: after ``dask.compute``."""
        if self.failure and not self._running:
            self.syncer.stop()
            self.journal.release()
            if self.processes is None and isinstance(self.failure, KernelError):  # no other process takes part
                self.take_back()


class EndingRun(Work):
    """Run that records its end and removes its target's unfinished mark once, even if its tasks are repeated."""

    @property
    def written_places(self) -> list[StoreLike]:
        return [self.destination.store]

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Journal and id under which the run records its end; empty on threads, which die together."""
        return [] if self.processes is None else [(Journal(self.destination.store), self.id)]

    def has_ended(self) -> bool:
        """Return whether this run has already finished its target, and its last task is being repeated."""
        return self.processes is not None and has_ended(self.journal, self.id)

    def _end(self, gives: Any) -> Any:
        """End the run once and return ``gives``: remove the mark, then the journal except for the end-of-run marker."""
        if self.has_ended():
            (gives,) = self.journal.notes.ended(self.id) or (gives,)
        else:
            self._check_read()
            self._check_written()
            self._keep_request()
            finish_targets = self._finishing()
            self.syncer.finish()
            if self.failure:  # raised during the sync
                raise self.failure
            if self.ends:
                self.journal.notes.say_ended(self.id, gives)
            finish_targets()
        self.syncer.drop()
        remove_journal(self.journal, self.id if self.ends else None)
        return gives

    def _check_read(self) -> None:
        """Raise if a source has changed during the run."""

    def _check_written(self) -> None:
        """Raise if a store lacks chunks that it has acknowledged."""

    def _keep_request(self) -> None:
        """Keep the request beside the target, so that a later call can recognize the same request."""

    def _finishing(self) -> Callable[[], None]:
        """Write all that can be written before the sync; return a function that removes the marks."""
        return self._finish_targets

    def _finish_targets(self) -> None:
        """Remove the unfinished marks."""
        raise NotImplementedError


@contextmanager
def found(*, begins: bool) -> Iterator[None]:
    """Raise RunError if data that existed at planning time is not found, by a task after the one that ``begins``."""
    try:
        yield
    except (NotFoundError, DescriptorError) as error:
        if begins:
            raise
        raise RunError(f"{error}; it was there when the run was planned") from error


def check_placement(probes: Sequence[Probed]) -> None:
    """Raise if ranks ran on other workers than planned, unless the planned workers are gone."""
    astray = [(rank, put, ran) for rank, put, ran in probes if put != ran]
    if astray and any(put in live_workers() for _, put, _ in astray):
        rank, put, ran = astray[0]
        raise PlacementError(
            f"rank {rank} was pinned to worker {put} and ran on {ran}: this cluster moves pinned tasks"
        )


def probed(address: str, rank: int) -> Probed:
    """Return a rank, its planned worker and the worker that runs this task."""
    worker = this_worker()
    return rank, address, worker.address if worker else address


def local_folders(places: Iterable[StoreLike]) -> list[str]:
    """Return the local folders among the locations that a run writes to."""
    return [folder for place in places for folder in folders_of(place)]


def has_ended(journal: Journal, run: str) -> bool:
    """Return whether a run on workers has already finished its target, and its last task is being repeated."""
    return is_finished(journal.store) and (journal.notes.ended(run) is not None or was_ended())


def remove_journal(journal: Journal, ended: str | None) -> None:
    """Remove the journal of a finished target, except for the end-of-run marker, and release it; failures only warn."""
    try:
        journal.remove(ended=ended)
    except (DiskFullError, StoreFailure) as error:
        left = f"{name_of(journal.store)} is finished, and {FOLDER} in it is left: {error}"
        warn_person(f"{left}; resuming removes it", RuntimeWarning)
    journal.release()


def was_ended() -> bool:
    """Return whether the scheduler has recorded the end of this task's graph, while its result may be wanted again."""
    from oocarrays.graphs.cluster.pins import ended_name

    worker = this_worker()
    found = SUFFIX.search(str(worker.get_current_task())) if worker else None
    return found is not None and bool(ask_scheduler("get_metadata", keys=[ended_name(found[1])], default=False))


def live_workers() -> set[str]:
    """Return the addresses of the workers that this task's scheduler knows."""
    from distributed import worker_client

    with worker_client() as client:
        return set(known_workers(client))
