"""Multicast: send a section held by one or several ranks to all ranks, along a binomial tree.

    gather    ranks with a piece of the section send it to the root

    step 1    0 → 1                             root 0 of 8 ranks: every holder sends in each step, so 2ᵏ ranks have
    step 2    0 → 2   1 → 3                     it after k steps, and all after ⌈lg P⌉
    step 3    0 → 4   1 → 5   2 → 6   3 → 7

For other roots, ranks are numbered from the root. Thakur 1995, section 5.4 (PASSION_oc_multicast).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import LocalPart, shared
from oocarrays.mapping.selection import Axes, Selection, lengths
from oocarrays.plan.plan import Facts

Piece = tuple[Axes, Axes]
"""Piece of a section at one rank: its indices in the section, and in the rank's part."""


@dataclass(frozen=True, kw_only=True)
class MulticastPlan:
    """Plan of a multicast: pieces of the section, and senders and receivers."""

    layout: Layout
    selection: Selection
    root: int
    """Rank that first holds the whole section."""
    itemsize: int

    @property
    def ranks(self) -> int:
        return self.layout.ranks

    @cached_property
    def holders(self) -> tuple[int, ...]:
        return tuple(rank for rank in range(self.ranks) if self.size(rank))

    def piece(self, rank: int) -> Piece:
        own = LocalPart.of(self.layout, rank, (0,) * len(self.layout.shape)).own
        along = [shared(wanted, held) for wanted, held in zip(self.selection.axes, own, strict=True)]
        return tuple(among for among, _ in along), tuple(there for _, there in along)

    def size(self, rank: int) -> int:
        return math.prod(lengths(self.piece(rank)[0]))

    def shape(self, rank: int) -> tuple[int, ...]:
        return self.selection.shape

    def parent(self, rank: int) -> int | None:
        """Return the rank that sends to ``rank``; None for the root."""
        place = (rank - self.root) % self.ranks
        return (self.root + (place ^ _highest_bit(place))) % self.ranks if place else None

    def before(self, rank: int) -> int | None:
        """Return the rank that the parent sends to just before this one, or None; a rank sends one message per step."""
        place = (rank - self.root) % self.ranks
        turn, parent = _highest_bit(place), place ^ _highest_bit(place)
        return (self.root + (parent | turn >> 1)) % self.ranks if turn >> 1 > parent else None

    @property
    def steps(self) -> int:
        """Number of consecutive messages from the root to the last rank."""
        return (self.ranks - 1).bit_length()

    @property
    def nbytes(self) -> int:
        return math.prod(lengths(self.selection.axes)) * self.itemsize

    @property
    def messages(self) -> int:
        return len(set(self.holders) - {self.root}) + (self.ranks - 1)

    @property
    def sent_bytes(self) -> int:
        gathered = sum(self.size(rank) for rank in self.holders if rank != self.root) * self.itemsize
        return gathered + (self.ranks - 1) * self.selection.size * self.itemsize

    @property
    def peak_bytes(self) -> int:
        """Maximum bytes of one rank beside its part: the section, and its pieces while they are gathered."""
        return 2 * max(self.nbytes, self.selection.size * self.itemsize)

    @property
    def order(self) -> str:
        return f"a tree of {self.steps} steps"

    @property
    def title(self) -> str:
        return f"{' × '.join(map(str, self.selection.shape)) or '1'} elements of {self.layout} to all"

    def facts(self) -> Facts:
        held = ", ".join(map(str, self.holders[:8])) + (", …" if len(self.holders) > 8 else "")
        return [
            ("section", (self.title,)),
            ("held by", (f"rank{'s' * (len(self.holders) > 1)} {held or 'none'}",)),
            ("root", (self.root,)),
        ]


def _highest_bit(place: int) -> int:
    return 1 << place.bit_length() >> 1


def plan_multicast(layout: Layout, selection: Selection, root: int | None, itemsize: int) -> MulticastPlan:
    """Plan a multicast; by default the root is the rank that holds most, the lowest among equals."""
    plan = MulticastPlan(layout=layout, selection=selection, root=root or 0, itemsize=itemsize)
    layout.coordinates(plan.root)
    if root is None:
        return replace(plan, root=int(np.argmax([*map(plan.size, range(plan.ranks))])))
    return plan
