"""Places that lie one inside the other, by their names and by what the file system says of them.

Names do not tell all: a folder that is mounted twice has two, and where case does not matter ``A.zarr`` is ``a.zarr``.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import PurePath


def lie_together(here: str, there: str) -> bool:
    """Return whether two places are the same, or one is inside the other."""
    if _leads_to(here, there) or _leads_to(there, here):
        return True
    if not (os.path.isabs(here) and os.path.isabs(there)):
        return False
    return _identity(here) in _identities(there) or _identity(there) in _identities(here)


def _leads_to(here: str, there: str) -> bool:
    """Return whether a path is another, or a beginning of it."""
    return f"{there}/".lstrip("/").startswith(f"{here}/".lstrip("/"))


def _identities(folder: str) -> set[tuple[int, int]]:
    """Those of a folder and of all that it lies in, as far as they are there."""
    places = [folder, *map(str, PurePath(folder).parents)]
    return {identity for identity in map(_identity, places) if identity is not None}


def _identity(folder: str) -> tuple[int, int] | None:
    with suppress(OSError):
        found = os.stat(folder)
        return found.st_dev, found.st_ino
    return None
