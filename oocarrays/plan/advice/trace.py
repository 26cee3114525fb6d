"""What blocks of a program read and write of stored arrays: plain data, from a graph, a run, or words.

    block "climatology"   reads    era5.zarr/t2m    12 × (62, 721, 1440)     weight 1
    block "series"        reads    era5.zarr/t2m    64 × (8760, 1, 1)        weight 40
    block "means"         writes   means.zarr       1 × (12, 721, 1440)      weight 1

A block is what is run at one time: a collection that is computed, a ``with`` block, a program. Memik, Kandemir and
Choudhary 2000, section 3.1: access patterns with their counts.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeVar

from oocarrays.errors import InputError, JournalError, LayoutError, NotFoundError, SelectionError
from oocarrays.mapping.given import listed, whole
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.plan import shown
from oocarrays.plan.advice.access import BY, Access, Dataset, planned_dataset
from oocarrays.plan.advice.patterns import Fold, Pattern, folded
from oocarrays.plan.documents import Document, checked_path, save_text
from oocarrays.plan.rechunk.as_json import read_as, written


def patterns_of(sections: Any, shape: tuple[int, ...], ranks: int | None) -> tuple[tuple[Pattern, ...], int | None]:
    """Return the patterns that are meant, and how many ranks have them together."""
    if isinstance(sections, Section):
        sections = [sections]
    if isinstance(sections, Sequence) and sections and all(isinstance(each, Section) for each in sections):
        for each in sections:
            if len(each.lower) != len(shape):
                raise SelectionError(f"{each} has {len(each.lower)} axes; the array has {len(shape)}: shape {shape}")
        return folded(sections, len(shape)), ranks
    if isinstance(sections, Layout) and sections.shape != shape:
        raise LayoutError(f"the layout {sections} is of shape {sections.shape}; the array has shape {shape}")
    layout = sections if isinstance(sections, Layout) else Layout.of(shape, sections, ranks=ranks)
    return layout_patterns(layout), layout.ranks


def layout_patterns(layout: Layout) -> tuple[Pattern, ...]:
    along = [[axis.sections(c) for c in range(n)] for axis, n in zip(layout.axes, layout.grid, strict=True)]
    fold = Fold(len(layout.shape))
    if all(len(each) == 1 for axis in along for each in axis):
        fold.add_all([Pattern.of(map(chain.from_iterable, along))])
    else:
        for parts in product(*along):
            for section in product(*parts):
                fold.add(section)
    return fold.patterns()


FORMAT = "oocarrays trace"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trace:
    """Trace of what blocks read and write of stored arrays.

    Traces are added with ``+``: the weights of what is the same in both are added.

    >>> t = Trace().writes("made.zarr", "(block, *)", shape=(8, 6), dtype="f4", chunks=(2, 6), ranks=4, block="make")
    >>> t = t.reads("made.zarr", "(*, block)", ranks=2, block="sum", weight=10)
    >>> print(t)
    block  does    array      sections  of each  ranks  weight
    make   writes  made.zarr         4    2 × 6      4       1
    sum    reads   made.zarr         2    8 × 3      2      10
    >>> (t + t).accesses[1].weight
    20.0
    """

    datasets: tuple[Dataset, ...] = ()
    """Stored arrays, by name."""
    accesses: tuple[Access, ...] = ()
    """What each block reads and writes of them, in order."""

    @classmethod
    def of(cls, datasets: Iterable[Dataset], accesses: Iterable[Access]) -> Trace:
        """Return a trace, checked.

        Raises
        ------
        InputError
            For an array that is not the same in all that was seen of it, sections beyond an array, and weights that are
            negative or not finite.
        """
        known: dict[str, Dataset] = {}
        for each in _each(datasets, Dataset, "datasets"):
            _check_dataset(each)
            known[each.name] = _same(known.get(each.name, each), each)
        together: dict[tuple[Any, ...], Access] = {}
        for access in _each(accesses, Access, "accesses"):
            _check(access, known)
            before = together.get(access.kind)
            together[access.kind] = _added(before, access) if before else replace(access, weight=float(access.weight))
        return cls(datasets=tuple(known[name] for name in sorted(known)), accesses=tuple(together.values()))

    def __add__(self, other: Any) -> Trace:
        if not isinstance(other, Trace):
            return NotImplemented
        return Trace.of((*self.datasets, *other.datasets), (*self.accesses, *other.accesses))

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the blocks, in order."""
        return tuple(dict.fromkeys(access.block for access in self.accesses))

    def dataset(self, name: str) -> Dataset:
        """Return the array of some name: as the trace has it, or a path to it from the working directory.

        Raises
        ------
        NotFoundError
            Where there is none; it names those that there are.
        """
        known = {each.name: each for each in self.datasets}
        found = known.get(name) or known.get(os.path.realpath(name))
        if found is None:
            raise NotFoundError(f"{name!r} is no array of this trace; it has: {', '.join(known) or 'none'}")
        return found

    def reads(self, array: Any, sections: Any, **how: Any) -> Trace:
        """Return the same trace with a block that reads an array, said in words.

        Parameters
        ----------
        array : str, path, array or Dataset
            What is read: a name in this trace, or what `oocarrays.open_array` opens; else give ``shape=``,
            ``dtype=`` and ``chunks=`` of what is not there yet.
        sections : str, Layout, or sequence of Section
            The part of each rank as ``"(block, *)"``, or the sections that are taken, one a task.
        ranks : int, optional
            Ranks in all.
        weight : float, default 1
            Times that the block is run.
        block : str, optional
            Its name; by default ``"block 1"`` and so on. One block may read and write several arrays.
        by : {"zarr", "oocarrays"}, default "oocarrays"
            Who reads.
        shape, dtype, chunks
            Of an array that is not there yet.

        Raises
        ------
        InputError
            Where words, array, ranks and weight do not fit each other.

        Examples
        --------
        >>> t = Trace().reads("a.zarr", "(*, cyclic)", ranks=3, shape=(4, 6), dtype="f8", chunks=(4, 1), weight=2)
        >>> list(t.accesses[0].sections())[1]
        Section(lower=(0, 1), upper=(4, 5), stride=(1, 3))
        """
        return self._said(array, sections, writes=False, **how)

    def writes(self, array: Any, sections: Any, **how: Any) -> Trace:
        """Return the same trace with a block that writes an array, said in words, as `reads` has them.

        Raises
        ------
        InputError
            Where words, array, ranks and weight do not fit each other.
        """
        return self._said(array, sections, writes=True, **how)

    def _said(
        self,
        array: Any,
        sections: Any,
        *,
        writes: bool,
        ranks: int | None = None,
        weight: float = 1.0,
        block: str | None = None,
        by: str = "oocarrays",
        **about: Any,
    ) -> Trace:
        dataset = self._found(array, **about)
        ranks = None if ranks is None else whole(ranks, "ranks", 1)
        patterns, ranks = patterns_of(sections, dataset.shape, ranks)
        named = block or f"block {len(self.blocks) + 1}"
        access = Access(
            block=named, dataset=dataset.name, patterns=patterns, writes=writes, weight=weight, ranks=ranks, by=by
        )
        return Trace.of((*self.datasets, dataset), (*self.accesses, access))

    def _found(self, array: Any, **about: Any) -> Dataset:
        """Return what is read or written: of this trace, as told, or as it is stored."""
        if isinstance(array, Dataset):
            return array
        if isinstance(array, str | os.PathLike):
            named = next((each for each in self.datasets if each.name == os.fspath(array)), None)
            told = planned_dataset(os.fspath(array), **about) if about else None
            if named is not None:
                return _same(named, told) and named if told else named
            if told:
                return told
        found: Dataset = shown.by("dataset")(array)
        return next((each for each in self.datasets if each.name == found.name), found)

    def advise(self, **how: Any) -> Any:
        """Advise which chunks each array should have, and how each block should read it.

        Parameters
        ----------
        memory : int, float or str
            Bytes that each process may hold while it reads or writes: ``"1GiB"``; by default what is free.
        ranks : int, optional
            Ranks that may read for each other, where the trace says nothing of ranks: of programs that can be changed
            to read by `oocarrays.read_sections`. By default their tasks read each for itself.
        keep : str or sequence of str
            Arrays that stay as they are.
        weights : mapping
            How often one block runs after another: ``{("make", "plot"): 10}``. By default a block that reads what
            several make follows each of them equally often.
        copies : bool, default True
            Whether a second copy of an array of 64 MiB and more may be advised, in other chunks; with False one layout.
        scheduler, workers
            Where it will run, as in `oocarrays.rechunk`.

        Returns
        -------
        Advice
            A table; ``.draw()``, ``.method(block, array)``, ``.apply(target)``; `read_sections` goes by it in a
            ``with`` statement.

        Raises
        ------
        InputError
            Where nothing that is stored is in the trace, an array has changed since, blocks make each other's input in
            a cycle, weights are negative or not finite, or ``keep`` names no array.
        BudgetError
            Where some array fits in memory in no chunks; it names the least.
        """
        return shown.by("advise")(self, **how)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, which `load` and ``oocarrays advise`` read.

        Raises
        ------
        InputError
            Where nothing can be written there.
        """
        save_text(path, json.dumps(self.as_json(), ensure_ascii=False), "the trace")

    def as_json(self) -> Document:
        """Return the trace as dicts, lists and plain values."""
        return {"format": FORMAT, "version": VERSION, **written(self)}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace that `save` wrote.

        Raises
        ------
        NotFoundError
            Where there is no such file.
        InputError
            Where it is no trace.
        """
        name = checked_path(path)
        try:
            text = Path(name).read_text(encoding="utf-8")
        except OSError as error:
            raise NotFoundError(f"{name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{name} is no trace: it is not UTF-8") from None
        try:
            return cls.from_json(json.loads(text))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is no trace: {error}") from None

    @classmethod
    def from_json(cls, data: Any) -> Trace:
        """Return the trace that `as_json` made ``data`` of.

        Raises
        ------
        InputError
            Where it is no trace: it names the place, and what was expected there.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise JournalError(f"there is no 'format': {FORMAT!r} in it")
        if data.get("version") != VERSION:
            raise JournalError(f"version {data.get('version')!r} of it is not known; {VERSION} is")
        rest = {key: value for key, value in data.items() if key not in ("format", "version")}
        read: Trace = read_as(Trace, rest, "trace")
        return cls.of(read.datasets, read.accesses)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the trace as a table: the first row names its columns."""
        head = ("block", "does", "array", "sections", "of each", "ranks", "weight")
        return [head, *map(_row, self.accesses)]

    def draw(self) -> Any:
        """Return a drawing of blocks, arrays, and what flows between them, as a Matplotlib figure."""
        return shown.by("draw trace")(self)

    def _repr_html_(self) -> str:
        html: str = shown.by("trace html")(self)
        return html

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(_line(row, widths) for row in rows)

    def __repr__(self) -> str:
        return f"<Trace of {len(self.blocks)} blocks and {len(self.datasets)} arrays>"


