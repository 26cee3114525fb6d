"""Salt and pepper is taken off images larger than memory: each element becomes the median of the window around it.

An image passes through memory in slabs with a halo of half a window; the next slab is read while one is filtered. Any
window, type and number of axes: ``filtered(volume, target, size=(1, 5, 5), memory="1GiB")``. Even windows, those wide
along three axes and those wider than 15 need scipy. OpenCV's filter is a kernel, too:

    ooc.map_slabs(lambda block: cv2.medianBlur(block, 5), source, target, depth=2, boundary="reflect")
"""

import tempfile
from functools import partial
from pathlib import Path

import numpy as np

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "elevation.npz"


def filtered(source, target, size=3, **how) -> ooc.SlabJob:
    """Return the job that writes the median of each window of ``size`` elements: in all axes, or in each."""
    sizes = np.broadcast_to(size, ooc.open_array(source).ndim).tolist()
    kernel = partial(ooc.kernels.median, size=sizes, mode="none")  # a block has a halo: its edges need no filter
    how |= {"depth": [n // 2 for n in sizes], "boundary": "reflect", "workspace": "6MiB"}
    return ooc.map_slabs(kernel, source, target, **how)


def salted(image: np.ndarray) -> np.ndarray:
    """Return the image, one element in forty as low as any, and one in forty as high."""
    dice = np.random.default_rng(0).integers(0, 40, image.shape, "u1")
    return np.where(dice == 0, image.min(), np.where(dice == 1, image.max(), image))


def main(picture: str = "median_filter.png") -> None:
    """Filter the elevation of the Jacksboro fault, and a generated image larger than its budget."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    elevation, x = np.load(DATA)["elevation"], np.arange(3072, dtype="f4") / 90
    hills = np.sin(x[:, None]) * np.cos(x) + np.sin(x[:, None] ** 2 / 9 + x)
    figure = Figure(figsize=(14, 4), layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        for true, size, axes in zip((elevation, hills), (3, 5), figure.subplots(1, 4).reshape(2, 2), strict=True):
            noisy = ooc.create_array(f"{folder}/{size}", shape=true.shape, dtype=true.dtype, chunks=(32, -1))
            noisy[...] = salted(true)
            job = filtered(noisy, f"{folder}/{size}-filtered", size, memory="32MiB")
            for image, name, place in ((noisy, "before", axes[0]), (job.run(), "after", axes[1])):
                place.imshow(image[:400, :400], cmap="terrain")
                off = np.abs(image[...] - true.astype("f8")).mean() / np.ptp(true)
                place.set(title=f"{name}: {off:.2%} off", xticks=[], yticks=[])
            print(job)
    figure.savefig(picture)
    print(f"before and after: {picture}")


if __name__ == "__main__":
    main()
