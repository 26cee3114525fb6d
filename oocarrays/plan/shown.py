"""How plans are shown, lent by the floor that draws: a plan is arithmetic, and knows no pictures.

    floor 5   picture, notebook ── lend("draw", …) ──┐
    floor 2   plan.draw() ── by("draw") ─────────────┘

Nothing below floor 5 imports what stands there; where it is not loaded, a plan says that it cannot be shown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oocarrays.errors import UnsupportedError

_LENT: dict[str, Callable[..., Any]] = {}


def lend(way: str, show: Callable[..., Any]) -> None:
    """Say how plans are shown in one way."""
    _LENT[way] = show


def by(way: str) -> Callable[..., Any]:
    """Return the function that shows plans in that way.

    Raises
    ------
    UnsupportedError
        Where nobody has said how.

    Examples
    --------
    >>> by("smell")
    Traceback (most recent call last):
    oocarrays.errors.UnsupportedError: plans cannot be shown by 'smell': import oocarrays, and one of ...
    """
    if way not in _LENT:
        known = ", ".join(sorted(_LENT)) or "none"
        raise UnsupportedError(f"plans cannot be shown by {way!r}: import oocarrays, and one of these can be: {known}")
    return _LENT[way]
