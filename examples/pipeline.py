"""A two-dimensional filter of the spectrum, in a Dask pipeline with two rechunks in its middle.

Rows are transformed along themselves, then columns; each needs them whole. `oocarrays.rechunk` without a target keeps
it one lazy array: blocks go by way of plain files in scratch, so that no worker has to hold what waits.
"""

import tempfile

import dask.array as da
import numpy as np

import oocarrays as ooc

ROWS, COLUMNS = 1024, 768


def wave() -> np.ndarray:
    """Return a slow wave."""
    y, x = np.ogrid[:ROWS, :COLUMNS]
    return np.sin(2 * np.pi * (3 * y / ROWS + 2 * x / COLUMNS))


def noisy() -> da.Array:
    """Return the same with noise, in blocks of whole rows."""
    slow = da.from_array(wave(), chunks=(64, -1))
    return slow + da.random.default_rng(0).normal(0, 1, slow.shape, chunks=slow.chunks)


def slowest(extent: int, kept: int) -> np.ndarray:
    """Return which of the waves along an axis are the slowest."""
    return np.minimum(np.arange(extent), extent - np.arange(extent)) <= kept


def smoothed(image: da.Array, kept: int, scratch: str) -> da.Array:
    """Return an image of which only the ``kept`` slowest waves along each axis are left; blocks of whole rows again."""
    rows = da.fft.fft(image, axis=1)
    columns = da.fft.fft(
        ooc.rechunk(rows, chunks=(-1, 64), memory="256MiB", resources=ooc.Resources(scratch=scratch)), axis=0
    )
    low = columns * np.logical_and.outer(*(slowest(n, kept) for n in image.shape))
    back = da.fft.ifft(low, axis=0)
    return da.fft.ifft(
        ooc.rechunk(back, chunks=(64, -1), memory="256MiB", resources=ooc.Resources(scratch=scratch)), axis=1
    ).real


def main() -> None:
    """Write what is left of the noise in one graph, and compare it with numpy's."""
    image = noisy()
    with tempfile.TemporaryDirectory() as folder:
        made = ooc.rechunk(smoothed(image, 4, folder), f"{folder}/smooth.zarr", memory="256MiB").run()[...]
    low = np.fft.fft2(image.compute()) * np.logical_and.outer(*(slowest(n, 4) for n in image.shape))
    print(f"as numpy's: {np.allclose(made, np.fft.ifft2(low).real)}")
    print(f"noise was {np.std(image.compute() - wave()):.2f}, and is {np.std(made - wave()):.2f}")


if __name__ == "__main__":
    main()
