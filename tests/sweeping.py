"""Plain sweeps by numpy, and kernels for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.whole import beyond, boundaries, padded

MODES: dict[Any, Any] = {"reflect": "symmetric", "nearest": "edge", "periodic": "wrap"}
"""numpy's names of boundaries."""
BOUNDARIES = ["none", *MODES, 0.75]
Kernel = Callable[[np.ndarray], np.ndarray]


def held(boundary: Any, *dtypes: Any) -> Any:
    """Return a boundary whose constant every type holds: 3 for 0.75 where one holds no fractions."""
    if all(np.dtype(dtype).kind in "fc" for dtype in dtypes):
        return boundary
    if isinstance(boundary, dict):
        return {axis: held(each, *dtypes) for axis, each in boundary.items()}
    if isinstance(boundary, tuple):
        return tuple(held(each, *dtypes) for each in boundary)
    return 3 if boundary == 0.75 else boundary


def plain_sweep(array: np.ndarray, kernel: Kernel, depth: Sequence[int], boundary: Any) -> np.ndarray:
    """One sweep of a whole array: padded, given to the kernel, trimmed."""
    made = kernel(padded(array.copy(), tuple(depth), boundary))
    return made[tuple(slice(d, n - d) for d, n in zip(beyond(boundary, depth), made.shape, strict=True))]


def plain_sweeps(array: np.ndarray, kernel: Kernel, depth: Sequence[int], boundary: Any, count: int) -> np.ndarray:
    for _ in range(count):
        array = plain_sweep(array, kernel, depth, boundary)
    return array


class Stencil:
    """A sum over neighbours with other weights on either side: in a new array, in place, or as a view of a larger one.

    At the end of its block it leaves out the neighbours that are not there.
    """

    def __init__(self, depth: Sequence[int], style: str = "new") -> None:
        self.depth, self.style = tuple(depth), style

    def __call__(self, block: np.ndarray) -> np.ndarray:
        made = np.zeros(tuple(n + 2 for n in block.shape), block.dtype)[(slice(1, -1),) * block.ndim]
        for number, offset in enumerate(product(*(sorted({-d, 0, d}) for d in self.depth))):
            to, of = zip(*(_overlap(n, k) for n, k in zip(block.shape, offset, strict=True)), strict=True)
            made[to] += block[of] // (number + 2) if block.dtype.kind in "iu" else block[of] / (number + 2)
        if self.style == "place":
            block[...] = made
            return block
        return made.copy() if self.style == "new" else made


def _overlap(extent: int, offset: int) -> tuple[slice, slice]:
    """Where there is a neighbour, and where that is."""
    start, stop = max(-offset, 0), max(min(extent, extent - offset), 0)
    return slice(start, max(start, stop)), slice(start + offset, max(start, stop) + offset)


@st.composite
def cases(draw: st.DrawFn, most: int = 3000) -> dict[str, Any]:
    """An array, a kernel of some depth, a boundary, and a number of sweeps."""
    extents = st.integers(1, 40) if draw(st.booleans()) else st.integers(1, 9)
    shape = tuple(draw(st.lists(extents, min_size=1, max_size=3).filter(lambda shape: math.prod(shape) <= most)))
    depth = tuple(draw(st.integers(0, 2)) for _ in shape)
    dtype = draw(st.sampled_from(["f8", "f4", "i2", "c8", ">f8"]))
    array = np.random.default_rng(draw(st.integers(0, 99))).uniform(-99, 99, shape).astype(dtype)
    if array.dtype.kind in "fc" and draw(st.booleans()):
        array.flat[draw(st.integers(0, array.size - 1))] = np.nan
    return {
        "array": array,
        "kernel": Stencil(depth, draw(st.sampled_from(["new", "place", "view"]))),
        "depth": depth,
        "boundary": held(draw(boundaries(len(shape), BOUNDARIES)), dtype),
        "sweeps": draw(st.integers(0, 5)),
    }


def jacobi(block: np.ndarray) -> np.ndarray:
    """The mean of four neighbours; at the end of a block elements stay."""
    made = block.copy()
    made[1:-1, 1:-1] = (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]) / 4
    return made


def gray_scott(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One step of two substances that react and spread; at the end of a block they stay."""
    new_u, new_v, inside = u.copy(), v.copy(), (slice(1, -1), slice(1, -1))
    reaction = u[inside] * v[inside] * v[inside]
    new_u[inside] += 0.16 * _spread(u) - reaction + 0.035 * (1 - u[inside])
    new_v[inside] += 0.08 * _spread(v) + reaction - 0.1 * v[inside]
    return new_u, new_v


def _spread(block: np.ndarray) -> np.ndarray:
    spread: np.ndarray = block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:] - 4 * block[1:-1, 1:-1]
    return spread


def together(
    kernel: Callable[..., Any], arrays: Sequence[np.ndarray], fields: int, depth: Any, boundary: Any, count: int
) -> list[np.ndarray]:
    """Plain sweeps of the first of whole arrays, together; all are padded for each."""
    swept, beside = list(arrays[:fields]), arrays[fields:]
    for _ in range(count):
        made = kernel(*(padded(each.copy(), tuple(depth), boundary) for each in (*swept, *beside)))
        around = zip(beyond(boundary, depth), made[0].shape, strict=True)
        inside = tuple(slice(d, n - d) for d, n in around)
        swept = [each[inside].copy() for each in made]
    return swept
