"""Rechunking on one machine.

`limit` is the same bytes moved by hand by one process a core, `limit in place` with one chunk a thread in memory.
TensorStore runs the best plan in the budget that we know, with memory-mapped reads and without fsync: its dirty pages
reach the disk after its time is taken (`sync`), ours before.
"""

from __future__ import annotations

from dataclasses import replace

from case import GIB, MIB, Case, data, way

OURS = way("ours", "peers.ours:rechunk")
TENSORSTORE = way("TensorStore", "peers.tensorstore:rechunk")
LIMIT = way("limit", "peers.limit:rechunk")
LIMIT_IN_PLACE = way("limit in place", "peers.limit_in_place:rechunk")
BY_HAND = way("zarr by hand", "peers.by_hand:zarr_python")
ZARRS = way("zarrs by hand", "peers.by_hand:zarrs")
CUBED = way("cubed", "peers.cubed:rechunk")
RECHUNKER = way("rechunker", "peers.rechunker:rechunk", source="v2", python="rechunker")
TASKS = way("Dask tasks", "peers.dask:rechunk", memory=2, method="tasks")
P2P = way("Dask p2p", "peers.dask:rechunk", memory=2, method="p2p")


def rechunk(name: str, question: str, shape, chunks, target, codec: str = "none", **given) -> Case:
    """Return a case of one array of float32."""
    tiny = {
        "shape": (8,) * len(shape),
        "chunks": (4,) + (8,) * (len(shape) - 1),
        "target_chunks": (8,) * (len(shape) - 1) + (4,),
    }
    about = {"shape": shape, "chunks": chunks, "codec": codec}
    sources = {"v3": data("data:field", **about), "v2": data("data:field", **about, zarr_format=2)}
    return Case(
        name=name,
        question=question,
        data=sources,
        params={"target_chunks": target},
        tiny=tiny,
        check="data:rechunked",
        **given,
    )


ROWS = rechunk(
    "rechunk-1g",
    "1 GiB of float32 from rows to columns, in 1 GiB of memory",
    (16384, 16384),
    (256, 16384),
    (16384, 256),
    ways=(OURS, LIMIT, TENSORSTORE, RECHUNKER, TASKS, P2P, CUBED, BY_HAND),
    short=True,
)
ROWS_ZSTD = rechunk(
    "rechunk-1g-zstd",
    "1 GiB from rows to columns, zstd, in 1 GiB of memory",
    (16384, 16384),
    (256, 16384),
    (16384, 256),
    "zstd",
    ways=(OURS, TENSORSTORE, RECHUNKER, TASKS, P2P, CUBED, BY_HAND, ZARRS),
)
FOUR = rechunk(
    "rechunk-4g-256m",
    "4 GiB from rows to columns, in 256 MiB of memory",
    (32768, 32768),
    (256, 32768),
    (32768, 256),
    ways=(OURS, LIMIT_IN_PLACE, TENSORSTORE),
    memory=256 * MIB,
    short=True,
)
MAPS = rechunk(
    "series",
    "2.8 GiB of maps (720, 721, 1440) to time series of (720, 20, 20), in 2 GiB of memory",
    (720, 721, 1440),
    (1, 721, 1440),
    (720, 20, 20),
    ways=(OURS, TENSORSTORE, CUBED, way("Dask tasks", "peers.dask:rechunk", memory=2, method="tasks")),
    memory=2 * GIB,
    short=True,
)


def named(case: Case, name: str, question: str, codec: str = "", **changes) -> Case:
    """Return a case with another name, and in another codec where one is named."""
    if codec:
        sources = {key: data(each.make, **{**each.params, "codec": codec}) for key, each in case.data.items()}
        changes["data"] = sources
    return replace(case, name=name, question=question, **changes)


CASES = (
    ROWS,
    ROWS_ZSTD,
    named(ROWS_ZSTD, "rechunk-1g-blosc", "1 GiB from rows to columns, blosc-lz4 with shuffle, in 1 GiB", "blosc"),
    named(
        ROWS_ZSTD,
        "rechunk-1g-blosc-256m",
        "1 GiB from rows to columns, blosc-lz4 with shuffle, in 256 MiB of memory",
        "blosc",
        ways=(OURS, TENSORSTORE),
        memory=256 * MIB,
    ),
    FOUR,
    named(FOUR, "rechunk-4g-128m", "4 GiB from rows to columns, in 128 MiB of memory", memory=128 * MIB, short=False),
    MAPS,
    named(
        MAPS, "series-256m-zstd", "2.8 GiB of maps to time series, zstd, in 256 MiB of memory", "zstd",
        ways=(OURS, TENSORSTORE), memory=256 * MIB, short=False,
    ),
)  # fmt: skip
