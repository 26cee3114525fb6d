"""Folders of runs, of which only their owner may read: a journal tells of a source, and scratch holds copies of it."""

from __future__ import annotations

import os
from contextlib import suppress

OURS = ".oocarrays"
"""How names of what is no part of an array begin."""
SHARED = (".oocarrays.source", ".oocarrays.made")
"""The keys of what a finished array keeps of its source and of its request: as open to others as the array is."""


def mode_of(path: str) -> int:
    """Return the permissions of a new file."""
    folder, name = os.path.split(path)
    ours = name.startswith(OURS) or any(part.startswith(OURS) for part in folder.split(os.sep))
    return 0o600 if ours and not name.startswith(SHARED) else 0o666


def make_folder(folder: str) -> None:
    """Make one folder, open to others unless it is ours. Raises as ``os.mkdir``."""
    os.mkdir(folder, 0o700 if os.path.basename(folder).startswith(OURS) else 0o777)


def make_folders(folder: str) -> None:
    """Make a folder and those above it, where they are not there."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above != folder:
            make_folders(above)
        with suppress(FileExistsError):
            make_folder(folder)
