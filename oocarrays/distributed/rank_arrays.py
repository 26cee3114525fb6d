"""Arrays of ranks, as handled by the client: one part for each rank, which stays on its worker."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import dask.config
import dask.threaded
import numpy as np
from dask.base import DaskMethodsMixin, tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Alias, TaskRef
from dask.utils import format_bytes

from oocarrays.errors import LayoutError, in_number
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import Cluster, Where
from oocarrays.graphs.events import Counting, listen, topic_of
from oocarrays.graphs.layouts.parts import Parts, layered
from oocarrays.graphs.run.live import settled
from oocarrays.graphs.run.steps import Key
from oocarrays.mapping.given import whole
from oocarrays.plan.layouts.alltoall import AlltoallPlan
from oocarrays.plan.layouts.halos import HaloPlan
from oocarrays.plan.layouts.multicast import MulticastPlan
from oocarrays.plan.machine import spread
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    import dask.array as da

Plan = TypeVar("Plan")


class RankArrays(DaskMethodsMixin):
    """Arrays of ranks, one a rank: a lazy Dask collection. ``persist`` keeps each rank's part on its worker."""

    _named: Callable[[], str]
    """Description in errors."""

    def __init__(
        self,
        shapes: Callable[[int], tuple[int, ...]],
        ranks: int,
        dtype: np.dtype,
        build: Callable[[], Parts],
        where: Where,
        plan: Any = None,
    ) -> None:
        self._plan = plan
        self._shape_of = shapes
        self._ranks = ranks
        self._dtype = dtype
        self._build = build
        self._place = where
        self._is_pinned = False

    @cached_property
    def tasks(self) -> Parts:
        """The tasks that make the parts."""
        return self._build()

    @property
    def cluster(self) -> Cluster | None:
        """Cluster of the ranks; None for threads of this process."""
        return self._place.cluster

    @property
    def workers(self) -> tuple[str, ...]:
        """Workers of the ranks, neighbours together."""
        return self._place.workers

    def local_shape(self, rank: int) -> tuple[int, ...]:
        """Return the extent of the part of ``rank`` along each axis, in elements.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        return self._shape_of(self._checked(rank))

    def _checked(self, rank: int) -> int:
        if not 0 <= (number := whole(rank, "rank", error=LayoutError)) < self.ranks:
            raise LayoutError(f"rank {rank} is not one of 0 to {self.ranks - 1}: {self._named()}")
        return number

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return self._dtype

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return self._ranks

    @property
    def placement(self) -> dict[int, str]:
        """Worker of each rank; empty if ranks are threads."""
        return dict(enumerate(spread(self.ranks, self.workers)))

    @property
    def meter(self) -> Meter:
        """Counts of all ranks' reads of stored arrays and of their messages so far."""
        return self._place.meter

    def local(self, rank: int) -> da.Array:
        """Return the part of ``rank``, in its own order: a Dask array of one block.

        Persist the part before passing it to `dask.delayed`: Dask repeats all its tasks for each call.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        rank = self._checked(rank)
        name = f"local-{tokenize(self.tasks.name, rank)}"
        shape = self._shape_of(rank)
        key: Key = (name, *[0] * len(shape))
        return self._lazy(name, {key: Alias(key, TaskRef(self.tasks.keys[rank]))}, tuple((n,) for n in shape))

    def _lazy(self, name: str, tasks: Mapping[Any, Any], lengths: tuple[tuple[int, ...], ...]) -> da.Array:
        import dask.array as da

        settings.refuse_array_expressions()
        graph = layered(self.tasks.graph, name, tasks, self.tasks.name)
        return da.Array(graph, name, lengths, dtype=self.dtype)

    def persist(self, **kwargs: Any) -> Self:
        """Return the same array, with every rank's part in the memory of its worker."""
        with self._pinned():
            made: Self = super().persist(**self._there(kwargs))  # type: ignore[no-untyped-call]
        return made

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        """Pin tasks once while a graph is sent: Dask may read the graph several times, and each pin asks the scheduler.
        If the work fails, wait for its running tasks before raising."""
        self._pin()
        self._is_pinned = True
        try:
            yield
        except BaseException:
            self._give_up()
            raise
        finally:
            self._is_pinned = False

    def _pin(self) -> None:
        if self.cluster and not self._is_pinned:
            for suffix, addresses in self.tasks.homes.items():
                listen(self.cluster.client, topic_of(suffix), Counting(weakref.ref(self.meter)))
                pin(self.cluster.client, suffix, addresses, topic_of(suffix))

    def _give_up(self) -> None:
        """Make workers refuse tasks of this graph that arrive late, and wait for running ones."""
        if self.cluster:
            suffixes = tuple(self.tasks.homes)
            with suppress(Exception):  # without a scheduler, workers end too
                self.cluster.client.run(settled, suffixes, suffixes, for_good=False)

    def _there(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the default location of a computation: the workers of its ranks."""
        if self.cluster:
            return {"scheduler": self.cluster.client, **options}
        here = dask.config.get("scheduler", "distributed") in ("distributed", "dask.distributed")
        return {"scheduler": "threads", **options} if here else options

    def _where(self) -> str:
        if not self.cluster:
            return f"{self.ranks} on threads of this process"
        there = [f"{rank} on {address}" for rank, address in self.placement.items()]
        more = len(there) - 8
        return ", ".join(there[:8]) + (f", … {more} more" if more > 0 else "")

    def _held(self) -> str:
        """Return the smallest and the largest part."""
        sizes = [math.prod(self._shape_of(rank)) * self.dtype.itemsize for rank in range(self.ranks)]
        least, most = format_bytes(min(sizes)), format_bytes(max(sizes))
        return most if least == most else f"{least} to {most}"

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_graph__(self) -> HighLevelGraph:
        self._pin()
        return self.tasks.graph

    def __dask_keys__(self) -> list[Key]:
        return list(self.tasks.keys)

    def __dask_layers__(self) -> tuple[str, ...]:
        return (self.tasks.name,)

    @staticmethod
    def __dask_optimize__(graph: Any, keys: Any, **kwargs: Any) -> Any:
        return graph

    def __dask_tokenize__(self) -> tuple[str, str]:
        return type(self).__name__, self.tasks.name

    def __dask_postpersist__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._persisted, ()

    def _persisted(self, graph: Mapping[Any, Any], *, rename: Mapping[str, str] | None = None) -> Self:
        """Return the array with its parts in memory; each is recomputed in its place if its worker is lost."""
        parts, names = self.tasks, rename or {}
        name = names.get(parts.name, parts.name)
        made = replace(
            parts,
            graph=layered(HighLevelGraph({}, {}), name, dict(graph)),
            name=name,
            keys=tuple((names.get(key[0], key[0]), *key[1:]) for key in parts.keys),
            homes=parts.homes if len(graph) > len(parts.keys) else {},  # tasks, after `dask.optimize`
        )
        array = object.__new__(type(self))
        array.__dict__.update(self.__dict__ | {"tasks": made})
        return array


class RankLists(RankArrays, Generic[Plan]):
    """Arrays of any shapes, one a rank: ``compute`` returns a list of numpy arrays."""

    _plan: Plan
    _title: Callable[[], str]
    _rows: Callable[[], list[tuple[str, str]]]

    @property
    def plan(self) -> Plan:
        """Frozen plan: the reads of each rank, messages between ranks, and their cost."""
        return self._plan

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Extent of each axis of each rank's array, in elements."""
        return tuple(map(self._shape_of, range(self.ranks)))

    def compute(self, **kwargs: Any) -> list[np.ndarray]:
        """Return every rank's array, in the memory of this process."""
        with self._pinned():
            return list(super().compute(**self._there(kwargs)))  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        return self.ranks

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return list, ()

    def explain(self) -> str:
        """Describe each rank's array, and the reads and messages for it."""
        return report.table(self._rows())

    def __repr__(self) -> str:
        return f"<{self._title()}>\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=self._title())


Moves = TypeVar("Moves", bound=HaloPlan | MulticastPlan | AlltoallPlan)


class RankBlocks(RankLists[Moves]):
    """Blocks of any shapes, one a rank: a lazy Dask collection. Created by `shift`, `multicast` and `exchange`.

    ``compute`` returns a list of numpy arrays; ``persist`` keeps each rank's block on its worker.
    """

    def __init__(self, plan: Moves, dtype: np.dtype, build: Callable[[], Parts], where: Where) -> None:
        super().__init__(plan.shape, plan.ranks, dtype, build, where, plan)

    @property
    def peak_bytes(self) -> int:
        """Peak memory of a rank in bytes: its part, its block, and messages."""
        return self._plan.peak_bytes

    def _named(self) -> str:
        return self._plan.title

    def _title(self) -> str:
        return in_number(f"oocarrays.RankBlocks of {self.ranks} ranks, {self.dtype}: {self._plan.title}")

    def _rows(self) -> list[tuple[str, str]]:
        plan = self._plan
        sent = f"{plan.messages}, {format_bytes(plan.sent_bytes)}, {plan.order}"
        return [
            *report.plan_rows(plan),
            ("ranks are", self._where()),
            ("messages", sent if self.cluster else "none: ranks are threads"),
            ("peak of a rank", format_bytes(plan.peak_bytes)),
        ]
