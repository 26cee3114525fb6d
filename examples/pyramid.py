"""An image in several resolutions, as viewers want it: written while it is read once, in 64 MiB.

Each level is made of the one below, in windows in memory; a viewer opens the level that its screen has room for.
"""

import tempfile

import numpy as np
import zarr

import oocarrays as ooc

EDGE, CHUNK, LEVELS = 2048, 256, 4


def cells(edge: int = EDGE) -> np.ndarray:
    """Return an image of cells: bright discs on a dark ground, with the noise of a camera."""
    rng = np.random.default_rng(7)
    image = np.full((edge, edge), 200.0)
    for row, column in rng.integers(40, edge - 40, (400, 2)):
        y, x = np.ogrid[-30:31, -30:31]
        disc = 1800 * np.exp(-(((x**2 + y**2) / 250.0) ** 2))
        image[row - 30 : row + 31, column - 30 : column + 31] += disc
    return rng.poisson(image).clip(0, 2**16 - 1).astype("u2")


def halved(image: np.ndarray) -> np.ndarray:
    """The next level by numpy: means of 2 × 2, halves up."""
    return ((image.reshape(len(image) // 2, 2, -1, 2).sum(axis=(1, 3), dtype="u4") + 2) // 4).astype(image.dtype)


def main(picture: str = "pyramid.png") -> None:
    """Write the levels, compare them with numpy's, and draw the same part of each."""
    image = cells()
    with tempfile.TemporaryDirectory() as folder:
        zarr.create_array(f"{folder}/image.zarr", data=image, chunks=(CHUNK, CHUNK), dimension_names=("y", "x"))
        job = ooc.pyramid(f"{folder}/image.zarr", f"{folder}/cells.zarr", levels=LEVELS, factor=2, memory="64MiB")
        print(job.explain())
        levels = job.run()
        scales = levels.attrs["ome"]["multiscales"][0]
        print(f"OME-Zarr {levels.attrs['ome']['version']}, axes {[axis['name'] for axis in scales['axes']]}")
        made = [levels[each["path"]][...] for each in scales["datasets"]]
    for number, level in enumerate(made[1:], 1):
        print(f"level {number}, {level.shape}: as numpy's: {np.array_equal(level, halved(made[number - 1]))}")

    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, LEVELS, figsize=(3 * LEVELS, 3.3), layout="constrained")
    for number, (axis, level) in enumerate(zip(axes, made, strict=True)):
        part = 256 // 2**number
        axis.imshow(level[:part, :part], cmap="viridis", vmin=200, vmax=2400)
        axis.set(title=f"level {number}: {part} × {part}", xticks=[], yticks=[])
    figure.savefig(picture)


if __name__ == "__main__":
    main()
