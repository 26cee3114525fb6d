"""The right result of a pass over slabs, by numpy on the whole array: no code of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MODES = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}


def padded(whole: np.ndarray, depth: tuple[int, ...], boundary: Any) -> np.ndarray:
    """The array with what stands beyond its edges; itself, where nothing does."""
    if boundary == "none" or not whole.size:
        return whole
    if boundary in MODES:
        return np.pad(whole, [(d, d) for d in depth], mode=MODES[boundary])
    return np.pad(whole, [(d, d) for d in depth], constant_values=boundary)


def trimmed(result: np.ndarray, whole: np.ndarray, depth: tuple[int, ...]) -> np.ndarray:
    """A result without its halo."""
    if result.shape == whole.shape:
        return result
    return result[tuple(slice(d, d + n) for d, n in zip(depth, whole.shape, strict=True))]


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
