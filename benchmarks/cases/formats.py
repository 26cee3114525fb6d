"""Files that are not Zarr.

64 files of NetCDF-4 (zlib and shuffle, 24 hours of 180 × 360 each) become series in blosc-zstd; `ours, from Zarr` reads
a copy of the same bytes and codecs. A median of a tiled, deflated TIFF. 1,000 small files are opened as one.
"""

from __future__ import annotations

from case import MIB, Case, data, way

CASES = (
    Case(
        name="netcdf",
        question="64 files of NetCDF-4, 380 MiB decoded, to series, in 512 MiB of memory",
        data={"": data("peers.formats:days", items=64, shape=(180, 360), hours=4)},
        tiny={"items": 2, "shape": (8, 8)},
        ways=(
            way("ours", "peers.formats:ours"),
            way("ours from Zarr", "peers.formats:ours_from_zarr"),
            way("xarray", "peers.formats:xarray"),
            way("VirtualiZarr", "peers.formats:virtualizarr"),
        ),
        check="peers.formats:check_series",
        memory=512 * MIB,
        cache=("warm",),
        timeout=300,
        short=True,
    ),
    Case(
        name="tiff",
        question="Median 3 × 3 of a TIFF of 8192² uint16, in 512 MiB of memory",
        data={"": data("peers.formats:image", edge=8192)},
        tiny={"edge": 512},
        ways=(way("ours", "peers.formats:median"), way("dask-image", "peers.formats:median_dask_image")),
        check="peers.formats:check_median",
        memory=512 * MIB,
        cache=("warm",),
    ),
    Case(
        name="open",
        question="1,000 small files of NetCDF-4 opened as one array",
        data={"": data("peers.formats:many", items=1000)},
        tiny={"items": 2},
        ways=(
            way("ours", "peers.formats:opened"),
            way("xarray", "peers.formats:opened_by_xarray"),
            way("VirtualiZarr", "peers.formats:opened_by_virtualizarr"),
        ),
        measure="figures",
        memory=512 * MIB,
        cache=("warm",),
        timeout=300,
    ),
)
