"""Passes over slabs: sweeps of a four-point stencil, and median filters.

Peers have the chunks, the threads and the way of working that serve them best, and no limit of memory; ours has a
budget. `fused by hand` is as many sweeps in one `map_overlap`, with as deep an overlap, as are fastest. What is right
is computed once of the whole array, by numpy or OpenCV, and compared element by element.
"""

from __future__ import annotations

from case import MIB, Case, Way, data, way

TALL, SQUARES, ROWS = (1024, 8192), (1024, 1024), (128, 8192)


def slabs(name: str, question: str, operation: str, times: int, dtype: str, ways: tuple[Way, ...], **given) -> Case:
    """Return a case of an array of 8192²; sources are in tall chunks, in rows, and in squares."""
    layouts = {"rows": ROWS, "tall": TALL, "squares": SQUARES}
    about = {"edge": 8192, "dtype": dtype}
    return Case(
        name=name,
        question=question,
        data={key: data("peers.kernels:store", **about, chunks=chunks) for key, chunks in layouts.items()},
        params={"operation": operation, "times": times},
        tiny={"edge": 64, "chunks": (16, 64)},
        ways=ways,
        check="peers.kernels:check",
        memory=given.pop("memory", 256 * MIB),
        **given,
    )


def peer(label: str, run: str, **given) -> Way:
    """Return a way that works best on tall chunks."""
    return way(label, run, source="tall", **given)


OURS = way("ours", "peers.slabs:ours")
OPENCV = way("ours + OpenCV", "peers.slabs:ours", kernel="opencv")
SWEEPS = (
    OURS,
    way("ours compiled kernel", "peers.slabs:ours", kernel="numba"),
    peer("Dask fused by hand", "peers.slabs:dask_fused"),
    peer("Dask sweep by sweep", "peers.slabs:dask_each"),
    peer("Dask sweep by sweep cluster", "peers.slabs:dask_cluster"),
    peer("cubed", "peers.slabs:cubed"),
    peer("in memory numpy", "peers.slabs:in_memory", kernel="numpy"),
    peer("in memory numba", "peers.slabs:in_memory", kernel="numba"),
)
FILTERS = (
    OURS,
    OPENCV,
    peer("dask-image", "peers.slabs:dask_image"),
    peer("Dask + OpenCV", "peers.slabs:dask_opencv"),
    peer("in memory OpenCV", "peers.slabs:in_memory", kernel="opencv"),
)
IN_SQUARES = tuple(way(each.label, each.run, source="squares", **each.params) for each in SWEEPS[:2])
CASES = (
    slabs("jacobi-10", "10 Jacobi sweeps of 8192² float64, in 256 MiB of memory", "jacobi", 10, "f8",
          SWEEPS, short=True),
    slabs("jacobi-40", "40 Jacobi sweeps of 8192² float64, in 256 MiB of memory", "jacobi", 40, "f8",
          (*SWEEPS[:3], *SWEEPS[6:])),
    slabs("jacobi-10-64m", "10 Jacobi sweeps of 8192² float64 in square chunks, in 64 MiB", "jacobi", 10, "f8",
          (*IN_SQUARES, SWEEPS[-1]), memory=64 * MIB),
    slabs("median-3-u1", "Median 3 × 3 of 8192² uint8, in 256 MiB of memory", "median", 3, "u1", FILTERS),
    slabs("median-5-f4", "Median 5 × 5 of 8192² float32, in 256 MiB of memory", "median", 5, "f4", FILTERS, short=True),
)  # fmt: skip
