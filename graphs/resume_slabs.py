"""Going on with a pass over slabs that stopped: how arrays were cut, and what was asked for.

begin     regions, axis and height; kernel, sources, depth, …    ─► journal
resume    journal ─► the same slabs, less those that are recorded as done
          refused: a pass that was asked for otherwise; the code of the kernel is its writer's word
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oocarrays.graphs.resume import fingerprint, journal_of
from oocarrays.graphs.slab_tasks import SlabTarget

from oocarrays.errors import JournalError
from oocarrays.plan.slabs import Slab, SlabPlan
from oocarrays.storage.array_file import ArrayFile, StoreLike, name_of

CUT = ("edges", "axis", "height")
"""Fields of a plan that say which slab is which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a pass that stopped has left."""

    id: str
    """Of the run."""
    cut: dict[str, Any]
    """Edges of regions, axis and height, as `plan_slabs` takes them."""
    parts: frozenset[tuple[int, ...]]
    """What is recorded as done."""

    def done(self, plan: SlabPlan, target: StoreLike) -> list[Slab]:
        """The slabs that are done.

        Raises
        ------
        JournalError
            Where something is recorded that the plan has not.
        """
        strange = self.parts.difference(plan.all_slabs())
        if strange:
            raise JournalError(f"the journal in {target} has slab {min(strange)}, which its plan has not")
        return [Slab(*part) for part in self.parts]


def asked_of(
    kernel: Callable[..., Any], sources: Sequence[ArrayFile], targets: Iterable[SlabTarget], **options: Any
) -> dict[str, Any]:
    """What was asked for, as it must be again: plain values that JSON keeps."""
    made = [(each.settings["dtype"].str, list(each.settings["chunks"]), name_of(each.store)) for each in targets]
    dtypes, chunks, places = zip(*made, strict=True)
    asked = {
        "kernel": kernel_name(kernel),
        "source": [fingerprint(file) for file in sources],
        "target": places,
        "dtype": dtypes,
        "chunks": chunks,
        **options,
    }
    plain: dict[str, Any] = json.loads(json.dumps(asked, default=repr))
    return plain


def kernel_name(kernel: Any) -> str:
    """The name of a kernel; of one whose arguments are bound, that of its function.

    >>> from functools import partial
    >>> kernel_name(json.dumps), kernel_name(partial(json.dumps, indent=1)), kernel_name(json.JSONEncoder())
    ('json.dumps', 'json.dumps', 'json.encoder.JSONEncoder')
    """
    named = getattr(kernel, "func", kernel)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def slab_content(plan: SlabPlan, asked: Mapping[str, Any], by: str = "map_slabs") -> dict[str, Any]:
    """What the journal of a pass keeps.

    Parameters
    ----------
    by : str
        The function that was called.
    """
    return {"pass": by, "asked": dict(asked), "cut": {name: getattr(plan, name) for name in CUT}}


def left_by(target: StoreLike, asked: Mapping[str, Any], by: str = "map_slabs") -> Left:
    """What a pass that stopped has left at a target.

    Raises
    ------
    NotFoundError
        Where nothing unfinished is there, or no journal.
    JournalError
        Where it was asked for otherwise: it names the first difference.
    """
    journal, id, content = journal_of(target, "array")
    if content.get("pass") != by:
        raise JournalError(f"{target} was not being written by {by}: it cannot go on with that")
    for name, wanted in asked.items():
        was = content["asked"].get(name)
        if was != wanted:
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(f"{target} was begun with {told}: to go on, ask for the same; else ask for overwrite")
    cut = content["cut"]
    edges = tuple(tuple(each) for each in cut["edges"])
    return Left(id=id, cut=cut | {"edges": edges}, parts=frozenset(journal.parts()))
