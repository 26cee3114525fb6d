"""Pyramids: an image in several resolutions.

32768² uint16 (2 GiB) in chunks of 512², zstd, as six levels of factor 2 and means of 2 × 2. Peers have no budget.
"""

from __future__ import annotations

from case import MIB, Case, data, way

CASES = (
    Case(
        name="pyramid",
        question="Six levels of an image of 2 GiB, zstd, in 512 MiB of memory",
        data={"": data("peers.pyramid:image", edge=32768, chunk=512, codec="zstd")},
        params={"levels": 6},
        tiny={"edge": 256, "chunk": 64},
        ways=(
            way("ours", "peers.pyramid:ours"),
            way("Dask level by level", "peers.pyramid:dask_each"),
            way("Dask one graph", "peers.pyramid:dask_graph"),
            way("ngff-zarr", "peers.pyramid:ngff_zarr"),
        ),
        check="peers.pyramid:check",
        memory=512 * MIB,
        cache=("warm",),
        timeout=300,
        short=True,
    ),
)
