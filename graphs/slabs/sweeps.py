"""Fused sweeps: a kernel applied several times to a part of an array in memory, each row visited once.

    columns         · · · ┌─────────────┐ · · ·     a tile, and beside it `depth` columns a sweep: those go
                    · · · └─────────────┘ · · ·     stale by `depth` columns a sweep, and are cut off at the end
    rows            0 1 2 3 4 5 6 7 8 9 …           down the tile in blocks of rows; behind the block read,
      read          ████████▓▓▓▓▓                   each sweep follows the one before it at a distance of `depth` rows
      sweep 1       ███████▓▓▓▓▓                    ▓ rows added by a step: the kernel's block is ▓ and `depth` rows on
      sweep 2       ██████▓▓▓▓▓                     either side; of each sweep, its last 2 · `depth` rows are kept

All rows of a step are in one buffer, a row at the same place after every sweep: a kernel that changes its block in
place leaves them where the next sweep reads them. Neighbours beyond reflecting, nearest and constant edges are set
again before each sweep; periodic ones are ordinary neighbours. Wolf & Lam 1991 (skewing); Song & Li 1999.

Fields that evolve together have a buffer each, and every sweep maps one block of each to one block of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oocarrays.errors import KernelError
from oocarrays.kernels.results import on_host
from oocarrays.mapping.layouts.halo import Boundary, of_each, standing
from oocarrays.plan.slabs.sweeps import Ends, Sweeps, SweepStep
from oocarrays.storage.local.pages import give_back, keep_freed

Fields = Sequence[np.ndarray]
"""One array for each swept, or read, array."""
Watch = Callable[[Fields, Fields], Any]
"""Function called with parts of all swept arrays before and after the last sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fused:
    """Several sweeps of one kernel, for any part of an array."""

    kernel: Callable[..., Any]
    """Function of one sweep: from a block of each array to one of each swept array, alike, perhaps changed in place."""
    sweeps: Sweeps
    """Number of sweeps, and reach of each."""
    threads: int = 1
    """Number of tiles swept concurrently."""
    fields: int = 1
    """Number of swept arrays; the arrays after them are the same in every sweep."""

    def __call__(
        self, blocks: Fields, ends: Ends, core: Ends, *, out: Fields | None = None, watch: Watch | None = None
    ) -> list[np.ndarray]:
        """Sweep ``core``, a part of blocks at one place, and return that part of each swept array."""
        dtypes = [block.dtype.newbyteorder("=") for block in blocks[: self.fields]]  # like arithmetic results
        made = [np.empty([upper - lower for lower, upper in core], dtype) for dtype in dtypes] if out is None else out
        made = list(made)
        if self.sweeps.count == 0:
            _put(made, (...,), [block[_places(core, ends)] for block in blocks[: self.fields]])
            return made
        block_bytes = self.sweeps.block_bytes(sum(dtype.itemsize for dtype in dtypes))
        keep_freed(max(2**22, 2 * block_bytes))  # a kernel allocates intermediate results for every block

        def descend(tile: Ends) -> None:
            _Walk(self, tile, dtypes, watch).down(blocks, ends, [each[_places(tile, core)] for each in made])

        with ThreadPoolExecutor(self.threads) if self.threads > 1 else nullcontext() as pool:
            list((pool.map if pool else map)(descend, self.sweeps.tiles(core)))
        give_back()  # the next slab may run on another thread, with its own freed memory
        return made


