"""Resumption of an interrupted pass over slabs: how arrays were cut, and the options of the pass.

begin     regions, axis and heights; kernel, sources, depth, …    ─► journal
resume    journal ─► the same slabs, without those recorded as done; or, with other memory or ranks, other
                     slabs, without the stored chunks
          refused: a pass with other options; the kernel's code is not compared
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oocarrays.errors import JournalError
from oocarrays.graphs.run.recovery import CHUNKS_READ, TRUSTED, Interrupted, Recovered, trust_of
from oocarrays.graphs.slabs.program import SlabPass
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.bands import longest
from oocarrays.plan.slabs.plan import CUT
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec, is_scratch
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.journal.sources import is_of, metadata_digest

NOT_LOOKED_AT = "what local array files on workers' own disks hold is not looked at: the journal is trusted"
"""Notice of a run that resumes work on workers' own disks."""
CHANGE = "oocarrays.graphs.slabs.gathering.change"
"""Name of the default residual in journals, as versions since 0.6.0 write it."""


def recorded_slabs(left: Interrupted) -> Document:
    """Return the edges of regions, the axis and the heights of the recorded slabs, as a plan has them."""
    return {name: value for name, value in recorded_cut(left).items() if name in CUT}


def recorded_cut(left: Interrupted) -> Document:
    """Return the cut in a journal as a plan has it: versions before 0.6 kept only the height along the axis."""
    kept = left.content["cut"]
    cut = dict(kept) | {"edges": tuple(tuple(each) for each in kept["edges"])}
    height = cut.pop("height", None)
    if height is not None:
        cut["heights"] = [height if a == cut["axis"] else longest(each) for a, each in enumerate(cut["edges"])]
    return cut | {"heights": tuple(cut["heights"])}


def is_on_own_disks(left: Interrupted) -> bool:
    """Return whether local array files on workers' own disks were written, which are neither checked nor cut anew."""
    return any(left.content["asked"].get("folders") or ())


def recover_pass(left: Interrupted, program: SlabPass) -> Recovered:
    """Return the recovered state for a run that resumes a pass; on own disks, all recorded parts."""
    if is_on_own_disks(left):
        return left.recovered(done=frozenset(left.stored), kept=left.kept).told(NOT_LOOKED_AT)
    plan, slabs = program.plan, recorded_slabs(left)
    before = None if plan.cut == slabs else replace(program, plan=replace(plan, **slabs))
    return left.recover(program, existing(left, program), before=before)


def existing(left: Interrupted, program: SlabPass) -> dict[str, StoreLike]:
    """Return the files of a pass that its run has made, and perhaps closed, by name; none on workers' own disks."""

    def is_there(rank: int, place: Any) -> bool:
        if not program.is_last:
            return is_scratch(place)
        return unfinished_run(place) == left.id or ((rank,) in left.stored and is_finished(place))

    located = {} if is_on_own_disks(left) else program.located
    return {name: place for name, (rank, place) in located.items() if is_there(rank, place)}


def asked_of(
    kernel: Callable[..., Any], sources: Sequence[ArrayFile], targets: Iterable[TargetSpec], **options: Any
) -> Document:
    """Return the options that a resumed pass must repeat, as plain JSON values."""
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
    plain: Document = json.loads(json.dumps(asked, default=repr))
    return plain


def kernel_name(kernel: Any) -> str:
    """Return the qualified name of a kernel, or of the function of a partial one."""
    named = getattr(kernel, "func", kernel)
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}.{named.__qualname__}"


def interrupted_pass(
    target: StoreLike,
    asked: Mapping[str, Any],
    by: str = "map_slabs",
    *,
    sources: Sequence[ArrayFile] = (),
    resume: Any = True,
) -> Interrupted:
    """Return the journal of an interrupted pass at a target; raise if its options differ."""
    left = Interrupted.at(target, trust_of(resume) or TRUSTED)
    content, trust = left.content, left.trust
    if content.get("pass") != by:
        raise JournalError(f"{target} was not being written by {by}: it cannot continue that run")
    for name, wanted in asked.items():
        was = content["asked"].get(name)
        moved = trust.moved and bool(content.get(CHUNKS_READ))
        if was != wanted and not (name == "source" and sources and _are_of(sources, wanted, was, moved=moved)):
            told = "another source" if name == "source" else f"{name}={was}, not {wanted}"
            raise JournalError(
                f"{target} was begun with {told}: pass the same arguments to continue, or overwrite=True "
                "(--overwrite) to start over"
            )
    return left.recorded([file.zarr for file in sources] or None, files=True)


def _are_of(sources: Sequence[ArrayFile], wanted: Any, kept: Any, *, moved: bool) -> bool:
    """Return whether the sources match digests kept by a version before 0.6, or are local array files elsewhere."""
    if all(isinstance(each, list) for each in wanted):
        return moved and [each[1:] for each in wanted] == [each[1:] for each in kept]
    return len(sources) == len(kept) and all(map(is_of, sources, kept))
