"""Fourier transforms along one axis of a slab, on threads: the two in-core steps of an out-of-core 2-d transform.

    rows of a slab ── transform along axis 1 ──► redistribute ──► columns of a slab ── transform along axis 0

Thakur 1995, figure 3.2.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from oocarrays.errors import InputError
from oocarrays.kernels.results import check_array, check_threads
from oocarrays.mapping.given import whole

PIECE = 2**18
"""Bytes of the lines that are transformed at one time: numpy copies them, in double precision."""


def transform(slab: np.ndarray, axis: int = 1, *, out: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """Return the discrete Fourier transform along one axis of a slab that holds it whole.

        result[i, k] = Σ slab[i, j] exp(-2πi jk / n), for axis 1

    Parameters
    ----------
    slab : numpy.ndarray
        Array of two axes. Single precision stays single: float32 and complex64 give complex64, the others complex128.
    axis : int
        0 or 1.
    out : numpy.ndarray, optional
        Array for the result, of the slab's shape; a complex slab itself is possible.
    threads : int
        Threads to use: each holds 2 MiB, or 32 bytes an element of a line, if that is more.

    Raises
    ------
    InputError
        For a slab of another number of axes, another axis, or no thread.

    Examples
    --------
    >>> transform(np.ones((2, 4), "f4"))
    array([[4.+0.j, 0.+0.j, 0.+0.j, 0.+0.j],
           [4.+0.j, 0.+0.j, 0.+0.j, 0.+0.j]], dtype=complex64)
    """
    check_array(slab, "slab")
    if slab.dtype.kind not in "biufc":
        raise InputError(f"a transform needs numbers; this is {slab.dtype}")
    axis = whole(axis, "axis")
    if slab.ndim != 2 or axis not in (0, 1):
        raise InputError(
            f"a transform of a slab of shape {slab.shape} along axis {axis}: it takes two axes, and axis 0 or 1"
        )
    check_threads(threads)
    made = np.result_type(slab, np.complex64)
    result = np.empty(slab.shape, made) if out is None else out
    check_array(result, "out")
    if result.shape != slab.shape or result.dtype.kind != "c":
        raise InputError(f"out is {result.dtype} {result.shape}; the transform is {made} {slab.shape}")
    same = (slab.dtype, slab.strides, slab.ctypes.data) == (result.dtype, result.strides, result.ctypes.data)
    if not same and np.may_share_memory(slab, result):
        raise InputError("out overlaps the slab, whose values are still needed")
    lines = max(PIECE // max(slab.shape[axis] * slab.itemsize, 1), 1)

    def transform_piece(start: int) -> None:
        piece = (*[slice(None)] * (1 - axis), slice(start, start + lines))
        np.fft.fft(slab[piece], axis=axis, out=result[piece])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(transform_piece, range(0, slab.shape[1 - axis], lines)))
    return result
