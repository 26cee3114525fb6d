"""Profiles of hypothesis: the number of examples that a property test draws, and of cases that an enumeration runs.

| profile | examples of a property | cases of `some`, and of tests marked `long` or `sampled` |
|---|---|---|
| `dev`, the default | at most 10 | about one in three, or as stands there |
| `ci`, where the variable CI is set | a third of the number at the test, and no fewer than `dev` | the same |
| `nightly` | ten times the number at the test | all |

`pytest -n 2 --hypothesis-profile=nightly tests oocarrays` runs the night's set. Where CI is set, the same examples are
drawn each time. The sample of an enumeration is always the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings

_T = TypeVar("_T")

FEWEST, USUAL = 10, 100
"""Examples of profile `dev`, and those of hypothesis itself: a profile with 100 would draw the number at each test."""
_CI = bool(os.environ.get("CI"))
_SAME_EACH_TIME: dict[str, Any] = {"derandomize": True, "database": None, "print_blob": True} if _CI else {}
_COMMON: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], **_SAME_EACH_TIME}

settings.register_profile("dev", max_examples=FEWEST, **_COMMON)
settings.register_profile("ci", max_examples=USUAL // 3, **_COMMON)
settings.register_profile("nightly", max_examples=10 * USUAL, **_COMMON)
settings.load_profile("ci" if _CI else "dev")


def examples(count: int, **others: Any) -> settings:
    """Return settings of a property test that draws `count` examples, as scaled by the profile."""
    most, least = settings().max_examples, min(count, FEWEST)
    return settings(max_examples=least if most == FEWEST else max(least, count * most // USUAL), **others)


def is_nightly() -> bool:
    """Return whether enumerations run whole."""
    return settings().max_examples > USUAL


def some(cases: Iterable[_T], share: int = 3) -> Iterable[_T]:
    """Return every `share`-th of many cases that a test goes through; at night all."""
    return islice(cases, None, None, 1 if is_nightly() else share)
