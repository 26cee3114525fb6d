"""Properties of the kernels of this package for a pass: their depth, and the useful number of ranks."""

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
    """Return the neighbours that a kernel needs on each side, in all axes or in each; 0 for an unknown kernel."""
    function, args, keywords = _unwrapped(kernel)
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


def own_ranks(kernel: Callable[..., Any]) -> int | None:
    """Return the useful number of ranks of threads for a kernel; None for an unknown one: as many as cores.

    Kernels of this package are many short calls of numpy, and one rank already reads and writes beside them:
    threads that compute pass the interpreter's lock to each other more often than they gain.
    """
    return 1 if _unwrapped(kernel)[0] in (median, sweep, sweeps) else None


def _unwrapped(kernel: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return the function of a kernel, with its bound arguments."""
    if isinstance(kernel, partial):
        return kernel.func, kernel.args, kernel.keywords
    return kernel, (), {}
