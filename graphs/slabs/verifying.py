"""Whether a kernel's results depend on where slabs are cut: some are computed again, with a larger halo.

narrow    ░░███████░░            the depth that was asked for
wide    ▒▒░░███████░░▒▒          what is found for █ must be the same
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oocarrays.errors import KernelError
from oocarrays.plan.slabs.geometry import Slab, SlabGeometry


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

    Raises
    ------
    KernelError
        It names a value, and what it becomes.
    """
    for one, other in zip(narrow, wide, strict=bool(wide)):
        unlike = _unlike(one, other)
        if unlike.any():
            first = np.unravel_index(int(unlike.argmax()), unlike.shape)
            raise KernelError(
                f"the kernel gives {one[first]} in {where}, and {other[first]} where it sees more neighbours, as "
                f"{np.count_nonzero(unlike)} of {unlike.size} elements are others: depth is too small for it, or what "
                "it gives depends on where slabs are cut"
            )


def _unlike(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    if one.dtype.kind not in "fc":
        return np.asarray(one != other)
    finite = np.abs(other[np.isfinite(other)])
    near = float(np.sqrt(np.finfo(one.dtype).eps)) * float(finite.max(initial=0))
    with np.errstate(invalid="ignore"):
        alike = (one == other) | (np.abs(one - other) <= near) | (np.isnan(one) & np.isnan(other))
    return np.asarray(~alike)
