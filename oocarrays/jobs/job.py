"""What all jobs have in common: a run that has been planned, is done once it is asked for, and says what it did."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self

from dask.task_spec import Task

from oocarrays.errors import NotFoundError, OocError, TargetError
from oocarrays.graphs.run.builder import itself, new_suffix
from oocarrays.graphs.run.job import GraphJob, Run
from oocarrays.graphs.slabs.resume import trust_of
from oocarrays.mapping.given import flag
from oocarrays.plan.documents import Document
from oocarrays.requests.request import check_continues, made_before
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.show.planned import COUNTED, measured
from oocarrays.show.progress import progress_bar
from oocarrays.show.report import bytes_text, missing_text
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import REQUEST
from oocarrays.storage.metered import JOB_WATCHERS

if TYPE_CHECKING:  # the runtime of today's oldest Python knows no defaults
    from typing_extensions import TypeVar

    Result = TypeVar("Result", default=Any)
else:
    from typing import TypeVar

    Result = TypeVar("Result")

RESUMER = "leftovers.resume"
"""The module of `oocarrays.resume`, which knows all kinds of jobs: imported when a call continues one."""
LOG = logging.getLogger("oocarrays")
OFTEN = 2
"""Times that a chunk may be decoded, on average, before a person is told."""


class Job(GraphJob[Run], Generic[Run, Result]):
    """A run that has been planned and not yet done: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted: Sequence[str] = tuple(COUNTED)
    """What of a run is compared with its plan."""
    _restarts = False
    """Whether a run that stopped starts over where its journal cannot be continued."""
    _finished: tuple[str, ...] = ()
    """Notices of a job whose target was finished before."""

    @property
    def plan(self) -> Any:
        """Return the plan: all that will be read, computed, sent, written and held; frozen data."""
        return self._run.plan

    @property
    def left(self) -> float:
        """The share of the work that is still to be done: 1, less where a run is resumed, 0 where it was finished."""
        return 0.0 if self.is_finished else self._left()

    def _left(self) -> float:
        return float(getattr(self._run, "left", 1.0))

    @property
    def is_finished(self) -> bool:
        """Whether an earlier run of the same request has finished the target, so that there is nothing to do."""
        return bool(self._finished)

    def run(self, *, progress: bool = False) -> Result:
        """Do it, on threads of this process, or on the workers that it was planned for.

        Parameters
        ----------
        progress : bool
            Whether to show a bar.

        Returns
        -------
        OutOfCoreArray, OutOfCoreGroup, xarray.Dataset or xarray.DataArray
            The target: of the kind of the source.

        Raises
        ------
        RunError
            Where a chunk is corrupt, a device full, a store refuses or a scheduler is gone; the target then stays
            marked unfinished, and `resume` goes on with it. What the tasks of a lazy source raise is raised as it is.
        """
        bar: AbstractContextManager[None] = self._bar() if flag(progress, "progress") else nullcontext()
        self._begin()
        with bar, self._logged():
            target: Result = self._opened() if self._finished else self._execute()
        for told in tuple(JOB_WATCHERS):
            told(self)
        return target

    def _opened(self) -> Any:
        """Open a target that was finished before; remove what its run had no time to remove."""
        self.measured_seconds, target = 0.0, self._run.destination.store
        with suppress(OocError):  # another run that has just finished it removes its journal itself
            Journal(target).sweep()
        return self._result(_name(target))

    def asked_for(self, request: Document) -> Self:
        """Keep the request in the journal, unless that of the run that is resumed is there."""
        self._put_content({**request, **self._content})
        return self

    @property
    def _content(self) -> Document:
        """What the journal keeps of the run."""
        content: Document = getattr(self._run, "content", {})
        return content

    def _put_content(self, content: Document) -> None:
        run: Any = self._run
        run.content = content

    def again(self, resume: Any, *, overwrite: bool = False, **how: Any) -> Self:
        """Return the job of a call with ``resume``: this one, what is left of it, or one that has nothing to do.

        Parameters
        ----------
        resume : bool or str
            As of the call.
        overwrite : bool
            Whether a finished target of another request may be replaced.
        how : object
            Memory, ranks, kernel and the like, as `oocarrays.resume` takes them.

        Raises
        ------
        TargetError, JournalError
            Where the target is of another request, or cannot be continued.
        """
        trust, target = trust_of(resume), self._run.destination.store
        if trust is None or trust is resume or is_empty(target):  # `oocarrays.resume` has looked
            return self
        request = self._content[REQUEST]
        if unfinished_run(target) is None:
            return self._made_before(request, overwrite)
        check_continues(target, request, as_is=trust.as_is, compared=self._resumes())
        if self._resumes():
            return self
        resumed = import_module(f"oocarrays.{RESUMER}").resume
        try:
            left: Self = resumed(target, as_is=trust.as_is, verify=trust.verify, **how)
        except NotFoundError:
            if self._restarts:
                return self
            raise
        return left

    def _resumes(self) -> bool:
        """Whether it was planned from what another run has left."""
        return bool(getattr(self._run, "resumes", False))

    def _made_before(self, request: Document, overwrite: bool) -> Self:
        """Return a job that has nothing to do, unless another request has made the target."""
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

    @contextmanager
    def _logged(self) -> Iterator[None]:
        """Write into the log ``oocarrays`` what is planned, and how it ended: INFO, and ERROR where it stopped."""
        title = self._title()
        LOG.info("%s begins\n%s", title, self._planned())
        for notice in self.notices:
            LOG.warning("%s: %s", title, notice)
        try:
            yield
        except BaseException as error:
            LOG.error("%s stopped: %s", title, str(error) or type(error).__name__)
            raise
        meter = self.meter
        LOG.info(
            "%s is done: %.1f s, %s read, %s written", title, self.measured_seconds or 0.0,
            bytes_text(meter.read_bytes), bytes_text(meter.written_bytes),
        )  # fmt: skip

    def _bar(self) -> AbstractContextManager[None]:
        return progress_bar(self.plan, self._run)

    def _begin(self) -> None:
        """Get ready to run: once more, if need be."""

    # ------------------------------------------------------------------ what a person reads

    def explain(self) -> str:
        """The plan, with every way that was looked at and its cost, and after a run what was measured."""
        text = "\n".join([self._planned(), *self.notices])
        text += f"\n\n{report.memory_text(self.plan.memory)}"
        rows = [(each.name, missing_text(each.count_missing(), each.chunks)) for each in self._sources()]
        if rows:
            text += f"\n\nchunks missing\n{report.table(rows, indent='  ')}"
        if self.measured_seconds is None:
            return text
        found = [*self._measured(), ("missing chunks", "", str(self.meter.missing_chunks))]
        moves = "".join(f"\n{report.move_text(move, self.placement)}" for move in self.moves)
        return f"{text}\n\nlast run\n{report.table(found, indent='  ')}{moves}"

    @property
    def notices(self) -> tuple[str, ...]:
        """Return notices: chunks that are cut, or decoded more than twice; of a run that is resumed, what is written
        again or not looked at."""
        return self._finished or self._noticed()

    def _noticed(self) -> tuple[str, ...]:
        places = (self._run.destination, *getattr(self._run, "targets", ()))
        said = (notice for place in places for notice in getattr(place, "said", ()))
        times = getattr(self.plan, "times_decoded", 0.0)
        again = f"each chunk is decoded {times:.1f} times: give more memory=, or rechunk the source first"
        often = (again,) if times > OFTEN else ()
        return (*dict.fromkeys(said), *often, *getattr(self._run, "notices", ()))

    def _planned(self) -> str:
        return report.planned_text(self._rows(), self.plan.alternatives)

    def _measured(self) -> list[tuple[str, str, str]]:
        """Set what the last run did beside what was planned: names, and both values."""
        return measured(self.plan, self.meter, self.measured_seconds or 0.0, self._run.phases, self._counted)

    def _ran(self) -> Sequence[tuple[str, ...]]:
        """Return what was planned and measured, once it ran; else nothing."""
        return () if self.measured_seconds is None else self._measured()

    def _rows(self) -> list[tuple[str, str]]:
        """The plan as names and values."""
        beside = self._beside()
        return [(name, text + beside.get(name, "")) for name, text in report.plan_rows(self.plan)]

    def _beside(self) -> Mapping[str, str]:
        """Return what a row says beside the plan, by its name."""
        return {}

    def _title(self) -> str:
        return f"oocarrays.{type(self).__name__} → {self._run.destination.store}"

    def __repr__(self) -> str:
        return f"<{self._title()}>\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=self._title(), measured=self._ran())


def _name(store: StoreLike) -> str:
    """Name a target as a run's last task does: its folder, or its store."""
    return local_folder(store) or str(store)
