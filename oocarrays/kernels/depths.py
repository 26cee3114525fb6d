"""How far a kernel of this room reaches: a pass takes it as its depth where none is given."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from numbers import Integral
from typing import Any

from oocarrays.kernels.jacobi import sweep, sweeps
from oocarrays.kernels.medians import median
from oocarrays.mapping.given import whole, wholes


def own_depth(kernel: Callable[..., Any]) -> int | tuple[int, ...]:
    """Return the neighbours that a kernel needs on each side: one number, or one for each axis; 0 of an unknown kernel.

    >>> own_depth(partial(median, size=(5, 3), mode="none")), own_depth(sweep), own_depth(len)
    ((2, 1), 1, 0)
    """
    function, args, keywords = kernel, (), {}
    if isinstance(kernel, partial):
        function, args, keywords = kernel.func, kernel.args, kernel.keywords
    if function is sweep:
        return 1
    if function not in (median, sweeps):
        return 0
    bound = signature(function).bind_partial(*args, **keywords)
    bound.apply_defaults()
    if function is sweeps:
        return whole(bound.arguments.get("count"), "count")
    size = bound.arguments["size"]
    return whole(size, "size") // 2 if isinstance(size, Integral) else tuple(n // 2 for n in wholes(size, "size"))
