"""Kernels: against sorting, loops, scipy, numpy's transforms; networks on all zeros and ones."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import UnsupportedError
from oocarrays.kernels import fourier, jacobi, median, medians as kernel, transform
from oocarrays.kernels.medians import Wire
from tests.profiles import examples
from tests.seams import set_constants, small

WINDOWS = [(3, 3), (5, 5), (1, 3), (3, 1), (3, 5), (5, 3), (1, 1)]
TYPES = ["u1", "i2", "u2", "i8", "f4", "f8", ">f4", "?"]


def sorted_medians(image: np.ndarray, sizes: tuple[int, ...], mode: str) -> np.ndarray:
    """The middle of each window's sorted values."""
    padded = np.pad(image, [(n // 2, n // 2) for n in sizes], mode=kernel.PADDED[mode])
    values = np.lib.stride_tricks.sliding_window_view(padded, sizes).reshape(*image.shape, -1)
    return np.sort(values, axis=-1)[..., values.shape[-1] // 2]


# ---------------------------------------------------------------------- the median's network


def zeros_and_ones(pixels: int) -> list[np.ndarray]:
    """For each pixel its bit in all images of zeros and ones, a bit an image."""
    return [np.packbits((np.arange(2**pixels) >> pixel & 1).astype("u1")) for pixel in range(pixels)]


def outcome(out: Wire, pixels: dict[tuple[int, int], np.ndarray], reads: tuple) -> np.ndarray:
    """A network's result, a bit an image: of bits the smaller is ``and``, the larger ``or``."""
    known = {(step, row // 2, column): bits for (row, column), bits in pixels.items() for step in [reads[row % 2]]}

    def value(wire: Wire, down: int, right: int) -> np.ndarray:
        place = wire.step, wire.down + down, wire.right + right
        if place not in known:
            a, b = (value(operand, *place[1:]) for operand in wire.step.operands)
            known[place] = a & b if wire.step.operation is np.minimum else a | b
        return known[place]

    return value(out, 0, 0)


@pytest.mark.parametrize("parity", [0, 1])
@pytest.mark.parametrize(("height", "width"), WINDOWS)
def test_a_network_finds_the_median_of_all_zeros_and_ones(height: int, width: int, parity: int) -> None:
    network = kernel.MedianNetwork.of(height, width)
    places = [(row + parity, column) for row, column in product(range(height), range(width))]
    low = min(len(places), 20)
    patterns, ones = zeros_and_ones(low), np.bitwise_count(np.arange(2**low))
    for high in product([0, 1], repeat=len(places) - low):  # by parts, to hold megabytes only
        bits = [*patterns, *(np.full_like(patterns[0], 255 * bit) for bit in high)]
        found = outcome(network.outs[parity], dict(zip(places, bits, strict=True)), network.steps[:2])
        middle = ones + sum(high) > len(places) // 2
        assert np.array_equal(np.unpackbits(found, count=2**low), middle)


@pytest.mark.parametrize(("sizes", "steps"), [((3, 3), 17), ((5, 5), 57), ((1, 3), 4), ((3, 1), 3)])
def test_neighbours_share_steps(sizes: tuple[int, int], steps: int) -> None:
    assert len(kernel.MedianNetwork.of(*sizes).steps) - 2 == 2 * steps


@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    sizes=st.sampled_from([*WINDOWS, (7, 7), (5, 9)]),
    dtype=st.sampled_from(TYPES),
    mode=st.sampled_from([*kernel.PADDED]),
    register=st.sampled_from([1, 500, 10**5]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_medians_are_the_middles_of_sorted_windows(shape, sizes, dtype, mode, register, threads, seed) -> None:
    image = (np.random.default_rng(seed).standard_normal(shape) * 60).astype(dtype)
    with small(median_tile=register):  # the tiles' size, so that there are many
        found = median(image, sizes, mode=mode, threads=threads)
    expected = sorted_medians(image, sizes, mode) if image.size else image
    assert found.dtype == image.dtype
    assert np.array_equal(found, expected)


@pytest.mark.parametrize("image", [np.arange(900), np.arange(900)[::-1], np.arange(900) % 2, np.arange(900) % 7 * 40])
@pytest.mark.parametrize("size", [3, 7])
def test_smooth_and_striped_images(image: np.ndarray, size: int) -> None:
    for layout in (image.reshape(30, 30), image.reshape(30, 30).T, image.reshape(30, 30)[::-2, ::3]):
        assert np.array_equal(median(layout, size), sorted_medians(layout, (size, size), "reflect"))


def test_a_window_with_nan_gives_nan_and_infinities_count() -> None:
    image = np.random.default_rng(0).random((20, 20)).astype("f4")
    image[3, 4], image[10:13, 10:13], image[10, 9] = np.nan, np.inf, -np.inf
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(image, 2, mode="symmetric"), (5, 5))
    expected = np.median(windows.reshape(20, 20, 25), axis=-1)
    assert np.isnan(expected).sum() == 25
    assert np.array_equal(median(image, 5), expected, equal_nan=True)


def test_out_is_filled_and_the_image_is_left_alone() -> None:
    image = np.random.default_rng(0).integers(0, 255, (33, 50), dtype="u1")
    before, out = image.copy(), np.zeros_like(image, order="F")
    assert median(image, 3, out=out) is out
    assert np.array_equal(out, sorted_medians(before, (3, 3), "reflect"))
    assert np.array_equal(image, before)


@pytest.mark.parametrize("size", [1, 3, (5, 3), (15, 1), 15, 17, 4])
@pytest.mark.parametrize("mode", [*kernel.PADDED])
def test_as_scipy(size: int | tuple[int, int], mode: str) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = np.random.default_rng(1).integers(0, 999, (31, 44))
    assert np.array_equal(median(image, size, mode=mode), ndimage.median_filter(image, size=size, mode=mode))


@pytest.mark.parametrize("axes", [1, 3, 4])
def test_another_number_of_axes_is_scipys(axes: int) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = np.random.default_rng(1).random((9, 8, 7, 6)[:axes])
    assert np.array_equal(median(image, 3), ndimage.median_filter(image, size=3))


@pytest.mark.parametrize("sizes", [(5,), (1, 3, 3), (3, 1, 5), (1, 1, 3), (3, 5, 1), (1, 5, 1, 3), (1, 1, 1, 1)])
def test_a_window_along_two_axes_of_many_needs_no_scipy(sizes: tuple[int, ...], monkeypatch) -> None:
    image = np.random.default_rng(1).integers(0, 99, (9, 8, 7, 6)[-len(sizes) :])
    expected = sorted_medians(image, sizes, "reflect")
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    out = np.empty_like(image.T).T
    assert np.array_equal(median(image, sizes, out=out, threads=2), expected)


@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple),
    size=st.sampled_from([1, 3, 5]),
    mode=st.sampled_from(["reflect", "wrap"]),
)
@examples(40)
def test_with_no_mode_windows_that_reach_beyond_an_edge_leave_what_is_there(shape, size, mode) -> None:
    sizes = (1, size, size)[-len(shape) :]
    image = np.random.default_rng(0).integers(0, 99, shape)
    inside = tuple(slice(n // 2, length - n // 2) for n, length in zip(sizes, shape, strict=True))
    expected = image.copy()
    if image.size:
        expected[inside] = median(image, sizes, mode=mode)[inside]
    assert np.array_equal(median(image, sizes, mode="none"), expected)


@pytest.mark.parametrize("size", [4, 17, (2, 3, 3)])
def test_with_no_mode_scipys_windows_leave_what_is_there_too(size: int | tuple[int, ...]) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    image = np.random.default_rng(1).random((20, 19, 18)[: 3 if size == (2, 3, 3) else 2])
    sizes = size if isinstance(size, tuple) else (size,) * image.ndim
    inside = tuple(slice(n // 2, length - (n - 1) // 2) for n, length in zip(sizes, image.shape, strict=True))
    expected = image.copy()
    expected[inside] = ndimage.median_filter(image, size=size)[inside]
    assert np.array_equal(median(image, size, mode="none"), expected)


def test_what_needs_scipy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.ndimage", None)
    with pytest.raises(UnsupportedError, match=r"a window of \(3, 3, 3\) needs scipy"):
        median(np.zeros((4, 4, 4)))


def test_of_what_has_no_order_there_is_no_median() -> None:
    with pytest.raises(ValueError, match="a median needs integers or real numbers; this is complex128"):
        median(np.zeros((4, 4), complex))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"mode": "periodic"}, "mode 'periodic' is not one of reflect, mirror, nearest, wrap, none"),
        ({"size": (3, 3, 3)}, "a window of (3, 3, 3) does not fit 2 axes"),
        ({"size": 0}, "a window of (0, 0) does not fit 2 axes"),
        ({"out": np.zeros((4, 4), "f4")}, "out is float32 (4, 4); the medians are float64 (4, 4)"),
        ({"threads": 0}, "0 threads: at least 1 is required"),
    ],
)
def test_wrong_arguments_of_median(arguments: dict, line: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        median(np.zeros((4, 4)), **arguments)
    assert line in str(error.value)


def test_an_out_that_overlaps_the_image_is_refused() -> None:
    image = np.zeros((6, 6))
    with pytest.raises(ValueError, match="out overlaps the image"):
        median(image, out=image)


@pytest.mark.parametrize("size", [3, 5, 9])
def test_a_thread_holds_no_more_than_its_workspace(size: int) -> None:
    image = np.random.default_rng(0).random((400, 400))
    out = np.empty_like(image)
    edges = 4 * (3 * size + 2) * 400 * image.itemsize
    views = 500 * len(kernel.MedianNetwork.of(size, size).steps)
    assert held_by(lambda: median(image, size, out=out)) <= 8 * 2**20 + edges + views


def held_by(work: Callable[[], object]) -> int:
    """Bytes that ``work`` holds at most."""
    work()  # imports and caches
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


# ---------------------------------------------------------------------- Jacobi's sweeps


def looped(grid: np.ndarray) -> np.ndarray:
    """One sweep, element by element."""
    result = grid.copy()
    for i, j in product(range(1, grid.shape[0] - 1), range(1, grid.shape[1] - 1)):
        result[i, j] = ((grid[i - 1, j] + grid[i, j + 1]) + (grid[i, j - 1] + grid[i + 1, j])) * grid.dtype.type(0.25)
    return result


def plain(grid: np.ndarray, count: int) -> np.ndarray:
    for _ in range(count):
        grid = jacobi.sweep(grid)
    return grid


def test_a_plain_sweep_is_the_mean_of_four_neighbours() -> None:
    for dtype in ("f4", "f8", "c16"):
        grid = np.random.default_rng(0).standard_normal((9, 11)).astype(dtype)
        assert jacobi.sweep(grid).tobytes() == looped(grid).tobytes()


@given(
    shape=st.tuples(st.integers(0, 40), st.integers(0, 40)),
    count=st.integers(0, 12),
    dtype=st.sampled_from(["f4", "f8", "c8", "f2"]),
    columns=st.sampled_from([3, 16, 1024]),
    block=st.sampled_from([1, 900, 2**18]),
    threads=st.integers(1, 3),
    seed=st.integers(0, 99),
)
@examples(60)
def test_sweeps_are_plain_sweeps_bit_for_bit(shape, count, dtype, columns, block, threads, seed) -> None:
    grid = np.random.default_rng(seed).standard_normal(shape).astype(dtype)
    with small(jacobi_columns=columns, jacobi_block=block):  # the tiles' size, so that there are many
        found = jacobi.sweeps(grid, count, threads=threads)
    assert found.tobytes() == plain(grid, count).tobytes()


def test_a_slab_within_its_halo_is_swept_as_the_whole() -> None:
    grid = np.random.default_rng(0).standard_normal((60, 50))
    whole = plain(grid, 6)
    assert np.array_equal(jacobi.sweeps(grid, 70), plain(grid, 70))  # deeper than the grid
    slab = jacobi.sweeps(grid[14:46, 5:40], 6)
    assert np.array_equal(slab[6:-6, 6:-6], whole[20:40, 11:34])
    top = jacobi.sweeps(grid[:26], 6)
    assert np.array_equal(top[:-6], whole[:20])


def test_a_thread_holds_three_blocks_and_two_rows_a_sweep() -> None:
    grid = np.random.default_rng(0).random((600, 700))
    out = np.empty_like(grid)
    rows = 2 * 21 * 700 * grid.itemsize
    assert held_by(lambda: jacobi.sweeps(grid, 20, out=out)) <= 3.2 * jacobi.BLOCK + rows + 2**16


def test_what_wraps_around_rows_does_not_warn() -> None:
    grid = np.zeros((12, 12), "f4")
    grid[:, 0], grid[:, -1] = np.inf, -np.inf
    assert np.array_equal(jacobi.sweeps(grid, 2), plain(grid, 2))


def test_tiny_numbers_and_nan_spread_as_in_plain_sweeps() -> None:
    grid = np.zeros((40, 40))
    grid[0], grid[20, 20] = 1e-310, np.nan
    found = jacobi.sweeps(grid, 9)
    assert np.isnan(found).sum() == 100
    assert np.array_equal(found, plain(grid, 9), equal_nan=True)


def test_a_harmonic_grid_stays() -> None:
    x, y = np.meshgrid(np.arange(30.0), np.arange(20.0))
    harmonic = x**2 - y**2 + 3 * x * y
    assert np.array_equal(jacobi.sweeps(harmonic, 25), harmonic)


@pytest.mark.parametrize(
    ("grid", "count", "arguments", "line"),
    [
        (np.zeros((4, 4), "i4"), 1, {}, "this is int32 (4, 4)"),
        (np.zeros(4), 1, {}, "this is float64 (4,)"),
        (np.zeros((4, 4)), -1, {}, "-1 sweeps: at least 0 are required"),
        (np.zeros((4, 4)), 1, {"out": np.zeros((4, 5))}, "out is float64 (4, 5); the result is float64 (4, 4)"),
        (np.zeros((4, 4)), 1, {"threads": 0}, "0 threads: at least 1 is required"),
    ],
)
def test_wrong_arguments_of_sweeps(grid: np.ndarray, count: int, arguments: dict, line: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        jacobi.sweeps(grid, count, **arguments)
    assert line in str(error.value)


def test_a_plain_sweep_of_whole_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sweeps need two axes of real or complex numbers; this is int64 \(4, 4\)"):
        jacobi.sweep(np.zeros((4, 4), "i8"))


def test_sweeps_in_place_are_refused() -> None:
    grid = np.zeros((4, 4))
    with pytest.raises(ValueError, match="out overlaps the grid"):
        jacobi.sweeps(grid, 1, out=grid)


# ---------------------------------------------------------------------- transforms


@pytest.mark.parametrize(
    ("dtype", "result"), [("f4", "c8"), ("c8", "c8"), ("f8", "c16"), ("c16", "c16"), ("i4", "c16")]
)
@pytest.mark.parametrize(("threads", "piece"), [(1, 1), (2, 999), (40, 2**18)])
def test_rows_then_columns_are_the_transform_in_two_axes(dtype, result, threads, piece, monkeypatch) -> None:
    set_constants(monkeypatch, fourier_piece=piece)
    slab = (np.random.default_rng(0).standard_normal((24, 35)) * 50).astype(dtype)
    rows = transform(slab, 1, threads=threads)
    both = transform(rows, 0, out=rows, threads=threads)
    assert both is rows
    assert both.dtype == result
    expected = np.fft.fft2(slab.astype("c16"))
    assert np.abs(both - expected).max() <= abs(expected).max() * (1e-5 if result == "c8" else 1e-13)


@pytest.mark.parametrize("dtype", ["f4", "c8", "f8", "c16"])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_thread_that_transforms_holds_no_more_than_its_workspace(dtype: str, axis: int) -> None:
    slab = np.ones((900, 700), dtype)
    out = np.empty(slab.shape, np.result_type(dtype, "c8"))
    assert held_by(lambda: transform(slab, axis, out=out)) <= 8 * fourier.PIECE + 2**16


def test_a_transform_of_what_is_no_slab_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\) along axis 1: it takes two axes"):
        transform(np.zeros(4))
    with pytest.raises(ValueError, match=r"along axis 2: it takes two axes, and axis 0 or 1"):
        transform(np.zeros((4, 4)), 2)
    with pytest.raises(ValueError, match="0 threads: at least 1"):
        transform(np.zeros((4, 4)), threads=0)
    slab = np.ones((5, 4), "c16")
    with pytest.raises(ValueError, match="out overlaps the slab"):
        transform(slab[1:], 1, out=slab[:-1])
