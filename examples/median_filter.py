"""Salt and pepper is taken off images larger than memory: each element becomes the median of the window around it.

An image passes through memory in slabs with a halo of half a window; the next slab is read while one is filtered. Any
window, type and number of axes: ``filtered(volume, target, size=(1, 5, 5), memory="1GiB")``. Even windows, those wide
along three axes, those wider than 15 need scipy. OpenCV's ``lambda block: cv2.medianBlur(block, 5)`` is a kernel, too.
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import oocarrays as ooc


def filtered(source, target, size=3, **how) -> ooc.Job:
    """Return the job that writes the median of each window of ``size`` elements: in all axes, or in each."""
    sizes = np.broadcast_to(size, ooc.open_array(source).ndim).tolist()
    kernel = partial(ooc.kernels.median, size=sizes, mode="none")  # a block has a halo: its edges need no filter
    how |= {"depth": [n // 2 for n in sizes], "boundary": "reflect", "resources": ooc.Resources(workspace="6MiB")}
    return ooc.map_slabs(kernel, source, target, **how)


def salted(image: np.ndarray) -> np.ndarray:
    """Return the image, one element in forty as low as any, and one in forty as high."""
    dice = np.random.default_rng(0).integers(0, 40, image.shape, "u1")
    return np.where(dice == 0, image.min(), np.where(dice == 1, image.max(), image))


def main(picture: str = "median_filter.png") -> None:
    """Filter a generated image larger than its budget, and the elevation of the Jacksboro fault, which is drawn."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    elevation, x = np.load(Path(__file__).parent / "data/elevation.npz")["elevation"], np.arange(3072, dtype="f4") / 90
    hills = np.sin(x[:, None]) * np.cos(x) + np.sin(x[:, None] ** 2 / 9 + x)
    with tempfile.TemporaryDirectory() as folder:
        for true, size in ((hills, 5), (elevation, 3)):
            noisy = ooc.create_array(f"{folder}/{size}", shape=true.shape, dtype=true.dtype, chunks=(32, -1))
            noisy[...] = salted(true)
            job = filtered(noisy, f"{folder}/{size}-filtered", size, memory="32MiB")
            before, after = noisy[...].astype("f8"), job.run()[...].astype("f8")
            off = [f"{np.abs(image - true).mean() / np.ptp(true):.2%} off" for image in (before, after)]
            print(job, f"before: {off[0]}; after: {off[1]}", sep="\n")
    figure, low, high = Figure(figsize=(13, 3.5), layout="constrained"), elevation.min(), elevation.max()
    panels, both = figure.subplots(1, 3), {"vmin": low, "vmax": high, "cmap": "gist_earth"}
    shown = [axes.imshow(z, **both) for axes, z in zip(panels[:2], (before, after), strict=True)]
    shown.append(panels[2].imshow(before - after, vmin=low - high, vmax=high - low, cmap="RdBu_r"))
    for axes, title in zip(panels, (f"before: {off[0]}", f"after: {off[1]}", "what was taken off"), strict=True):
        axes.set(title=title, xticks=[], yticks=[])
    figure.colorbar(shown[1], ax=panels[:2], label="metres above the sea")
    figure.colorbar(shown[2], ax=panels[2], label="metres")
    figure.savefig(picture)
    print(f"before, after, and the difference: {picture}")


if __name__ == "__main__":
    main()
