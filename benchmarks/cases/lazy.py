"""Lazy arrays: column blocks of an array that is stored in slabs of rows, summed on Dask's threads."""

from __future__ import annotations

from case import GIB, Case, data, way


def lazy(name: str, question: str, codec: str, **given) -> Case:
    """Return a case of 2 GiB in slabs of 256 rows; blocks are 1024 columns."""
    return Case(
        name=name,
        question=question,
        data={"": data("data:field", shape=(32768, 16384), chunks=(256, 16384), codec=codec)},
        params={"width": 1024},
        tiny={"shape": (8, 8), "chunks": (4, 8)},
        ways=(way("ours", "peers.lazy:ours"), way("Dask", "peers.lazy:dask")),
        check="peers.lazy:check",
        memory=GIB,
        **given,
    )


CASES = (
    lazy("lazy", "Sums of column blocks of 2 GiB of rows, in 1 GiB of memory", "none"),
    lazy("lazy-zstd", "Sums of column blocks of 2 GiB of rows in zstd, in 1 GiB of memory", "zstd"),
)
