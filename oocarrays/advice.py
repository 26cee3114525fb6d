"""Advice on stored arrays: best chunks of each, best method of each block, and a job that rechunks them.

trace.advise(memory="1GiB")  ─►  Advice  ─►  print, draw, a notebook's table
                                         ─►  advice.apply(target).run()        rechunks the arrays
                                         ─►  with advice: read_sections(…)     reads by the advice
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextvars import Token
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import zarr

from oocarrays.errors import InputError, NotFoundError, plural
from oocarrays.graphs.tracing.parts import as_ranges
from oocarrays.graphs.tracing.seen import dataset_of
from oocarrays.jobs.rechunking import rechunk
from oocarrays.mapping.given import flag, listed, whole
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.selection import Axes
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.options.chunks import ADVISING
from oocarrays.options.given import Target
from oocarrays.plan.advice.access import Dataset
from oocarrays.plan.advice.patterns import Fold, Pattern
from oocarrays.plan.advice.price import use_of
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.advice.verdict import BlockVerdict, Verdict, verdicts
from oocarrays.show.advice import html, text
from oocarrays.show.pictures import load_picture
from oocarrays.storage.files import array_file
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.files.places import location, name_of

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure

    from oocarrays.jobs.stored import GroupJob, RechunkJob
    from oocarrays.storage.files.places import StoreLike


class Advice:
    """Advice on each array of a trace: prints as a table; in a ``with`` statement, `read_sections` follows it."""

    def __init__(self, trace: Trace, found: Sequence[Verdict]) -> None:
        self.trace = trace
        """Trace behind the advice."""
        self.arrays = tuple(found)
        """Verdicts on each array and each of its producers: plain data."""
        self._tokens: list[Token[Any]] = []
        self._targets: dict[str, str] = {}

    def method(self, block: str, array: str) -> str:
        """Return the advised method for a block to read an array, as `read_sections` takes it.

        Raises
        ------
        NotFoundError
            If the trace has no such array, or no such block that reads it.
        """
        name = self.trace.dataset(array).name
        found = [each for verdict in self.arrays if verdict.array == name for each in verdict.blocks]
        methods = [each.method for each in found if each.block == block and not each.writes]
        if not methods:
            readers = ", ".join(dict.fromkeys(each.block for each in found if not each.writes)) or "none"
            raise NotFoundError(f"no block {block!r} reads {array!r} in this trace; those that do: {readers}")
        return methods[0]

    def apply(self, target: Target | StoreLike, *, array: str | None = None, **keywords: Any) -> RechunkJob | GroupJob:
        """Plan to rewrite arrays in their advised chunks. Reads no data.

        Parameters
        ----------
        target : path, URL, Zarr store or Target
            Location of the result; for several arrays of a group, a copy of that group with all its members.
        array : str, optional
            The array to rewrite; by default all existing ones with better chunks, which must be of one group.
        **keywords
            Other options of `rechunk`: ``memory``, ``overwrite``, ``scheduler`` and so on.

        Returns
        -------
        RechunkJob or GroupJob
            It can be resumed, as every rechunk.

        Raises
        ------
        InputError
            If nothing is to be rewritten, arrays are of several groups, or one is gone or has changed.
        """
        wanted, stored = self._to_rewrite(array), target if isinstance(target, Target) else Target(target)
        for each in wanted:
            _check_unchanged(self.trace.dataset(each.array))
        if len(wanted) == 1:
            (one,) = wanted
            name = one.array
            self._targets[_place(stored.store)] = name
            job: RechunkJob = rechunk(name, replace(stored, shards=self._shards(one)), chunks=one.chunks, **keywords)
            return job
        group = os.path.commonpath([each.array for each in wanted])
        if not holds_group(group) or any(self._shards(each) for each in wanted):
            names = ", ".join(each.array for each in wanted)
            raise InputError(f"{len(wanted)} arrays should have other chunks: pass array=, one of {names}")
        chunks = {os.path.relpath(each.array, group): each.chunks for each in wanted}
        self._targets |= {f"{_place(stored.store)}/{os.path.relpath(each.array, group)}": each.array for each in wanted}
        return rechunk(group, target, chunks=chunks, **keywords)  # type: ignore[call-overload]

    def _to_rewrite(self, array: str | None) -> list[Verdict]:
        name = None if array is None else self.trace.dataset(array).name
        alike = (lambda each: each.producer is None) if name is None else (lambda each: each.array == name)
        found = [each for each in self.arrays if alike(each) and not each.kept]
        if not found:
            what = "no array" if array is None else repr(array)
            raise InputError(f"{what} should be rewritten: keep what is there as it is")
        return found[:1] if array is not None else found

    def _shards(self, each: Verdict) -> tuple[int, ...] | None:
        """Return the shards for the advised chunks: as long as today's, in whole chunks."""
        shards = self.trace.dataset(each.array).shards
        if shards is None:
            return None
        return tuple(ceil_div(s, c) * c for s, c in zip(shards, each.chunks, strict=True))

    def __enter__(self) -> Advice:
        self._tokens.append(ADVISING.set(self._method_for))
        return self

    def __exit__(self, *failure: object) -> None:
        ADVISING.reset(self._tokens.pop())

    def _method_for(self, array: zarr.Array, requests: Sequence[Axes]) -> str:
        """Return the advised method for these sections of an array; "auto" without advice."""
        place = _place(location(array))
        name = self._targets.get(place, place)
        blocks = [
            (verdict, block)
            for verdict in self.arrays
            if _place(verdict.array) == _place(name)
            for block in verdict.blocks
            if not block.writes
        ]
        methods = {self._found(verdict, block, array.chunks) for verdict, block in blocks}
        if len(methods) > 1:
            fold = Fold(array.ndim)
            for axes in requests:
                fold.add_product(map(as_ranges, axes))
            wanted = _kind(fold.patterns())
            methods = {
                self._found(verdict, block, array.chunks)
                for verdict, block in blocks
                if any(_kind(use.patterns) == wanted for use in block.uses)
            }
        return methods.pop() if len(methods) == 1 else "auto"

    @staticmethod
    def _found(verdict: Verdict, block: BlockVerdict, chunks: tuple[int, ...]) -> str:
        """Return the method for the present chunks of the array."""
        if chunks == block.chunks:
            return block.method
        return block.today_method if chunks == verdict.stored.grid.chunks else "auto"

    def draw(self) -> Figure:
        """Return a figure of blocks, arrays, and the flows between them, with their seconds today and as advised.

        Raises
        ------
        UnsupportedError
            If matplotlib is not installed.
        """
        return load_picture("advice").draw(self.arrays)

    def __str__(self) -> str:
        return text(self.arrays)

    def __repr__(self) -> str:
        changed = sum(not each.kept for each in self.arrays)
        arrays = plural(len(self.arrays), "array")
        return f"<oocarrays.Advice on {arrays}, {changed} of which should have other chunks>\n{self}"

    def _repr_html_(self) -> str:
        return html(self.arrays)


