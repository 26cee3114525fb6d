"""Functions of the layers above by which plans are drawn and traces advised: plans themselves contain no such code.

floor 5   show.pictures, show.notebook, advice …           ◄──┐   imported when they are first called
floor 2   plan.draw() ── above("show.pictures:load_picture") ─┘
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any


def above(place: str) -> Any:
    """Return a function of a layer above, given as ``"module:function"`` in the package."""
    return resolve_name(f"oocarrays.{place}")
