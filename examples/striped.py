"""Four folders as one: a file and an array over several disks, and how fast a model says that they should be."""

import tempfile
import time
from pathlib import Path

import numpy as np
import zarr

import oocarrays as ooc

BLOCK, SECONDS, BLOCKS = 16 * 1024, 0.01, 24


def rates(folders: list[Path], count: int) -> tuple[float, float]:
    """Bytes a second of a file over so many slow disks: measured, and predicted of what disks take for a block."""
    disks = [ooc.testing.SlowDisk(each, seconds=SECONDS) for each in folders[:count]]
    plan = ooc.disks.plan_striping(disks, mode="write", blocks=[BLOCK], seconds=0.2, trial=False)
    nbytes = BLOCK * BLOCKS * count
    with ooc.disks.open_striped(f"field-{count}", "w+", disks=disks, block=plan.block, buffers=2) as file:
        begun = time.perf_counter()
        file.write(bytes(nbytes))  # block b goes to disk b mod D; two requests of each disk are under way at one time
        return nbytes / (time.perf_counter() - begun), plan.bytes_per_second


def main(picture: str = "striped.png") -> None:
    """A file over one to four folders, drawn; then an array over all four."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise SystemExit("the picture needs matplotlib: pip install 'oocarrays[examples]'") from None
    with tempfile.TemporaryDirectory() as root:
        folders = [Path(root, name) for name in "abcd"]
        for each in folders:
            each.mkdir()
        found = np.array([rates(folders, count) for count in range(1, 5)])
        for count, (measured, predicted) in enumerate(found / found[0], 1):
            print(f"{count} of 4 folders: {measured:.2f} times one, {predicted:.2f} predicted")

        # One array: its chunks are plain files, in turn in each folder; disks are found in any order.
        field = np.arange(512 * 512, dtype="f4").reshape(512, 512)
        zarr.create_array(f"{root}/rows.zarr", data=field, chunks=(64, 512))
        target = f"striped://{','.join(map(str, folders))}!columns.zarr"
        ooc.rechunk(f"{root}/rows.zarr", target, chunks=(512, 64), scheduler="threads").run()
        again = ooc.open_array(ooc.disks.StripedStore([each / "columns.zarr" for each in reversed(folders)]))
        files = [sum(each.is_file() for each in (folder / "columns.zarr/c").rglob("*")) for folder in folders]
        print(f"{files} chunks; the same: {(again[...] == field).all()}")
    axes = (figure := Figure(figsize=(5.5, 4), layout="constrained")).subplots()
    axes.bar(range(1, 5), found[:, 0] / found[0, 0], width=0.5, color="#9ecae1", label="measured")
    axes.plot(range(1, 5), found[:, 1] / found[0, 1], "o--", color="#d94801", label="predicted")
    axes.set(xlabel="folders, each a disk of 10 ms a block", ylabel="times as fast as one", xticks=range(1, 5))
    axes.legend()
    figure.savefig(picture)
    print(f"speed-up, measured and predicted: {picture}")


if __name__ == "__main__":
    main()
