"""Arrays laid out over ranks, as handled by the client."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.base import tokenize
from dask.utils import format_bytes

from oocarrays.distributed.rank_arrays import RankArrays
from oocarrays.errors import InputError, LayoutError, plural
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Where
from oocarrays.graphs.layouts.parts import Parts, block_tasks, whole
from oocarrays.graphs.layouts.redistribution import mapped, moved, sliced
from oocarrays.kernels.results import on_host
from oocarrays.mapping.given import as_numpy, refuse
from oocarrays.mapping.grid import Extents
from oocarrays.mapping.layouts.layout import Layout, LayoutLike, block_lengths, is_blocks, layout_for
from oocarrays.mapping.layouts.slicing import in_blocks, sliced_layout, slices_of
from oocarrays.mapping.section import Section
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.exchange.prediction import square
from oocarrays.plan.exchange.schedule import UNORDERED, Schedule
from oocarrays.plan.layouts.assembly import Messaging
from oocarrays.plan.layouts.redistribution import Redistribution, plan_redistribution
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.plan.machine import spread
from oocarrays.show import report
from oocarrays.show.exchanges import collective_text
from oocarrays.show.notebook import layout_picture, rows_html
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    import dask.array as da


def applied(operation: Callable[..., Any], other: Any, part: np.ndarray) -> Any:
    return operation(part, other)


def _elementwise(
    operation: Callable[..., Any], *, reflected: bool = False
) -> Callable[[DistributedArray, Any], DistributedArray]:
    """Return the method that applies an operation to an array and another array, or a number."""
    return lambda array, other: array._with(operation, other, reflected)


def dtype_of(function: Callable[..., Any], dtypes: Sequence[np.dtype], ndim: int) -> np.dtype:
    try:
        return on_host(function(*(np.empty((0,) * ndim, dtype) for dtype in dtypes))).dtype
    except Exception as error:
        raise InputError(f"the function does not accept an empty part ({error}): pass dtype=") from error


class DistributedArray(Extents, RankArrays):
    """Array distributed over ranks by a layout: a lazy Dask collection.

    ``compute`` returns the whole array, in natural order; ``persist`` keeps each rank's part on its worker.

    Examples
    --------
    >>> import oocarrays as ooc
    >>> x = ooc.ranks.distribute(np.arange(10), "cyclic(2)", ranks=2, scheduler="threads")
    >>> x.local(1).compute(), x.compute()
    (array([2, 3, 6, 7]), array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]))
    """

    _plan: Redistribution | CollectivePlan | None

    def __init__(
        self,
        layout: Layout,
        dtype: np.dtype,
        build: Callable[[], Parts],
        where: Where,
        *,
        plan: Redistribution | CollectivePlan | None = None,
        messaging: Messaging | None = None,
    ) -> None:
        super().__init__(layout.local_shape, layout.ranks, dtype, build, where, plan)
        self._layout = layout
        self._messaging = messaging
        self._section: Section | None = None

    # ------------------------------------------------------------------ properties

    @property
    def layout(self) -> Layout:
        """Layout of the array over ranks."""
        return self._layout

    @property
    def section(self) -> Section | None:
        """Section of the stored array that it was read from, if it is a partition of one."""
        return self._section

    def as_partition(self, section: Section) -> DistributedArray:
        """Return the same array, as the partition at ``section`` of a stored array."""
        made: DistributedArray = object.__new__(type(self))
        made.__dict__.update(self.__dict__ | {"_section": section})
        return made

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis, in elements."""
        return self._layout.shape

    @property
    def plan(self) -> Redistribution | CollectivePlan | None:
        """Redistribution or collective read that made it; None if it was cut from an array."""
        return self._plan

    @property
    def peak_bytes(self) -> int:
        """Peak memory of a rank during the redistribution that made it, in bytes; of a read, that of the process with
        the highest peak."""
        match self._plan, self._messaging:
            case CollectivePlan() as read, _ if read.price:
                return read.peak_bytes
            case Redistribution() as plan, Messaging() as messaging:
                return messaging.held(plan.transfers) * self.dtype.itemsize
        return max(map(self._layout.local_size, range(self.ranks))) * self.dtype.itemsize

    @property
    def seconds(self) -> float:
        """Predicted seconds of the redistribution or read that made it; 0 if it was cut from an array."""
        match self._plan, self._messaging:
            case CollectivePlan() as read, _:
                return read.seconds
            case Redistribution() as plan, Messaging() as messaging:
                return messaging.seconds(plan.transfers, self.dtype.itemsize, settings.costs())
        return 0.0

    # ------------------------------------------------------------------ access

    def _named(self) -> str:
        return str(self._layout)

    def to_dask(self) -> da.Array:
        """Return the whole array in natural order, as a Dask array.

        Its blocks are the ranks' parts if the layout is in blocks; otherwise it is redistributed to blocks first.
        """
        if not is_blocks(self._layout):
            return self.redistribute(in_blocks(self._layout)).to_dask()
        name = f"blocks-{tokenize(self.tasks.name)}"
        return self._lazy(name, block_tasks(self.tasks, self._layout, name), block_lengths(self._layout))

    def _made(
        self, build: Callable[[Meter], Parts], layout: Layout, dtype: Any = None, **plan: Any
    ) -> DistributedArray:
        """Return an array on the same workers, made by a function of the meter of its messages."""
        where = Where(self.cluster, self.workers)
        return DistributedArray(layout, dtype or self.dtype, lambda: build(where.meter), where, **plan)

    def redistribute(
        self,
        layout: LayoutLike | Redistribution,
        *,
        ranks: int | None = None,
        grid: Sequence[int] | None = None,
        method: str = "auto",
        schedule: str | Schedule | None = "auto",
        assembly: str = "asynchronous",
    ) -> DistributedArray:
        """Return the array in another layout, by default over as many ranks: see `oocarrays.ranks.redistribute`."""
        costs = settings.costs()
        if not self.cluster:  # threads send no messages
            costs = replace(costs, exchange=dict.fromkeys(costs.exchange, 0.0))
        order = settings.schedule(schedule)
        if isinstance(layout, Redistribution):
            why, chosen = "is part of the plan: leave it out, or pass a layout", None if method == "auto" else method
            refuse(why, error=LayoutError, ranks=ranks, grid=grid, method=chosen)
            plan = layout
            if (plan.source, plan.itemsize) != (self._layout, self.dtype.itemsize):
                planned = f"shape {plan.source.shape}, {plan.source}, elements of {plan.itemsize} bytes"
                raise LayoutError(
                    f"the plan is for {planned}; the array has shape {self.shape}, {self._layout}, elements of "
                    f"{self.dtype.itemsize} bytes"
                )
        else:
            target = layout_for(self.shape, layout, ranks=ranks, grid=grid, about=self.ranks)
            carrier = settings.carrier(max(self.ranks, target.ranks), assembly) if self.cluster else None
            plan = plan_redistribution(
                self._layout, target, self.dtype.itemsize, method=method, costs=costs, carrier=carrier, schedule=order
            )
        messaging = Messaging.of(
            plan.transfers,
            self.dtype.itemsize,
            schedule=order,
            assembly=assembly,
            costs=costs if self.cluster else None,
        )
        return self._made(
            lambda meter: moved(self.tasks, plan.transfers, messaging, self.workers, meter),
            plan.target,
            plan=plan,
            messaging=messaging,
        )

    def __getitem__(self, key: Any) -> DistributedArray:
        """Return a slice, ``x[2:, ::3]``: each rank keeps its part of it. Computes nothing.

        Sliced axes with several blocks a rank are redistributed to blocks first.
        """
        taken = slices_of(key, self._layout)
        ready = in_blocks(self._layout, taken)
        if ready != self._layout:
            return self.redistribute(ready)[key]
        there = spread(self.ranks, self.workers)
        return self._made(lambda _: sliced(self.tasks, ready, taken, there), sliced_layout(ready, taken))

    def map_local(self, function: Callable[..., Any], *others: DistributedArray, dtype: Any = None) -> DistributedArray:
        """Apply a function to each rank's part, on its worker: an array of the same layout. Computes nothing.

        ``x + 1``, ``x * y`` and the like do the same.

        Parameters
        ----------
        function : callable
            Takes the parts of this array and of each other one as read-only numpy arrays; returns one of the same
            shape. It receives one rank's elements, in the order of that rank.
        others : DistributedArray
            Of the same layout, on the same workers.
        dtype : numpy.dtype
            Of the result; by default that of the result for an empty part.

        Raises
        ------
        LayoutError
            If another array has another layout, or is on other workers.
        InputError
            If no dtype is given, and the function fails on an empty part.
        KernelError
            While computing: if the function fails, or returns another shape.

        Examples
        --------
        >>> import oocarrays as ooc
        >>> x = ooc.ranks.distribute(np.arange(6), "cyclic", ranks=2, scheduler="threads")
        >>> x.map_local(np.cumsum).local(1).compute(), (2 * x - 1).compute()
        (array([1, 4, 9]), array([-1,  1,  3,  5,  7,  9]))
        """
        for other in others:
            self._check_alike(other)
        several = (self, *others)
        made = dtype_of(function, [each.dtype for each in several], self.ndim) if dtype is None else np.dtype(dtype)
        there = spread(self.ranks, self.workers)
        return self._made(
            lambda _: mapped(function, [each.tasks for each in several], self._layout, made, there), self._layout, made
        )

    def _check_alike(self, other: Any) -> None:
        if not isinstance(other, DistributedArray):
            raise LayoutError(
                f"a {type(other).__name__} is not a DistributedArray: create one with distribute(…, {self._layout})"
            )
        if other.layout != self._layout:
            raise LayoutError(f"one array is {self._layout}, another {other.layout}: redistribute it first")
        if other.workers != self.workers:
            raise LayoutError("the arrays are on different workers: distribute both with the same workers=")

    def _with(self, operation: Callable[..., Any], other: Any, reflected: bool) -> DistributedArray:
        if isinstance(other, DistributedArray):
            return self.map_local(operation, other)
        if np.ndim(other):
            self._check_alike(other)
        return self.map_local(partial(operation, other) if reflected else partial(applied, operation, other))

    def __neg__(self) -> DistributedArray:
        return self.map_local(operator.neg)

    __add__ = __radd__ = _elementwise(operator.add)
    __mul__ = __rmul__ = _elementwise(operator.mul)
    __sub__, __rsub__ = _elementwise(operator.sub), _elementwise(operator.sub, reflected=True)
    __truediv__, __rtruediv__ = _elementwise(operator.truediv), _elementwise(operator.truediv, reflected=True)
    __pow__ = _elementwise(operator.pow)
    __lt__, __le__ = _elementwise(operator.lt), _elementwise(operator.le)
    __gt__, __ge__ = _elementwise(operator.gt), _elementwise(operator.ge)
    __eq__ = _elementwise(operator.eq)  # type: ignore[assignment]
    __ne__ = _elementwise(operator.ne)  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]  # equality is of elements, as in NumPy

    def __bool__(self) -> bool:
        if self.size != 1:
            raise InputError(
                f"an array of {self.size} elements has no single truth value: use x.compute().any() or .all()"
            )
        return bool(self.compute())

    def compute(self, **kwargs: Any) -> np.ndarray:
        """Return the whole array, in natural order, in the memory of this process."""
        with self._pinned():
            return np.asarray(super().compute(**self._there(kwargs)))  # type: ignore[no-untyped-call]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise InputError("the parts of a distributed array can only be copied into one array")
        return as_numpy(self.compute, dtype)

    # ------------------------------------------------------------------ Dask collection protocol

    def __dask_postcompute__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return whole, (self._layout, self._dtype)

    # ------------------------------------------------------------------ reports

    def _rows(self) -> list[tuple[str, str]]:
        read = report.plan_rows(self._plan) if isinstance(self._plan, CollectivePlan) else None
        return [
            ("layout", str(self._layout)),
            ("array", f"{report.shape_text(self.shape)} {self.dtype}, {format_bytes(self.nbytes)}"),
            ("a rank holds", self._held()),
            ("peak of a rank", format_bytes(self.peak_bytes)),
            ("ranks are", self._where()),
            *(self._transfer_rows() if read is None else read),
        ]

    def _transfer_rows(self) -> list[tuple[str, str]]:
        if not isinstance(self._plan, Redistribution) or self._messaging is None:
            return []
        each = enumerate(zip(self._plan.transfers, self._messaging.schedules, strict=True), 1)
        return [
            *((f"transfer {number}", self._transfer_text(*made, self._messaging)) for number, made in each),
            ("predicted", report.seconds_text(self.seconds)),
        ]

    def _transfer_text(self, transfer: Transfer, schedule: Schedule | None, messaging: Messaging) -> str:
        sizes = square(transfer.sizes())
        np.fill_diagonal(sizes, 0)
        moved = f"{transfer.source} → {transfer.target}: {format_bytes(int(sizes.sum()) * self.dtype.itemsize)}"
        if schedule is None:
            return f"{moved} between ranks, without messages"
        order = schedule.name if messaging.ordered else UNORDERED
        messages = plural(int(np.count_nonzero(sizes)), "message")
        return f"{moved} between ranks in {messages}, {order}, {messaging.assembly}"

    def explain(self) -> str:
        """Describe each rank's part, its worker, the plan that made the layout, and the cost of other methods."""
        text, plan = report.table(self._rows()), self._plan
        if plan is None:
            return text
        return f"{text}\n\n{collective_text(plan) if isinstance(plan, CollectivePlan) else plan.explain()}"

    def __repr__(self) -> str:
        return (
            f"<oocarrays.DistributedArray {report.shape_text(self.shape)} {self.dtype}, {self._layout}>\n"
            f"{report.table(self._rows()[2:], indent='  ')}"
        )

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title="oocarrays.DistributedArray", above=layout_picture(self._layout))
