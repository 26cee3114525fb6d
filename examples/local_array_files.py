"""Jacobi's iteration for Laplace's equation, each rank on a local array file of its own, slab by slab.

An array is scattered into one file a rank, with a halo of one neighbour on either side. In each step a rank sweeps over
its file in slabs that fit its memory; what it writes goes to its neighbours' halos, too. Then the files are gathered.
"""

import tempfile
from pathlib import Path

import numpy as np

import oocarrays as ooc

SHAPE, STEPS, SLAB = (120, 90), 3, "16kiB"


def smoothed(block: np.ndarray) -> np.ndarray:
    """Return the mean of each element's four neighbours."""
    return (block[:-2, 1:-1] + block[2:, 1:-1] + block[1:-1, :-2] + block[1:-1, 2:]) / 4


def sweep(old: ooc.ranks.LocalArrays, new: ooc.ranks.LocalArrays, rank: int) -> None:
    """One step of one rank: what its slabs see of the old files makes its own of the new ones."""
    file, rows = old.local(rank), old.layout.index(rank, (0, 0))[0]
    for slab in old.slabs(rank, memory=SLAB):
        (top, left), (bottom, right), own = slab.outer.lower, slab.outer.upper, slab.own
        seen = file[top + 1 : bottom + 1, left + 1 : right + 1]  # the file begins one before the rank's own elements
        new[rows + own.lower[0] : rows + own.upper[0], own.lower[1] : own.upper[1]] = smoothed(seen)


if __name__ == "__main__":
    field = np.random.default_rng(0).random(SHAPE)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        layout = ooc.Layout.of(SHAPE, "(block, *)", ranks=4)
        whole = ooc.create_array(ooc.Target(path / "field.zarr", orientation="row"), shape=SHAPE, dtype=field.dtype)
        whole[...] = field
        old = ooc.ranks.scatter_files(whole, layout, path / "old.zarr", depth=1).run()
        how = {"shape": SHAPE, "dtype": field.dtype, "layout": layout, "depth": 1}
        new = ooc.create_array(path / "new.zarr", placement="local", **how)
        print(old)
        print(f"a rank sweeps over {len(old.slabs(0, memory=SLAB))} slabs")
        for _ in range(STEPS):
            for rank in range(old.ranks):
                sweep(old, new, rank)
            old, new = ooc.open_array(new.store, mode="r+"), ooc.open_array(old.store, mode="r+")
        done = ooc.ranks.gather_files(old, path / "done.zarr").run()
        for _ in range(STEPS):
            field = smoothed(np.pad(field, 1))
        print(done, f"as numpy's: {np.allclose(done, field)}", sep="\n")
