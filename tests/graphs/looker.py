"""A process that looks at a room of another as long as it lives, for the server of `dying`."""

from __future__ import annotations

import numpy as np

from oocarrays.graphs.cluster import shared

kept: list[np.ndarray] = []
"""What is looked at until the process ends."""


def look(pid: int, file: int, owner: str, use: str, start: int, stop: int) -> int:
    """Add up what is in the room, and try to change it."""
    there = shared.RoomAddress(pid, file, bytes.fromhex(owner), bytes.fromhex(use))
    kept.append(shared.look(there, start, stop))
    before = int(kept[0].sum())
    kept[0][:] = 0
    return before
