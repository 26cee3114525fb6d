"""What tests have done in processes of their own, by the server of `dying`."""

from __future__ import annotations

import itertools
import os
import signal

import dask
import numpy as np

import oocarrays as ooc


def writes_streams(place: str) -> None:
    """Write streams until killed, and print after each fifth turn, which is flushed, which it was."""
    blocks = {"ib_block": 16, "ib_pointers": 2, "superblock": 256}
    s = ooc.streams.open_streams(place, "w", shape=50, dtype="i8", ranks=2, blocks=blocks)
    s.write(np.full(50, -1))
    for turn in itertools.count(1):
        s.write(np.arange(100) + 100 * (turn - 1), at=np.arange(100) * 7 % 50)
        s._part.ib._each_writer(lambda writer: writer.drain())
        if turn % 5 == 0:
            s.flush()
            print(turn, flush=True)


def dies_of_a_lazy_array(store: str) -> None:
    """Compute a lazy array that has a copy for scratch, and die of its first block."""
    x = ooc.open_array(store).to_dask((96, 15), memory=120_000)
    assert x.plan.method == "scratch"
    dask.compute(x.map_blocks(lambda block: os.kill(os.getpid(), signal.SIGKILL), meta=x._meta), scheduler="threads")


def dies_of_a_zip_file() -> None:
    """Write a zip file, and die in its middle."""
    seen = []

    def kernel(block: np.ndarray) -> np.ndarray:
        seen.append(1)
        if len(seen) > 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return block

    ooc.map_slabs(kernel, "long.zarr", "new.zip", scheduler="threads", window=3, resources=ooc.Resources(ranks=1)).run()
