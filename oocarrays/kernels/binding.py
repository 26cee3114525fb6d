"""Calls of a kernel: binding of its arguments after its blocks.

map_slabs(scale, "a.zarr", "b.zarr", args=(2.0,), kwargs={"offset": 1})
─► scale(block, factor=2.0, offset=1)             if the second parameter of scale is named "factor"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from numbers import Integral
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.section import Section


def check_array(given: object, name: str) -> None:
    """Raise if a value is no numpy array."""
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
    """Raise if a number of threads is invalid."""
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
    """Return whether a kernel has a parameter ``block_info`` that can be passed by name."""
    found = _signature(kernel) if callable(kernel) else None
    return (
        found is not None
        and INFO in found.parameters
        and found.parameters[INFO].kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    )


def bound(
    kernel: Callable[..., Any], blocks: int, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> Callable[..., Any]:
    """Return a kernel of several blocks with its other arguments: a partial with each argument by name.

    >>> def scale(block, factor, offset=0): return factor * block + offset
    >>> bound(scale, 1, [2.0], {"offset": 1}).keywords
    {'factor': 2.0, 'offset': 1}

    Raises
    ------
    InputError
        If it does not accept them, or accepts some by position only.
    """
    if not isinstance(args, list | tuple):
        raise InputError(f"args={args!r} must be a list or tuple: the kernel's arguments after its blocks")
    if not isinstance(kwargs, Mapping | None) or not all(isinstance(name, str) for name in kwargs or ()):
        raise InputError(f"kwargs={kwargs!r} must be a mapping: the kernel's arguments by name")
    given = dict(kwargs or {})
    if not args and not given:
        return kernel
    found, name = _signature(kernel), getattr(kernel, "__name__", repr(kernel))
    if found is None:
        if args:
            raise InputError(f"args={short(args)}: {name} has no parameter names; pass kwargs=")
        return partial(kernel, **given)
    try:
        found.bind_partial(*[None] * blocks, *args, **given)
    except TypeError as error:
        text = f"args={short(tuple(args))}, kwargs={short(given)}"
        raise InputError(f"{name}{found} cannot be called with {blocks} blocks and {text}: {error}") from None
    others = list(found.parameters.values())[blocks : blocks + len(args)]
    if len(others) < len(args) or any(each.kind != Parameter.POSITIONAL_OR_KEYWORD for each in others):
        raise InputError(f"args={short(tuple(args))}: {name}{found} takes some by position only; pass kwargs=")
    return partial(kernel, **{each.name: value for each, value in zip(others, args, strict=True)}, **given)


def _signature(kernel: Callable[..., Any]) -> Signature | None:
    """Return the signature of a kernel, or None if it has none."""
    try:
        return signature(kernel)
    except (ValueError, TypeError):
        return None
