"""Hot paths: small calls that users make often.

`tests/golden/test_hot.py` counts their calls. `beside.py --other CHECKOUT hot` compares two checkouts.
"""

from __future__ import annotations

from case import Case, way

CASES = (
    Case(
        name="hot",
        question="Small calls: a section, a plan, a graph, a small run",
        params={"measured": True},
        tiny={"measured": False},
        ways=(way("ours", "peers.hot:paths"),),
        measure="figures",
        cache=("warm",),
    ),
)
