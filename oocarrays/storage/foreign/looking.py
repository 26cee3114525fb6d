"""What is in files of another format: looked at when it is asked for, in each file once, and for what is asked only.

open_array("*.nc", …)     names, of the first file; what each file says of that array
open_group("*.nc")        what each file says of every array; those without the axis that is joined are those of the
                          first file, and held against the others
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign import hdf5, netcdf3, numpy_files, tiff  # noqa: F401  each enters its format
from oocarrays.storage.foreign.arrays import ForeignArray, alone, joined
from oocarrays.storage.foreign.facts import FORMATS, Facts
from oocarrays.storage.foreign.files import Files
from oocarrays.storage.foreign.packing import PACKED, told

COORDINATE_BYTES = 2**22
"""Bytes of an array that is not joined, up to which all of it is held against that of the other files."""
_looking = threading.RLock()


@dataclass(slots=True, kw_only=True)
class Contents:
    """The arrays and groups in some files."""

    files: Files
    """The files."""
    format: str
    """Their format, one of `FORMATS`."""
    names: tuple[str, ...]
    """Paths of the arrays."""
    groups: dict[str, Document]
    """Attributes of the groups, by their paths."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Why arrays are left out, by their paths."""
    dim: str | int | None = None
    """The axis along which files follow one another, by its name or its number; None of one file."""
    known: dict[str, ForeignArray] = field(default_factory=dict)
    """Arrays that have been looked at."""
    told: dict[str, list[Facts]] = field(default_factory=dict)
    """What each file says of arrays that are asked for next."""

    def array(self, name: str) -> ForeignArray:
        """Return an array; all files are looked at when it is asked for first.

        Raises
        ------
        UnsupportedError
            Where files do not agree, or its type has no place in Zarr.
        """
        if name not in self.known:
            with _looking:
                if name not in self.known:
                    self.known[name] = self._looked_at(name)
        return self.known[name]

    def _looked_at(self, name: str) -> ForeignArray:
        first = FORMATS[self.format].facts(self.files.readable(0), (name,))[0]
        if self.dim is None:
            return alone(name, first)
        axis, all = self._axis(first), self._told(name)
        if axis is None:
            self._check_same(name, all)
            return alone(name, first)
        made = joined(name, all, axis, self.files.path)
        packed = made.variants[0].packing is not None
        said = {key: value for key, value in first.attributes.items() if not (packed and key in PACKED)}
        native = {} if packed else first.native
        facts = replace(made.facts, attributes=said, native=native, names=first.names, endless=first.endless)
        return replace(made, facts=facts)

    def _axis(self, facts: Facts) -> int | None:
        """The axis along which an array is joined; None where it has none such."""
        if isinstance(self.dim, int):
            return self.dim if self.dim < len(facts.shape) else None
        names = facts.names or ()
        return names.index(self.dim) if self.dim in names else None

    def _check_same(self, name: str, all: list[Facts]) -> None:
        """Refuse an array that is not joined, and is another one in some of the files: of large ones both ends."""
        for number, each in enumerate(all):
            if (each.shape, each.dtype) != (all[0].shape, all[0].dtype):
                raise UnsupportedError(
                    f"{name} has shape {all[0].shape} in {self.files.path(0)} and {each.shape} in "
                    f"{self.files.path(number)}, and no axis {self.dim} along which they are joined"
                )
        parts = _both_ends(all[0])
        first = [self._values(0, name, part) for part in parts]
        for number in range(1, len(all)):
            there = (self._values(number, name, part) for part in parts)
            if told(all[number]) != told(all[0]) or not all_equal(first, there):
                raise UnsupportedError(
                    f"{name} has other values in {self.files.path(number)} than in {self.files.path(0)}, and no axis "
                    f"{self.dim} along which they are joined"
                )

    def _values(self, number: int, name: str, part: tuple[slice, ...]) -> np.ndarray:
        return FORMATS[self.format].read(self.files.readable(number), name, part)

    def _told(self, name: str) -> list[Facts]:
        """Return the description of an array in each file, in few words."""
        if name not in self.told:
            self._look_at([name])
        return self.told.pop(name)

    def prepare(self, inner: str) -> None:
        """Look at what is going to be asked for, while nobody waits for an answer: with many files that takes seconds.

        Parameters
        ----------
        inner : str
            The array or the group that is named; "" for all.
        """
        if self.dim is None:
            return
        wanted = [name for name in self.names if name == inner or not inner or name.startswith(f"{inner}/")]
        self.look_at(wanted)
        for name in wanted:
            self.array(name)

    def look_at(self, names: Iterable[str]) -> None:
        """Look at several arrays at once: each file is opened once for all of them."""
        if self.dim is not None:
            with _looking:
                self._look_at([name for name in names if name not in self.known and name not in self.told])

    def _look_at(self, names: list[str]) -> None:
        look = FORMATS[self.format].facts
        numbers = range(len(self.files.names) if names else 0)
        found = [look(self.files.readable(number), tuple(names), brief=True) for number in numbers]
        self.told |= {name: [each[n] for each in found] for n, name in enumerate(names)}

    def __reduce__(self) -> Any:
        return partial(Contents, **{each.name: getattr(self, each.name) for each in fields(self)}), ()


def _both_ends(facts: Facts) -> list[tuple[slice, ...]]:
    """Return the part of an array that is looked at: all of it, or its first and last rows where it is large."""
    size = 16 if facts.dtype == "O" else np.dtype(facts.dtype).itemsize
    whole = (slice(None),) * len(facts.shape)
    if math.prod(facts.shape) * size <= COORDINATE_BYTES:
        return [whole]
    return [(slice(0, 1), *whole[1:]), (slice(facts.shape[0] - 1, None), *whole[1:])]


def all_equal(some: Iterable[np.ndarray], others: Iterable[np.ndarray]) -> bool:
    """Return whether arrays have the same elements, NaN in the same places.

    >>> all_equal([np.array([1, np.nan])], [np.array([1, np.nan])]), all_equal([np.array(["a"])], [np.array(["b"])])
    (True, False)
    """
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(some, others, strict=True))
