"""Trace of a program's reads and writes of stored arrays, from a Dask graph, a recorded run, or a description in words.

    block "climatology"   reads    era5.zarr/t2m    12 × (62, 721, 1440)     weight 1
    block "series"        reads    era5.zarr/t2m    64 × (8760, 1, 1)        weight 40
    block "means"         writes   means.zarr       1 × (12, 721, 1440)      weight 1

A block is a unit of execution: a computed Dask collection, a ``with`` block, or a program. Memik, Kandemir and
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
from pkgutil import resolve_name
from typing import Any

from oocarrays.errors import InputError, JournalError, LayoutError, NotFoundError, SelectionError, plural
from oocarrays.mapping.given import listed, whole
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.plan.advice.access import BY, Access, Dataset, planned_dataset
from oocarrays.plan.advice.patterns import Fold, Pattern, folded
from oocarrays.plan.documents import Document, checked_path, read_as, save_text, written
from oocarrays.plan.plan import table


def patterns_of(sections: Any, shape: tuple[int, ...], ranks: int | None) -> tuple[tuple[Pattern, ...], int | None]:
    """Return the patterns of the given sections or layout, and the number of ranks that read together."""
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
        fold.add_product(map(chain.from_iterable, along))
    else:
        for parts in product(*along):
            for section in product(*parts):
                fold.add(section)
    return fold.patterns()


FORMAT = "oocarrays trace"
VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Trace:
    """Trace of the reads and writes of stored arrays by blocks of a program.

    Add traces with ``+``: accesses that agree in everything else are merged and their weights added.

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
    """Stored arrays, sorted by name."""
    accesses: tuple[Access, ...] = ()
    """Accesses of the blocks, in order."""

    @classmethod
    def of(cls, datasets: Iterable[Dataset], accesses: Iterable[Access]) -> Trace:
        """Return a validated trace of the given datasets and accesses.

        Raises
        ------
        InputError
            If an array differs between accesses, a section exceeds its array, or a weight is negative or not finite.
        """
        known: dict[str, Dataset] = {}
        for each in _each(datasets, Dataset, "datasets"):
            _check_dataset(each)
            known[each.name] = _same(known.get(each.name, each), each)
        together: dict[Access, Access] = {}
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
        """Return the dataset with the given name in the trace, or with a path relative to the working directory.

        Raises
        ------
        NotFoundError
            If the trace has no such array; the error lists its arrays.
        """
        known, given = {each.name: each for each in self.datasets}, str(name)
        found = known.get(given) or known.get(os.path.realpath(given))
        if found is None:
            raise NotFoundError(f"{name!r} is not an array of this trace; its arrays are: {', '.join(known) or 'none'}")
        return found

    def reads(self, array: Any, sections: Any, **how: Any) -> Trace:
        """Return this trace with an added read of an array by a block.

        Parameters
        ----------
        array : str, path, array or Dataset
            Array to read: a name in this trace, or any argument that `oocarrays.open_array` opens. For an array that
            does not exist yet, pass ``shape=``, ``dtype=`` and ``chunks=``.
        sections : str, Layout, or sequence of Section
            Distribution over ranks, such as ``"(block, *)"``, or the sections read, one per task.
        ranks : int, optional
            Number of ranks.
        weight : float, default 1
            Number of runs of the block.
        block : str, optional
            Name of the block; by default ``"block 1"`` and so on. One block may read and write several arrays.
        by : {"zarr", "oocarrays"}, default "oocarrays"
            Library that reads.
        shape, dtype, chunks
            Properties of an array that does not exist yet.

        Raises
        ------
        InputError
            If the sections, array, ranks or weight are invalid or do not fit each other.

        Examples
        --------
        >>> t = Trace().reads("a.zarr", "(*, cyclic)", ranks=3, shape=(4, 6), dtype="f8", chunks=(4, 1), weight=2)
        >>> list(t.accesses[0].sections())[1]
        Section(lower=(0, 1), upper=(4, 5), stride=(1, 3))
        """
        return self._said(array, sections, writes=False, **how)

    def writes(self, array: Any, sections: Any, **how: Any) -> Trace:
        """Return this trace with an added write of an array by a block; the parameters are those of `reads`.

        Raises
        ------
        InputError
            If the sections, array, ranks or weight are invalid or do not fit each other.
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
        """Return the dataset: from this trace, from the given description, or from storage."""
        if isinstance(array, Dataset):
            return array
        if isinstance(array, str | os.PathLike):
            named = next((each for each in self.datasets if each.name == os.fspath(array)), None)
            told = planned_dataset(os.fspath(array), **about) if about else None
            if named is not None:
                return _same(named, told) and named if told else named
            if told:
                return told
        found: Dataset = resolve_name("oocarrays.tracing:dataset_at")(array)  # a layer above
        return next((each for each in self.datasets if each.name == found.name), found)

    def advise(self, **how: Any) -> Any:
        """Return advice on the chunks of each array and the read method of each block.

        Parameters
        ----------
        memory : int, float or str
            Memory budget of each process in bytes, such as ``"1GiB"``; by default the free memory.
        ranks : int, optional
            Number of ranks that may read for each other, for accesses traced without ranks. Set it if the program can
            be changed to use `oocarrays.ranks.read_sections`. By default each task reads independently.
        keep : str or sequence of str
            Arrays that keep their layout.
        weights : mapping
            Number of runs of one block after another: ``{("make", "plot"): 10}``. By default a block that reads an
            array with several producers follows each of them equally often.
        copies : bool, default True
            Whether to allow a second copy in other chunks for arrays of at least 64 MiB; False allows one layout only.
        scheduler, workers
            Where the program will run, as in `oocarrays.rechunk`.

        Returns
        -------
        Advice
            Table of verdicts, with methods ``.draw()``, ``.method(block, array)`` and ``.apply(target)``. Inside a
            ``with`` statement `read_sections` follows it.

        Raises
        ------
        InputError
            If the trace has no stored array, an array has changed since, blocks depend on each other in a cycle, a
            weight is negative or not finite, or ``keep`` names an unknown array.
        BudgetError
            If an array exceeds the budget in all chunk shapes; the error states the minimum.
        """
        return resolve_name("oocarrays.advice:advise")(self, **how)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as JSON, for `load` and ``oocarrays advise``.

        Raises
        ------
        InputError
            If the file cannot be written.
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
            If the file cannot be read.
        InputError
            If the file is not a valid trace.
        """
        name = checked_path(path)
        try:
            return cls.from_json(json.loads(Path(name).read_text(encoding="utf-8")))
        except OSError as error:
            raise NotFoundError(f"{name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InputError(f"{name} is not a trace: it is not UTF-8") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{name} is not a trace: {error}") from None

    @classmethod
    def from_json(cls, data: Any) -> Trace:
        """Return the trace that `as_json` converted to ``data``.

        Raises
        ------
        InputError
            If ``data`` is not a valid trace; the error states the position and the expected value.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise JournalError(f"it lacks 'format': {FORMAT!r}")
        if data.get("version") != VERSION:
            raise JournalError(f"version {data.get('version')!r} is not supported; {VERSION} is")
        rest = {key: value for key, value in data.items() if key not in ("format", "version")}
        read: Trace = read_as(Trace, rest, "trace")
        return cls.of(read.datasets, read.accesses)

    def rows(self) -> list[tuple[str, ...]]:
        """Return the trace as a table with a header row."""
        head = ("block", "does", "array", "sections", "of each", "ranks", "weight")
        return [head, *map(_row, self.accesses)]

    def draw(self) -> Any:
        """Return a Matplotlib figure of the blocks, the arrays, and the reads and writes between them."""
        return resolve_name("oocarrays.tracing:draw")(self)

    def _repr_html_(self) -> str:
        return resolve_name("oocarrays.show.notebook:rows_html")(self.rows()[:41], title="oocarrays.Trace")

    def __str__(self) -> str:
        return table(self.rows(), words=3)

    def __repr__(self) -> str:
        return f"<Trace of {plural(len(self.blocks), 'block')} and {plural(len(self.datasets), 'array')}>"


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
    """Return the later snapshot of an array; raise if shape or dtype differ from the known one."""
    if (known.shape, known.dtype) != (seen.shape, seen.dtype):
        said = [f"{each.dtype} of shape {each.shape}" for each in (known, seen)]
        raise InputError(f"{seen.name} is {said[0]} in one trace and {said[1]} in the other: record a new trace")
    return seen


def checked_weight(weight: Any, what: str) -> float:
    """Return a weight as a float; raise if it is negative or not finite."""
    try:
        number = float(weight)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise InputError(f"{what} is {weight!r}: it must be a finite number, at least 0")
    return number


def _each(given: Any, kind: type[Any], name: str) -> list[Any]:
    each = listed(given, name)
    for one in each:
        if not isinstance(one, kind):
            raise InputError(f"{name}: {one!r} is not of type {kind.__name__}")
    return each


def _check_dataset(dataset: Dataset) -> None:
    """Raise if an array is impossible: a trace file edited by hand may contain anything."""
    shape, stored = dataset.shape, dataset.stored
    ChunkGrid.of(shape, stored.grid.chunks)
    if min(shape, default=0) < 0 or stored.itemsize < 1:
        raise InputError(
            f"{dataset.name} has shape {shape} and elements of {stored.itemsize} bytes: neither may be negative"
        )
    for given in filter(None, (dataset.shards, stored.shard_chunks)):
        ChunkGrid.of(shape, given)


def _check(access: Access, known: dict[str, Dataset]) -> None:
    checked_weight(access.weight, f"the weight of {access.block!r}")
    if access.by not in BY:
        raise InputError(f"by={access.by!r} is not {' or '.join(map(repr, BY))}")
    if access.dataset not in known:
        raise InputError(f"{access.block!r} takes {access.dataset!r}, which is not in the trace")
    shape = known[access.dataset].shape
    for pattern in access.patterns:
        hull = pattern.hull
        fits = len(hull.lower) == len(shape) and all(
            0 <= low <= high <= n for low, high, n in zip(hull.lower, hull.upper, shape, strict=True)
        )
        if not fits:
            raise InputError(f"{access.block!r} takes {hull} of {access.dataset}, which has shape {shape}")


def _added(a: Access, b: Access) -> Access:
    """Return the access merged from two traces: weights add up, seconds are averaged."""
    seconds = [each.seconds for each in (a, b) if each.seconds is not None]
    threads = [each.threads for each in (a, b) if each.threads is not None]
    return replace(
        a,
        weight=a.weight + float(b.weight),
        seconds=sum(seconds) / len(seconds) if seconds else None,
        threads=max(threads, default=None),
    )
