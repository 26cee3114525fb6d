"""How much work something is, counted in calls: the same on any machine, however busy it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

CALLS_A_SECOND = 2_000_000
"""Of Python's, about, on a slow machine that nobody else uses: what is to take a second makes no more of them."""


@dataclass
class Work:
    """Calls of functions that this thread has made, those of C among them."""

    calls: int = 0


@contextmanager
def counted(below: str = "") -> Iterator[Work]:
    """Count the calls that are made meanwhile: of Python functions in files whose path begins so, and from them.

    >>> with counted() as work:
    ...     _ = [abs(number) for number in range(100)]
    >>> 100 <= work.calls < 110
    True
    """
    work, before = Work(), sys.getprofile()

    def count(frame: FrameType, event: str, _: Any) -> None:
        work.calls += event in ("call", "c_call") and frame.f_code.co_filename.startswith(below)

    sys.setprofile(count)
    try:
        yield work
    finally:
        sys.setprofile(before)