def advise(
    trace: Trace,
    *,
    memory: int | float | str | None = None,
    ranks: int | None = None,
    keep: str | Iterable[str] = (),
    weights: Mapping[tuple[str | None, str], float] | None = None,
    copies: bool = True,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> Advice:
    """Advise which chunks the arrays of a trace should have, and how its blocks should read them."""
    if not trace.accesses:
        raise InputError("this trace reads and writes no stored array")
    kept = {trace.dataset(name).name for name in ([keep] if isinstance(keep, str) else listed(keep, "keep"))}
    ranks = None if ranks is None else whole(ranks, "ranks", 1)
    resources = resources_of(cluster_of(scheduler, workers), memory)
    used = {access.dataset for access in trace.accesses}
    datasets = [each for each in trace.datasets if each.name in used]
    gone = {each.name for each in datasets if _is_gone(each)}
    arrays = {each.name: each for each in datasets}
    uses = [use_of(access, arrays[access.dataset], ranks) for access in trace.accesses]
    how: Any = {"weights": weights, "fixed": kept.__contains__, "copies": flag(copies, "copies")}
    found = verdicts({name: each.stored for name, each in arrays.items()}, uses, resources, **how)
    why = "it is not there any more, or not on this machine: this is about what it was when it was traced"
    return Advice(trace, [replace(v, against=(*v.against, why)) if v.array in gone else v for v in found])


def _is_gone(known: Dataset) -> bool:
    """Return whether a traced local array no longer exists; raise if it has changed."""
    if known.planned or not known.stored.local or not os.path.isabs(known.name):
        return False
    try:
        _check_unchanged(known)
    except NotFoundError:
        return True
    return False


def _check_unchanged(known: Dataset) -> None:
    there = dataset_of(array_file.open_array(known.name))
    was, now = ((each.dtype, each.shape, each.chunks) for each in (known, there))
    if was != now:
        was_said, now_said = (f"{dtype} of shape {shape} in chunks {chunks}" for dtype, shape, chunks in (was, now))
        raise InputError(f"{known.name} is {now_said} and was {was_said} when it was traced: record a new trace")


def _kind(patterns: Sequence[Pattern]) -> list[Any]:
    """Return the kind of some patterns, wherever they lie."""
    return sorted((each.count, each.elements, each.largest) for each in patterns)


def _place(name: Any) -> str:
    """Return a canonical name of a location."""
    found = name_of(name) if not isinstance(name, str) else name
    return found if "://" in found else os.path.abspath(os.path.expanduser(found))
