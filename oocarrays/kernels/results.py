"""Calls of a kernel, and their results: one array for each target, of the expected shape and type.

blocks ─► kernel ─► results ─► checked ─► targets        of each slab
zeros  ─► kernel ─► results ─► checked                   of a trial: a few elements, before a target is made
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import InputError, KernelError, RunError
from oocarrays.mapping.casting import lost_value, misfit
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import check_unmasked
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
    """Raise if a kernel cannot be called with as many blocks alone."""
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


SMALL = 2**22
"""Bytes of the blocks of a trial above which they have one group of elements along each axis, and not several."""


class ResultTerms(NamedTuple):
    """Requirements for the result of one target."""

    target: str
    shape: tuple[int, ...]
    dtype: np.dtype | None
    """Type of the target's elements; None for any type."""


def wide_type(dtype: np.dtype) -> np.dtype:
    """Return a type at least as large as NumPy's results of sums, means and transforms of elements of a type."""
    if dtype.kind not in "biufc":
        return dtype
    return np.dtype("c16" if dtype.kind in "fc" and dtype.itemsize >= 8 else "f8")


def on_host(given: Any) -> np.ndarray:
    """Return a result as a NumPy array; an array on a device, such as CuPy's, is copied."""
    if isinstance(given, np.ndarray):
        check_unmasked(given, error=KernelError)
        return given
    on_device = hasattr(given, "__cuda_array_interface__")
    copies = ("get", "copy_to_host", "cpu")  # of CuPy, Numba and PyTorch
    if on_device or not hasattr(given, "__array__"):
        copy = next(filter(callable, (getattr(given, name, None) for name in copies)), None)
        if copy is not None and (on_device or hasattr(given, "dtype")):
            return np.asarray(copy())
    if on_device:
        raise KernelError(
            f"the kernel returned {type(given).__name__}, which has no method {' or '.join(copies)}: copy it"
        )
    return np.asarray(given)


def checked(results: Any, wanted: Sequence[ResultTerms], block: tuple[int, ...], where: str) -> list[np.ndarray]:
    given = results if isinstance(results, list | tuple) else (results,)
    if len(given) != len(wanted):
        raise KernelError(f"the kernel returned {len(given)} arrays for {where}; there are {len(wanted)} targets")
    made = [on_host(each) for each in given]
    for array, (target, shape, dtype) in zip(made, wanted, strict=True):
        if array.shape != shape:
            told = f"its block has {block}" if shape == block else f"there {target} has {shape}"
            raise KernelError(f"the kernel returned shape {array.shape} for {where}; {told}")
        if dtype is not None and not np.can_cast(array.dtype, dtype, "same_kind"):
            raise KernelError(
                f"the kernel returned dtype {array.dtype} for {where}; the target has {dtype}: "
                "pass Target(store, dtype=…)"
            )
    return made


def fitting(made: list[np.ndarray], wanted: Sequence[ResultTerms], where: str) -> list[np.ndarray]:
    """Return results unchanged if every value has a counterpart in its target's type, or raise.

    Only real results are checked this way: the values of a trial differ.
    """
    for array, (target, _, dtype) in zip(made, wanted, strict=True):
        lost = None if dtype is None else lost_value(array, dtype)
        if lost is not None:
            told = f"the kernel returned {lost} ({array.dtype}) for {where}"
            raise KernelError(
                f"{told}, which {target} of dtype {dtype} cannot hold: pass Target(store, dtype='{array.dtype}')"
            )
    return made


def trial_block(
    shape: tuple[int, ...], levels: Sequence[Coarsening], depth: Sequence[int], beyond: Sequence[bool], itemsize: int
) -> BlockInfo:
    """Return a small block in the first corner of the sources; its lengths differ, so that swapped axes are noticed.

    The boundary fills values ``beyond`` the edges of an axis.
    """
    units = [math.lcm(*(each.unit(axis, n) for each in levels)) for axis, n in enumerate(shape)]

    def of_groups(counts: Sequence[int]) -> BlockInfo:
        upper = tuple(min(unit * count, n) for unit, count, n in zip(units, counts, shape, strict=True))
        axes, core = list(zip(upper, depth, beyond, shape, strict=True)), Section((0,) * len(shape), upper)
        lower = tuple(-d if out else 0 for _, d, out, _ in axes)
        window = Section(lower, tuple(n + d if out else min(n + d, most) for n, d, out, most in axes))
        return BlockInfo(core, window, core.relative_to(lower).slices[:-1], shape)

    several = of_groups(range(2, 2 + len(shape)))
    return several if several.window.size * itemsize <= SMALL else of_groups([1] * len(shape))


def trial_results(
    kernel: Callable[..., Any], dtypes: Sequence[np.dtype], block: BlockInfo, wanted: Sequence[ResultTerms]
) -> list[np.ndarray] | None:
    """Return the kernel's results for zeros; None if it fails on them (the first slab will show why)."""
    if not block.section.size:
        return None
    shape, more = block.window.shape, {INFO: block} if takes_info(kernel) else {}
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            given = kernel(*(np.zeros(shape, dtype) for dtype in dtypes), **more)
    except Exception:  # noqa: BLE001  a kernel raises what it likes
        return None
    return checked(given, wanted, shape, f"a trial block of zeros of shape {shape}")


def block_of(value: Any, section: Section, dtype: np.dtype) -> np.ndarray:
    """Return a computed block on the host, or raise if its shape or type differs from its lazy array."""
    block = on_host(value)
    if block.shape != section.shape:
        raise RunError(f"the block at {section.lower} has shape {block.shape}; expected {section.shape}")
    unfit = misfit(block, dtype)
    if unfit is not None:
        raise RunError(f"the block at {section.lower} has {unfit}; expected {dtype}: convert it with astype")
    return block
