"""Reductions: mean over time, and monthly climatology.

(1008, 361, 720) float32, 1 GiB, in maps of a day or in series. Ours in 256 MiB on threads, xarray and cubed without a
limit; `4 workers` are processes of one thread and 2 GiB. Every result is compared with numpy's in double precision.
"""

from __future__ import annotations

from case import GIB, MIB, Case, data, way

MAPS, SERIES = (24, (361, 720)), (1008, (19, 20))
"""Fields of a chunk, and their parts."""
WAYS = (
    way("ours", "peers.reduce:ours"),
    way("xarray + flox", "peers.reduce:xarray"),
    way("cubed", "peers.reduce:cubed"),
    way("ours 4 workers", "peers.reduce:ours_on_workers", memory=4 * 2 * GIB / (256 * MIB)),
    way("xarray + flox 4 workers", "peers.reduce:xarray_on_workers", memory=4 * 2 * GIB / (256 * MIB)),
)


def reduce(name: str, question: str, operation: str, stored: tuple, codec: str, **given) -> Case:
    """Return a case of fields in some chunks."""
    return Case(
        name=name,
        question=question,
        data={"": data("peers.reduce:fields", shape=(1008, 361, 720), hours=stored[0], chunks=stored[1], codec=codec)},
        params={"operation": operation},
        tiny={"shape": (62, 4, 4), "chunks": (4, 4)},
        ways=WAYS,
        check="peers.reduce:check",
        memory=256 * MIB,
        workers=4,
        cache=("warm",),
        timeout=300,
        **given,
    )


CASES = (
    reduce("mean", "Mean over time of 1 GiB of maps, zstd", "mean", MAPS, "zstd"),
    reduce("climatology", "Monthly climatology of 1 GiB of maps, zstd", "climatology", MAPS, "zstd", short=True),
    reduce("climatology-series", "Monthly climatology of 1 GiB of series", "climatology", SERIES, "none"),
)
