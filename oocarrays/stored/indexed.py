"""Indices of a kind of their own, as numpy and Zarr users know them: ``a.oindex[...]``, ``a.vindex[...]``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oocarrays.errors import BudgetError
from oocarrays.graphs import settings
from oocarrays.graphs.defaults import setting

NO_MATTER = 2**26
"""Bytes for which nobody looks how much memory there is."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Reading and writing of an array by one kind of index."""

    read: Callable[[Any], Any]
    """Takes an index."""
    write: Callable[[Any, Any], None]
    """Takes an index, and values."""

    def __getitem__(self, key: Any) -> Any:
        return self.read(key)

    def __setitem__(self, key: Any, values: Any) -> None:
        self.write(key, values)


def check_room(nbytes: int) -> None:
    """Refuse to read more at one time than fits the setting, or the budget."""
    if nbytes <= NO_MATTER:
        return
    said = setting("whole-array-limit")
    limit = settings.budget(None) if said is None else settings.size_in_bytes(said, "oocarrays.whole-array-limit")
    if nbytes > limit:
        raise BudgetError(limit, nbytes, "what is read (a.load() reads it all the same, a.to_dask() lazily)")
