"""Median of every window of an image, by a network of minima and maxima applied to whole rows at once.

    rows            0  1  2  3  4  5      for 5 × 5: along each row the five values of every place, sorted
    pairs              └──┘  └──┘         two sorted rows merged
    core               └────────┘         two pairs merged: the common rows of two windows
    windows         └───────────┘         the first: the median of the core and row 0
                       └───────────┘      the second: the median of the core and row 5

Common values of neighbours are computed once: along a row, each step is computed for all places and read with an
offset; down the columns, two windows share a core, and two cores a pair. A 3 × 3 median takes 17 minima and maxima an
element, a 5 × 5 median 57, for any data. Even and odd rows are separate, so that every operand is one contiguous run.
Merging: Batcher 1968 (odd-even merge; Knuth, volume 3, 5.3.4). Sharing: Adams 2021 (separable sorting networks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, reduce
from itertools import pairwise, product
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.kernels.results import check_array, check_out, check_threads
from oocarrays.mapping.given import MOST_EXTENT, whole, wholes

PADDED = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap"}
"""Modes of padding beyond an edge: scipy's names, with those of numpy's pad."""
WIDEST = 15
"""Elements along the widest window of a network."""
REGISTER = 192 * 2**10
"""Maximum bytes of a register: few enough to stay in a second cache, enough for a step to outlast its call, and for
two threads not to wait for the interpreter's lock after each: with 96 KiB two took longer than one.
"""


@dataclass(frozen=True, slots=True, eq=False)
class NetworkStep:
    """Smaller or larger of two values, for every place of the image; without operands, the read values."""

    operation: np.ufunc | None = None
    """``numpy.minimum`` or ``numpy.maximum``."""
    operands: tuple[Wire, ...] = ()


class Wire(NamedTuple):
    """Result of a step, shifted by rows (of its parity) down and columns to the right."""

    step: NetworkStep
    down: int = 0
    right: int = 0


def moved(wires: Sequence[Wire], down: int, right: int) -> list[Wire]:
    """Return the same values of neighbours."""
    return [Wire(wire.step, wire.down + down, wire.right + right) for wire in wires]


def compared(a: Wire, b: Wire) -> list[Wire]:
    """Return the smaller and the larger of two values."""
    return [Wire(NetworkStep(operation, (a, b))) for operation in (np.minimum, np.maximum)]


def merged(a: Sequence[Wire], b: Sequence[Wire]) -> list[Wire]:
    """Return two sorted lists as one, by Batcher's odd-even merge."""
    if not a or not b:
        return [*a, *b]
    if len(a) == len(b) == 1:
        return compared(a[0], b[0])
    first, *even = merged(a[::2], b[::2])
    odd = merged(a[1::2], b[1::2])
    paired = [wire for pair in zip(odd, even, strict=False) for wire in compared(*pair)]
    return [first, *paired, *odd[len(even) :], *even[len(odd) :]]


def gathered(one: Sequence[Wire], count: int, down: int, right: int) -> list[Wire]:
    """Return the lists of ``count`` neighbours at equal distances as one sorted list, by doubling."""
    if count < 2:
        return [*one] * count
    half = count // 2
    few = gathered(one, half, down, right)
    many = merged(few, moved(few, half * down, half * right))
    return merged(many, moved(one, (count - 1) * down, (count - 1) * right)) if count % 2 else many


def ranked(a: Sequence[Wire], b: Sequence[Wire], rank: int) -> Wire:
    """Return the value of a rank, from 1, in two sorted lists: the least of the maxima that cut off ``rank``."""
    cuts = (
        [*a[max(rank - j - 1, 0) : rank - j], *b[max(j - 1, 0) : j]]
        for j in range(len(b) + 1)
        if 0 <= rank - j <= len(a)
    )
    tops = (cut[0] if len(cut) == 1 else compared(*cut)[1] for cut in cuts)
    return reduce(lambda least, top: compared(least, top)[0], tops)


