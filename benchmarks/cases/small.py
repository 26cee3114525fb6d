"""Small things that pages tell of."""

from __future__ import annotations

from case import Case, data, way

CASES = (
    Case(
        name="small-series",
        question="Fifty series of 240 maps of 36 × 48 through xarray, one map a chunk, and as advised",
        data={"": data("peers.small:maps")},
        params={"items": 50},
        tiny={"items": 1},
        ways=(way("xarray", "peers.small:series"),),
        measure="figures",
        cache=("warm",),
        short=True,
    ),
    Case(
        name="calibrate",
        question="What calibration takes",
        params={"measured": True},
        tiny={"measured": False},
        ways=(way("ours", "peers.small:calibration"),),
        measure="figures",
        cache=("warm",),
        short=True,
    ),
)
