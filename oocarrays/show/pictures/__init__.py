"""Pictures of plans, exchanges and advice: modules that need matplotlib, imported on first use."""

from __future__ import annotations

import importlib
from types import ModuleType

from oocarrays.errors import UnsupportedError


def load_picture(room: str = "plans") -> ModuleType:
    """Return a drawing module: ``"plans"``, ``"exchanges"``, ``"schedules"`` or ``"advice"``."""
    try:
        return importlib.import_module(f"oocarrays.show.pictures.{room}")
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise UnsupportedError("drawing needs matplotlib: pip install 'oocarrays[plot]'") from None
