"""Groups of the public API: mappings of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Literal

import zarr
from dask.utils import format_bytes

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import plural
from oocarrays.graphs import settings
from oocarrays.mapping.given import Policy
from oocarrays.options.chunks import LINES
from oocarrays.options.given import Resources, around
from oocarrays.show import report
from oocarrays.show.contents import array_facts
from oocarrays.show.notebook import group_html
from oocarrays.storage.files import group_file
from oocarrays.storage.files.group_file import GroupFile
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import placer


class OutOfCoreGroup(Mapping[str, OutOfCoreArray]):
    """Mapping of a Zarr group's arrays by path, without data in memory. Created by `open_group`.

    ``group["air"]`` and ``group["deep/temp"]`` are `OutOfCoreArray`\\ s; ``xarray.open_zarr(group.store)`` is a
    dataset, if the group is in local files.
    """

    def __init__(self, file: GroupFile, missing: str | None = None) -> None:
        self._file = file
        self._missing = settings.missing(missing)

    def __getitem__(self, name: str) -> OutOfCoreArray:
        """Return the array at a path in the group.

        Raises
        ------
        KeyError
            If the group has no such array, for a ``name`` of any type.
        """
        if not isinstance(name, str) or (path := name.strip("/")) not in self._file.arrays:
            raise KeyError(name)
        return OutOfCoreArray(self._file.arrays[path], self._missing)

    def __iter__(self) -> Iterator[str]:
        return iter(self._file.arrays)

    def __len__(self) -> int:
        return len(self._file.arrays)

    @property
    def attrs(self) -> dict[str, Any]:
        """The user's attributes of the group."""
        return dict(self._file.zarr.attrs.asdict())

    @property
    def missing(self) -> Policy:
        """Policy for missing chunks, as given to `open_group`."""
        return self._missing

    @property
    def zarr(self) -> zarr.Group:
        """The Zarr group itself."""
        return self._file.zarr

    @property
    def store(self) -> str:
        """Store of the group."""
        return self._file.name

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return sum(array.nbytes for array in self.values())

    def _title(self) -> str:
        return f"oocarrays.OutOfCoreGroup {plural(len(self), 'array')}, {format_bytes(self.nbytes)}, {self.store}"

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [
            (name, report.shape_text(a.shape), str(a.dtype), f"chunks {report.shape_text(a.chunks)}")
            for name, a in self.items()
        ]
        return report.first_rows(rows, LINES)

    def __repr__(self) -> str:
        return f"<{self._title()}>" + (f"\n{report.table(self._rows(), indent='  ')}" if len(self) else "")

    def _repr_html_(self) -> str:
        facts = {name: array_facts(array.zarr) for name, array in self.items()}
        return group_html(self._title(), facts, self.attrs)


def open_group(
    store: StoreLike | zarr.Group,
    *,
    missing: Literal["fill", "warn", "error"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OutOfCoreGroup:
    """Open a group in a Zarr store, with all arrays in it and in the groups below.

    Parameters
    ----------
    store : path, Zarr store or zarr.Group
        Location of the group.
    missing : str
        Treatment of missing chunks of its arrays, as in `open_array`.
    storage_options : mapping, optional
        Options for opening a URL, as in `open_array`.

    Raises
    ------
    NotFoundError
        If the store does not exist, or has no group.
    UnfinishedError
        If an interrupted run left it unfinished.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> z = zarr.create_group(store).create_array("deep/temp", data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> group = open_group(store)
    >>> list(group), group["deep/temp"].chunks
    (['deep/temp'], (1, 4))
    """
    means = Resources(missing=missing, storage_options=storage_options)._over(around())
    place, missing = placer(means.storage_options, store)(store), means.missing
    return OutOfCoreGroup(group_file.describe_group(group_file.open_group(place)), missing)
