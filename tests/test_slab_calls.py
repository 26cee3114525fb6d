"""What kernels of passes are given beside their blocks: arguments, and where a block is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from scipy import ndimage
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import InputError, JournalError, KernelError
from oocarrays.kernels import median, sweep, sweeps
from tests.flat import flat
from tests.profiles import examples
from tests.sweeping import Stencil
from tests.whole import boundaries

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
ROWS = np.random.default_rng(7).random((23, 11))


def scaled(block: np.ndarray, factor: float, offset: float = 0, *, power: int = 1) -> np.ndarray:
    return (factor * block + offset) ** power


def added(block: np.ndarray, other: np.ndarray, factor: float) -> np.ndarray:
    return block + factor * other


def placed(block: np.ndarray, block_info: Any, unit: int = 1) -> np.ndarray:
    """Numbers elements as numpy does, from the position alone; what it is told of the block must be so."""
    section, window, inside, shape = block_info
    assert block.shape == window.shape
    assert tuple(len(range(*part.indices(n))) for part, n in zip(inside, block.shape, strict=True)) == section.shape
    made = np.full(block.shape, -1, block.dtype)
    made[inside] = unit * np.arange(np.prod(shape)).reshape(shape)[section.slices]
    return made


@pytest.mark.parametrize(
    ("how", "wanted"),
    [({"factor": 2}, 2 * ROWS), ({"factor": 2, "offset": 1}, 2 * ROWS + 1), ({"factor": 2, "power": 2}, 4 * ROWS**2)],
)  # fmt: skip
def test_arguments_of_a_kernel(how: dict[str, Any], wanted: np.ndarray) -> None:
    source = zarr.create_array({}, data=ROWS, chunks=(4, 11))
    made = ooc.map_slabs(partial(scaled, **how), source, MemoryStore(), **HERE).run()
    np.testing.assert_array_equal(made[...], wanted)


def test_arguments_beside_all_blocks() -> None:
    sources = [zarr.create_array({}, data=each, chunks=(4, 11)) for each in (ROWS, ROWS**2)]
    made = ooc.map_slabs(partial(added, factor=5), sources, MemoryStore(), **HERE).run()
    np.testing.assert_array_equal(made[...], ROWS + 5 * ROWS**2)


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (scaled, r"scaled\(block.*cannot be called with 1 block: missing a required argument: 'factor'"),
        (partial(scaled, facto=1), "unexpected keyword argument 'facto'|cannot be called"),
        (lambda: 1, "too many positional"),
        (added, "missing a required argument"),
        ("numpy.add", "is not callable"),
    ],
)
def test_a_kernel_that_cannot_be_called_with_its_blocks(kernel: Any, said: str, tmp_path: Path) -> None:
    source = zarr.create_array({}, data=ROWS, chunks=(4, 11))
    for plan in (ooc.map_slabs, partial(ooc.iterate, sweeps=1)):
        with pytest.raises(InputError, match=said):
            plan(kernel, source, tmp_path / "t", **HERE)
    assert not (tmp_path / "t").exists()


def test_a_run_goes_on_with_the_same_arguments_and_no_others(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "a", data=ROWS, chunks=(4, 11))
    broken: dict[str, Any] = {"window": 4, "resources": ooc.Resources(ranks=1), **HERE}

    def failing(block: np.ndarray, factor: float, least: list) -> np.ndarray:
        if block_is_third(block) and least:
            raise ValueError("not yet")
        return factor * block

    def block_is_third(block: np.ndarray) -> bool:
        return bool((block[0] == ROWS[8]).all())

    job = flat(ooc.map_slabs, partial(failing, factor=3, least=[1]), tmp_path / "a", tmp_path / "b", **broken)
    with pytest.raises(KernelError, match="not yet"):
        job.run()
    with pytest.raises(JournalError, match="has changed since"):
        ooc.resume(tmp_path / "b", kernel=partial(failing, factor=4, least=[]))
    made = ooc.resume(tmp_path / "b", kernel=partial(failing, factor=3, least=[]), as_is=True).run()
    np.testing.assert_array_equal(made[...], 3 * ROWS)


@examples(25)
@given(st.data())
def test_a_kernel_is_told_where_its_block_is(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    how = {
        "boundary": data.draw(boundaries(len(shape), ["none", "reflect", "periodic", 0])),
        "depth": tuple(data.draw(st.integers(0, 3)) for _ in shape),
        "window": tuple(data.draw(st.sampled_from([None, 1, 2, 4])) for _ in shape),
        "ranks": data.draw(st.integers(1, 3)),
    }
    source = zarr.create_array({}, data=np.zeros(shape, int), chunks=tuple(max(n // 2, 1) for n in shape))
    made = flat(ooc.map_slabs, partial(placed, unit=2), source, MemoryStore(), **how, **HERE).run()
    np.testing.assert_array_equal(made[...], 2 * np.arange(np.prod(shape)).reshape(shape))


def test_ranks_of_local_array_files_are_told_so_too() -> None:
    made = ooc.create_array(MemoryStore(), shape=(9, 6), dtype=int, chunks=(2, 6), layout="(block, *)", ranks=3)
    told = ooc.map_slabs(placed, made, MemoryStore(), depth=1, **HERE).run()
    np.testing.assert_array_equal(told[...], np.arange(54).reshape(9, 6))


@pytest.mark.parametrize(
    ("kernel", "depth"), [(sweep, 1), (partial(sweeps, count=3), 3), (partial(median, size=5), 2), (Stencil((1, 1)), 1)]
)
def test_iterate_takes_a_kernels_own_depth(kernel: Any, depth: int) -> None:
    source = zarr.create_array({}, data=np.random.default_rng(0).random((40, 20)), chunks=(8, 20))
    job = ooc.iterate(kernel, source, MemoryStore(), sweeps=2, resources=ooc.Resources(fuse=2, window=8), **HERE)
    assert job.plan.passes[0].sweeps.depth == (depth, depth)


def test_medians_swept_twice_are_scipys() -> None:
    data = np.random.default_rng(0).random((40, 20))
    source = zarr.create_array({}, data=data, chunks=(8, 20))
    job = ooc.iterate(
        partial(median, size=5),
        source,
        MemoryStore(),
        sweeps=2,
        boundary="reflect",
        resources=ooc.Resources(fuse=2, window=8),
        **HERE,
    )
    once = ndimage.median_filter(data, 5, mode="reflect")
    np.testing.assert_array_equal(job.run()[...], ndimage.median_filter(once, 5, mode="reflect"))


def both(block: np.ndarray) -> np.ndarray:
    padded = np.pad(block, ((1, 1), (0, 0)), mode="edge")
    return padded[:-2] + padded[2:]


BOTH = np.pad(ROWS, ((1, 1), (0, 0)), mode="edge")[:-2] + np.pad(ROWS, ((1, 1), (0, 0)), mode="edge")[2:]


@pytest.fixture
def named() -> zarr.Array:
    return zarr.create_array({}, data=ROWS, chunks=(4, 11), dimension_names=("time", "x"))


@pytest.mark.sampled
@pytest.mark.parametrize("depth", [{0: 1}, {-2: 1}, {"time": 1}, {"time": 1, 1: 0}, (1, 0)], ids=str)
@pytest.mark.parametrize("more", [{}, {"window": {"time": 8}}, {"window": {0: 8, "x": -1}}, {"axis": "time"}], ids=str)
def test_axes_are_named_by_number_or_name(named: zarr.Array, depth: Any, more: dict[str, Any]) -> None:
    np.testing.assert_array_equal(
        flat(ooc.map_slabs, both, named, MemoryStore(), depth=depth, **more, **HERE).run(), BOTH
    )
    swept = flat(
        ooc.iterate, both, named, MemoryStore(), sweeps=1, depth=depth, boundary={"time": "nearest"}, **more, **HERE
    )
    np.testing.assert_array_equal(swept.run(), BOTH)
    slabs = flat(ooc.open_array(named).slabs, depth=depth, memory="64MiB", **more)
    np.testing.assert_array_equal(np.concatenate([both(slab.data)[slab.inside] for slab in slabs]), BOTH)
    files = ooc.ranks.scatter_files(named, "(block, *)", MemoryStore(), ranks=2, depth=depth, scheduler="threads").run()
    assert files.depth == (1, 0)
    np.testing.assert_array_equal(ooc.map_slabs(both, files, MemoryStore(), depth=depth, **HERE).run(), BOTH)


@pytest.mark.parametrize("axis", ["time", ("time",), ["x", "time"], ("x", 0), -1])
def test_reductions_take_names_of_axes(named: zarr.Array, axis: Any) -> None:
    numbers = [{"time": 0, "x": 1}.get(each, each) for each in (axis if isinstance(axis, tuple | list) else [axis])]
    np.testing.assert_allclose(ooc.reduce(named, "sum", axis=axis), ROWS.sum(axis=tuple(numbers)))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"depth": {"z": 1}}, r"depth={'z': 1}: 'z' is not one of the 2 axes, 0 to 1, or 'time', 'x'"),
        ({"depth": {0: 1, "time": 2}}, r"depth=.* names an axis twice"),
        ({"depth": {0: -1}}, r"depth=\(-1, 0\) must be a whole number"),
        ({"window": {2: 8}}, r"window={2: 8}: 2 is not one of the 2 axes"),
        ({"axis": "z"}, r"window={'z': 'auto'}: 'z' is not one of the 2 axes, 0 to 1, or 'time', 'x'"),
    ],
)
def test_axes_that_are_not_there_are_one_line(named: zarr.Array, how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        flat(ooc.map_slabs, both, named, MemoryStore(), **how, **HERE)
    if "axis" in how:
        with pytest.raises(InputError, match="axis='z' is not one of the 2 axes, 0 to 1, or 'time', 'x'"):
            ooc.reduce(named, "sum", axis=how["axis"])
