"""How a pass over slabs reads a part of a source."""

from __future__ import annotations

import math

from oocarrays.mapping.grid import Stored
from oocarrays.mapping.selection import Axes
from oocarrays.plan.machine import Costs
from oocarrays.plan.sections.batches import BUFFER_BYTES, STORE_BUFFER_BYTES, gap_bytes
from oocarrays.plan.sections.read import SectionPlan

REQUESTS = 16
"""Requests under way at one time to a store that is not on this machine."""


def reading(stored: Stored, axes: Axes, *, packed: bool = False) -> SectionPlan:
    """How a part of a source is read."""
    gap, most = gap_bytes("auto", stored, Costs(), REQUESTS), buffer_bytes(stored, math.prod(map(len, axes)))
    return SectionPlan(stored=stored, axes=axes, gap=gap, buffer_bytes=most, packed=packed and stored.local)


def buffer_bytes(stored: Stored, elements: int) -> int:
    """Bytes of a buffer for reading so many elements: it holds no more than they are."""
    most = BUFFER_BYTES if stored.local else STORE_BUFFER_BYTES
    return min(most, max(elements, 1) * stored.itemsize)
