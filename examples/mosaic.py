"""A mosaic: overlapping tiles of a map, one a rank, are written into one array on disk at once.

Tiles overlap their neighbours', and none is made of whole chunks. Written one after the other, a chunk would be read,
changed and written again for every tile that touches it. Here every chunk has one writer, to which all ranks send what
they have of it: it is written once, and read only where the tiles leave some of it out. Where tiles overlap, the
highest rank's elements stay.
"""

import tempfile

import numpy as np
import zarr

import oocarrays as ooc

SIZE, TILE, STEP = 1200, 480, 360


def height(rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return a range of hills, in metres."""
    return (900 + 300 * np.sin(rows / 140)[:, None] * np.cos(columns / 90) + 0.2 * columns).astype("f4")


if __name__ == "__main__":
    starts = [(row, column) for row in range(0, SIZE - TILE + 1, STEP) for column in range(0, SIZE - TILE + 1, STEP)]
    sections = [ooc.Section((r, c), (r + TILE, c + TILE)) for r, c in starts]
    tiles = [height(*map(np.arange, section.lower, section.upper)) for section in sections]

    with tempfile.TemporaryDirectory() as folder:
        zarr.create_array(f"{folder}/map.zarr", shape=(SIZE, SIZE), chunks=(128, 128), dtype="f4", fill_value=np.nan)
        job = ooc.ranks.write_sections(f"{folder}/map.zarr", sections, tiles)
        print(job.explain(), end="\n\n")

        mosaic = job.run()
        read, written = job.meter.read_requests, job.meter.write_requests
        alone = [
            ooc.ranks.write_sections(mosaic, [section], [tile]) for section, tile in zip(sections, tiles, strict=True)
        ]
        touched = sum(job.plan.traffic.write_requests for job in alone)
        print(f"{written} chunks written, {read} of them read first; tile after tile it would be {touched}")
        same = np.array_equal(mosaic[:], height(np.arange(SIZE), np.arange(SIZE)))
        print(f"{len(tiles)} tiles, and no seam between them: {same}")
