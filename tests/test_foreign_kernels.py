"""Kernels of other libraries in passes over slabs: numba, scipy, OpenCV, PyTorch; each where it is installed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import KernelError
from tests.flat import flat

IMAGE = np.random.default_rng(0).random((300, 260)).astype("f4")
HERE: dict[str, Any] = {"memory": "16MiB", "scheduler": "threads", "height": 32, "axis": 0, "ranks": 2}


@pytest.fixture
def image(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "image.zarr", data=IMAGE, chunks=(64, 64))
    return tmp_path / "image.zarr"


def smoothed(values: np.ndarray, kernel: Any, depth: int) -> Any:
    """What comes of the whole array at once."""
    return np.asarray(kernel(np.pad(values, depth, mode="symmetric")))[depth:-depth, depth:-depth]


def test_scipy(image: Path, tmp_path: Path) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    how: dict[str, Any] = {"depth": 2, "boundary": "reflect", "verify": True}
    made = flat(ooc.map_slabs, partial(ndimage.uniform_filter, size=5), image, tmp_path / "t", **how, **HERE).run()
    wanted = smoothed(IMAGE, lambda block: ndimage.uniform_filter(block, size=5), 2)
    np.testing.assert_allclose(made[...], wanted, rtol=1e-5)


def test_numba(image: Path, tmp_path: Path) -> None:
    numba = pytest.importorskip("numba")

    @numba.njit(nogil=True)  # type: ignore[untyped-decorator]
    def steepest(block: np.ndarray) -> np.ndarray:
        made = np.zeros_like(block)
        for i in range(1, block.shape[0] - 1):
            for j in range(1, block.shape[1] - 1):
                made[i, j] = max(abs(block[i + 1, j] - block[i - 1, j]), abs(block[i, j + 1] - block[i, j - 1]))
        return made

    how = HERE | {"memory": "256MiB"}  # to compile it takes some
    made = flat(ooc.map_slabs, steepest, image, tmp_path / "t", depth=1, boundary="reflect", **how).run()
    np.testing.assert_array_equal(made[...], smoothed(IMAGE, steepest.py_func, 1))


def test_opencv(image: Path, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    how: dict[str, Any] = {"kwargs": {"ksize": 5}, "depth": 2, "boundary": "reflect", "verify": True}
    made = flat(ooc.map_slabs, cv2.medianBlur, image, tmp_path / "t", **how, **HERE).run()
    np.testing.assert_array_equal(made[...], smoothed(IMAGE, lambda block: cv2.medianBlur(block, 5), 2))


def test_pytorch(image: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def blurred(block: np.ndarray) -> np.ndarray:
        weights = torch.full((1, 1, 3, 3), 1 / 9)
        found = torch.nn.functional.conv2d(torch.from_numpy(block)[None, None], weights, padding=1)
        return np.asarray(found[0, 0].numpy())

    made = flat(ooc.map_slabs, blurred, image, tmp_path / "t", depth=1, boundary="reflect", **HERE).run()
    np.testing.assert_allclose(made[...], smoothed(IMAGE, blurred, 1), rtol=1e-5)


class OnDevice:
    """Stand-in for an array of CuPy: NumPy refuses to convert it, and `get` copies it."""

    def __init__(self, values: np.ndarray) -> None:
        self._values = values
        self.shape, self.dtype, self.ndim = values.shape, values.dtype, values.ndim
        self.__cuda_array_interface__ = {"shape": values.shape, "typestr": values.dtype.str, "data": (0, True)}

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def get(self) -> np.ndarray:
        return self._values.copy()


class OnlyGet:
    """An array of a device that says no more than that it can be copied."""

    def __init__(self, values: np.ndarray) -> None:
        self._values, self.shape, self.dtype, self.ndim = values, values.shape, values.dtype, values.ndim

    def get(self) -> np.ndarray:
        return self._values


PLACES: dict[str, Any] = {
    "slabs": lambda z, on: (flat(ooc.map_slabs, lambda b: on(2 * b), z, MemoryStore(), **HERE).run()[...], 2 * IMAGE),
    "two targets": lambda z, on: (
        flat(ooc.map_slabs, lambda b: (b, on(2 * b)), z, [MemoryStore(), MemoryStore()], **HERE).run()[1][...],
        2 * IMAGE,
    ),
    "another shape": lambda z, on: (
        ooc.map_slabs(
            lambda b: on(b.max(0)), z, MemoryStore(), scheduler="threads", results=ooc.Results(drop_axis=0)
        ).run()[...],
        IMAGE.max(0),
    ),
    "sweeps": lambda z, on: (
        ooc.iterate(lambda b: on(2 * b), z, MemoryStore(), sweeps=3, depth=0, scheduler="threads").run()[...],
        8 * IMAGE,
    ),
    "a reduction": lambda z, on: (
        ooc.reduce(z, (lambda b, axes: b.max(axes), np.maximum, on), axis=0),
        IMAGE.max(0),
    ),
    "ranks": lambda z, on: (
        ooc.ranks.read_sections(z, "(block, *)", ranks=2, scheduler="threads").map_local(lambda b: on(2 * b)).compute(),
        2 * IMAGE,
    ),
    "lazy blocks": lambda z, on: (
        ooc.rechunk(
            ooc.open_array(z).to_dask().map_blocks(on, dtype="f4", meta=np.empty((0, 0), "f4")),
            MemoryStore(),
            scheduler="threads",
        ).run()[...],
        IMAGE,
    ),
}


@pytest.mark.parametrize("on", [OnDevice, OnlyGet])
@pytest.mark.parametrize("place", PLACES)
def test_results_on_a_device_are_copied(image: Path, place: str, on: type) -> None:
    made, wanted = PLACES[place](image, on)
    np.testing.assert_array_equal(made, wanted)


def test_a_result_on_a_device_that_cannot_be_copied_is_one_line(image: Path) -> None:
    class Stuck(OnDevice):
        get = None  # type: ignore[assignment]

    with pytest.raises(KernelError, match="the kernel returned Stuck, which has no method get or copy_to_host or cpu"):
        flat(ooc.map_slabs, Stuck, image, MemoryStore(), **HERE).run()
