"""Sweeps of an array with others beside it, as numpy makes them of whole arrays: right-hand sides, masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import InputError, JournalError, KernelError
from tests.flat import flat
from tests.profiles import examples
from tests.sweeping import Stencil, cases, held, jacobi
from tests.whole import beyond, padded

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
RANDOM = np.random.default_rng(4)
FIELD, RIGHT = RANDOM.random((90, 40)), RANDOM.random((90, 40)).astype("f4")
LAND = RANDOM.random((90, 40)) < 0.2


def poisson(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
    made = jacobi(block)
    made[1:-1, 1:-1] -= right[1:-1, 1:-1] / 4
    return np.where(land, block, made)


def swept(kernel: Any, arrays: list[np.ndarray], depth: Any, boundary: Any, count: int) -> np.ndarray:
    """Plain sweeps of the first of whole arrays, all padded for each."""
    first, *others = arrays
    for _ in range(count):
        made = kernel(*(padded(each.copy(), tuple(depth), boundary) for each in (first, *others)))
        first = made[tuple(slice(d, n - d) for d, n in zip(beyond(boundary, depth), made.shape, strict=True))]
    return first


@examples(20)
@given(cases(most=2000), st.data())
def test_passes_with_arrays_beside_are_plain_sweeps(case: dict[str, Any], data: st.DataObject) -> None:
    array, sweeps, stencil = case["array"], case["sweeps"], case["kernel"]
    others = [
        np.random.default_rng(data.draw(st.integers(0, 9))).integers(0, 9, array.shape).astype(dtype)
        for dtype in data.draw(st.lists(st.sampled_from(["f8", "i2", ">f4", "?"]), min_size=1, max_size=2))
    ]
    if case["boundary"] != "none" and any(each.dtype == "?" for each in others):
        others = [each.astype("i2") for each in others]  # no constant but 0 and 1 is a bool

    def kernel(block: np.ndarray, *beside: np.ndarray) -> np.ndarray:
        around = sum((Stencil(case["depth"])(each.astype(block.dtype)) for each in beside), np.zeros_like(block))
        return np.asarray(stencil(block) + around, block.dtype)

    cut = tuple(data.draw(st.integers(1, n + 1)) for n in array.shape)
    sources = [zarr.create_array({}, data=each, chunks=cut) for each in (array, *others)]
    how = {
        "fuse": data.draw(st.integers(1, max(sweeps, 1))),
        "ranks": data.draw(st.integers(1, 3)),
        "window": data.draw(st.tuples(*[st.none() | st.integers(1, 9)] * array.ndim)),
        "depth": case["depth"], "boundary": held(case["boundary"], array.dtype, *(each.dtype for each in others)),
    }  # fmt: skip
    with np.errstate(all="ignore"):
        made = flat(ooc.iterate, kernel, sources, MemoryStore(), sweeps=sweeps, **how, **HERE).run()
        wanted = swept(kernel, [array, *others], case["depth"], how["boundary"], sweeps)
    np.testing.assert_array_equal(made[...], wanted)


def stored(folder: Path) -> list[Path]:
    for name, data in (("u", FIELD), ("f", RIGHT), ("land", LAND)):
        zarr.create_array(folder / name, data=data, chunks=(8, 40), compressors=None)
    return [folder / name for name in ("u", "f", "land")]


def test_each_array_is_read_once_a_pass_and_the_plan_says_so(tmp_path: Path) -> None:
    job = ooc.iterate(
        poisson, stored(tmp_path), tmp_path / "t", sweeps=6, resources=ooc.Resources(fuse=2, window=16), **HERE
    )
    assert "2 beside it are read in each pass" in str(job.explain())
    np.testing.assert_array_equal(job.run()[...], swept(poisson, [FIELD, RIGHT, LAND], (1, 1), "none", 6))
    planned, counted = job.plan.traffic, job.meter
    assert counted.read_bytes == planned.read_bytes == 3 * (FIELD.nbytes + RIGHT.nbytes + LAND.nbytes)
    assert counted.read_requests == planned.read_requests


def test_a_residual_ends_it(tmp_path: Path) -> None:
    job = ooc.iterate(
        poisson, stored(tmp_path), tmp_path / "t", sweeps=4000, until=1e-6, resources=ooc.Resources(fuse=8), **HERE
    )
    made = job.run()[...]
    assert job.residuals[-1] <= 1e-6 < job.residuals[0]
    once = swept(poisson, [made, RIGHT, LAND], (1, 1), "none", 1)
    assert np.abs(once - made).max() <= 1e-6


@pytest.mark.parametrize("number", [0, 5, 20])
def test_a_run_that_failed_goes_on(tmp_path: Path, number: int) -> None:
    sources, calls = stored(tmp_path), [0]

    def failing(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
        calls[0] += 1
        if calls[0] == number + 2:  # one call looks at what it gives
            raise ValueError("not yet")
        return poisson(block, right, land)

    how: dict[str, Any] = {"sweeps": 6, "fuse": 2, "height": 16, "ranks": 1, "memory": "64MiB", "scheduler": "threads"}
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, failing, sources, tmp_path / "t", **how).run()
    made = flat(ooc.iterate, failing, sources, tmp_path / "t", resume=True, **how).run()
    np.testing.assert_array_equal(made[...], swept(poisson, [FIELD, RIGHT, LAND], (1, 1), "none", 6))


@pytest.mark.parametrize("changed", [1, 2])
def test_what_is_beside_may_not_change_meanwhile(tmp_path: Path, changed: int) -> None:
    sources, calls = stored(tmp_path), [0]

    def failing(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 20:
            raise ValueError("not yet")
        return poisson(block, right, land)

    how: dict[str, Any] = {"sweeps": 6, "fuse": 2, "height": 16, "ranks": 1, "memory": "64MiB", "scheduler": "threads"}
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, failing, sources, tmp_path / "t", **how).run()
    zarr.open_array(sources[changed], mode="r+")[3, 3] = 1 - zarr.open_array(sources[changed])[3, 3]
    with pytest.raises(JournalError, match="changed"):
        flat(ooc.iterate, failing, sources, tmp_path / "t", resume=True, **how)


def test_resume_takes_all_of_them_from_the_journal(tmp_path: Path) -> None:
    sources, calls = stored(tmp_path), [0]

    def failing(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 20:
            raise ValueError("not yet")
        return poisson(block, right, land)

    with pytest.raises(KernelError, match="not yet"):
        ooc.iterate(
            failing, sources, tmp_path / "t", sweeps=6, resources=ooc.Resources(fuse=2, ranks=1, window=16), **HERE
        ).run()
    made = ooc.resume(tmp_path / "t", kernel=failing).run()
    np.testing.assert_array_equal(made[...], swept(poisson, [FIELD, RIGHT, LAND], (1, 1), "none", 6))


def test_what_is_beside_may_not_be_written(tmp_path: Path) -> None:
    def changing(block: np.ndarray, right: np.ndarray, land: np.ndarray) -> np.ndarray:
        right[...] = 0
        return block

    job = ooc.iterate(changing, stored(tmp_path), tmp_path / "t", sweeps=2, boundary="nearest", depth=0, **HERE)
    with pytest.raises(KernelError, match="read-only"):
        job.run()
    assert not (tmp_path / "t").exists()


def test_arrays_of_other_shapes_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "small", data=FIELD[:5], chunks=(5, 40))
    with pytest.raises(InputError, match=r"shapes \(90, 40\) and \(5, 40\)"):
        ooc.iterate(
            lambda block, right: block, [stored(tmp_path)[0], tmp_path / "small"], tmp_path / "t", sweeps=2, **HERE
        )
    with pytest.raises(InputError, match="at least one source is required"):
        ooc.iterate(poisson, [], tmp_path / "t", sweeps=2, **HERE)
