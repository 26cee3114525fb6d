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

from oocarrays.graphs.looking import TRUSTED, Found, Part, Stored, Trust, at_least, check_sources, look
from oocarrays.graphs.resume import is_of, journal_of, metadata_digest
from oocarrays.graphs.slab_tasks import SlabTarget

from oocarrays.errors import InputError, JournalError
from oocarrays.mapping.section import Section
from oocarrays.plan.slab_geometry import Slab
from oocarrays.plan.slabs import SlabPlan
from oocarrays.storage.array_file import ArrayFile, StoreLike, describe, name_of, open_array, unfinished_run

CUT = ("edges", "axis", "height")
"""Fields of a plan that say which slab is which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a pass that stopped has left."""

    id: str
    """Of the run."""
    cut: dict[str, Any]
    """Edges of regions, axis and height, as `plan_slabs` takes them."""
    stored: Mapping[tuple[int, ...], Stored | None]
    """What is recorded as done, and what it has stored."""
    trust: Trust
    """How far that is trusted."""
    notices: tuple[str, ...]
    """What a person is to know of the sources."""

    @property
    def parts(self) -> frozenset[tuple[int, ...]]:
        """What is recorded as done."""
        return frozenset(self.stored)

    def begun(self, plan: SlabPlan, targets: Sequence[SlabTarget]) -> dict[str, Any]:
        """What a run is given that goes on with it.

        Raises
        ------
        JournalError
            Where something is recorded that the plan has not.
        """
        done = self.done(plan, targets[0].store)
        found = self._looked(plan, [target.store for target in targets])
        notices = (*self.notices, *([found.notice] if found.lost else []))
        kept = [slab for slab in done if slab not in found.lost]
        return {
            "id": self.id, "done": kept, "lost": found.lost, "odd": found.odd, "trust": self.trust, "notices": notices
        }  # fmt: skip

    def _looked(self, plan: SlabPlan, stores: Sequence[StoreLike]) -> Found:
        """What of all that is recorded is not as it was stored."""

        def expected(part: Part) -> tuple[StoreLike, dict[str, Any]]:
            file = describe(open_array(stores[0], unfinished=True), written=True)
            return stores[0], at_least(file, file.stored.grid.indices(Section.of(plan.core(Slab(*part)).axes)))

        places = {str(number): store for number, store in enumerate(stores) if unfinished_run(store) == self.id}
        return look(self.stored, lambda _, name: places.get(name), expected, verify=self.trust.verify)

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
        "source": [metadata_digest(file) for file in sources],
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


def left_by(
    target: StoreLike,
    asked: Mapping[str, Any],
    by: str = "map_slabs",
    *,
    sources: Sequence[ArrayFile] = (),
    resume: Any = True,
) -> Left:
    """What a pass that stopped has left at a target.

    Parameters
    ----------
    sources : sequence of ArrayFile
        What it reads, as far as everybody sees it.
    resume : bool or str
        How far what is left is trusted: as `trust_of` takes it.

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
        if was != wanted and not (name == "source" and sources and _are_of(sources, was)):
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(f"{target} was begun with {told}: to go on, ask for the same; else ask for overwrite")
    trust, cut = trust_of(resume) or TRUSTED, content["cut"]
    notices = check_sources([file.zarr for file in sources], content, target, trust) if sources else ()
    edges = tuple(tuple(each) for each in cut["edges"])
    return Left(
        id=id, cut=cut | {"edges": edges}, stored=journal.stored(), trust=trust, notices=tuple(notices)
    )  # fmt: skip


def _are_of(sources: Sequence[ArrayFile], digests: Any) -> bool:
    """Whether sources are those of which a version before 0.6 kept digests, where they were then."""
    return len(sources) == len(digests) and all(map(is_of, sources, digests))


def trust_of(resume: Any) -> Trust | None:
    """How far a pass trusts what is left, as its option ``resume`` says it; None where it is to go on with nothing.

    >>> trust_of(True) == TRUSTED, trust_of("verify"), trust_of(False)
    (True, Trust(as_is=False, again='', verify=True), None)

    Raises
    ------
    InputError
        Where it is no bool, ``"verify"`` or ``"as-is"``.
    """
    if not isinstance(resume, bool) and resume not in ("verify", "as-is"):
        raise InputError(f"resume={resume!r} is not True, False, 'verify' or 'as-is'")
    return Trust(verify=resume == "verify", as_is=resume == "as-is") if resume else None