class _Walk:
    """All sweeps of one tile, down its first axis."""

    def __init__(self, fused: Fused, tile: Ends, dtypes: Sequence[np.dtype], watch: Watch | None) -> None:
        sweeps = fused.sweeps
        self.kernel, self.sweeps, self.tile, self.watch = fused.kernel, sweeps, tile, watch
        self.steps = list(sweeps.steps(tile[0]))
        self.across = [sweeps.span(axis, ends) for axis, ends in enumerate(tile)][1:]
        self.twice = 2 * sweeps.depth[0]
        width = [upper - lower for lower, upper in self.across]
        rows = max(step.bottom - step.top for step in self.steps)
        self.buffers = [np.empty((rows, *width), dtype) for dtype in dtypes]
        self.beside: list[np.ndarray] = []
        self.kept = [np.empty((sweeps.count, self.twice, *width), dtype) for dtype in dtypes]

    def down(self, blocks: Fields, ends: Ends, out: Fields) -> None:
        """Sweep down the tile, and store the results in ``out``."""
        fields, beside = blocks[: len(out)], blocks[len(out) :]
        inside = [self.sweeps.needed(axis, part, 0) for axis, part in enumerate(self.tile)][1:]
        core, (first, _) = _places(self.tile[1:], self.across), self.tile[0]
        for step in self.steps:
            read = [step.made[0], *inside]
            self.beside = [self._beside(each, ends, step) for each in beside]
            place = _places(read, ends)
            _put(self.buffers, _places(read, [(step.top, 0), *self.across]), [each[place] for each in fields])
            for sweep in range(1, self.sweeps.count):
                _put(self.buffers, (_rows(step.made[sweep], step.top),), self._swept(step, sweep))
            _put(out, (_rows(step.made[-1], first),), self._last(step, core))

    def _last(self, step: SweepStep, core: tuple[slice, ...]) -> list[np.ndarray]:
        last = self.sweeps.count
        windows, inside = self._blocks(step, last), (self._new(step, last), *core)
        before = [window[inside].copy() for window in windows] if self.watch else []
        after = [made[inside] for made in self._made(step, last, windows)]
        if self.watch:
            self.watch(before, after)
        return after

    def _swept(self, step: SweepStep, sweep: int) -> list[np.ndarray]:
        new = self._new(step, sweep)
        return _apart([each[new] for each in self._made(step, sweep, self._blocks(step, sweep))], self.buffers)

    def _new(self, step: SweepStep, sweep: int) -> slice:
        """Return the place of a sweep's added rows in its block."""
        return _rows(step.made[sweep], step.windows[sweep][0])

    def _blocks(self, step: SweepStep, sweep: int) -> list[np.ndarray]:
        """Return the kernel's blocks: parts of the buffers, with the rows kept from the previous step."""
        windows = [buffer[_rows(step.windows[sweep], step.top)] for buffer in self.buffers]
        for window, kept in zip(windows, self.kept, strict=True):
            if not step.first:
                window[: self.twice] = kept[sweep - 1]
            if not step.last:
                kept[sweep - 1] = window[len(window) - self.twice :]
            fill_edges(window, [step.windows[sweep], *self.across], self.sweeps)
        return windows

    def _beside(self, block: np.ndarray, ends: Ends, step: SweepStep) -> np.ndarray:
        """Return a step's rows of an array that is only read: a view, or a copy with values beyond the edges."""
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

    def _made(self, step: SweepStep, sweep: int, windows: Fields) -> list[np.ndarray]:
        """Return the kernel's results for its blocks, after checking them."""
        rows = _rows(step.windows[sweep], step.top)
        made = each_of(self.kernel(*windows, *(each[rows] for each in self.beside)), windows)
        refused = unlike(made, windows)
        if refused:
            raise KernelError(refused)
        return made


def each_of(given: Any, blocks: Fields) -> list[np.ndarray]:
    """Return the kernel's results as a list; for one block, the kernel returns an array or a tuple of one."""
    if len(blocks) > 1:
        return [on_host(each) for each in (given if isinstance(given, list | tuple) else [given])]
    alone = isinstance(given, tuple) and len(given) == 1 and np.ndim(given[0]) == blocks[0].ndim
    return [on_host(given[0] if alone else given)]


