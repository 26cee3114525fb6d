"""Icechunk's sessions as targets: they take Zarr's keys only, and what a run notes beside them stays in this process.

c/0/1, zarr.json        ─►  the session, which its owner commits when the run has ended
.oocarrays/plan.json    ─►  memory: a run that is killed has lost its session, and so what it wrote
"""

from __future__ import annotations

from typing import Any

from zarr.abc.store import Store
from zarr.storage import StorePath

from oocarrays.errors import TargetError
from oocarrays.storage.stores.aside import AsideStore


class SessionStore(AsideStore[Store]):
    """A store that takes Zarr's keys only."""

    one_writer = "is a session of icechunk, which only this process can write to: scheduler='threads', or a folder"

    def __reduce__(self) -> Any:
        raise TargetError(f"{self} {self.one_writer}")


def session(place: Any) -> Store | StorePath | None:
    """Return the store of a session that is written, or a path in it; None of any other place."""
    if isinstance(place, StorePath):
        store = session(place.store)
        return StorePath(store, place.path) if isinstance(store, Store) else None
    is_one = type(place).__module__.partition(".")[0] == "icechunk" and isinstance(place, Store)
    return SessionStore(place) if is_one and not place.read_only else None
