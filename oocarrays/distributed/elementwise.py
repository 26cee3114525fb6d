"""Operations on the parts of arrays: element by element, each where its rank is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from oocarrays.errors import InputError
from oocarrays.kernels.results import on_host


def applied(operation: Callable[..., Any], other: Any, part: np.ndarray) -> Any:
    """Apply an operation to a part and what stands behind it."""
    return operation(part, other)


def subtracted_from(part: np.ndarray, other: Any) -> Any:
    """Return what stands before a part, less it."""
    return other - part


def divided_into(part: np.ndarray, other: Any) -> Any:
    """Return what stands before a part, divided by it."""
    return other / part


def dtype_of(function: Callable[..., Any], dtypes: Sequence[np.dtype], ndim: int) -> np.dtype:
    """Return the dtype of what a function gives for parts of no elements."""
    try:
        return on_host(function(*(np.empty((0,) * ndim, dtype) for dtype in dtypes))).dtype
    except Exception as error:
        raise InputError(f"the function takes no part of no elements ({error}): name the dtype, dtype=…") from error
