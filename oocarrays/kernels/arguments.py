"""Checks of kernels' arguments, made before any work."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from oocarrays.errors import InputError

MOST_THREADS = 2**16
"""Threads of one kernel, at most."""


def check_array(given: object, name: str) -> None:
    """Refuse what is no array of numpy's kind."""
    if not isinstance(given, np.ndarray):
        raise InputError(f"the {name} is of type {type(given).__name__}; a numpy array is needed")


def check_out(given: np.ndarray, out: np.ndarray, name: str, made: str) -> None:
    """Refuse an ``out`` that cannot take what is made of an array, or lies over it."""
    check_array(out, "out")
    if (out.shape, out.dtype) != (given.shape, given.dtype):
        raise InputError(f"out is {out.dtype} {out.shape}; {made} {given.dtype} {given.shape}")
    if np.may_share_memory(given, out):
        raise InputError(f"out overlaps the {name}, whose values are still needed")


def check_threads(threads: int) -> None:
    """Refuse a number of threads that cannot work."""
    if not isinstance(threads, Integral) or not 1 <= threads <= MOST_THREADS:
        raise InputError(f"{threads} threads cannot work; 1 or more can")
