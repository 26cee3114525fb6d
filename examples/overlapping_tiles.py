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
    """Return the mean of every window of ``width`` × ``width`` elements."""
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("f8"), (width, width))
    return windows.mean(axis=(2, 3))


if __name__ == "__main__":
    image = np.random.default_rng(0).random((384, 320), dtype="f4")
    with tempfile.TemporaryDirectory() as folder, dask.config.set(temporary_directory=folder):
        store = Path(folder) / "image.zarr"
        zarr.create_array(store, data=image, chunks=(48, 320), compressors=zarr.codecs.ZstdCodec())

        height, width = (n // SIDE for n in image.shape)
        corners = [(i * height, j * width) for i in range(SIDE) for j in range(SIDE)]
        rows = [slice(max(i - DEPTH, 0), i + height + DEPTH) for i, _ in corners]
        columns = [slice(max(j - DEPTH, 0), j + width + DEPTH) for _, j in corners]

        with LocalCluster(SIDE**2, processes=False, dashboard_address=":0") as cluster, Client(cluster):
            tiles = ooc.ranks.read_sections(store, list(zip(rows, columns, strict=True)), method="two-phase")
            print(tiles.explain())
            held = tiles.persist()  # each tile with its worker, which smooths it where it is
            smooth = [dask.delayed(mean)(held.local(rank), 2 * DEPTH + 1) for rank in range(held.ranks)]
            parts = dask.compute(*smooth)

    whole = np.block([[parts[SIDE * i + j] for j in range(SIDE)] for i in range(SIDE)])
    print(f"\n{whole.shape} as numpy's: {np.allclose(whole, mean(image, 2 * DEPTH + 1))}")
