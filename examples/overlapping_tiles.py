"""Four workers smooth an image, each its own tile: what a tile needs overlaps its neighbours'.

Every stored chunk is read and decoded once, by one worker for all who want some of it. A tile comes with a border of as
many elements as the kernel looks to each side; each worker then smooths what it has, and keeps what is its own.
"""

import tempfile
from pathlib import Path

import dask
import numpy as np
import zarr
from distributed import Client, LocalCluster

import oocarrays as ooc

DEPTH, SIDE = 8, 2
"""Elements that the kernel looks to each side; tiles along each axis."""


def mean(x: np.ndarray, width: int) -> np.ndarray:
    """The mean of every window of ``width`` × ``width`` elements."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (width, width))
    return windows.mean(axis=(2, 3))


if __name__ == "__main__":
    image = np.random.default_rng(0).random((384, 320), dtype="f4")
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(n_workers=SIDE**2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster),
    ):
        store = Path(folder) / "image.zarr"
        zarr.create_array(store, data=image, chunks=(48, 320), compressors=zarr.codecs.ZstdCodec())

        rows, columns = (range(0, n, n // SIDE) for n in image.shape)
        lengths = [n // SIDE for n in image.shape]
        corners = [(max(i - DEPTH, 0), max(j - DEPTH, 0), i + lengths[0], j + lengths[1]) for i in rows for j in columns]
        sections = [np.s_[top : bottom + DEPTH, left : right + DEPTH] for top, left, bottom, right in corners]

        tiles = ooc.read_sections(store, sections, method="two-phase")
        print(tiles.explain())
        smooth = [dask.delayed(mean)(tiles.local(rank), 2 * DEPTH + 1) for rank in range(tiles.ranks)]
        parts = dask.compute(*smooth)

    whole = np.block([[parts[SIDE * i + j] for j in range(SIDE)] for i in range(SIDE)])
    print(f"\n{whole.shape} as numpy's: {np.allclose(whole, mean(image, 2 * DEPTH + 1))}")
