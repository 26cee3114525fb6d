"""Kernels of other libraries in passes over slabs: numba, scipy, OpenCV, PyTorch; each where it is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc

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
    how: dict[str, Any] = {"kwargs": {"size": 5}, "depth": 2, "boundary": "reflect", "verify": True}
    made = ooc.map_slabs(ndimage.uniform_filter, image, tmp_path / "t", **how, **HERE).run()
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
    made = ooc.map_slabs(steepest, image, tmp_path / "t", depth=1, boundary="reflect", **how).run()
    np.testing.assert_array_equal(made[...], smoothed(IMAGE, steepest.py_func, 1))


def test_opencv(image: Path, tmp_path: Path) -> None:
    cv2 = pytest.importorskip("cv2")
    how: dict[str, Any] = {"kwargs": {"ksize": 5}, "depth": 2, "boundary": "reflect", "verify": True}
    made = ooc.map_slabs(cv2.medianBlur, image, tmp_path / "t", **how, **HERE).run()
    np.testing.assert_array_equal(made[...], smoothed(IMAGE, lambda block: cv2.medianBlur(block, 5), 2))


def test_pytorch(image: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    def blurred(block: np.ndarray) -> np.ndarray:
        weights = torch.full((1, 1, 3, 3), 1 / 9)
        found = torch.nn.functional.conv2d(torch.from_numpy(block)[None, None], weights, padding=1)
        return np.asarray(found[0, 0].numpy())

    made = ooc.map_slabs(blurred, image, tmp_path / "t", depth=1, boundary="reflect", **HERE).run()
    np.testing.assert_allclose(made[...], smoothed(IMAGE, blurred, 1), rtol=1e-5)
