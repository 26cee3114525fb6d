"""Answers that come soon: what others on the same machine take of its cores counts for nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SECONDS = 10.0
"""In which every answer is there."""
SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds that this thread ran, and in which it could have run and others did."""


@contextmanager
def soon(seconds: float = SECONDS) -> Iterator[None]:
    """Check that what is done takes no longer, but for the time in which this thread was kept from a core."""
    began = _now()
    yield
    took = _now() - began
    assert took < seconds, f"{took:.1f} s, those left out in which others had the cores"


def _now() -> float:
    """A clock that stands still while this thread waits for a core."""
    kept = 0
    with suppress(OSError):
        kept = int(SCHEDULED.read_text().split()[1])
    return time.monotonic() - kept / 1e9
