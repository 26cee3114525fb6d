"""Sweeps of the four-point stencil, several in one pass: each tile of columns runs down the array once, in cache.

    columns         · · · ┌─────────────┐ · · ·     a tile, with one more column per sweep on each side: they become
                    · · · └─────────────┘ · · ·     stale by one column a sweep, and are left out at the end
    rows            0 1 2 3 4 5 6 7 8 …             down the tile in blocks of rows; behind the block that is read,
      read          ███████████▓▓▓▓▓▓▓              each sweep follows the previous one at a distance of one row
      sweep 1       ██████████▓▓▓▓▓▓▓               ▓ rows added by one block
      sweep 2       █████████▓▓▓▓▓▓▓                each sweep keeps the last two rows of the previous sweep

No row is swept twice. Thakur 1995, figure 5.3, is the plain sweep. Tiling: Wolf & Lam 1991 (skewing); Song & Li 1999.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from oocarrays.errors import InputError
from oocarrays.kernels.results import check_array, check_out, check_threads
from oocarrays.mapping.given import whole

COLUMNS, BLOCK = 1024, 256 * 2**10
"""Columns of a tile, and bytes of a block of its rows: three blocks and the rows kept stay in a second cache."""


@np.errstate(over="ignore", invalid="ignore")  # wrong values at a row's ends are overwritten
def sweep(grid: np.ndarray) -> np.ndarray:
    """Return the grid after one plain sweep: every inner element becomes the mean of its four neighbours.

    Rows are processed as one run: numpy adds long runs nearly twice as fast as rows.

    >>> sweep(np.array([[0.0, 4, 0], [8, 0, 0], [0, 0, 0]]))
    array([[0., 4., 0.],
           [8., 3., 0.],
           [0., 0., 0.]])
    """
    check(grid)
    if not grid.size:
        return grid.copy()
    result, pitch, run = np.empty(grid.shape, grid.dtype), grid.shape[1], grid.ravel()
    inner = result.reshape(-1)[pitch:-pitch]
    diagonals = run[: -pitch - 1] + run[pitch + 1 :]  # below and above to the right: each pair once for two
    np.add(diagonals[: inner.size], diagonals[pitch - 1 : pitch - 1 + inner.size], out=inner)
    inner *= 0.25
    result[[0, -1]], result[:, [0, -1]] = grid[[0, -1]], grid[:, [0, -1]]
    return result


def sweeps(grid: np.ndarray, count: int, *, out: np.ndarray | None = None, threads: int = 1) -> np.ndarray:
    """Return the grid after ``count`` plain sweeps, bit for bit: the border keeps its values.

    For a slab with a halo of ``count`` rows and columns, everything within the halo equals the result of sweeping the
    whole array.

    Parameters
    ----------
    grid : numpy.ndarray
        Array of two axes and real or complex numbers.
    count : int
        Number of sweeps.
    out : numpy.ndarray, optional
        Array for the result: of the grid's shape and type, without overlap in memory.
    threads : int
        Threads to use: each holds three blocks of 256 KiB and two rows of a tile for each sweep.

    Raises
    ------
    InputError
        For another number of axes or type, a negative count, or ``out`` that does not fit or overlaps the grid.

    Examples
    --------
    >>> grid = np.add.outer(np.arange(5.0) ** 2, np.arange(7.0))
    >>> np.array_equal(sweeps(grid, 3), sweep(sweep(sweep(grid))))
    True
    """
    check(grid)
    result = np.empty(grid.shape, grid.dtype) if out is None else out
    if whole(count, "count") < 0:
        raise InputError(f"{count} sweeps: at least 0 are required")
    if count > (most := 2**31):
        raise InputError(f"{count} sweeps in one pass; at most {most} are possible")
    check_out(grid, result, "grid", "the result is")
    check_threads(threads)
    width = grid.shape[1]
    with ThreadPoolExecutor(threads) as pool:
        tiles = [(first, min(first + COLUMNS, width)) for first in range(0, width, COLUMNS)]
        list(pool.map(lambda tile: descend(grid, count, result, *tile), tiles))
    return result


@np.errstate(over="ignore", invalid="ignore")  # wrong values at a row's end are left out
def descend(grid: np.ndarray, count: int, out: np.ndarray, first: int, last: int) -> None:
    """Sweep the columns from ``first`` to ``last`` ``count`` times, down the grid in blocks of rows."""
    (height, width), dtype = grid.shape, grid.dtype
    left, right = max(first - count, 0), min(last + count, width)
    pitch = right - left
    rows = max(BLOCK // (pitch * dtype.itemsize), 1)
    blocks = np.zeros((2, rows + 2, pitch), dtype)
    sums = np.zeros((rows + 1) * pitch, dtype)
    kept = np.zeros((count + 1, 2, pitch), dtype)
    fixed = [0] * (left == 0) + [pitch - 1] * (right == width)
    # a block ends a row earlier after each sweep: the last one starts within ``count`` rows below the grid
    for start in range(0, height + count, rows):
        read = grid[start : start + rows, left:right]
        blocks[0, 2 : 2 + len(read)] = read
        for done in range(count):
            before, after = blocks[done % 2], blocks[(done + 1) % 2]
            before[:2] = kept[done]
            mean(before, after, sums)
            after[2:, fixed] = before[1:-1, fixed]
            for row in (done - start, done - start + height - 1):  # the grid's first and last, among the new rows
                if -1 <= row < rows - 1:
                    after[row + 3] = before[row + 2]
            kept[done] = before[rows:]
        top = start - count
        swept = blocks[count % 2, 2 + max(-top, 0) : 2 + max(height - top, 0), first - left : last - left]
        out[max(top, 0) : max(top, 0) + len(swept), first:last] = swept


def mean(before: np.ndarray, after: np.ndarray, sums: np.ndarray) -> None:
    """Write the mean of four neighbours for all rows of ``before`` but its first and last into ``after`` from row 2.

    A neighbour above and one to the right lie on a diagonal, as do one to the left and one below: two additions and
    a product an element. Rows are processed as one run: the first and the last column are wrong.
    """
    pitch, run = before.shape[1], before.ravel()
    size, diagonals = run.size - 2 * pitch, run.size - pitch - 1
    result = after.reshape(-1)[2 * pitch :]
    np.add(run[:diagonals], run[pitch + 1 :], out=sums[:diagonals])
    np.add(sums[:size], sums[pitch - 1 : pitch - 1 + size], out=result)
    np.multiply(result, 0.25, out=result)


def check(grid: np.ndarray) -> None:
    check_array(grid, "grid")
    if grid.ndim != 2 or grid.dtype.kind not in "fc":
        raise InputError(f"sweeps need two axes of real or complex numbers; this is {grid.dtype} {grid.shape}")
