"""Fused sweeps: a kernel applied several times to a part of an array that is in memory, every row of it once.

    columns         · · · ┌─────────────┐ · · ·     a tile, and beside it `depth` columns a sweep: what lies there goes
                    · · · └─────────────┘ · · ·     stale by `depth` columns a sweep, and is left out at the end
    rows            0 1 2 3 4 5 6 7 8 9 …           down the tile in blocks of rows; behind the block that is read,
      read          ████████▓▓▓▓▓                   each sweep follows the one before it at a distance of `depth` rows
      sweep 1       ███████▓▓▓▓▓                    ▓ what one step adds: the kernel's block is ▓ and `depth` rows on
      sweep 2       ██████▓▓▓▓▓                     either side; of each sweep, its last 2 · `depth` rows are kept

All rows of a step stand in one buffer, a row at the same place after every sweep: a kernel that changes its block in
place leaves them where the next sweep wants them. Beyond reflecting, nearest and constant edges, neighbours are set
anew before each sweep; periodic ones are neighbours like others. Wolf & Lam 1991 (skewing); Song & Li 1999.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oocarrays.errors import KernelError
from oocarrays.mapping.layouts.boundary import Boundary, of_each, standing
from oocarrays.plan.slabs.sweeps import Ends, Sweeps, SweepStep
from oocarrays.storage.local.pages import keep_freed

KEPT_BYTES = 2**22
"""Bytes of what is freed that the allocator is to keep for the next call: several blocks."""
Watch = Callable[[np.ndarray, np.ndarray], Any]
"""Is shown parts of an array before and after the last sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Several sweeps of one kernel, of any part of an array."""

    kernel: Callable[..., Any]
    """One sweep: a block and those beside it in, one of the same shape and type out, which may be that one, changed."""
    sweeps: Sweeps
    """How many there are, and how far each reaches."""
    threads: int = 1
    """Tiles that are swept at one time."""

    def __call__(
        self,
        block: np.ndarray,
        ends: Ends,
        core: Ends,
        *,
        beside: Sequence[np.ndarray] = (),
        out: np.ndarray | None = None,
        watch: Watch | None = None,
    ) -> np.ndarray:
        """Sweep ``core``, a part of a block.

        Parameters
        ----------
        block : numpy.ndarray
            The part, and around it what all sweeps reach. It is not changed.
        ends, core : sequence of (int, int)
            Where the block and the part begin and end along each axis; the block also beyond periodic edges.
        beside : sequence of numpy.ndarray
            Further arguments of the kernel, of the same place and shape as the block: every sweep sees them.
        out : numpy.ndarray, optional
            Where the result goes: of the part's shape.
        watch : callable, optional
            Is shown every part of ``core`` before and after the last sweep.

        Raises
        ------
        KernelError
            Where the kernel gives another shape or type than that of its block.

        Examples
        --------
        >>> def smooth(block):
        ...     return np.convolve(block, [0.25, 0.5, 0.25], "same")
        >>> sweeps = Sweeps(shape=(8,), count=2, depth=(1,), boundary="nearest", tile=(4,))
        >>> Fused(kernel=smooth, sweeps=sweeps)(np.array([16.0, 0, 0, 0, 0]), [(0, 5)], [(0, 3)])
        array([10.,  5.,  1.])
        """
        dtype = block.dtype.newbyteorder("=")  # as arithmetic gives it
        made = np.empty([upper - lower for lower, upper in core], dtype) if out is None else out
        if self.sweeps.count == 0:
            made[...] = block[_places(core, ends)]
            return made
        keep_freed(
            max(KEPT_BYTES, 2 * self.sweeps.block_bytes(block.itemsize))
        )  # a kernel's intermediate results come and go with every block

        def descend(tile: Ends) -> None:
            _Walk(self, tile, dtype, watch).down(block, ends, beside, made[_places(tile, core)])

        with ThreadPoolExecutor(self.threads) if self.threads > 1 else nullcontext() as pool:
            list((pool.map if pool else map)(descend, self.sweeps.tiles(core)))
        return made


class _Walk:
    """All sweeps of one tile, down its first axis."""

    def __init__(self, fused: Fused, tile: Ends, dtype: np.dtype, watch: Watch | None) -> None:
        sweeps = fused.sweeps
        self.kernel, self.sweeps, self.tile, self.watch = fused.kernel, sweeps, tile, watch
        self.steps = list(sweeps.steps(tile[0]))
        self.across = [sweeps.span(axis, ends) for axis, ends in enumerate(tile)][1:]
        self.twice = 2 * sweeps.depth[0]
        width = [upper - lower for lower, upper in self.across]
        self.buffer = np.empty((max(step.bottom - step.top for step in self.steps), *width), dtype)
        self.beside: list[np.ndarray] = []
        self.kept = np.empty((sweeps.count, self.twice, *width), dtype)

    def down(self, block: np.ndarray, ends: Ends, beside: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Walk down the tile; ``out`` takes what comes of it."""
        inside = [self.sweeps.needed(axis, part, 0) for axis, part in enumerate(self.tile)][1:]
        core, (first, _) = _places(self.tile[1:], self.across), self.tile[0]
        for step in self.steps:
            read = [step.made[0], *inside]
            self.beside = [self._beside(each, ends, step) for each in beside]
            self.buffer[_places(read, [(step.top, 0), *self.across])] = block[_places(read, ends)]
            for sweep in range(1, self.sweeps.count):
                self.buffer[_rows(step.made[sweep], step.top)] = self._swept(step, sweep)
            out[_rows(step.made[-1], first)] = self._last(step, core)

    def _last(self, step: SweepStep, core: tuple[slice, ...]) -> np.ndarray:
        """Return what the last sweep adds to the result in a step."""
        if self.watch is None:
            return self._swept(step, self.sweeps.count)[(slice(None), *core)]
        window, inside = self._block(step, self.sweeps.count), (self._new(step, self.sweeps.count), *core)
        before = window[inside].copy()
        after = self._checked(step, self.sweeps.count, window)[inside]
        self.watch(before, after)
        return after

    def _swept(self, step: SweepStep, sweep: int) -> np.ndarray:
        """The rows that one sweep adds in a step."""
        return self._checked(step, sweep, self._block(step, sweep))[self._new(step, sweep)]

    def _new(self, step: SweepStep, sweep: int) -> slice:
        """Where the rows that a sweep adds are in its block."""
        return _rows(step.made[sweep], step.windows[sweep][0])

    def _block(self, step: SweepStep, sweep: int) -> np.ndarray:
        """Return the block for the kernel: in the buffer, with what was kept of the step before."""
        window = self.buffer[_rows(step.windows[sweep], step.top)]
        if not step.first:
            window[: self.twice] = self.kept[sweep - 1]
        if not step.last:
            self.kept[sweep - 1] = window[len(window) - self.twice :]
        fill_edges(window, [step.windows[sweep], *self.across], self.sweeps)
        return window

    def _beside(self, block: np.ndarray, ends: Ends, step: SweepStep) -> np.ndarray:
        """Return the rows of a step of a block that is only read: a view, or a copy with what stands beyond edges."""
        wanted = [(step.top, step.bottom), *self.across]
        if all(start <= lower and upper <= stop for (lower, upper), (start, stop) in zip(wanted, ends, strict=True)):
            view = block[_places(wanted, ends)]
        else:
            there = [(max(a, start), min(b, stop)) for (a, b), (start, stop) in zip(wanted, ends, strict=True)]
            view = np.empty([upper - lower for lower, upper in wanted], block.dtype)
            view[_places(there, wanted)] = block[_places(there, ends)]
            fill_edges(view, wanted, self.sweeps)
        view.flags.writeable = False
        return view

    def _checked(self, step: SweepStep, sweep: int, window: np.ndarray) -> np.ndarray:
        rows = _rows(step.windows[sweep], step.top)
        made = np.asarray(self.kernel(window, *(each[rows] for each in self.beside)))
        if made.shape != window.shape or made.dtype != window.dtype:
            raise KernelError(unlike(made, window))
        return made


