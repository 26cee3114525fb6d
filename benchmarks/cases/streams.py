"""Streams: cells to which values are appended.

64 doubles are written to each of 65,536 cells, and read, in each mode, beside plain arrays of a step a chunk; closing
and syncing are included. `stream-blocks` has Tables 2 and 3 of Stream*: bytes of an IB block, and pointers of an entry.
`events` has 10 million events in ten batches, Zipf over a million cells; a peer writes for ten seconds.
"""

from __future__ import annotations

from case import GIB, Case, way


def mode(label: str, name: str, **options):
    """Return a way of ours."""
    return way(label, "peers.streams:streams", mode=name, options=options)


BLOCKS = [mode(f"{n} B a block", "IB by halves", blocks={"ib_block": n}) for n in (64, 32, 16, 128, 256)]
POINTERS = [mode(f"{n} pointers", "IB by halves", blocks={"ib_pointers": n}) for n in (2, 6, 14)]
ABOUT = {
    "params": {"items": 65536, "ranks": 1},
    "tiny": {"items": 64},
    "measure": "figures",
    "memory": GIB,
    "cache": ("warm",),
}
CASES = (
    Case(
        name="streams",
        question="64 doubles written to each of 65,536 cells, and read, by mode",
        ways=(
            mode("NB", "NB"),
            mode("CB", "CB"),
            mode("IB", "IB"),
            way("plain, ours", "peers.streams:plain", ours=True),
            way("plain, zarr-python", "peers.streams:plain", ours=False),
        ),
        short=True,
        **ABOUT,
    ),
    Case(
        name="stream-blocks",
        question="Blocks and pointers of IB streams, beside blocks of 64 bytes",
        ways=(*BLOCKS, *POINTERS),
        **ABOUT,
    ),
    Case(
        name="events",
        question="10 million events over a million cells",
        params={"items": 10**7},
        tiny={"items": 1000},
        ways=(
            way("ours", "peers.streams:events"),
            way("a file a cell", "peers.streams:by_peer", peer="files"),
            way("a Zarr array a cell", "peers.streams:by_peer", peer="arrays"),
            way("h5py, variable length", "peers.streams:by_peer", peer="h5py"),
            way("awkward + Parquet, sorted at the end", "peers.streams:by_peer", peer="parquet"),
        ),
        measure="figures",
        memory=GIB,
        cache=("warm",),
    ),
)
