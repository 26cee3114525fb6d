"""How plans are shown, lent by the floor that draws: a plan is arithmetic, and knows no pictures.

    floor 5   picture, notebook ── lend("draw", …) ──┐
    floor 2   plan.draw() ── by("draw") ─────────────┘

Nothing below floor 5 knows what stands there but by its name: who lends is imported when a plan is first shown.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from oocarrays.errors import UnsupportedError

LENDERS = ("jobs.rechunking", "tracing.tracing", "advice.advising", "plan.layouts.saved")
"""Modules that lend when they are imported."""
_LENT: dict[str, Callable[..., Any]] = {}


def lend(way: str, show: Callable[..., Any]) -> None:
    _LENT[way] = show


def by(way: str) -> Callable[..., Any]:
    """Return the function that shows plans in that way."""
    if way not in _LENT:
        for module in LENDERS:
            import_module(f"oocarrays.{module}")
    if way not in _LENT:
        known = ", ".join(sorted(_LENT))
        raise UnsupportedError(f"plans cannot be shown by {way!r}: one of these can be: {known}")
    return _LENT[way]
