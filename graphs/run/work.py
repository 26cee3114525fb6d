"""What the tasks of one run have in common: they are counted, they say what they did, and the first failure stops all.

A run is one object for all its tasks. Between threads they share it; on a cluster it travels once to each worker.
"""

from __future__ import annotations

import re
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, ClassVar

from oocarrays.errors import DescriptorError, KernelError, NotFoundError, PlacementError, RunError, UnsupportedError
from oocarrays.graphs.cluster.placement import known_workers
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.tasks import SETTLE_SECONDS, Tasks
from oocarrays.graphs.run.telling import this_worker
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, folders_of
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.receipts import Receipt
from oocarrays.storage.local import syncing
from oocarrays.storage.local.syncing import Syncer

ONE_PROCESS = "this job was planned for threads of one process: compute it with scheduler='threads'"
"""Said of a run that would travel."""
LOOKS = ("probe", "create", "make", "close", "done", "finish")
"""What begins or ends a run, or a rank's share of it: what is read must be there."""
TIMED = ("copy", "assemble", "name", "round")
"""What says itself how long it read and wrote."""
SUFFIX = re.compile(r"-([0-9a-f]{12})")
"""What is in every key of a graph; Dask may append to it."""


class Work(Tasks):
    """One run, shared by its tasks."""

    phases: ClassVar[Mapping[str, str]] = {"read": "read", "write": "write"}
    """The phase of a plan in which the seconds of each verb count; others count as beginning and end."""
    threads_stay: ClassVar[bool] = False
    """Whether a run that was planned for threads cannot leave its process."""
    merges: ClassVar[bool] = False
    """Whether its targets are arrays that workers may write to copies of, which are merged at the end."""
    plan: Any
    """What it will do: frozen data."""
    destination: Any
    """Where it writes: ``destination.store``."""

    def __init__(self, store: StoreLike, processes: int | None, id: str | None) -> None:
        self.id = id or uuid.uuid4().hex[:12]
        self.processes = processes
        self.journal = Journal(store, durable=bool(setting("durable")))
        self._arrive()

    def __getstate__(self) -> dict[str, Any]:
        if self.threads_stay and self.processes is None:
            raise UnsupportedError(ONE_PROCESS)
        return super().__getstate__()

    def _here(self) -> None:
        """Begin the state that belongs to this process."""
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
        """Whether what it writes is on its device before that is written down."""
        return self.journal.durable

    @property
    def written_places(self) -> list[StoreLike]:
        """Stores, and folders of scratch, that are on their device before anything is written down in a journal."""
        return []

    @property
    def cached_places(self) -> list[StoreLike]:
        """Folders of scratch that stay in the system's cache: what is written down of them holds while it runs."""
        return []

    def record(self, part: tuple[int, ...], stored: Mapping[str, Mapping[str, Receipt]] | None = None) -> None:
        """Write down that a part is done, once it is on its device.

        Between threads nobody waits for that: they end together, and so parts are written down many at once. A
        worker's task waits, for what it has not written down when it ends is not done again if the worker dies.
        """
        self.syncer.then(partial(self.journal.prepare, part, stored), ahead=self.plan.ranks)
        if self.processes is not None:
            self.syncer.wait()

    def look_back(self) -> None:
        """Look, before a job is run once more, whether it can go on with what it has done."""

    @property
    def stores(self) -> dict[str, Any]:
        """Where it writes, and where it reads, if that is a store."""
        return {"target": self.destination.store}

    @property
    def ends(self) -> list[tuple[Journal, str]]:
        """Where it writes down that it ends, and as which run, until that has been heard."""
        return []

    @property
    def leaves(self) -> str:
        """Describe what a run that was cut short leaves."""
        begun = unfinished_run(self.destination.store) == self.id
        return f"{self.destination.store} is left unfinished: resume it" if begun else "nothing has been written"

    @property
    def on_workers(self) -> bool:
        """Whether ranks are workers, which tell a cluster what they did."""
        return self.processes is not None

    @contextmanager
    def _during(self, verb: str, args: tuple[int, ...]) -> Iterator[None]:
        """Measure a task while it runs, unless the run has failed; what fails first is what all others raise."""
        if self.failure and verb != "create":
            raise self.abort(self.failure)
        try:
            if verb in LOOKS:
                self.look()
            if verb == "create":
                self.look_for_lost()
            with nullcontext() if verb in TIMED else self.meter.phase(verb, args), _found(verb):
                yield
        except BaseException as error:  # noqa: BLE001  what failed first goes on, whatever it is
            if verb == "create":
                self.failure = None  # of an earlier time in this process
            raise self.abort(error) from error.__cause__

    def look(self) -> None:
        """Look at what is read, as far as it can be seen from here."""
        for presence in self.reads():
            presence.check()

    def look_for_lost(self) -> None:
        """Raise if an array that is read has lost chunks since it was planned."""
        for presence in self.reads():
            presence.check_planned()

    def reads(self) -> Iterable[Presence]:
        """Return what is read and not made by this run."""
        return ()

    def _probe(self, address: str, rank: int) -> tuple[int, str, str]:
        """Where a rank was put, and where it runs; its worker opens meanwhile what it reads."""
        self._check_visible()
        worker = this_worker()
        return rank, address, worker.address if worker else address

    def _check_visible(self) -> None:
        """Refuse a worker that does not see what is read or written."""

    def check_placement(self, probes: tuple[tuple[int, str, str], ...]) -> None:
        """Refuse a cluster that does not keep ranks where they were put, unless their worker is gone."""
        astray = [(rank, put, ran) for rank, put, ran in probes if put != ran]
        if astray and any(put in live_workers() for _, put, _ in astray):
            rank, put, ran = astray[0]
            raise PlacementError(
                f"rank {rank} was put on worker {put} and ran on {ran}: this cluster moves pinned tasks"
            )

    def take_back(self) -> None:
        """Remove what a kernel that failed has left, where nothing had been written."""

    def settle(self, *, resumable: bool = False) -> None:
        """Wait until tasks that had begun are done, so that nothing is written after a run has failed."""
        self._wait()
        self.journal.release()

    def _wait(self) -> None:
        with self._idle:
            self._idle.wait_for(lambda: not self._running, SETTLE_SECONDS)
        self.syncer.stop()

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not. The target stays marked unfinished.

        What failed first is what every later task raises, whichever of them the scheduler hears of first. What was done
        until then has been written down when it is heard of: somebody may resume at once.
        """
        self.failure = self.failure or error
        self.syncer.stop()
        return self.failure

    def _let_go(self) -> None:
        """Let the target of a failed run be resumed, also where nobody settles it: after ``dask.compute``."""
        if self.failure and not self._running:
            self.syncer.stop()
            self.journal.release()
            if self.processes is None and isinstance(self.failure, KernelError):  # threads are all of a run
                self.take_back()


@contextmanager
def _found(verb: str) -> Iterator[None]:
    """Raise as a fault of the run what a run that has begun does not find: it was there when it was asked for."""
    try:
        yield
    except (NotFoundError, DescriptorError) as error:
        if verb == "create":
            raise
        raise RunError(f"{error}; it was there when the run was planned") from error


def local_folders(places: Iterable[StoreLike]) -> list[str]:
    """Those of the places in which a run writes that are local folders."""
    return [folder for place in places for folder in folders_of(place)]


def was_ended() -> bool:
    """Whether the scheduler has heard of the last task of this task's graph, while somebody may want it again."""
    from distributed.utils import sync

    from oocarrays.graphs.cluster.pins import ended_name

    worker = this_worker()
    found = SUFFIX.search(str(worker.get_current_task())) if worker else None
    if worker is None or found is None:
        return False
    asked = sync(worker.loop, worker.scheduler.get_metadata, keys=[ended_name(found[1])], default=False)
    return bool(asked)


def live_workers() -> set[str]:
    """Addresses of the workers that this task's scheduler knows."""
    from distributed import worker_client

    with worker_client() as client:
        return set(known_workers(client))
