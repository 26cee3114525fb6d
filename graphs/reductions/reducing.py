"""Reduction of boxes: the elements of an array are reduced to partial results, and these to the result.

    boxes of a segment ─► states, folded in order ─► a partial result ─┐
    boxes of the next  ─► states, folded in order ─► a partial result ─┴─ folded in order ─► finished

Boxes are read and reduced on threads, and folded in order, so the result is bitwise independent of the number of
threads and of the budget.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import InputError, KernelError, OocError
from oocarrays.kernels.reductions import Reduction
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.selection import regular
from oocarrays.plan.exchange.ordering import schedule_for
from oocarrays.plan.plan import Resources
from oocarrays.plan.reductions.cut import STATE_BYTES, ReduceCut, Spans, spread_over
from oocarrays.plan.reductions.plan import ReducePlan
from oocarrays.plan.sections.read import REQUESTS
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.stores.underway import in_order

FUNCTIONS = "functions"
"""Name of a reduction by the user's own functions."""
ALL = -1
"""Number of the only group, in a reduction without groups."""
Partial = dict[tuple[int, int], Any]
"""States by the number of a column of boxes in its part, and by group."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of indices along one axis."""

    axis: int
    codes: np.ndarray
    """Group of each index; -1 for none."""
    labels: np.ndarray
    """Label of each group, in their order."""

    @property
    def count(self) -> int:
        return len(self.labels)

    def most(self, cut: ReduceCut, runs: int) -> int:
        """Return the maximum number of groups in one of ``runs`` runs of boxes."""
        length = cut.lengths[self.axis]
        spans = (spread_over(cut.deep, runs, number) for number in range(runs))
        return max(len(np.unique(self.codes[span.start * length : span.stop * length])) for span in spans)

    def are_scattered(self, cut: ReduceCut) -> bool:
        """Return whether a group has unequal distances of indices in a box, so that its elements must be copied."""
        length = cut.lengths[self.axis]
        boxes = (self.codes[i : i + length] for i in range(0, len(self.codes), length))
        each = (np.flatnonzero(box == code) for box in boxes for code in np.unique(box[box >= 0]))
        return not all(isinstance(_as_slice(indices), slice) for indices in each)


