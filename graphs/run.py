"""A plan as a Dask collection, and running it on threads."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import dask.threaded
from dask.base import DaskMethodsMixin
from oocarrays.graphs.rechunk import Key, build_graph
from oocarrays.graphs.rechunk_tasks import RechunkRun

from oocarrays.storage.meter import Meter


class GraphJob(DaskMethodsMixin):
    """A run as a Dask collection of one value.

    Parameters
    ----------
    run : RechunkRun
        What the tasks do.
    result : callable
        Makes the value that a person gets of the last task's.
    """

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __init__(self, run: RechunkRun, result: Callable[[str], Any]) -> None:
        self._run = run
        self._result = result
        self._graph, self._key = build_graph(run)
        self.measured_seconds: float | None = None
        """Seconds that the last `run` took."""

    @property
    def meter(self) -> Meter:
        """What the last run really read and wrote."""
        return self._run.meter

    @property
    def run_id(self) -> str:
        """The id in the keys of this job's tasks."""
        return self._run.id

    def _execute(self) -> Any:
        """Run the graph on as many threads as can have work."""
        threads = max((step.ranks * max(step.slabs, step.depth) for step in self._run.plan.passes), default=1)
        start = time.perf_counter()
        try:
            name = dask.threaded.get(self._graph, self._key, num_workers=threads)
        except BaseException as error:
            self._run.abort(error)
            self._run.settle()
            raise
        self.measured_seconds = time.perf_counter() - start
        return self._result(name)

    # ------------------------------------------------------------------ what Dask asks of a collection

    def __dask_graph__(self) -> dict[Key, Any]:
        return self._graph

    def __dask_keys__(self) -> list[Key]:
        return [self._key]

    def __dask_layers__(self) -> tuple[str, ...]:
        return (self._key[0],)

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **kwargs: Any) -> Any:
        return graph

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self._run.id

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _first, (self._result,)

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._persisted, ()

    def _persisted(self, graph: dict[Key, Any], *, rename: dict[str, str] | None = None) -> GraphJob:
        """The same job, its last task done."""
        job = object.__new__(type(self))
        job.__dict__.update(self.__dict__)
        job._graph = dict(graph)
        if rename:
            job._key = (rename.get(self._key[0], self._key[0]), *self._key[1:])
        return job


def _first(values: list[str], result: Callable[[str], Any]) -> Any:
    return result(values[0])
