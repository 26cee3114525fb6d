"""Journal of a scatter or a gather, and its resumption.

begin     direction, source, chunks of a round; settings of local array files     ─► journal
resume    journal ─► the same rounds, without the parts that ranks have written; or, with less memory,
                     other rounds, without the stored chunks
          files on workers' own disks are not checked: they are written again
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.graphs.files.scatter import Files, place_names
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.plan.documents import Document
from oocarrays.plan.files.scatter import FilesPlan
from oocarrays.storage.files.documents import is_finished, unfinished_run


def files_content(
    plan: FilesPlan, call: Mapping[str, Any], read: Any, made: Mapping[str, Any] | None = None
) -> Document:
    """Return the journal content of a scatter or gather, with the metadata of the largest local array file."""
    like = {} if made is None else {"like": _documents(made)}
    return {"files": plan.way, "room": plan.room, "source_metadata": read, **like, **call}


def _documents(made: Mapping[str, Any]) -> Document:
    array = zarr.create_array(MemoryStore(), **made)
    found = array.metadata.to_buffer_dict(default_buffer_prototype())
    return {name: json.loads(buffer.to_bytes()) for name, buffer in found.items()}


def made_like(content: Mapping[str, Any]) -> zarr.Array:
    """Return an in-memory array without chunks, with the metadata of the largest file of a scatter."""
    read = default_buffer_prototype().buffer.from_bytes
    documents: Any = {name: read(json.dumps(each).encode()) for name, each in content["like"].items()}
    return zarr.open_array(MemoryStore(documents), mode="r")


def resumed_files(program: Files, content: Document, left: Interrupted, before: FilesPlan) -> Run[Files]:
    """Return the rest of a scatter or gather; ``before`` is its plan with the rounds of the journal."""
    plan, local, left = program.plan, program.local, left.recorded(program.read_from, files=True)
    places = {name: local.place(int(name)) if name else left.target for name in place_names(plan)}

    def is_there(name: str) -> bool:
        """Return whether the run has made a file, and perhaps closed it."""
        closed = name and (int(name),) in left.stored and is_finished(places[name])
        return bool(closed) or unfinished_run(places[name]) == left.id

    own_disks = bool(local.descriptor.folders) and program.scatters
    there = {name: place for name, place in places.items() if not own_disks and is_there(name)}
    recovered = left.recover(plan, there, before=None if plan.room == before.room else before)
    told = "files on workers' own disks are written again" if own_disks else ""
    return Run(program, content | left.begun_with, recovered.told(told))
