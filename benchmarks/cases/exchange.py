"""Exchanges between workers: row slabs become column slabs.

Four worker processes of one thread, without limits, hold a slab each. `by hand` is what people write without schedules:
slices concatenated on the workers that need them, all at once. Only the move is timed. The first row is the schedule
that ours chooses, beside Dask's p2p; the other rows are schedules of ours, and Dask's tasks.
"""

from __future__ import annotations

from case import Case, way

CASES = (
    Case(
        name="exchange",
        question="256 MiB of row slabs to column slabs over 4 workers",
        params={"edge": 8192},
        ways=(
            way("ours", "peers.exchange:ours"),
            way("by hand", "peers.exchange:by_hand"),
            way("Dask", "peers.exchange:by_dask"),
        ),
        measure="figures",
        workers=4,
        cache=("warm",),
        short=True,
    ),
)
