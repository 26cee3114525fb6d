"""Where a rechunk writes, and which of its parts need not be done again."""

from __future__ import annotations

from dataclasses import dataclass

from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.plan.rechunk.ways import STAGES
from oocarrays.storage.files.creating import is_scratch
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.stores.remote import RemoteStore, place_below

MOST_PASSES = STAGES.stop - 1
"""Of any plan."""
Part = tuple[int, ...]
"""A piece of work that is recorded when it is done: pass, partition or batch, rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination(TargetSpec):
    """Where a rechunk writes, how the array there is made, and what is beside it."""

    scratch: str | RemoteStore
    """Folder, or prefix of a store, in which scratch arrays are made."""
    past_cache_above: int
    """Bytes: a target of more is written past the system's cache."""


def usable_parts(plan: RechunkPlan, parts: set[Part], scratch: str | RemoteStore) -> set[Part]:
    """Return what need not be done again: what was written to scratch that is gone must, unless it was all used."""
    every = [set(step.parts(number)) for number, step in enumerate(plan.passes)]
    usable: set[Part] = set()
    for number, mine in reversed(list(enumerate(every))):
        if number == len(every) - 1 or is_scratch(place_below(scratch, str(number))):
            usable |= mine & parts
        if mine <= usable:
            return usable.union(*every[:number])
    return usable
