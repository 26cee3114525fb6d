"""Processes that use a folder as long as they live, for the server of `dying`."""

from __future__ import annotations

from typing import Any

from oocarrays.errors import OocError
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.journal.leftovers import hold

kept: list[Any] = []
"""What is held until the process ends."""


def scratch(folder: str) -> None:
    """Use a scratch folder."""
    kept.append(hold(folder))


def journal(folder: str, verb: str) -> Any:
    """Claim or join a journal; what it says."""
    kept.append(Journal(folder))
    try:
        return getattr(kept[0], verb)()
    except OocError as error:
        return f"{type(error).__name__} {error}"
