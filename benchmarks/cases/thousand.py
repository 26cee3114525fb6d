"""Plans for large clusters: how long planning takes, and how many tasks there are.

Rechunks of float32 without a codec that no machine of ours could run. Tasks grow with ranks × rounds, not with ranks².
"""

from __future__ import annotations

from case import Case, way

CASES = (
    Case(
        name="thousand",
        question="Plans of 1 to 65 TB over 64 to 1000 workers",
        params={"items": 5},
        tiny={"items": 1},
        ways=(
            way("as chosen", "peers.thousand:plans", method="auto"),
            way("two-phase", "peers.thousand:plans", method="two-phase"),
        ),
        measure="figures",
        cache=("warm",),
        short=True,
    ),
)
