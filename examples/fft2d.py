"""A Fourier transform in two axes of an array larger than memory: along rows, redistribute, along columns.

Each slab of rows is transformed as it passes through memory. For the other axis a slab must hold whole columns, so the
array is stored anew, in chunks of columns, within the same memory. Nothing is ever held whole. Thakur 1995, Figure 3.2.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "elevation.npz"


def fft2(source, target, memory="1GiB"):
    """Return the transform of a stored array, stored in slabs of columns; in single precision, where the source is."""
    rows, columns = (partial(ooc.kernels.transform, axis=axis) for axis in (1, 0))
    how = {"dtype": np.result_type(ooc.open_array(source).dtype, "c8"), "memory": memory, "workspace": "2MiB"}
    with tempfile.TemporaryDirectory() as scratch:
        by_rows = ooc.map_slabs(rows, source, f"{scratch}/rows", axis=0, **how).run()
        height = by_rows.chunks[0]
        by_columns = ooc.rechunk(by_rows, f"{scratch}/columns", chunks=(-1, height), memory=memory).run()
        return ooc.map_slabs(columns, by_columns, target, axis=1, **how).run()


def main(picture: str = "fft2d.png") -> None:
    """Transform the elevation of the Jacksboro fault, and noise in more than its budget."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    elevation = np.load(DATA)["elevation"].astype("f4")
    with tempfile.TemporaryDirectory() as folder:
        for name, true in (("noise", np.random.default_rng(0).random((2048, 4096), "f4")), ("elevation", elevation)):
            stored = ooc.create_array(f"{folder}/{name}", shape=true.shape, dtype="f4", chunks=(32, -1))
            stored[...] = true
            spectrum = fft2(stored, f"{folder}/{name}-fft", memory="32MiB")
            print(f"{name}: {spectrum}", f"as numpy's: {np.allclose(spectrum, np.fft.fft2(true), 1e-4)}", sep="\n")
        figure = Figure(figsize=(10, 4), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.imshow(elevation, cmap="terrain")
        right.imshow(np.log(np.abs(np.fft.fftshift(spectrum[...]))), cmap="magma")
        right.set(xticks=[], yticks=[])
    figure.savefig(picture)
    print(f"the elevation and its spectrum: {picture}")


if __name__ == "__main__":
    main()
