"""What all jobs have in common: a run that has been planned, is done once it is asked for, and says what it did."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Generic

from oocarrays.graphs.run.job import GraphJob, Run
from oocarrays.mapping.given import flag
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.show.planned import COUNTED, measured
from oocarrays.show.progress import progress_bar
from oocarrays.show.report import bytes_text, missing_text
from oocarrays.storage.watched import JOB_WATCHERS

if TYPE_CHECKING:  # the runtime of today's oldest Python knows no defaults
    from typing_extensions import TypeVar

    Result = TypeVar("Result", default=Any)
else:
    from typing import TypeVar

    Result = TypeVar("Result")

LOG = logging.getLogger("oocarrays")
OFTEN = 2
"""Times that a chunk may be decoded, on average, before a person is told."""


class Job(GraphJob[Run], Generic[Run, Result]):
    """A run that has been planned and not yet done: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    _counted: Sequence[str] = tuple(COUNTED)
    """What of a run is compared with its plan."""

    @property
    def plan(self) -> Any:
        """Return the plan: all that will be read, computed, sent, written and held; frozen data."""
        return self._run.plan

    @property
    def left(self) -> float:
        """The share of the work that is still to be done: 1, or less where a run is resumed."""
        return float(getattr(self._run, "left", 1.0))

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
            target: Result = self._execute()
        for told in tuple(JOB_WATCHERS):
            told(self)
        return target

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
        places = (self._run.destination, *getattr(self._run, "targets", ()))
        said = (notice for place in places for notice in getattr(place, "said", ()))
        times = getattr(self.plan, "times_decoded", 0.0)
        again = f"each chunk is decoded {times:.1f} times: give more memory=, or rechunk the source first"
        often = (again,) if times > OFTEN else ()
        return (*dict.fromkeys(said), *often, *getattr(self._run, "notices", ()))

    def _planned(self) -> str:
        """The plan as text."""
        return report.table(self._rows())

    def _measured(self) -> list[tuple[str, str, str]]:
        """Set what the last run did beside what was planned: names, and both values."""
        return measured(self.plan, self.meter, self.measured_seconds or 0.0, self._run.phases, self._counted)

    def _ran(self) -> Sequence[tuple[str, ...]]:
        """Return what was planned and measured, once it ran; else nothing."""
        return () if self.measured_seconds is None else self._measured()

    def _rows(self) -> list[tuple[str, str]]:
        """The plan as names and values."""
        raise NotImplementedError

    def _title(self) -> str:
        """Say what is done, and where it goes."""
        return f"oocarrays.{type(self).__name__} → {self._run.destination.store}"

    def __repr__(self) -> str:
        return f"<{self._title()}>\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=self._title(), measured=self._ran())
