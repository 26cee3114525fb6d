"""Destination of a rechunk, and the parts that need not be repeated."""

from __future__ import annotations

from dataclasses import dataclass

from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.plan.rechunk.ways import STAGES
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.stores.remote import RemoteStore, place_below

MOST_PASSES = STAGES.stop - 1
"""Maximum number of passes of a plan."""
Part = tuple[int, ...]
"""Piece of work recorded when it is done: pass, partition or batch, rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(TargetSpec):
    """Destination of a rechunk: the target with its settings, its scratch and its use of the system's cache."""

    scratch: str | RemoteStore
    """Folder, or prefix in a store, for scratch arrays."""
    past_cache_above: int
    """Size in bytes above which a target is written past the system's cache."""


def usable_parts(plan: RechunkPlan, parts: set[Part], scratch: str | RemoteStore) -> set[Part]:
    """Return the parts that need not be repeated; parts in missing scratch must be, unless a later pass is complete."""
    every = [set(step.parts(number)) for number, step in enumerate(plan.passes)]
    usable: set[Part] = set()
    for number, mine in reversed(list(enumerate(every))):
        if number == len(every) - 1 or is_scratch(place_below(scratch, str(number))):
            usable |= mine & parts
        if mine <= usable:
            return usable.union(*every[:number])
    return usable
