"""Scattering a global array file into local ones, and gathering them, as tasks.

    create ─► make ──┬─► read ─┬─► write ──┬─► read ─┬─► write ─► close ─► finish        a box of the array in each round,
            (a rank) ├─► read ─┼─► write ──┼─► read ─┼─► write ─► close ─┘               read by all, written by all
                     └─► read ─┴─► write ──┴─► …     ┴─► …
                              exchange: between workers in the schedule's steps, see `steps`

A round waits for the one two before it, so that two are in memory at most; what a rank writes, it writes in the order of
rounds. Where a worker is lost, what it did is done again: the same is written to the same places.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
from dask.task_spec import Task, TaskRef
from oocarrays.graphs.buffers import Outbox
from oocarrays.graphs.rechunk import new_suffix
from oocarrays.graphs.steps import Exchange, Key, arrived_parts, sent_parts
from oocarrays.graphs.work import Work

from oocarrays.errors import RunError
from oocarrays.mapping.local import places_in
from oocarrays.mapping.section import Section
from oocarrays.plan.files import UNDER_WAY, FilesPlan, message_size, views
from oocarrays.storage import array_file, local_files
from oocarrays.storage.access import ChunkReader, ChunkWriter
from oocarrays.storage.array_file import ArrayFile, StoreLike
from oocarrays.storage.local_files import LocalFiles
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections import read_section, write_section


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesTarget:
    """What is written: a group of local files, or one array."""

    store: StoreLike
    """Where it is to be."""
    settings: dict[str, Any]
    """Arguments of ``zarr.create_array``; of a group without what each rank's part gives."""
    overwrite: bool
    """Whether what is there may be replaced."""


class FilesRun(Work):
    """One run of a scatter or a gather, shared by its tasks.

    Parameters
    ----------
    source : ArrayFile or LocalFiles
        What is read.
    local : LocalFiles
        The local files, there or to be made.
    """

    plan: FilesPlan
    destination: FilesTarget

    def __init__(
        self, plan: FilesPlan, source: ArrayFile | LocalFiles, local: LocalFiles, destination: FilesTarget
    ) -> None:
        self.plan = plan
        self._source = pickle.dumps(source) if plan.processes else source
        self.local = local
        self.destination = destination
        super().__init__(destination.store, plan.processes, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("plan", "_source", "local", "destination", "id", "processes")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.journal = array_file_journal(self.destination.store)
        self._here()

    def _here(self) -> None:
        super()._here()
        self._whole: ArrayFile | None = None

    @property
    def source(self) -> Any:
        """What is read; on a cluster opened where it is used."""
        if isinstance(self._source, bytes):
            self._source = pickle.loads(self._source)  # our own bytes
        return self._source

    @property
    def stores(self) -> dict[str, Any]:
        """Where it reads and writes."""
        read = self.local.store if self.plan.way == "gather" else self.source.zarr.store_path.store
        return {"source": getattr(read, "store", read), "target": getattr(self.destination.store, "store", self.destination.store)}

    @property
    def expected(self) -> tuple[float, float]:
        """Requests that read, and that write."""
        return self.plan.traffic.read_requests, self.plan.traffic.write_requests
