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
    dtype = np.result_type(ooc.open_array(source).dtype, "c8")
    with tempfile.TemporaryDirectory() as scratch, ooc.Resources(memory=memory):
        how, transformed = {"resources": ooc.Resources(workspace="2MiB")}, ooc.Target(f"{scratch}/rows", dtype=dtype)
        by_rows = ooc.map_slabs(rows, source, transformed, window={0: "auto"}, **how).run()
        by_columns = ooc.rechunk(by_rows, f"{scratch}/columns", chunks=(-1, by_rows.chunks[0])).run()
        return ooc.map_slabs(columns, by_columns, ooc.Target(target, dtype=dtype), window={1: "auto"}, **how).run()


def main(picture: str = "fft2d.png") -> None:
    """Transform the elevation of the Jacksboro fault, and noise in more than its budget."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    data = np.load(DATA)
    elevation = data["elevation"].astype("f4")
    height, width = (n * degrees * 111.2 for n, degrees in zip(elevation.shape, (data["dy"], data["dx"]), strict=True))
    width *= np.cos(np.radians(36.4))  # km, at the latitude of the fault
    with tempfile.TemporaryDirectory() as folder:
        for name, true in (("noise", np.random.default_rng(0).random((2048, 4096), "f4")), ("elevation", elevation)):
            stored = ooc.create_array(f"{folder}/{name}", shape=true.shape, dtype="f4", chunks=(32, -1))
            stored[...] = true
            spectrum = fft2(stored, f"{folder}/{name}-fft", memory="32MiB")
            print(f"{name}: {spectrum}", f"as numpy's: {np.allclose(spectrum, np.fft.fft2(true), 1e-4)}", sep="\n")
        power = np.log10(np.abs(np.fft.fftshift(spectrum[...])))
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    image = left.imshow(elevation, cmap="gist_earth", extent=(0, width, height, 0))
    figure.colorbar(image, ax=left, label="metres above the sea")
    left.set(title="elevation around the Jacksboro fault", xlabel="km to the east", ylabel="km to the south")
    y, x = (n / length / 2 for n, length in zip(elevation.shape, (height, width), strict=True))
    waves = right.imshow(power, cmap="magma", extent=(-x, x, y, -y), vmin=np.percentile(power, 1))
    figure.colorbar(waves, ax=right, label="log10 of the amplitude")
    right.set(title="its spectrum", xlabel="waves a km to the east", ylabel="waves a km to the south")
    figure.savefig(picture)
    print(f"the elevation and its spectrum: {picture}")


if __name__ == "__main__":
    main()
