"""What a pass knows of the kernels of this room: how far they reach, and how many ranks they are worth."""

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
    """Return how many ranks of threads a kernel is worth; None of an unknown one: as many as there are cores.

    Kernels of this room are many short calls of numpy, and one rank reads and writes beside them already: threads that
    compute hand the interpreter's lock to each other more often than they gain.
    """
    return 1 if _unwrapped(kernel)[0] in (median, sweep, sweeps) else None


def _unwrapped(kernel: Callable[..., Any]) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function of a kernel, with the arguments that it has been given."""
    if isinstance(kernel, partial):
        return kernel.func, kernel.args, kernel.keywords
    return kernel, (), {}
