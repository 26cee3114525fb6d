"""Whether a kernel's results depend on where slabs are cut: some are computed again, with a larger halo.

narrow    ░░███████░░            the depth that was asked for
wide    ▒▒░░███████░░▒▒          what is found for █ must be the same
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from oocarrays.errors import KernelError
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry

PIECE = 2**13
"""Elements that are compared at a time: what that takes stays in a cache, and is counted in a plan."""


def is_verified(plan: SlabGeometry, slab: Slab) -> bool:
    """Whether a slab is computed again: the first one of a rank, that in the middle, and the last one.

    >>> from oocarrays.plan.slabs.geometry import example_plan
    >>> [is_verified(example_plan(), slab) for slab in example_plan().slabs(0)]
    [True, False, True, False, True]
    """
    count = len(plan.numbers(slab.rank))
    return slab.number in (0, count // 2, count - 1)


def check_alike(narrow: Sequence[np.ndarray], wide: Sequence[np.ndarray], where: str) -> None:
    """Refuse results that are others where more neighbours are seen; nothing is looked at where ``wide`` is empty.

    Numbers that are not whole may differ by the root of their precision, of the largest one: transforms round otherwise
    in blocks of other lengths.
    """
    for one, other in zip(narrow, wide, strict=bool(wide)):
        near = 0.0
        if one.dtype.kind in "fc":
            root = float(np.sqrt(np.finfo(one.dtype).eps))
            near = root * max((_largest(each) for _, each in _pieces(one, other)), default=0.0)
        for each in _pieces(one, other):
            unlike = _unlike(*each, near)
            if unlike.any():
                first = np.unravel_index(int(unlike.argmax()), unlike.shape)
                a, b = (part[first] for part in each)
                raise KernelError(
                    f"the kernel gives {a} in {where}, and {b} where it sees more neighbours: depth is too small for "
                    "it, or what it gives depends on where slabs are cut"
                )


def _pieces(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut two arrays alike along their longest axis: what is made of a piece holds next to nothing."""
    axis = int(np.argmax(one.shape))
    rows = max(PIECE * one.shape[axis] // max(one.size, 1), 1)
    for start in range(0, one.shape[axis], rows):
        part = (slice(None),) * axis + (slice(start, start + rows),)
        yield one[part], other[part]


def _largest(values: np.ndarray) -> float:
    """Return the largest finite magnitude."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0))


def _unlike(one: np.ndarray, other: np.ndarray, near: float) -> np.ndarray:
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    with np.errstate(invalid="ignore"):
        alike = (one == other) | (np.abs(one - other) <= near) | (np.isnan(one) & np.isnan(other))
    return np.asarray(~alike)
