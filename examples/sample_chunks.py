"""Which chunks should a stack of images have that a network is trained with? Small samples are drawn all over it.

A microscope writes one image after the other. Training reads cubes of a few pixels a side, anywhere: from whole images
most of what is decoded is thrown away. The samples are drawn once, in words or in a run; the advice follows.
"""

import tempfile

import numpy as np
import zarr

import oocarrays as ooc

IMAGES, EDGE, CUBE = 64, 512, 32
SAMPLES, EPOCHS = 200, 100


def drawn(stack, corners):
    """Read a cube at each corner."""
    return [stack[tuple(slice(at, at + CUBE) for at in corner)].mean() for corner in corners]


def chunks_asked(path, corners):
    """Draw the samples from what is stored, and count the chunks that are asked for."""
    store = ooc.advise.traced(path)
    found = drawn(zarr.open_array(store, mode="r"), corners)
    return found, sum(access.tasks for access in store.trace().accesses)


if __name__ == "__main__":
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        image = np.add.outer(np.arange(EDGE), np.arange(EDGE)).astype("u2")
        stack = zarr.create_array(
            f"{folder}/stack.zarr", data=np.stack([image + i for i in range(IMAGES)]), chunks=(1, EDGE, EDGE)
        )
        corners = rng.integers(0, np.array(stack.shape) - CUBE + 1, size=(SAMPLES, 3)).tolist()
        with ooc.advise.trace(block="training", weight=EPOCHS) as trace:
            drawn(stack, corners)
        advice = trace.advise(memory="256MiB")
        print(str(advice).replace(f"{folder}/", ""))

        advice.apply(f"{folder}/advised.zarr").run()
        before, asked = chunks_asked(f"{folder}/stack.zarr", corners)
        after, now = chunks_asked(f"{folder}/advised.zarr", corners)
        print(f"chunks read: {asked} before, {now} after; the same is found: {before == after}")