def medians(height: int, width: int) -> tuple[list[NetworkStep], list[Wire]]:
    """Return the network of a window: the read steps, and the medians, for even and for odd rows."""
    reads = [NetworkStep(), NetworkStep()]
    even, odd = (gathered([Wire(step)], width, 0, 1) for step in reads)
    core = gathered(merged(odd, moved(even, 1, 0)), height // 2, 1, 0)
    middle = height * width // 2 + 1
    return reads, [ranked(core, even, middle), ranked(core, moved(odd, height // 2, 0), middle)]


def ordered(outs: Sequence[Wire]) -> list[NetworkStep]:
    """Return the steps that results need, operands first."""
    found: dict[NetworkStep, None] = {}

    def visit(step: NetworkStep) -> None:
        if step not in found:
            for wire in step.operands:
                visit(wire.step)
            found[step] = None

    for out in outs:
        visit(out.step)
    return list(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class MedianNetwork:
    """Network in the order of running."""

    steps: tuple[NetworkStep, ...]
    """Steps, operands first: the even rows, the odd rows, and those computed from them."""
    outs: tuple[Wire, ...]
    """Medians of the even and of the odd rows."""
    places: dict[NetworkStep, int]
    """Register of each step's result."""
    registers: int

    @classmethod
    @cache
    def of(cls, height: int, width: int) -> MedianNetwork:
        """Return the network of a window, reusing registers after their last use."""
        reads, outs = medians(height, width)
        steps = (*reads, *(step for step in ordered(outs) if step.operation))
        last = {wire.step: number for number, step in enumerate(steps) for wire in step.operands}
        last |= {out.step: len(steps) for out in outs}
        places: dict[NetworkStep, int] = {}
        free: list[int] = []
        for number, step in enumerate(steps):
            places[step] = free.pop() if free else len(set(places.values()))
            free += {places[wire.step] for wire in step.operands if last[wire.step] == number}
        return cls(steps=steps, outs=tuple(outs), places=places, registers=max(places.values()) + 1)


def bound(network: MedianNetwork, held: np.ndarray, pitch: int) -> Iterator[tuple[Any, ...]]:
    """Yield each step's operation, operands and result: runs of registers, as long as all operands reach."""
    size: int = held.shape[1]
    length = dict.fromkeys(network.steps[:2], size)
    for step in network.steps[2:]:
        starts = [wire.down * pitch + wire.right for wire in step.operands]
        length[step] = n = min(length[w.step] - start for start, w in zip(starts, step.operands, strict=True))
        places = [network.places[wire.step] for wire in step.operands]
        a, b = (held[place, start : start + n] for place, start in zip(places, starts, strict=True))
        yield step.operation, a, b, held[network.places[step], :n]


def windows(image: np.ndarray, out: np.ndarray, height: int, width: int) -> None:
    """Write the median of every window inside an image, tile by tile; ``out`` is smaller by a window minus one."""
    if not out.size:
        return
    network, above = MedianNetwork.of(height, width), height // 2
    most = 8 * 2**20  # bytes of all registers of a thread
    elements = min(REGISTER, most // network.registers) // image.itemsize
    pitch = min(image.shape[1], max(elements // 16, 2 * width))
    half = min(-(-image.shape[0] // 2), max(elements // pitch, above + 1))
    rows, columns = 2 * (half - above), pitch - width + 1  # of the medians of a tile
    held = np.zeros((network.registers, half * pitch), image.dtype.newbyteorder("="))
    registers, steps = held.reshape(network.registers, half, pitch), list(bound(network, held, pitch))
    reads = [registers[network.places[step]] for step in network.steps[:2]]
    made = [registers[network.places[wire.step], wire.down :, wire.right :] for wire in network.outs]
    for row, column in product(range(0, out.shape[0], rows), range(0, out.shape[1], columns)):
        for parity, plane in enumerate(reads):
            part = image[row + parity : row + rows + height - 1 : 2, column : column + columns + width - 1]
            plane[: part.shape[0], : part.shape[1]] = part
        for operation, a, b, result in steps:
            operation(a, b, out=result)
        for parity, plane in enumerate(made):
            part = out[row + parity : row + rows : 2, column : column + columns]
            part[...] = plane[: part.shape[0], : part.shape[1]]


def median(
    image: np.ndarray,
    size: int | Sequence[int] = 3,
    *,
    mode: str = "reflect",
    out: np.ndarray | None = None,
    threads: int = 1,
) -> np.ndarray:
    """Return the median of the window around each element.

        result[i, j] = median(image[i - h : i + h + 1, j - w : j + w + 1])

    Parameters
    ----------
    image : numpy.ndarray
        Array of any integer or real type and any number of axes. The network serves odd windows of at most 15 × 15
        along two axes and one element along all others; ``scipy.ndimage.median_filter`` the rest. If a window contains
        a NaN, the network's median is NaN, as numpy's is; scipy's depends on the order.
    size : int or sequence of int
        Size of the window, in elements: of each axis, or of all.
    mode : str
        Padding beyond an edge, in scipy's terms: "reflect" (d c b a | a b c d), "mirror", "nearest" or "wrap". With
        "none", elements with windows beyond an edge keep their values. It is the cheapest mode, and correct if the
        image has a halo that is trimmed.
    out : numpy.ndarray, optional
        Array for the medians, of the image's shape and type.
    threads : int
        Threads to use: each holds 2.3 MiB for 3 × 3, 5.2 MiB for 5 × 5, and at most 9.2 MiB (15 × 15).

    Raises
    ------
    InputError
        For another mode or type, a window smaller than 1, or ``out`` of another shape or type, or that overlaps the
        image.
    UnsupportedError
        If scipy is needed and not installed.

    Examples
    --------
    >>> median(np.array([[1, 2, 3], [4, 90, 6], [7, 8, 9]]))
    array([[2, 3, 3],
           [4, 6, 6],
           [7, 8, 9]])

    In a pipeline, a window of five elements:

    >>> from functools import partial
    >>> kernel, how = partial(median, size=5, mode="none"), {"depth": 2, "boundary": "reflect", "workspace": "6MiB"}
    """
    check_array(image, "image")
    sizes = (whole(size, "size"),) * image.ndim if isinstance(size, Integral) else wholes(size, "size")
    result = np.empty(image.shape, image.dtype) if out is None else out
    if not isinstance(mode, str) or mode not in (*PADDED, "none"):
        raise InputError(f"mode {mode!r} is not one of {', '.join(PADDED)}, none")
    if image.dtype.kind not in "biuf":
        raise InputError(f"a median needs integers or real numbers; this is {image.dtype}")
    if len(sizes) != image.ndim or min(sizes, default=1) < 1 or max(sizes, default=1) > MOST_EXTENT:
        raise InputError(f"a window of {sizes} does not fit {image.ndim} axes: one length of at least 1 for each")
    check_out(image, result, "image", "the medians are")
    check_threads(threads)
    if max(sizes, default=1) > WIDEST or not all(n % 2 for n in sizes) or sum(n > 1 for n in sizes) > 2:
        by_scipy(image, sizes, mode, result)
    else:
        window, pairs = planes(image, result, sizes)
        # a single thread reuses its freed memory
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            for plane, filled in pairs:
                each = parts(plane, filled, window, mode, threads)
                list((pool.map if pool else map)(lambda part: windows(*part, *window), each))
    if mode == "none":
        keep_edges(image, result, sizes)
    return result


def planes(image: np.ndarray, out: np.ndarray, sizes: tuple[int, ...]) -> tuple[tuple[int, ...], Iterator[Any]]:
    """Return the window along its two wide axes, and all planes of these axes: of image and result."""
    lacking = 2 - len(sizes)
    sizes = (1,) * lacking + sizes
    wide = sorted(sorted(range(len(sizes)), key=lambda axis: (sizes[axis] > 1, axis))[-2:])
    turned = [np.moveaxis(array[(None,) * lacking], wide, (-2, -1)) for array in (image, out)]
    places = np.ndindex(turned[0].shape[:-2])
    return tuple(sizes[axis] for axis in wide), ((turned[0][place], turned[1][place]) for place in places)


def keep_edges(image: np.ndarray, out: np.ndarray, sizes: tuple[int, ...]) -> None:
    """Copy elements with windows that reach beyond an edge."""
    for axis, size in enumerate(sizes):
        before, after = size // 2, (size - 1) // 2
        for edge in (slice(before), slice(max(image.shape[axis] - after, 0), None)):
            place = (slice(None),) * axis + (edge,)
            out[place] = image[place]


def parts(
    image: np.ndarray, out: np.ndarray, sizes: Sequence[int], mode: str, bands: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield an image's inside, in bands of rows, and its four edges with padding, if any."""
    (height, width), (above, left) = image.shape, (n // 2 for n in sizes)
    if not image.size:
        return
    ends = np.linspace(above, max(height - above, above), bands + 1, dtype=int).tolist()
    for low, high in pairwise(ends):
        yield image[low - above : high + above], out[low:high, left : width - left]
    if mode == "none":
        return
    pads = zip(image.shape, sizes, strict=True)
    rows, columns = (np.pad(np.arange(n), k // 2, mode=PADDED[mode]) for n, k in pads)  # type: ignore[call-overload]
    for low, high in ((0, above), (max(height - above, 0), height)):
        yield image[np.ix_(rows[low : high + 2 * above], columns)], out[low:high]
    for low, high in ((0, left), (max(width - left, 0), width)):
        yield image[np.ix_(rows, columns[low : high + 2 * left])], out[:, low:high]


def by_scipy(image: np.ndarray, sizes: tuple[int, ...], mode: str, out: np.ndarray) -> None:
    """Write the medians of windows that the network does not serve."""
    try:
        from scipy.ndimage import median_filter
    except ImportError:
        raise UnsupportedError(
            f"a window of {sizes} needs scipy: pip install scipy; without it a window is odd, "
            f"at most {WIDEST} × {WIDEST} along two axes and 1 along all others"
        ) from None
    median_filter(image, size=sizes, mode="reflect" if mode == "none" else mode, output=out)
