"""Kernels of sweeps and medians: the four-point stencil in numpy and numba, OpenCV's median; and their arrays.

Every sweep adds the same four neighbours in the same order, so that all ways agree bit for bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from math import prod

import numpy as np
import zarr
from case import MIB, Job, cores

CACHED = 2**18
"""Bytes of the rows that a blocked sweep takes at a time: with neighbours and results they fit in a core's cache."""


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
    """Some sweeps of a whole array in two buffers, one of which is ``grid``."""
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
def by_numba() -> Callable[[np.ndarray, np.ndarray], None]:
    """`mean` as numba compiles it, on all cores: the warm-up waits for it."""
    import numba

    @numba.njit(parallel=True)
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


# ---------------------------------------------------------------------- arrays, and what is right


def noise(edge: int, dtype: str) -> np.ndarray:
    """Return one random number an element; of integers all that there are."""
    random, kind = np.random.default_rng(edge), np.dtype(dtype)
    shape = (edge, edge)
    return random.integers(0, 256, shape, kind) if kind.kind == "u" else random.random(shape, kind)


def store(path: str, edge: int, dtype: str, chunks: tuple[int, ...]) -> None:
    """Write the noise as array `a` of a folder in which the right answers are kept, too."""
    zarr.create_array(os.path.join(path, "a"), data=noise(edge, dtype), chunks=tuple(chunks), compressors=None)


def created(job: Job, path: str = "") -> zarr.Array:
    """Return an empty array like the source."""
    shape = (job.edge, job.edge)
    return zarr.create_array(path or job.target, shape=shape, chunks=job.chunks, dtype=job.dtype, compressors=None)


def check(job: Job) -> str:
    """`ok`, or what is wrong with a target: OpenCV's median, or numpy's sweeps, of the whole array, are right."""
    kept = os.path.join(job.source, f"{job.operation}-{job.times}.npy")
    if not os.path.exists(kept):
        data = noise(job.edge, job.dtype)
        right = medians(data, job.times) if job.operation == "median" else swept(data, job.times)
        np.save(f"{kept}.partial.npy", right)
        os.rename(f"{kept}.partial.npy", kept)
    array, wanted = zarr.open_array(job.target, mode="r"), np.load(kept, mmap_mode="r")
    if (array.shape, array.dtype) != (wanted.shape, wanted.dtype):
        return f"WRONG LAYOUT {array.shape} {array.dtype}"
    rows = max(64 * MIB // prod((job.edge, array.dtype.itemsize)) // array.chunks[0], 1) * array.chunks[0]
    with ThreadPoolExecutor(cores()) as pool:
        starts = range(0, job.edge, rows)
        same = pool.map(lambda low: np.array_equal(array[low : low + rows], wanted[low : low + rows]), starts)
        return "ok" if all(same) else "WRONG VALUES"
