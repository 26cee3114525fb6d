"""Collective reads: four workers get an array by five distributions.

256 MiB of float32 in 64 slabs of columns or rows, from the cache, each rank's part left on its worker. Ours chooses
between a two-phase read and reads of each rank for itself (`direct`). `Zarr each` is the latter by zarr-python; Dask
has its array of the stored chunks, and cuts each rank's block from it.
"""

from __future__ import annotations

from case import Case, data, way

ROWS, COLUMNS = (128, 8192), (8192, 128)


def collective(name: str, question: str, chunks: tuple[int, int], codec: str, **given) -> Case:
    """Return a case of an array in slabs."""
    return Case(
        name=name,
        question=question,
        data={"": data("data:field", shape=(8192, 8192), chunks=chunks, codec=codec)},
        tiny={"shape": (8, 8), "chunks": (4, 8)},
        ways=(
            way("ours", "peers.collective:ours"),
            way("Zarr each", "peers.collective:zarr_each"),
            way("Dask", "peers.collective:dask_array"),
        ),
        measure="figures",
        workers=4,
        cache=("warm",),
        **given,
    )


CASES = (
    collective("collective", "256 MiB of column slabs to 4 workers by five distributions", COLUMNS, "none", short=True),
    collective("collective-zstd", "256 MiB of row slabs in zstd to 4 workers by five distributions", ROWS, "zstd"),
)
