"""Calls of a kernel, and checks of arrays given to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.section import Section


def check_array(given: object, name: str) -> None:
    if not isinstance(given, np.ndarray):
        raise InputError(f"the {name} is of type {type(given).__name__}; a numpy array is needed")


def check_out(given: np.ndarray, out: np.ndarray, name: str, made: str) -> None:
    """Raise if ``out`` does not have the shape and type of an array, or overlaps it."""
    check_array(out, "out")
    if (out.shape, out.dtype) != (given.shape, given.dtype):
        raise InputError(f"out is {out.dtype} {out.shape}; {made} {given.dtype} {given.shape}")
    if np.may_share_memory(given, out):
        raise InputError(f"out overlaps the {name}, whose values are still needed")


def check_threads(threads: int) -> None:
    if not isinstance(threads, Integral) or not 1 <= threads <= 2**16:
        raise InputError(f"{threads} threads: at least 1 is required")


INFO = "block_info"
"""Parameter of a kernel for the position of its block."""


class BlockInfo(NamedTuple):
    """Position of a block, for a kernel that has a parameter ``block_info``."""

    section: Section
    """Elements of the array that the block computes."""
    window: Section
    """Elements with the halo, including the part beyond the array's edges if the boundary fills it."""
    inside: tuple[slice, ...]
    """Indices of ``section`` in the block."""
    shape: tuple[int, ...]
    """Extent of each axis of the array, in elements."""


def takes_info(kernel: Any) -> bool:
    found = _signature(kernel) if callable(kernel) else None
    return (
        found is not None
        and INFO in found.parameters
        and found.parameters[INFO].kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    )


def check_call(kernel: Callable[..., Any], blocks: int) -> None:
    """Raise if a kernel cannot be called with as many blocks alone.

    >>> def scale(x, by): return by * x
    >>> check_call(scale, 1)
    Traceback (most recent call last):
        ...
    oocarrays.errors.InputError: scale(x, by) cannot be called with 1 block: missing a required argument: 'by'
    """
    if not callable(kernel):
        raise InputError(f"kernel={kernel!r} is not callable: pass a function of NumPy blocks")
    function, args, keywords = unwrapped(kernel)
    if not blocks or (found := _signature(function)) is None:
        return  # that there are no sources is said where they are opened
    try:
        found.bind(*args, *[None] * blocks, **keywords, **({INFO: None} if takes_info(kernel) else {}))
    except TypeError as error:
        name = getattr(function, "__name__", repr(kernel))
        raise InputError(f"{name}{found} cannot be called with {blocks} blocks: {error}") from None


def unwrapped(kernel: Any) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return the function of a kernel, with its bound arguments."""
    if isinstance(kernel, partial):
        return kernel.func, kernel.args, kernel.keywords
    return kernel, (), {}


def _signature(kernel: Callable[..., Any]) -> Signature | None:
    try:
        return signature(kernel)
    except (ValueError, TypeError):
        return None
