"""Kernels of the peers of `slabs.py`: sweeps of the four-point stencil in numpy and numba, OpenCV's median.

Every sweep adds the same four neighbours in the same order, so that all ways agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np

CACHED = 2**18
"""Bytes of the rows that a blocked sweep takes at a time: with their neighbours and their results in a core's cache."""


# ---------------------------------------------------------------------- Jacobi


def sweep(grid: np.ndarray) -> np.ndarray:
    """One sweep: each inner element becomes the mean of its neighbours; the border stays.

    >>> sweep(np.array([[0.0, 4, 0], [8, 0, 0], [0, 0, 0]]))
    array([[0., 4., 0.],
           [8., 3., 0.],
           [0., 0., 0.]])
    """
    grid = np.ascontiguousarray(grid)
    result = np.empty_like(grid)
    result[0], result[-1] = grid[0], grid[-1]
    mean(grid, result)
    return result


def sweep_in_place(block: np.ndarray) -> np.ndarray:
    """Return the same, of a block that may be changed."""
    made = np.empty((len(block) - 2, block.shape[1]), block.dtype)
    add_neighbours(block, made)
    np.multiply(made[:, 1:-1], 0.25, out=block[1:-1, 1:-1])
    return block


def poisson_in_place(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
    """One sweep of Poisson's equation, of a block that may be changed: 0 on land.

    >>> poisson_in_place(np.ones((3, 3)), np.full((3, 3), 2.0), np.eye(3)[::-1] * np.eye(3)[:, ::-1] > 1).tolist()
    [[1.0, 1.0, 1.0], [1.0, 0.5, 1.0], [1.0, 1.0, 1.0]]
    """
    made = np.empty((len(block) - 2, block.shape[1]), block.dtype)
    add_neighbours(block, made)
    np.subtract(made, right[1:-1], out=made)
    np.multiply(made[:, 1:-1], 0.25, out=block[1:-1, 1:-1])
    np.copyto(block, 0, where=land)
    return block


def solved(grid: np.ndarray, right: np.ndarray, land: np.ndarray, count: int) -> np.ndarray:
    """Some sweeps of Poisson's equation of a whole array."""
    for _ in range(count):
        grid = poisson_in_place(grid, right, land)
    return grid


def mean(grid: np.ndarray, out: np.ndarray) -> None:
    """All rows of one sweep but the first and the last."""
    inner = out[1:-1]
    add_neighbours(grid, inner)
    np.multiply(inner, 0.25, out=inner)
    inner[:, 0], inner[:, -1] = grid[1:-1, 0], grid[1:-1, -1]


def add_neighbours(grid: np.ndarray, out: np.ndarray) -> None:
    """The four neighbours' sum, rows as one run, which is twice as fast: the first and the last column are wrong."""
    width, flat, result = grid.shape[1], grid.reshape(-1), out.reshape(-1)
    stop = flat.size - width
    np.add(flat[: stop - width], flat[2 * width :], out=result)
    np.add(result, flat[width - 1 : stop - 1], out=result)
    np.add(result, flat[width + 1 : stop + 1], out=result)


def mean_by_rows(grid: np.ndarray, out: np.ndarray) -> None:
    """The same, some rows at a time, so that all steps of one element find it in cache."""
    rows = max(CACHED // grid[0].nbytes, 1)
    for start in range(0, len(grid) - 2, rows):
        stop = min(start + rows + 2, len(grid))
        mean(grid[start:stop], out[start:stop])


def swept(grid: np.ndarray, count: int, mean: Callable[[np.ndarray, np.ndarray], None] = mean_by_rows) -> np.ndarray:
    """Some sweeps of a whole array in two buffers, of which ``grid`` is one."""
    other = grid.copy()
    for _ in range(count):
        mean(grid, other)
        grid, other = other, grid
    return grid


def swept_by_threads(grid: np.ndarray, count: int, threads: int) -> np.ndarray:
    """Return the same, each thread its share of the rows."""
    edges = np.linspace(0, len(grid) - 2, threads + 1, dtype=int)
    parts = [slice(low, high + 2) for low, high in pairwise(edges.tolist())]
    with ThreadPoolExecutor(threads) as pool:
        return swept(grid, count, lambda a, b: list(pool.map(lambda part: mean_by_rows(a[part], b[part]), parts)))


@cache
def by_numba(parallel: bool) -> Callable[[np.ndarray, np.ndarray], None]:
    """`mean` as numba compiles it, on one core or on all: the warm-up waits for it."""
    import numba

    @numba.njit(parallel=parallel)
    def compiled(grid, out):
        for i in numba.prange(1, grid.shape[0] - 1):
            for j in range(1, grid.shape[1] - 1):
                out[i, j] = 0.25 * (grid[i - 1, j] + grid[i + 1, j] + grid[i, j - 1] + grid[i, j + 1])

    return compiled


@cache
def numba_in_place() -> Callable[[np.ndarray], np.ndarray]:
    """`sweep_in_place` as numba compiles it, without the interpreter's lock: a kernel for `oocarrays.iterate`."""
    import numba

    @numba.njit(nogil=True)
    def compiled(block):
        above, here = block[0].copy(), np.empty_like(block[0])
        for i in range(1, block.shape[0] - 1):
            here[:] = block[i]
            for j in range(1, block.shape[1] - 1):
                block[i, j] = 0.25 * (above[j] + block[i + 1, j] + here[j - 1] + here[j + 1])
            above, here = here, above
        return block

    return compiled


# ---------------------------------------------------------------------- medians


def opencv(block: np.ndarray, size: int) -> np.ndarray:
    """OpenCV's median on one thread; beyond an edge it has the nearest element."""
    import cv2

    cv2.setNumThreads(1)
    return cv2.medianBlur(block, size)


def opencv_by_threads(image: np.ndarray, size: int, threads: int) -> np.ndarray:
    """Return the same of a whole image on some threads: OpenCV itself has one for a median."""
    halo, result = size // 2, np.empty_like(image)
    edges = np.linspace(0, len(image), threads + 1, dtype=int)

    def part(low: int, high: int) -> None:
        first, last = max(low - halo, 0), min(high + halo, len(image))
        result[low:high] = opencv(image[first:last], size)[low - first : high - first]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(part, edges[:-1], edges[1:]))
    return result


def medians(image: np.ndarray, size: int) -> np.ndarray:
    """Return the right medians: OpenCV's, or where it is not installed scipy's."""
    try:
        return opencv(image, size)
    except ImportError:
        from scipy.ndimage import median_filter

        return median_filter(image, size=size, mode="nearest")
