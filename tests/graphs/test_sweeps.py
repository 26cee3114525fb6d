"""Fused sweeps are what plain sweeps of the whole array are, bit for bit, whatever the tiles."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.errors import RunError
from oocarrays.graphs.slabs.sweeps import Fused, beyond
from oocarrays.mapping.layouts.halo import checked_boundary
from oocarrays.plan.slabs.sweeps import Sweeps, fitting_tile
from tests.profiles import examples
from tests.sweeping import BOUNDARIES, MODES, Stencil, cases, plain_sweep, plain_sweeps


def fused(case: dict[str, Any], tile: tuple[int, ...], threads: int = 1) -> Fused:
    shape, boundary = case["array"].shape, checked_boundary(case["boundary"], case["array"].ndim)
    sweeps = Sweeps(shape=shape, count=case["sweeps"], depth=case["depth"], boundary=boundary, tile=tile)
    return Fused(kernel=case["kernel"], sweeps=sweeps, threads=threads)


@examples(150)
@given(cases(), st.data())
def test_a_part_is_as_plain_sweeps_of_the_whole_make_it(case: dict[str, Any], data: st.DataObject) -> None:
    array = case["array"]
    tile = tuple(
        data.draw(st.integers(case["depth"][0] + 1 if axis == 0 else 1, n + 3)) for axis, n in enumerate(array.shape)
    )
    ends = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in array.shape]
    core = [(min(lower, n - 1), max(upper, lower + 1)) for (lower, upper), n in zip(ends, array.shape, strict=True)]
    core = [(lower, min(upper, n)) for (lower, upper), n in zip(core, array.shape, strict=True)]
    run = fused(case, tile, data.draw(st.sampled_from([1, 2])))
    around = [run.sweeps.needed(axis, each, 0) for axis, each in enumerate(core)]
    places = [np.arange(*each) % n for each, n in zip(around, array.shape, strict=True)]
    block = array[np.ix_(*places)]
    shown: list[tuple[np.ndarray, np.ndarray]] = []
    (made,) = run([block], around, core, watch=lambda one, other: shown.append((one[0].copy(), other[0].copy())))
    wanted = plain_sweeps(array, case["kernel"], case["depth"], case["boundary"], case["sweeps"])
    assert made.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(made, wanted[tuple(slice(*each) for each in core)])
    np.testing.assert_array_equal(block, array[np.ix_(*places)])
    assert sum(after.size for _, after in shown) == (made.size if case["sweeps"] else 0)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_what_is_shown_is_before_and_after_the_last_sweep(boundary: Any) -> None:
    array, kernel = np.random.default_rng(3).random((30, 20)), Stencil((1, 2), "place")
    case = {"array": array, "kernel": kernel, "depth": (1, 2), "boundary": boundary, "sweeps": 4}
    before = plain_sweeps(array, kernel, (1, 2), boundary, 3)
    after = plain_sweep(before, kernel, (1, 2), boundary)
    run = fused(case, (4, 7))
    core = [(3, 29), (0, 20)]
    ends = [run.sweeps.needed(axis, each, 0) for axis, each in enumerate(core)]
    block = array[np.ix_(*(np.arange(*each) % n for each, n in zip(ends, array.shape, strict=True)))]
    found: list[float] = []
    run([block], ends, core, watch=lambda one, other: found.append(np.abs(other[0] - one[0]).max()))
    assert max(found) == np.abs(after - before)[3:29].max()


def test_no_row_of_a_tile_is_swept_twice_and_blocks_are_no_larger_than_is_said() -> None:
    sizes: list[int] = []

    def kernel(block: np.ndarray) -> np.ndarray:
        sizes.append(block.size)
        return block

    shape, sweeps = (700, 33), 6
    run = fused(
        {"array": np.empty(shape), "kernel": kernel, "depth": (1, 1), "boundary": "none", "sweeps": sweeps}, (20, 33)
    )
    ends = [(0, n) for n in shape]
    run([np.zeros(shape)], ends, ends)
    halos = 2 * 33 * len(sizes)
    assert sum(sizes) <= sweeps * 700 * 33 + halos
    assert max(sizes) * 8 <= run.sweeps.block_bytes(8)


@pytest.mark.parametrize(
    "kernel",
    [lambda block: block[1:], lambda block: block.astype("f4"), lambda block: 0.0],
    ids=["shape", "type", "none"],
)
def test_a_kernel_that_gives_something_else_is_refused(kernel: Any) -> None:
    case = {"array": np.zeros((9, 9)), "kernel": kernel, "depth": (1, 1), "boundary": "none", "sweeps": 2}
    with pytest.raises(
        RunError, match=r"the kernel returned .* for a block of float64 and shape \(\d, 9\): sweeps need"
    ):
        fused(case, (4, 9))([np.zeros((9, 9))], [(0, 9)] * 2, [(0, 9)] * 2)


@given(st.sampled_from([*MODES, 0.5]), st.integers(1, 5), st.integers(0, 7))
def test_what_stands_beyond_an_edge_is_as_numpy_pads(boundary: Any, extent: int, depth: int) -> None:
    if boundary == "periodic":
        return
    row = np.arange(extent) + 1.0
    mode = {"mode": MODES[boundary]} if boundary in MODES else {"constant_values": boundary}
    window = np.concatenate([np.full(depth, np.nan), row, np.full(depth, np.nan)])
    for place, like in beyond(boundary, extent, -depth, extent + depth):
        window[place] = boundary if like is None else window[like]
    np.testing.assert_array_equal(window, np.pad(row, depth, **mode))


def sweeps_of(shape: tuple[int, ...], count: int, depth: tuple[int, ...]) -> Sweeps:
    tile, _ = fitting_tile(shape, count, depth, 8)
    return Sweeps(shape=shape, count=count, depth=depth, boundary="none", tile=tile)


def test_blocks_at_an_edge_are_no_smaller_than_a_stencil() -> None:
    seen: set[tuple[int, ...]] = set()

    def kernel(block: np.ndarray) -> np.ndarray:
        seen.add(block.shape)
        return block

    for shape in ((100, 77, 61), (50, 13, 5000)):
        for count in (1, 3):
            sweeps = sweeps_of(shape, count, (2, 2, 1))
            ends = [(0, n) for n in shape]
            Fused(kernel=kernel, sweeps=sweeps)([np.zeros(shape)], ends, ends)
    assert all(n >= least for n, least in zip(map(min, zip(*seen, strict=True)), (5, 5, 3), strict=True))


FAULTS = """
import resource, numpy as np
from oocarrays.storage.local.pages import keep_freed
keep_freed(2**22)
np.ones(2**17)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50): np.ones(2**17) + np.ones(2**17)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.long
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
@pytest.mark.parametrize(
    "environment", [{}, {"MALLOC_TRIM_THRESHOLD_": "65536"}], ids=["plain", "as in Dask's workers"]
)
def test_what_a_kernel_frees_is_not_given_back_block_after_block(environment: dict[str, str], tmp_path: Path) -> None:
    said = subprocess.run(
        [sys.executable, "-c", FAULTS],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(said.stdout) < 3000, "of 150 MiB, which have 38 400 pages"


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=4), st.integers(1, 40), st.integers(0, 3))
def test_a_tile_is_no_longer_than_the_array_and_holds_what_is_said(shape: list[int], count: int, depth: int) -> None:
    sweeps = sweeps_of(tuple(shape), count, (depth,) * len(shape))
    assert all(n <= max(extent, 1) for n, extent in zip(sweeps.tile[1:], shape[1:], strict=True))
    assert sweeps.tile[0] > depth
    assert sweeps.held_bytes(8) >= sweeps.block_bytes(8)
    assert fitting_tile(tuple(shape), count, sweeps.depth, 8)[1] >= 1


@given(st.lists(st.integers(8, 3000), min_size=2, max_size=3), st.integers(1, 20), st.integers(2, 4))
def test_threads_that_share_a_slab_have_a_tile_each(slab: list[int], count: int, threads: int) -> None:
    shape, depth = tuple(3 * n for n in slab), (1,) * len(slab)
    tile, _ = fitting_tile(tuple(slab), count, depth, 8, tiles=threads, together=True)
    sweeps = Sweeps(shape=shape, count=count, depth=depth, boundary="none", tile=tile)
    tiles = list(sweeps.tiles([(0, n) for n in slab]))
    assert len(tiles) >= threads or max(slab[1:]) < 4 * threads, "cut no smaller than a stencil at an edge"
    assert all(n <= extent for n, extent in zip(sweeps.tile, slab, strict=True))
