"""Base class of all jobs: a planned run, its execution, and its report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Self

from dask.task_spec import Task

from oocarrays.errors import NotFoundError, OocError, TargetError
from oocarrays.graphs.events import LISTENERS, Events, heard
from oocarrays.graphs.run.builder import itself, new_suffix
from oocarrays.graphs.run.job import AnyRun, GraphJob
from oocarrays.graphs.run.recovery import trust_of
from oocarrays.mapping.given import flag
from oocarrays.plan.documents import Document
from oocarrays.requests import check_continues, made_before
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.show.progress import ProgressBar
from oocarrays.show.report import COUNTED, bytes_text, measured, missing_text
from oocarrays.storage.files.creating import is_empty
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.texts import REQUEST

if TYPE_CHECKING:  # the runtime of today's oldest Python knows no defaults
    from typing_extensions import TypeVar

    Result = TypeVar("Result", default=Any)
else:
    from typing import TypeVar

    Result = TypeVar("Result")

RESUMER = "recovery.resume"
"""Module of `oocarrays.resume`, which imports all kinds of jobs: imported only to continue a run."""
LOG = logging.getLogger("oocarrays")
OFTEN = 2
"""Decodes per chunk, on average, above which a notice is given."""


class RunLog(Events):
    """Listener that logs the plan and the end of a job to ``oocarrays``: INFO, and ERROR if it failed."""

    def on_begin(self, job: Any) -> None:
        """Log the plan and the notices."""
        self._title = title = job._title()
        LOG.info("%s begins\n%s", title, job._planned())
        for notice in job.notices:
            LOG.warning("%s: %s", title, notice)

    def on_end(self, run: Any, error: BaseException | None) -> None:
        """Log the error, or the seconds and bytes of the run."""
        if error is not None:
            LOG.error("%s stopped: %s", self._title, str(error) or type(error).__name__)
            return
        LOG.info(
            "%s is done: %.1f s, %s read, %s written", self._title, run.measured_seconds or 0.0,
            bytes_text(run.meter.read_bytes), bytes_text(run.meter.written_bytes),
        )  # fmt: skip


class Job(GraphJob[AnyRun], Generic[AnyRun, Result]):
    """Planned run: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted: Sequence[str] = tuple(COUNTED)
    """Names of the counts that are compared with the plan."""
    _restarts = False
    """Whether a stopped run starts over if its journal cannot be continued."""
    _finished: tuple[str, ...] = ()
    """Notices of a job that finds its target finished."""

    @property
    def plan(self) -> Any:
        """Frozen plan: reads, computation, messages, writes and memory."""
        return self._run.plan

    @property
    def left(self) -> float:
        """Share of the work that is left: 1 for a new run, less for a resumed one, 0 for a finished target."""
        return 0.0 if self.is_finished else self._left()

    def _left(self) -> float:
        return self._run.left

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
        self._begin()
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
        self._put_content({**request, **self._content})
        return self

    @property
    def _content(self) -> Document:
        """Content of the run's journal."""
        content: Document = getattr(self._run, "content", {})
        return content

    def _put_content(self, content: Document) -> None:
        run: Any = self._run
        run.content = content

    def again(self, resume: Any, *, overwrite: bool = False, **how: Any) -> Self:
        """Return the job for a call with ``resume``: this one, the rest of a stopped one, or a finished one.

        Parameters
        ----------
        resume : bool or str
            As of the call.
        overwrite : bool
            Whether a finished target of another request may be replaced.
        how : object
            Memory, ranks, kernel and other arguments, as `oocarrays.resume` takes them.

        Raises
        ------
        TargetError, JournalError
            If the target is of another request, or cannot be continued.
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
        """Whether it was planned from the recovery of another run."""
        return bool(getattr(self._run, "resumes", False))

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

    def _begin(self) -> None:
        """Reset the state for a new run."""

    # ------------------------------------------------------------------ reports

    def explain(self) -> str:
        """Return the plan with every alternative and its cost, and after a run the measurements."""
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
        """Return notices: cut chunks, chunks decoded more than twice, and, of a resumed run, data written again or not
        verified."""
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
        """Return rows of name, planned value and measured value of the last run."""
        return measured(self.plan, self.meter, self.measured_seconds or 0.0, self._run.phases, self._counted)

    def _ran(self) -> Sequence[tuple[str, ...]]:
        """Return planned and measured values after a run; before it, nothing."""
        return () if self.measured_seconds is None else self._measured()

    def _rows(self) -> list[tuple[str, str]]:
        """Return the plan as names and values."""
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


def opener(open: Callable[[Any], Result], store: StoreLike) -> Callable[[str], Result]:
    """Return the function that opens a result: in a local folder, at the name that the last task returns."""
    return open if local_folder(store) else lambda _: open(store)


def _name(store: StoreLike) -> str:
    """Return the name of a target as the run's last task returns it: its folder, or its store."""
    return local_folder(store) or str(store)
