"""Which chunks should the levels of an image pyramid have? An image comes in; tiles for a viewer go out of each level.

A scanner writes an image in strips. Each level has half as many pixels a side as the one before; a viewer asks for
tiles of all of them. The advice on each level follows from who makes it and who reads it.
"""

import tempfile
import time

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc

EDGE, LEVELS, TILE = 4096, 3, 256
VIEWS = 20  # times that a viewer goes through all tiles of a level


def halved(image):
    """Return an image with half as many pixels a side."""
    return da.coarsen(np.mean, image, {0: 2, 1: 2}).astype(image.dtype)


def tiles(level):
    """Return an image in the tiles that a viewer asks for."""
    return da.from_zarr(level, chunks=(TILE, TILE))


def seconds(level):
    """Return how long it takes to read every tile of a level."""
    begun = time.perf_counter()
    tiles(level).sum().compute(scheduler="threads")
    return time.perf_counter() - begun


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        rows, columns = np.indices((EDGE, EDGE), dtype="u2")
        levels = [zarr.create_array(f"{folder}/0.zarr", data=rows ^ columns, chunks=(16, EDGE))]
        trace = ooc.advise.trace(view_0=tiles(levels[0]), weights=VIEWS)
        for number in range(1, LEVELS):
            above = halved(da.from_zarr(levels[-1], chunks=(256, levels[-1].shape[1])))
            level = zarr.create_array(
                f"{folder}/{number}.zarr", shape=above.shape, chunks=(16, above.shape[1]), dtype="u2"
            )
            making = da.store(above, level, lock=False, compute=False)
            trace += ooc.advise.trace(**{f"make_{number}": making, f"view_{number}": tiles(level)}, weights=[1, VIEWS])
            making.compute(scheduler="threads")
            levels.append(level)
        advice = trace.advise(memory="256MiB")
        print(str(advice).replace(f"{folder}/", ""))

        for level, advised in zip(levels, sorted(advice.arrays, key=lambda each: each.array), strict=True):
            if not advised.kept:
                target = f"{folder}/advised-{level.shape[0]}.zarr"
                again = ooc.rechunk(level, target, chunks=advised.chunks).run().zarr
                same = np.array_equal(again[:], level[:])
                print(f"{level.shape[0]} pixels: {seconds(level) / seconds(again):.1f} times as fast; the same: {same}")
