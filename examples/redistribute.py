"""A Fourier transform in two axes of an array that is shared out: along rows, redistribute, along columns.

Each rank transforms the rows that it holds. For the other axis it must hold whole columns: everyone sends something to
everyone. The library says beforehand what that takes, and moves it: here between threads, with a Dask client between
the workers of a cluster, as it stands.
"""

import dask.array as da
import numpy as np

import oocarrays as ooc

RANKS = 4


def transformed(x: ooc.ranks.DistributedArray, axis: int) -> ooc.ranks.DistributedArray:
    """Return the transform along an axis that every rank has whole, in the same layout."""
    return ooc.ranks.distribute(da.fft.fft(x.to_dask(), axis=axis), x.layout)


if __name__ == "__main__":
    image = np.random.default_rng(0).random((512, 384))

    rows = ooc.ranks.distribute(image, "(block, *)", ranks=RANKS)
    print(rows)

    columns = transformed(rows, axis=1).redistribute("(*, block)")
    print(columns.explain())

    result = transformed(columns, axis=0)
    print(f"rank 1 of {result.layout} holds {result.local(1).shape}")
    print(f"as numpy's: {np.allclose(result.compute(), np.fft.fft2(image))}")

    dealt = result.redistribute("(cyclic(16), cyclic)", ranks=6)
    print(dealt)
    first = dealt.layout.index(5, (0, 0))
    print(f"the first element of rank 5 is {first}; all the same: {np.array_equal(dealt, result)}")
