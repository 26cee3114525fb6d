"""Four folders as one: a file and an array over several disks, and how fast a model says that they should be."""

import tempfile
import time
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc

BLOCK, SECONDS, BLOCKS = 16 * 1024, 0.01, 24

with tempfile.TemporaryDirectory() as folder:
    folders = [Path(folder, name) for name in "abcd"]
    for each in folders:
        each.mkdir()

    # One file: block b is on disk b mod D, and two requests of each disk are under way at one time.
    print("disks  MB/s  predicted  speed-up")
    alone = None
    for count in range(1, 5):
        disks = [ooc.testing.SlowDisk(each, seconds=SECONDS) for each in folders[:count]]
        plan = ooc.plan_striping(disks, mode="write", blocks=[BLOCK], seconds=0.1, trial=False)
        nbytes = BLOCK * BLOCKS * count
        with ooc.open_striped(f"field-{count}", "w+", disks=disks, block=plan.block, buffers=2) as file:
            begun = time.perf_counter()
            file.write(bytes(nbytes))
            rate = nbytes / (time.perf_counter() - begun)
        alone = alone or rate
        bar = "▒" * round(8 * rate / alone)
        print(f"{count:5}  {rate / 1e6:4.1f}  {plan.bytes_per_second / 1e6:9.1f}  {rate / alone:8.2f}  {bar}")

    # One array: its chunks are plain files, in turn in each folder; disks are found in any order.
    field = np.arange(512 * 512, dtype="f4").reshape(512, 512)
    zarr.create_array(Path(folder, "rows.zarr"), data=field, chunks=(64, 512))
    target = f"striped://{','.join(map(str, folders))}!columns.zarr"
    columns = ooc.rechunk(Path(folder, "rows.zarr"), target, chunks=(512, 64), scheduler="threads").run()
    assert (columns[:, 5] == field[:, 5]).all()
    backwards = ooc.open_array(ooc.StripedStore([each / "columns.zarr" for each in reversed(folders)]))
    assert (backwards[7] == field[7]).all()
    print([sum(file.is_file() for file in (each / "columns.zarr" / "c").rglob("*")) for each in folders], "chunks")
