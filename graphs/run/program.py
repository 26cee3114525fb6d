"""Programs: the frozen data of a run. Its tasks are plain functions of a module, ``f(live, *args, *inputs)``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import zarr
from zarr.storage import MemoryStore

from oocarrays.graphs.run.builder import Builder
from oocarrays.graphs.run.steps import PHASES, Key
from oocarrays.plan.cost import Traffic
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.local_files import RankFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.texts import Kept
from oocarrays.storage.stores.remote import RemoteStore

Part = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class InPlace:
    """Destination of a run that creates no target: an existing array, or existing local array files."""

    store: StoreLike
    """Folder, or store and path, of the array or of the group of files."""


NOWHERE = InPlace(MemoryStore())
"""Destination of a program without targets, whose result is returned in memory."""


class Remaining(NamedTuple):
    """Work that is not done yet."""

    share: float
    """Share of the work, from 0 to 1."""
    reads: float
    """Number of read requests."""
    writes: float
    """Number of chunk writes."""

    @classmethod
    def of(cls, share: float, traffic: Traffic) -> Remaining:
        """Return a share of all requests of a plan."""
        return cls(share, share * traffic.read_requests, share * traffic.write_requests)


@dataclass(frozen=True, kw_only=True)
class Program:
    """Work of a run: each kind adds its data."""

    plan: Any
    """Plan of the run."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Request kept beside existing data while a run writes in place; empty for other runs."""
    phases: ClassVar[Mapping[str, str]] = PHASES
    """Phase of a plan to which the seconds of each function count; others count as beginning and end."""
    threads_stay: ClassVar[bool] = False
    """Whether a run planned for threads cannot leave its process."""
    restarts: ClassVar[bool] = False
    """Whether an interrupted run starts over, and keeps no journal."""
    untimed: ClassVar[Collection[str]] = ()
    """Names of the functions that time their reads and writes themselves."""

    @property
    def processes(self) -> int | None:
        """Number of worker processes; None for threads of one process."""
        processes: int | None = self.plan.processes
        return processes

    @property
    def ranks(self) -> int:
        """Number of logical processors."""
        ranks: int = self.plan.ranks
        return ranks

    @property
    def merges(self) -> bool:
        """Whether workers may write to copies of its target arrays, to be merged at the end."""
        return False

    @property
    def whole(self) -> bool:
        """Whether one task exchanges a whole round of a rank, with those of other ranks on their workers."""
        return False

    @property
    def sources(self) -> Sequence[ArrayFile | RankFiles]:
        """Files that the run reads and does not make."""
        return ()

    @property
    def presences(self) -> Iterable[Presence]:
        """Records that detect whether the sources still exist."""
        return chain.from_iterable(source.presences for source in self.sources)

    @property
    def read_from(self) -> Sequence[zarr.Array] | Mapping[str, zarr.Array]:
        """Arrays that must not change during the run, in order or by name."""
        return [file.zarr for source in self.sources for file in source.shared]

    @property
    def fingerprinted(self) -> Sequence[zarr.Array] | Mapping[str, zarr.Array]:
        """Arrays with their fingerprints in the journal: also those that other runs of the same job read."""
        return self.read_from

    @property
    def targets(self) -> Sequence[TargetSpec]:
        """Targets of the run, the first one with its journal; empty if it keeps none."""
        return ()

    @property
    def destination(self) -> TargetSpec | InPlace:
        """Location of the journal and the mark."""
        return self.targets[0] if self.targets else NOWHERE

    @property
    def removable(self) -> bool:
        """Whether a run whose kernel has failed may remove its targets if it has written no part of them."""
        return True

    @property
    def places(self) -> Sequence[StoreLike | RemoteStore]:
        """Locations in which a changed plan removes chunks that are not as they were stored."""
        return [place for target in self.targets for place in target.places]

    @property
    def scratch(self) -> Sequence[str | RemoteStore]:
        """Locations of intermediate data that is synced before it is recorded."""
        return ()

    @property
    def cached(self) -> Sequence[str | RemoteStore]:
        """Locations of intermediate data in the system's cache; records of it hold until the system restarts."""
        return ()

    @property
    def room(self) -> Mapping[str, int]:
        """Bytes to be written, by folder, as far as they are known beforehand."""
        return {}

    @property
    def stores(self) -> dict[str, Any]:
        """Stores that all workers must reach, by their names in messages."""
        places: dict[str, list[Any]] = {
            "source": [
                source.files.store if isinstance(source, RankFiles) else source.zarr.store_path.store
                for source in self.sources
            ],
            "target": [target.store for target in self.targets],
        }
        each = ((name, number, store) for name, stores in places.items() for number, store in enumerate(stores))
        return {f"{name} {number}" if len(places[name]) > 1 else name: store for name, number, store in each}

    @property
    def made_place(self) -> StoreLike | None:
        """Array beside which the request is kept; None where no process but a worker sees it."""
        place: StoreLike = self.destination.store
        return place

    def place_of(self, part: Part, name: str) -> StoreLike | None:
        """Return the location of a part's receipts under a name; None for locations that are not checked."""
        return None if name else self.destination.store

    @property
    def member(self) -> str:
        """Path of the target in a group, whose run records the end of all its arrays; empty for a run by itself."""
        return ""

    @property
    def leaves(self) -> str:
        """Description of the state that an interrupted run without targets leaves."""
        return "nothing is left of it"

    def check_visible(self) -> None:
        """Raise if this worker does not see existing data that the run changes."""

    def restart(self, live: Any) -> None:
        """Discard what another plan cannot use, before that plan replaces the one in the journal."""

    def begin(self, live: Any) -> None:
        """Begin what only this program has, in the task that begins the run: the journal and the targets exist."""

    def settle(self, live: Any, *, resumable: bool) -> None:
        """Release what a failed run holds in this process, and remove what no resumed run can use."""

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return the work that remains after these parts, and chunks that earlier plans have stored."""
        return Remaining.of(1.0, self.plan.traffic)

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        """Add the tasks of a run on the workers with these addresses, less parts that are done; return the last key."""
        raise NotImplementedError