WORDS = 3
"""Columns of a table that hold words, and stand at the left."""


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [c.ljust(w) if i < WORDS else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
    return "  ".join(cells).rstrip()


def _row(access: Access) -> tuple[str, ...]:
    alike = len({pattern.largest for pattern in access.patterns}) == 1
    each = " × ".join(map(str, access.largest)) or "scalar"
    return (
        access.block,
        "writes" if access.writes else "reads",
        access.dataset,
        str(access.tasks),
        each if alike else f"≤ {each}",
        "–" if access.ranks is None else str(access.ranks),
        f"{access.weight:g}",
    )


def _same(known: Dataset, seen: Dataset) -> Dataset:
    """Return an array as it was seen last, which must be the one that is known."""
    if known.known_by != seen.known_by:
        said = [f"{each.dtype} of shape {each.shape}" for each in (known, seen)]
        raise InputError(f"{seen.name} is {said[0]} in one trace and {said[1]} in the other: trace it again")
    return seen


def checked_weight(weight: Any, what: str) -> float:
    """Return a weight that is a finite number, at least 0."""
    try:
        number = float(weight)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{what} is {weight!r}: it must be a finite number, at least 0")
    return number


Kind = TypeVar("Kind")


def _each(given: Iterable[Kind], kind: type[Kind], name: str) -> list[Kind]:
    each = listed(given, name)
    for one in each:
        if not isinstance(one, kind):
            raise InputError(f"{name}: {one!r} is no {kind.__name__}")
    return each


def _check_dataset(dataset: Dataset) -> None:
    """Refuse an array that cannot be: a file that was written by hand may say anything."""
    shape, stored = dataset.shape, dataset.stored
    ChunkGrid.of(shape, stored.grid.chunks)
    if min(shape, default=0) < 0 or stored.itemsize < 1:
        raise InputError(
            f"{dataset.name} has shape {shape} and elements of {stored.itemsize} bytes: neither is negative"
        )
    for given in filter(None, (dataset.shards, stored.shard_chunks)):
        ChunkGrid.of(shape, given)


def _check(access: Access, known: dict[str, Dataset]) -> None:
    """Refuse what cannot have been seen."""
    checked_weight(access.weight, f"the weight of {access.block!r}")
    if access.by not in BY:
        raise InputError(f"by={access.by!r} is not {' or '.join(map(repr, BY))}")
    if access.dataset not in known:
        raise InputError(f"{access.block!r} takes {access.dataset!r}, of which the trace says nothing")
    shape = known[access.dataset].shape
    for pattern in access.patterns:
        hull = pattern.hull
        fits = len(hull.lower) == len(shape) and all(
            0 <= low <= high <= n for low, high, n in zip(hull.lower, hull.upper, shape, strict=True)
        )
        if not fits:
            raise InputError(f"{access.block!r} takes {hull} of {access.dataset}, which has shape {shape}")


def _added(a: Access, b: Access) -> Access:
    """Return the access of two traces: it is done as often as in both together."""
    seconds = [each.seconds for each in (a, b) if each.seconds is not None]
    threads = [each.threads for each in (a, b) if each.threads is not None]
    return replace(
        a,
        weight=a.weight + float(b.weight),
        seconds=sum(seconds) / len(seconds) if seconds else None,
        threads=max(threads, default=None),
    )
