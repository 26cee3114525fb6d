"""Passes that verify: kernels that see farther than their depth are found, others give what they gave."""

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
from oocarrays.errors import KernelError
from oocarrays.kernels import median
from tests.flat import flat
from tests.profiles import examples
from tests.whole import boundaries, corners, expected

pytestmark = pytest.mark.once

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
NOISE = np.random.default_rng(2).random((64, 24))


def stored(data: np.ndarray = NOISE) -> zarr.Array:
    return zarr.create_array({}, data=data, chunks=(8, data.shape[1]))


@pytest.mark.long
@examples(25)
@given(st.data())
def test_what_verifies_is_the_kernel_on_the_whole_array(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    whole = np.random.default_rng(data.draw(st.integers(0, 9))).integers(1, 99, shape)
    depth, boundary = (
        tuple(data.draw(st.integers(0, 3)) for _ in shape),
        data.draw(boundaries(len(shape), ["none", "reflect", "nearest", "periodic", 3])),
    )
    how = {
        "window": tuple(data.draw(st.sampled_from([None, 1, 2, 4])) for _ in shape),
        "ranks": data.draw(st.integers(1, 3)),
        "reuse": data.draw(st.booleans()),
    }
    source = zarr.create_array({}, data=whole, chunks=tuple(data.draw(st.integers(1, n)) for n in shape))
    job = flat(
        ooc.map_slabs,
        corners(depth),
        source,
        MemoryStore(),
        depth=depth,
        boundary=boundary,
        results=ooc.Results(verify=True),
        **how,
        **HERE,
    )
    np.testing.assert_array_equal(job.run()[...], expected(corners(depth), [whole], depth, boundary)[0])


@pytest.mark.parametrize(
    ("kernel", "depth"),
    [
        (partial(median, size=5), 0), (partial(median, size=5), 1), (lambda block: block - block.mean(), 2),
        (lambda block: np.sort(block, axis=0), 0), (partial(ndimage.gaussian_filter, sigma=2), 1),
        (lambda block: block + len(block), 0),
    ],
)  # fmt: skip
@pytest.mark.parametrize("boundary", ["none", "nearest"])
def test_kernels_that_depend_on_where_slabs_are_cut_are_found(kernel: Any, depth: int, boundary: str) -> None:
    if boundary == "nearest" and not depth:
        pytest.skip("such a kernel may need all of an axis as it is")
    how: dict[str, Any] = {"depth": depth, "boundary": boundary, "height": 8, **HERE}
    flat(ooc.map_slabs, kernel, stored(), MemoryStore(), **how).run()
    with pytest.raises(
        KernelError, match=r"the kernel returns .* in slab \[.* sees more neighbours.*depth is too small"
    ):
        flat(ooc.map_slabs, kernel, stored(), MemoryStore(), results=ooc.Results(verify=True), **how).run()


@pytest.mark.parametrize(
    ("kernel", "how"),
    [
        (partial(median, size=5), {}), (partial(ndimage.gaussian_filter, sigma=1), {"depth": 4, "boundary": "reflect"}),
        (lambda block: block - block.mean(1, keepdims=True), {"axis": 0}),
        (lambda block: np.where(block > 0.5, np.nan, np.inf), {}), (lambda block: block > 0.5, {"dtype": "?"}),
        (lambda block: np.fft.ifft(np.fft.fft(block, axis=1)).real, {"axis": 0, "boundary": {0: 0.0}}),
    ],
)  # fmt: skip
def test_kernels_that_do_not_are_left_alone(kernel: Any, how: dict[str, Any]) -> None:
    plain = flat(ooc.map_slabs, kernel, stored(), MemoryStore(), window=8, **how, **HERE)
    job = flat(
        ooc.map_slabs, kernel, stored(), MemoryStore(), window=8, results=ooc.Results(verify=True), **how, **HERE
    )
    np.testing.assert_array_equal(job.run()[...], plain.run()[...])
    assert "to verify" in str(job.explain())
    assert "to verify" not in str(plain.explain())
    assert job.plan.peak_bytes > plain.plan.peak_bytes


def test_a_block_is_told_where_it_is_in_both_computations() -> None:
    def placed(block: np.ndarray, block_info: Any) -> np.ndarray:
        assert block_info.window.shape == block.shape
        return block

    made = ooc.map_slabs(
        placed, stored(), MemoryStore(), depth=1, window=8, results=ooc.Results(verify=True), **HERE
    ).run()
    np.testing.assert_array_equal(made[...], NOISE)


def test_it_holds_for_local_array_files_and_goes_on() -> None:
    a = ooc.create_array(MemoryStore(), shape=NOISE.shape, dtype="f8", layout="(block, *)", ranks=3)
    a[...] = NOISE
    made = ooc.map_slabs(
        partial(median, size=3), a, MemoryStore(), window=8, results=ooc.Results(verify=True), **HERE
    ).run()
    plain = ooc.map_slabs(partial(median, size=3), a, MemoryStore(), window=8, **HERE).run()
    np.testing.assert_array_equal(made[...], plain[...])
    with pytest.raises(KernelError, match="sees more neighbours"):
        ooc.map_slabs(
            partial(median, size=5), a, MemoryStore(), depth=1, window=8, results=ooc.Results(verify=True), **HERE
        ).run()


@pytest.mark.parametrize("begun", [True, False])
def test_a_run_that_failed_goes_on_whether_it_verifies_or_not(tmp_path: Path, begun: bool) -> None:
    zarr.create_array(tmp_path / "a", data=NOISE, chunks=(8, 24))
    calls = [0]

    def failing(block: np.ndarray) -> np.ndarray:
        calls[0] += 1
        if calls[0] == 5:
            raise ValueError("not yet")
        return ndimage.uniform_filter(block, 3)

    how: dict[str, Any] = {"depth": 1, "height": 8, "ranks": 1, **HERE}
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.map_slabs, failing, tmp_path / "a", tmp_path / "b", results=ooc.Results(verify=begun), **how).run()
    assert ooc.resume(tmp_path / "b", kernel=failing).plan.margin == ((2, 2) if begun else ())
    job = flat(
        ooc.map_slabs,
        failing,
        tmp_path / "a",
        tmp_path / "b",
        resume=True,
        results=ooc.Results(verify=not begun),
        **how,
    )
    np.testing.assert_allclose(job.run()[...], ndimage.uniform_filter(NOISE, 3))
