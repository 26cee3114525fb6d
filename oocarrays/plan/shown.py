"""Registry of the functions that draw plans: plans themselves contain no drawing code.

    floor 5   picture, notebook ── lend("draw", …) ──┐
    floor 2   plan.draw() ── by("draw") ─────────────┘

Modules below floor 5 know those above by name only: they are imported when a plan is first drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from oocarrays.errors import UnsupportedError

LENDERS = ("jobs.stored", "tracing.tracing", "advice.advising", "plan.layouts.saved")
"""Modules that register functions when imported."""
_LENT: dict[str, Callable[..., Any]] = {}


def lend(way: str, show: Callable[..., Any]) -> None:
    _LENT[way] = show


def by(way: str) -> Callable[..., Any]:
    """Return the function registered under this name."""
    if way not in _LENT:
        for module in LENDERS:
            import_module(f"oocarrays.{module}")
    if way not in _LENT:
        known = ", ".join(sorted(_LENT))
        raise UnsupportedError(f"plans cannot be shown by {way!r}: one of these can be: {known}")
    return _LENT[way]
