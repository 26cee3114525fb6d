"""Sections of arrays on disk.

1 GiB of float32 in slabs of 256 rows or columns, in shards of 2048² with chunks of 128², and in rows in zstd. h5py
reads one contiguous data set, whatever the layout. Every read is compared with the field. Reads are from the cache
unless `cold` is said.
"""

from __future__ import annotations

from case import Case, data, way

CASES = (
    Case(
        name="sections",
        question="Sections of 1 GiB of float32, from the cache",
        data={"": data("peers.sections:store", edge=16384)},
        tiny={"edge": 256},
        ways=(
            way("ours", "peers.sections:ours"),
            way("zarr-python", "peers.sections:zarr_python"),
            way("TensorStore", "peers.sections:tensorstore"),
            way("h5py", "peers.sections:h5py"),
        ),
        measure="figures",
        cache=("warm",),
        short=True,
    ),
)
