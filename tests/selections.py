"""Indices of arrays as a person may give them, for any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

Axes = tuple[range | np.ndarray, ...]
"""Indices along each axis."""


@st.composite
def takens(draw: st.DrawFn, extent: int) -> range | np.ndarray:
    """What is taken along an axis: ascending, each element once."""
    if draw(st.booleans()):
        indices = draw(st.sets(st.integers(0, extent - 1))) if extent else set()
        return np.array(sorted(indices), np.int64)
    start, stop = sorted(draw(st.tuples(st.integers(0, extent), st.integers(0, extent))))
    taken = range(start, stop, draw(st.integers(1, 5)))
    return range(taken[0], taken[-1] + 1, taken.step if len(taken) > 1 else 1) if taken else range(0)


def key_of(axes: Axes) -> tuple[slice | np.ndarray, ...]:
    """The index that takes these elements: a slice for a range."""
    return tuple(slice(each.start, each.stop, each.step) if isinstance(each, range) else each for each in axes)


def requests(shape: tuple[int, ...], most: int = 5) -> st.SearchStrategy[list[Axes]]:
    """What ranks want of an array."""
    return st.lists(st.tuples(*map(takens, shape)), min_size=1, max_size=most)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index: integers, slices that run up or down, sequences along one axis, fewer entries than axes."""
    entries: list[Any] = []
    listed = False
    for n in shape[: draw(st.integers(0, len(shape)))]:
        kinds = ["slice", *(["integer"] if n else []), *([] if listed or not n else ["list"])]
        match draw(st.sampled_from(kinds)):
            case "slice":
                end = st.none() | st.integers(-n - 2, n + 2)
                entries.append(slice(draw(end), draw(end), draw(st.sampled_from([None, 1, 2, 3, -1, -2]))))
            case "integer":
                entries.append(draw(st.integers(-n, n - 1)))
            case "list":
                listed = True
                entries.append(draw(st.lists(st.integers(-n, n - 1), max_size=6)))
    return tuple(entries)


def picked(x: np.ndarray, key: Any) -> np.ndarray:
    """What a key takes, axis after axis, by numpy: a sequence of indices takes its product with the rest."""
    if key is None:
        return x[(slice(0, 0),) * x.ndim]
    axis = 0
    for entry in key:
        index = np.asarray(entry, np.int64) if isinstance(entry, list) else entry
        x = x[(slice(None),) * axis + (index,)]
        axis += not isinstance(entry, int)
    return x
