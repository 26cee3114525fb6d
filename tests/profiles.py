"""Profiles of hypothesis: how many examples a property test draws.

`dev` (the default) draws at most 20 of each property, others each time; `ci` (where the variable CI is set) draws the
number that stands at the test, the same each time; `nightly` ten times that number. Another than the default is
chosen by `pytest --hypothesis-profile=nightly`.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

USUAL = 100
"""Examples that hypothesis draws of itself; profile `ci` has this number, and so draws what stands at each test."""
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}

settings.register_profile("dev", max_examples=20, **_COMMON)
settings.register_profile("ci", max_examples=USUAL, derandomize=True, database=None, print_blob=True, **_COMMON)
settings.register_profile("nightly", max_examples=10 * USUAL, print_blob=True, **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def examples(count: int, **others: Any) -> settings:
    """Return settings of a property test that draws `count` examples in CI, scaled by the profile elsewhere."""
    most = settings().max_examples
    return settings(max_examples=min(count, most) if most < USUAL else count * most // USUAL, **others)