@dataclass(frozen=True, kw_only=True)
class Reducer:
    file: ArrayFile
    cut: ReduceCut
    """Division into parts, segments and boxes."""
    steps: Reduction
    groups: Groups | None
    """Groups of the indices of one axis, or None."""
    mask: np.ndarray | None
    """Mask of the elements that count, as given by the user; broadcast to the array."""
    decode: Callable[[np.ndarray], np.ndarray] | None
    counts: np.dtype
    """Dtype of the number of elements that count."""
    values: np.dtype
    """Dtype of elements as they are reduced."""
    name: str
    """Name of the reduction; `FUNCTIONS` for the user's own."""

    def plan(self, resources: Resources, target: Stored | None) -> ReducePlan:
        cut, groups, mask = self.cut, self.groups, self.mask
        ranks, size = resources.workers or 1, self.values.itemsize
        scattered = groups is not None and groups.are_scattered(cut)  # or decoded: an element is copied first
        state = {"count": 0, "min": size, "max": size, FUNCTIONS: STATE_BYTES - 4}
        wide = 32 if self.values.kind == "c" else 16
        plan = ReducePlan(
            cut=cut, how=self.name, copied_bytes=size if self.decode is not None or scattered else 0,
            state_bytes=state.get(self.name, wide) + self.counts.itemsize, target=target,
            most_groups=(groups.most(cut, cut.deep), groups.most(cut, cut.segments)) if groups else (1, 1),
            masks=(0 if mask is None else mask.nbytes) + (groups.codes.nbytes if groups else 0),
            ranks=ranks, threads=1, budget=resources.budget, processes=resources.workers,
            schedule=schedule_for(resources.schedule, ranks) if resources.workers and ranks > 1 else None,
            costs=resources.costs,
        )  # fmt: skip
        return plan.within(resources.threads)

    def partials(
        self, units: Iterable[int], pool: ThreadPoolExecutor, ahead: int, meter: Meter
    ) -> Iterator[tuple[int, Partial]]:
        """Yield the partial result of each unit, in order, with up to ``ahead`` boxes in flight."""
        units = list(units)
        boxes = ((unit, number, box) for unit in units for number, box in self._boxes(unit))
        shown = np.broadcast_to(self.mask, self.cut.shape) if self.mask is not None else None
        work = partial(self._state, shown=shown, meter=meter)
        left, folded = deque(units), Partial()
        for unit, number, states in in_order(lambda box: pool.submit(work, *box), boxes, ahead):
            while left[0] != unit:
                yield left.popleft(), folded
                folded = {}
            self.fold(folded, {(number, group): state for group, state in states.items()})
        if left:
            yield left.popleft(), folded

    def _boxes(self, unit: int) -> Iterator[tuple[int, Spans]]:
        """Yield the boxes of a unit, column by column, each column in order."""
        part, segment = self.cut.unit(unit)
        for number, column in enumerate(self.cut.columns(part)):
            for layer in self.cut.layers(segment):
                yield number, column | layer

    def _state(
        self, unit: int, number: int, place: Spans, shown: np.ndarray | None, meter: Meter
    ) -> tuple[int, int, dict[int, Any]]:
        """Read a box and reduce it; with groups, reduce each group in the box."""
        box = tuple(place[axis] for axis in range(len(self.cut.shape)))
        axes = tuple(range(first, last) for first, last in box)
        block = read_section(self.file, axes, meter=meter, threads=1, requests=REQUESTS)
        block = block if self.decode is None else self.decode(block)
        mask = None if shown is None else shown[tuple(slice(first, last) for first, last in box)]
        if self.groups is None:
            return unit, number, {ALL: called(self.steps.state, block, self.cut.axes, mask)}
        axis = self.groups.axis
        codes = self.groups.codes[slice(*box[axis])]
        found = {}
        for code in np.unique(codes[codes >= 0]).tolist():
            chosen: Any = (slice(None),) * axis + (_as_slice(np.flatnonzero(codes == code)),)
            taken = None if mask is None else mask[chosen]
            found[code] = called(self.steps.state, block[chosen], self.cut.axes, taken)
        return unit, number, found

    def fold(self, into: Partial, states: Partial) -> None:
        """Fold states into the preceding ones, releasing them one by one."""
        while states:
            key, state = states.popitem()
            into[key] = called(self.steps.fold, into[key], state) if key in into else state

    def finished(self, part: int, group_chunk: int, states: Mapping[tuple[int, int], Any], dtype: np.dtype) -> Any:
        """Return a chunk of the result from its states."""
        place = self.cut.place(part, group_chunk)
        made = np.empty(place.shape, dtype)
        groups = self.groups and self.cut.group_span(group_chunk)
        for number, column in enumerate(self.cut.columns(part)):
            spans = {axis: (first, last) for axis, (first, last) in column.items()}
            for group in groups or [ALL]:
                value = on_host(called(self.steps.finish, states[number, group]))
                unfit = misfit(value, dtype)
                if unfit is not None:
                    raise KernelError(
                        f"the last function of how= returned {unfit}, but {dtype} for zeros: convert it there"
                    )
                made[self._inside(spans, place.lower, group)] = value
        return made

    def _inside(self, column: Spans, lower: tuple[int, ...], group: int) -> tuple[Any, ...]:
        """Return the place of a column and group in a chunk of the result that begins at ``lower``."""
        along: list[tuple[int, int] | None] = [column[axis] for axis in self.cut.kept]
        if self.groups is not None:
            along.insert(self.groups.axis, None)
        return tuple(
            group - low if span is None else slice(span[0] - low, span[1] - low)
            for span, low in zip(along, lower, strict=True)
        )

    def chunks_of(self, folded: Partial) -> Iterator[tuple[int, Partial]]:
        for chunk in range(self.cut.group_chunks):
            span = self.cut.group_span(chunk) if self.groups else [ALL]
            yield chunk, {key: state for key, state in folded.items() if key[1] in span}

    @property
    def result(self) -> np.dtype:
        """Dtype of the result, by reducing a small block before anything is read or made."""
        block = np.zeros([1] * len(self.cut.shape), self.values)
        state = called(self.steps.state, block, self.cut.axes, None if self.mask is None else block == block)
        value = on_host(called(self.steps.finish, state))
        if value.ndim != len(self.cut.kept):
            raise InputError(f"the last function of how= returns {value.ndim} axes; expected {len(self.cut.kept)}")
        return value.dtype


def called(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function that a user may have given, and wrap its errors."""
    try:
        return function(*given)
    except OocError:
        raise
    except Exception as error:
        raise KernelError(f"the reduction failed: {type(error).__name__}: {error}") from error


def _as_slice(indices: np.ndarray) -> Any:
    """Return a slice if the indices are equally spaced, as slicing copies nothing."""
    found = regular(indices)
    return slice(found.start, found.stop, found.step) if isinstance(found, range) else found
