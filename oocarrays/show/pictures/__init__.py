"""Pictures of plans, exchanges, advice and sweeps: rooms that need matplotlib, which is loaded when one is drawn."""

from __future__ import annotations

import importlib
from types import ModuleType

from oocarrays.errors import UnsupportedError


def load_picture(room: str = "plans") -> ModuleType:
    """A room that draws: ``"plans"``, ``"exchanges"``, ``"schedules"``, ``"advice"`` or ``"sweep"``."""
    try:
        return importlib.import_module(f"oocarrays.show.pictures.{room}")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise UnsupportedError("drawing needs matplotlib: pip install 'oocarrays[plot]'") from None
