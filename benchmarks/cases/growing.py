"""Arrays that grow, groups of arrays, and shards.

`update`: maps of 1024², one a chunk, are rechunked; a hundredth is appended; the target is updated, or all is rechunked
again. Groups are 20 arrays of 64 MiB and a coordinate. Of shards, each file has 16 chunks, or is one.
"""

from __future__ import annotations

from dataclasses import replace

from case import MIB, Case, data, way

from cases.rechunk import rechunk

BLOCKS, SERIES = (64, 256, 256), (256, 64, 64)
ROWS, COLUMNS = (256, 16384), (16384, 256)
CUT_ROWS, CUT_COLUMNS = (256, 1024), (1024, 256)
SHARDS = rechunk(
    "shards",
    "1 GiB from rows to columns, each of 64 files a chunk or a shard of 16",
    (16384,) * 2,
    ROWS,
    COLUMNS,
    ways=(),
)


def sharded(label: str, source: str, target: tuple[int, ...]):
    """Return a way of ours with shards on either side or none."""
    more = {"target_per_shard": (16, 1)} if target == CUT_COLUMNS else {}
    return way(label, "peers.ours:rechunk", source=source, target_chunks=target, **more)


CASES = (
    Case(
        name="update",
        question="1 GiB of maps of which a hundredth is new: update or rechunk, in 512 MiB of memory",
        params={"items": 256, "edge": 1024},
        tiny={"items": 4, "edge": 16, "target_chunks": (4, 4, 4)},
        ways=(
            way("64 × 256²", "peers.growing:update", target_chunks=BLOCKS, codec="none"),
            way("64 × 256² zstd", "peers.growing:update", target_chunks=BLOCKS, codec="zstd"),
            way("256 × 64²", "peers.growing:update", target_chunks=SERIES, codec="none"),
            way("256 × 64² zstd", "peers.growing:update", target_chunks=SERIES, codec="zstd"),
        ),
        measure="own",
        memory=512 * MIB,
        cache=("warm",),
        short=True,
    ),
    Case(
        name="group",
        question="20 arrays of 64 MiB in one job, in 256 MiB of memory",
        data={"": data("peers.growing:arrays", shape=(4096, 4096), chunks=(64, 4096), codec="none")},
        params={"target_chunks": (4096, 64)},
        tiny={"shape": (8, 8), "chunks": (4, 8), "target_chunks": (8, 4)},
        ways=(way("ours", "peers.growing:group"), way("one by one", "peers.growing:one_by_one")),
        check="peers.growing:check_group",
        memory=256 * MIB,
        cache=("warm",),
    ),
    replace(
        SHARDS,
        data={
            "plain": SHARDS.data["v3"],
            "sharded": data("data:field", shape=(16384, 16384), chunks=CUT_ROWS, codec="none", per_shard=(1, 16)),
        },
        params={},
        ways=(
            sharded("neither in shards", "plain", COLUMNS),
            sharded("source in shards", "sharded", COLUMNS),
            sharded("target in shards", "plain", CUT_COLUMNS),
            sharded("both in shards", "sharded", CUT_COLUMNS),
        ),
    ),
)
