"""Arguments for the cells of a shape, as calls: values, masks, cells by number or index."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocarrays.errors import InputError, SelectionError
from oocarrays.plan.streams.calls import Call, CellBytes, Events, Level
from oocarrays.streaming.ragged import Ragged, as_array, as_items, ragged_of


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValues:
    """Cells of one process, and the conversion of their arguments."""

    shape: tuple[int, ...]
    """Extent of each axis."""
    item: np.dtype
    """The type of an item."""
    lower: int
    """First of them in the file."""

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def call(self, values: Any, where: Any, at: Any) -> tuple[Call, np.dtype]:
        if where is not None and at is not None:
            raise InputError("where= and at= both select cells: pass one of them")
        ragged = None if where is not None or at is not None else ragged_of(values, self.shape, self.items)
        if ragged is not None:
            return self._ragged_call(ragged), self.item
        array = self.items(values)
        if at is not None:
            cells = self._numbers(at)
            if array.shape != cells.shape:
                raise InputError(f"at= names {cells.size} cells, but values have shape {array.shape}")
            return Events(cells=cells + self.lower, items=_rows(array, len(cells))), array.dtype
        mask = None if where is None else self.mask(where)
        if mask is None or mask.all():
            return self._level_call(array), array.dtype
        return self._masked_call(array, mask), array.dtype

    def items(self, values: Any) -> np.ndarray:
        return as_items(values, self.item)

    def _level_call(self, array: np.ndarray) -> Level:
        ndim = len(self.shape)
        if array.shape[:ndim] != self.shape or array.ndim > ndim + 1:
            try:
                array = np.ascontiguousarray(np.broadcast_to(array, self.shape)).reshape(self.shape)
            except ValueError:
                raise InputError(
                    f"values of shape {array.shape} do not fit streams of shape {self.shape}, nor as many for each"
                ) from None
        items = array.shape[ndim] if array.ndim > ndim else 1
        rows = array.reshape(self.count, items)
        return Level(values=rows, nbytes=items * array.dtype.itemsize, is_contiguous=array.flags.c_contiguous)

    def mask(self, where: Any) -> np.ndarray:
        mask = as_array(where, "where=")
        if mask.dtype != np.bool_ or mask.shape != self.shape:
            raise InputError(f"where= of shape {mask.shape} and dtype {mask.dtype} is no mask of shape {self.shape}")
        return mask

    def _masked_call(self, array: np.ndarray, mask: np.ndarray) -> Call:
        ndim, count = len(self.shape), int(mask.sum())
        if array.shape[:ndim] == self.shape and array.ndim <= ndim + 1:
            array = array[mask]
        elif array.shape[:1] != (count,) or array.ndim > 2:
            try:
                array = np.broadcast_to(array, self.shape)[mask]
            except ValueError:
                raise InputError(
                    f"values of shape {array.shape} fit neither shape {self.shape} nor {count} cells of a mask"
                ) from None
        return Events(cells=np.flatnonzero(mask) + self.lower, items=_rows(array, count))

    def _numbers(self, at: Any) -> np.ndarray:
        try:
            numbers = np.ravel_multi_index(at, self.shape) if isinstance(at, tuple) else as_array(at, "at=")
            numbers = np.asarray(numbers)
        except (ValueError, TypeError) as error:
            raise SelectionError(f"at= names cells that are not in shape {self.shape}: {error}") from None
        if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
            raise SelectionError(f"at= of shape {numbers.shape} and dtype {numbers.dtype} is no list of cells")
        if numbers.size and not (numbers.min() >= 0 and numbers.max() < self.count):
            raise SelectionError(f"at= names cells from {numbers.min()} to {numbers.max()}; there are {self.count}")
        return numbers if numbers.size else numbers.astype(np.int64)

    def _ragged_call(self, ragged: Ragged) -> Call:
        values = np.ascontiguousarray(self.items(ragged.values))
        counts = ragged.counts.reshape(-1)
        if len(counts) and bool((counts == counts[0]).all()):
            rows = values.reshape(self.count, int(counts[0]))
            return Level(values=rows, nbytes=int(counts[0]) * values.dtype.itemsize, is_contiguous=True)
        cells = np.flatnonzero(counts)
        if values.dtype.itemsize < 8:
            nbytes = counts[cells] * values.dtype.itemsize
            return CellBytes(cells=cells + self.lower, counts=nbytes, data=values.view(np.uint8))
        return Events(cells=np.repeat(cells, counts[cells]) + self.lower, items=_rows(values, len(values)))

    def of_cells(self, value: Any) -> list[Any]:
        array = as_array(value, "values")
        try:
            return np.broadcast_to(array, self.shape).reshape(-1).tolist()
        except ValueError:
            raise InputError(f"values of shape {array.shape} do not fit streams of shape {self.shape}") from None


def _rows(items: np.ndarray, count: int) -> np.ndarray:
    width = items.dtype.itemsize * (items.size // count if count else 1)
    return np.ascontiguousarray(items).reshape(-1).view(np.uint8).reshape(count, width)