def unlike(made: Fields, blocks: Fields) -> str:
    """Return the reason why a kernel cannot be applied to its own results; empty if it can."""
    if len(made) != len(blocks):
        return (
            f"the kernel returned {len(made)} arrays for the {len(blocks)} that are swept: sweeps need a tuple of "
            "as many"
        )
    for number, (each, block) in enumerate(zip(made, blocks, strict=True), 1):
        if each.shape != block.shape or each.dtype != block.dtype:
            which = f", number {number} of {len(blocks)}" if len(blocks) > 1 else ""
            there = f"a block of {block.dtype} and shape {block.shape}{which}"
            return f"the kernel returned {each.dtype} of shape {each.shape} for {there}: sweeps need the same"
    return ""


def _apart(made: list[np.ndarray], buffers: Fields) -> list[np.ndarray]:
    """Return results that can be stored into buffers in sequence, with views of earlier buffers copied."""
    return [
        each.copy() if any(np.may_share_memory(each, other) for other in buffers[:number]) else each
        for number, each in enumerate(made)
    ]


def _put(arrays: Fields, place: tuple[Any, ...], values: Fields) -> None:
    for array, each in zip(arrays, values, strict=True):
        array[place] = each


def fill_edges(window: np.ndarray, ends: Ends, sweeps: Sweeps) -> None:
    """Set the values beyond the edges of an array."""
    boundaries = of_each(sweeps.boundary, len(sweeps.shape))
    for axis, ((lower, upper), extent, boundary) in enumerate(zip(ends, sweeps.shape, boundaries, strict=True)):
        if boundary not in ("none", "periodic") and (lower < 0 or upper > extent):
            for place, element in beyond(boundary, extent, lower, upper):
                before: Any = (slice(None),) * axis
                window[(*before, place)] = boundary if element is None else window[(*before, element)]


@lru_cache(maxsize=256)
def beyond(boundary: Boundary, extent: int, lower: int, upper: int) -> list[tuple[int, int | None]]:
    """Return the places of a window beyond an axis, with the places of equal elements; None for a constant."""
    stands = standing(boundary, extent, lower, upper).tolist()
    return [
        (place, None if element < 0 else element - lower)
        for place, element in enumerate(stands)
        if not 0 <= place + lower < extent
    ]


def _rows(rows: tuple[int, int], start: int) -> slice:
    return slice(rows[0] - start, rows[1] - start)


def _places(part: Sequence[tuple[int, int]], whole: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    return tuple(_rows(each, start) for each, (start, _) in zip(part, whole, strict=True))


Residual = Callable[[Any, Any], float]
"""Measure of the last sweep's change, from a part of the array before and after it; of several arrays, from tuples.
"""


def change(before: np.ndarray, after: np.ndarray) -> float:
    """Return the maximum change of an element; an element that stays NaN or infinite does not change."""
    if not after.size:
        return 0.0
    exact = after.dtype if after.dtype.kind in "fc" else np.float64
    with np.errstate(invalid="ignore"):
        differences = np.abs(np.subtract(after, before, dtype=exact))
    most = differences.max()
    if np.isnan(most):
        same = (before == after) | (np.isnan(before) & np.isnan(after))
        most = differences.max(where=~same, initial=0)
    return float(most)


def residual_of(residual: Residual, before: Sequence[np.ndarray], after: Sequence[np.ndarray]) -> float:
    """Return the residual of all swept arrays: by default the maximum change."""
    if residual is change:
        return largest(map(change, before, after))
    return float(residual(before[0], after[0]) if len(before) == 1 else residual(tuple(before), tuple(after)))


def largest(residuals: Iterable[float]) -> float:
    return float(np.max([-np.inf, *residuals]))


def as_bits(residual: float) -> int:
    """Return a residual as the journal keeps it: the integer with the same bits."""
    return int(np.float64(residual).view(np.uint64))


def as_residual(bits: int) -> float:
    return float(np.uint64(bits).view(np.float64))
