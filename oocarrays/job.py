"""What all jobs have in common: a run that has been planned, is done once it is asked for, and says what it did."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from oocarrays import report
from oocarrays.graphs.run import GraphJob, Run

Result = TypeVar("Result")


class Job(GraphJob[Run], Generic[Run, Result]):
    """A run that has been planned and not yet done: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    @property
    def plan(self) -> Any:
        """What will be read, computed, sent, written and held: frozen data."""
        return self._run.plan

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
        bar: AbstractContextManager[None] = report.progress_bar(self.plan, self._run) if progress else nullcontext()
        self._begin()
        with bar:
            target: Result = self._execute()
        return target

    def _begin(self) -> None:
        """Get ready to run: once more, if need be."""

    def _with_last_run(self, text: str, measured: Sequence[tuple[str, str, str]]) -> str:
        """An explanation, and what the last run did, beside what was planned."""
        moves = "".join(f"\n{report.move_text(move, self.placement)}" for move in self.moves)
        return f"{text}\n\nlast run\n{report.table(measured, indent='  ')}{moves}"