def unlike(made: np.ndarray, block: np.ndarray) -> str:
    """Why a kernel cannot be applied to what it gave."""
    return (
        f"the kernel gave {made.dtype} of shape {made.shape} for a block of {block.dtype} and shape {block.shape}: "
        "sweeps need the same"
    )


def fill_edges(window: np.ndarray, ends: Ends, sweeps: Sweeps) -> None:
    """Set what stands beyond the edges of an array."""
    boundaries = of_each(sweeps.boundary, len(sweeps.shape))
    for axis, ((lower, upper), extent, boundary) in enumerate(zip(ends, sweeps.shape, boundaries, strict=True)):
        if boundary not in ("none", "periodic") and (lower < 0 or upper > extent):
            for place, element in beyond(boundary, extent, lower, upper):
                before: Any = (slice(None),) * axis
                window[(*before, place)] = boundary if element is None else window[(*before, element)]


@lru_cache(maxsize=256)
def beyond(boundary: Boundary, extent: int, lower: int, upper: int) -> list[tuple[int, int | None]]:
    """The places of a window that lie beyond an axis, and those that they are like; None for a constant.

    >>> beyond("reflect", 5, -2, 3), beyond(0.0, 5, 3, 6)
    ([(0, 3), (1, 2)], [(2, None)])
    """
    stands = standing(boundary, extent, lower, upper).tolist()
    return [
        (place, None if element < 0 else element - lower)
        for place, element in enumerate(stands)
        if not 0 <= place + lower < extent
    ]


def _rows(rows: tuple[int, int], start: int) -> slice:
    return slice(rows[0] - start, rows[1] - start)


def _places(part: Sequence[tuple[int, int]], whole: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """Where a part lies in a whole."""
    return tuple(_rows(each, start) for each, (start, _) in zip(part, whole, strict=True))
