"""Profiles of hypothesis: how many examples a property test draws.

`dev` (the default) draws at most 10 of each property; `ci` (where the variable CI is set) draws the number that stands
at the test; `nightly` ten times that number. Another than the default is chosen by `pytest
--hypothesis-profile=nightly`. Where CI is set, the same cases are drawn each time.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings

USUAL = 100
"""Examples that hypothesis draws of itself; profile `ci` has this number, and so draws what stands at each test."""
_CI = bool(os.environ.get("CI"))
_SAME_EACH_TIME: dict[str, Any] = {"derandomize": True, "database": None, "print_blob": True} if _CI else {}
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], **_SAME_EACH_TIME}

settings.register_profile("dev", max_examples=10, **_COMMON)
settings.register_profile("ci", max_examples=USUAL, **_COMMON)
settings.register_profile("nightly", max_examples=10 * USUAL, **_COMMON)
settings.load_profile("ci" if _CI else "dev")


def examples(count: int, **others: Any) -> settings:
    """Return settings of a property test that draws `count` examples in CI, scaled by the profile elsewhere."""
    most = settings().max_examples
    return settings(max_examples=min(count, most) if most < USUAL else count * most // USUAL, **others)
