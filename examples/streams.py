"""Events of a detector: a stream for each pixel, written as photons come, read pixel by pixel.

Each step brings a frame of temperatures for all pixels, and then photons, here and there. Frames are rows of an array,
photons are blocks of their own pixels; nobody says which is which, for each call is looked at.
"""

import tempfile
from pathlib import Path

import numpy as np

import oocarrays as ooc

SHAPE, FRAMES, SECONDS = (64, 64), 8, 40
HERE = (40, 24)

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    y, x = np.indices(SHAPE)
    light = np.exp(-((y - HERE[0]) ** 2 + (x - HERE[1]) ** 2) / 80).ravel()
    with tempfile.TemporaryDirectory() as folder:
        modes = []
        with ooc.streams.open_streams(
            f"{folder}/detector.zarr", "w", shape=SHAPE, dtype="f4", memory="64MiB", ranks=2
        ) as s:
            for _ in range(FRAMES):
                s.write(rng.normal(290, 1, SHAPE).astype("f4"))
                modes.append(s.mode)
            for second in range(SECONDS):
                pixels = rng.choice(light.size, 3000, p=light / light.sum())
                s.write(np.sort(second + rng.random(3000, "f4")), at=pixels)
                modes.append(s.mode)
        with ooc.streams.open_streams(f"{folder}/detector.zarr") as s:
            frames = s.read(FRAMES)
            photons = s.read(-1)
            segments = s.segments
    times = photons[HERE]
    print(f"frames {frames.shape}, {len(photons.values)} photons, at {HERE} {len(times)} of them")
    for mode, segment in segments.items():
        print(f"{mode}: {segment['bytes']} bytes in blocks of {segment['block']}, {modes.count(mode)} calls")

    try:
        import matplotlib
    except ImportError:
        raise SystemExit(0) from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    left.imshow(photons.counts)
    left.set_title("photons of each pixel")
    middle.hist(times, SECONDS)
    middle.set(title=f"the stream of pixel {HERE}", xlabel="seconds")
    right.bar(list(segments), [segment["bytes"] / 2**20 for segment in segments.values()])
    right.set(title="modes over the file", ylabel="MiB")
    figure.savefig(f"{Path(__file__).stem}.png")
