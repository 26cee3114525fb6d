"""The right result of a pass over slabs, by numpy on the whole array: no code of ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

MODES = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}


def padded(whole: np.ndarray, depth: tuple[int, ...], boundary: Any) -> np.ndarray:
    """The array with what stands beyond its edges; itself, where nothing does."""
    if not whole.size:
        return whole
    for axis, (each, d) in enumerate(zip(of_axes(boundary, whole.ndim), depth, strict=True)):
        around = [(d * (n == axis),) * 2 for n in range(whole.ndim)]
        if each in MODES:
            whole = np.pad(whole, around, mode=MODES[each])
        elif each != "none":
            whole = np.pad(whole, around, constant_values=each)
    return whole


def of_axes(boundary: Any, ndim: int) -> list[Any]:
    """The boundary of each axis, however it was given."""
    if isinstance(boundary, dict):
        return [boundary.get(axis, boundary.get(axis - ndim, "none")) for axis in range(ndim)]
    return list(boundary) if isinstance(boundary, tuple) else [boundary] * ndim


def boundaries(axes: int, among: Any) -> st.SearchStrategy[Any]:
    """One of all axes, one for each, or some by axis."""
    one = st.sampled_from(among)
    return one | st.tuples(*[one] * axes) | st.dictionaries(st.integers(-axes, -1), one)


def beyond(boundary: Any, depth: Sequence[int]) -> tuple[int, ...]:
    """What stands beyond the edges of each axis."""
    each = zip(of_axes(boundary, len(depth)), depth, strict=True)
    return tuple(0 if name == "none" else d for name, d in each)


def trimmed(result: np.ndarray, whole: np.ndarray, depth: tuple[int, ...]) -> np.ndarray:
    """A result without its halo."""
    places = zip(depth, result.shape, whole.shape, strict=True)
    return result[tuple(slice(d, d + n) if m != n else slice(None) for d, m, n in places)]


def expected(kernel: Callable[..., Any], wholes: list[np.ndarray], depth: tuple[int, ...], boundary: Any) -> Any:
    """What a kernel gives on whole arrays: a list, one a target."""
    made = kernel(*(padded(whole, depth, boundary).copy() for whole in wholes))
    return [trimmed(each, wholes[0], depth) for each in (made if isinstance(made, tuple) else (made,))]


def around(depth: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel that is another function of each neighbour; it sees those that there are, and no more than ``depth``."""

    def kernel(block: np.ndarray) -> np.ndarray:
        result = np.zeros(block.shape)
        for axis, (d, n) in enumerate(zip(depth, block.shape, strict=True)):
            for shift in range(-min(d, n - 1), min(d, n - 1) + 1):
                here, there = [slice(None)] * block.ndim, [slice(None)] * block.ndim
                here[axis] = slice(max(-shift, 0), n - max(shift, 0))
                there[axis] = slice(max(shift, 0), n - max(-shift, 0))
                result[tuple(here)] += (axis + 1) * (shift + 2 * d + 1) * block[tuple(there)]
        return result

    return kernel


def corners(depth: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel that is another function of each neighbour, those across corners among them."""

    def kernel(block: np.ndarray) -> np.ndarray:
        for axis, (d, n) in enumerate(zip(depth, block.shape, strict=True)):
            result = np.zeros_like(block)
            for shift in range(-min(d, n - 1), min(d, n - 1) + 1):
                here, there = [slice(None)] * block.ndim, [slice(None)] * block.ndim
                here[axis] = slice(max(-shift, 0), n - max(shift, 0))
                there[axis] = slice(max(shift, 0), n - max(-shift, 0))
                result[tuple(here)] += (shift + 2 * d + 1) * block[tuple(there)]
            block = result
        return block

    return kernel
