"""Internals of the package by plain names: no other test outside the unit folders imports or replaces one.

A test that needs more than the public names takes it from here, so that a redesign of the package changes this file
and the tests in `mapping`, `plan`, `storage` and `graphs` only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import pytest
import zarr

from oocarrays.cli.ranks import parsed_section as parsed_section
from oocarrays.graphs.cluster.placement import known_workers as known_workers
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.run import create
from oocarrays.mapping.along import ascending as ascending
from oocarrays.mapping.coarsening import Coarsening as Coarsening
from oocarrays.mapping.grid import ChunkGrid as ChunkGrid, Stored as Stored
from oocarrays.mapping.selection import Selection
from oocarrays.options import given, shapes
from oocarrays.plan import documents
from oocarrays.plan.advice.patterns import counted as counted
from oocarrays.plan.advice.price import use_of as use_of
from oocarrays.plan.exchange.schedule import FORWARDING as FORWARDING, NAMES, schedules as schedules
from oocarrays.plan.exchange.trace import arrivals as arrivals
from oocarrays.plan.plan import Resources as Resources
from oocarrays.plan.rechunk import ways
from oocarrays.plan.streams import directory
from oocarrays.show import progress
from oocarrays.show.contents import GroupFacts as GroupFacts, contents as contents
from oocarrays.show.redistributions import Outlook as Outlook
from oocarrays.show.report import (
    phase_seconds as phase_seconds,
    seconds_outside as seconds_outside,
    seconds_text as seconds_text,
)
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import blobs_of
from oocarrays.storage.files.documents import is_finished as is_finished, unfinished_run as unfinished_run
from oocarrays.storage.files.local_files import rank_name as rank_name
from oocarrays.storage.journal import calls, texts
from oocarrays.storage.journal.journal import Journal as Journal
from oocarrays.storage.journal.leftovers import YOUNG_SECONDS as YOUNG_SECONDS, find_leftovers as find_leftovers
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.storage.local.fs import MARK
from oocarrays.storage.meter import MemoryWatch as MemoryWatch
from oocarrays.storage.stores.remote import shown
from oocarrays.storage.stores.uneven import SETTING
from oocarrays.storage.striped import moving, verifying
from oocarrays.storage.striped.disks import FolderDisk as FolderDisk, FolderPart as FolderPart
from oocarrays.storage.striped.layout import turn_of
from oocarrays.stored import reading
from oocarrays.stored.array import placer
from oocarrays.stored.reading import ReadAhead as ReadAhead

# ---------------------------------------------------------------------- names and files

RECHUNK_METHODS = ways.METHODS
"""Every value of ``method`` of `oocarrays.rechunk` but "auto"."""
UNFINISHED_MARK = MARK
"""The attribute of an unfinished target: the id of its run."""
JOURNAL_FOLDER = texts.FOLDER
"""The folder of a journal, below its target."""
JOURNAL_PLAN = texts.PLAN
"""The file of the plan, in the folder of a journal."""
JOURNAL_NOTE = texts.NOTE
"""The key of the note of a write to an array that existed before, below that array."""
KEPT_SOURCE, KEPT_REQUEST = texts.SOURCE, texts.MADE
"""The keys that a finished array keeps: the source that it was made from, and the request that made it."""
JOURNAL_CALL = calls.CALL
"""The entry of a plan in a journal that holds the call: its functions and options."""
SCHEDULES = NAMES
"""Schedules of an exchange that a user may name; ``"COLORING"`` is made for the messages of one redistribution."""
POINTER_BITS, LONGEST_RUN = directory.BITS, directory.MOST_RUN
"""A pointer of a directory of streams: its place is above these bits, its length in bytes below the longest run."""
RECTILINEAR_SETTING = SETTING
"""The setting of Zarr that allows chunks of several lengths along an axis."""
KEYWORDS = vars(given) | vars(shapes)
"""Types of keywords of public functions, as type checkers read them."""
journal_digest = texts.digest_of
plan_to_json = documents.written
shown_name = shown
add_disk, empty_disk, lay_out_on_disks, verify_disks = moving.add, moving.empty, moving.lay_out, verifying.verify
ProgressState, progress_lines = progress.State, progress._logged_lines


def knowing_uneven() -> AbstractContextManager[Any]:
    """Return a context in which Zarr opens arrays of uneven chunks, if it supports them."""
    return nullcontext() if zarr.config.get(SETTING, None) is None else zarr.config.set({SETTING: True})


def store_at(place: Any, storage_options: Mapping[str, Any] | None = None) -> Any:
    """Return the store or path that the package opens for a place that a user names."""
    return placer(storage_options)(place)


def is_local(array: Any) -> bool:
    """Whether the package reads and writes an array's chunks by the system's own calls."""
    file = array_file.describe(array)
    return (
        file.stored.local and not file.stored.remote and isinstance(blobs_of(file.zarr), owner_of(STEPS["put file"])[0])
    )


def is_striped(array: Any) -> bool:
    """Whether the package writes an array's chunks by those of stripes."""
    return isinstance(blobs_of(array_file.describe(array).zarr), owner_of(STEPS["put striped"])[0])


def source_digest(place: Any) -> str:
    """Return the digest of an array's metadata that a journal keeps of its source."""
    file = array_file.describe(array_file.open_array(place))
    return metadata_digest(file, file.name)


def read_plan(array: Any, key: Any, **how: Any) -> Any:
    """Return the plan of the requests for a section of an array."""
    return reading.plan(array.zarr, Selection.of(key, array.shape), **how)


def begin(job: Any) -> None:
    """Make the target of a job and its journal, as a run has that stopped before its first chunk."""
    recording.begin(job._run.live)


def disk_of(key: str, disks: int) -> int:
    """Return the number of the disk that holds a chunk of a striped store, or all copies' first of another object."""
    return (turn_of(key) or 0) % disks


# ---------------------------------------------------------------------- constants

CONSTANTS = {
    "batch_bytes": "oocarrays.plan.rechunk.counting:BATCH_BYTES",
    "copied_bytes": "oocarrays.plan.rechunk.group:BATCH_BYTES",
    "round_bytes": "oocarrays.plan.files.scatter:ROUND_BYTES",
    "box_bytes": "oocarrays.plan.reductions.cut:BOX_BYTES",
    "record_seconds": "oocarrays.storage.local.syncing:GROUP_SECONDS",
    "unsynced_files": "oocarrays.storage.local.syncing:MOST_FILES",
    "claim_seconds": "oocarrays.graphs.run.recording:CLAIM_SECONDS",
    "unfinished_files": "oocarrays.storage.chunks.assembling:MOST_FILES",
    "counted_chunks": "oocarrays.storage.files.presence:MOST_COUNTED",
    "copy_gain": "oocarrays.arrays.copying:WORTH",
    "traced_tasks": "oocarrays.graphs.tracing.graph:MOST_TASKS",
    "pattern_bytes": "oocarrays.plan.advice.patterns:MOST_BUFFERED",
    "foreign_row_bytes": "oocarrays.storage.foreign.facts:ROW_BYTES",
    "record_row_bytes": "oocarrays.storage.foreign.netcdf3:LEAST_ROW",
    "record_read_bytes": "oocarrays.storage.foreign.facts:LONGEST_READ",
    "packing_tile_bytes": "oocarrays.storage.sections.packing:TILE_BYTES",
    "packing_wide_bytes": "oocarrays.storage.sections.packing:WIDEST_BYTES",
    "uncached_bytes": "oocarrays.storage.local.pages:LONG_BYTES",
    "shard_index_bytes": "oocarrays.storage.codecs.shards:INDEX_BYTES",
    "median_tile": "oocarrays.kernels.medians:REGISTER",
    "jacobi_columns": "oocarrays.kernels.jacobi:COLUMNS",
    "jacobi_block": "oocarrays.kernels.jacobi:BLOCK",
    "fourier_piece": "oocarrays.kernels.fourier:PIECE",
    "calibration_file_bytes": "oocarrays.graphs.calibrate.machine:FILE_BYTES",
    "calibration_most_bytes": "oocarrays.graphs.calibrate.machine:MOST_WRITTEN",
    "calibration_message_bytes": "oocarrays.graphs.calibrate.workers:SIZES",
    "calibration_timeout": "oocarrays.graphs.calibrate.workers:TIMEOUT_SECONDS",
    "worker_arrival_seconds": "oocarrays.graphs.cluster.placement:ARRIVAL_SECONDS",
    "worker_dial_seconds": "oocarrays.graphs.cluster.placement:DIAL_SECONDS",
    "worker_idle_bytes": "oocarrays.graphs.cluster.placement:IDLE_BYTES",
    "worker_look_seconds": "oocarrays.graphs.run.execution:LOOK_SECONDS",
    "told_runs": "oocarrays.graphs.cluster.pins:TOLD_RUNS",
    "seen_runs": "oocarrays.graphs.dashboard.page:MOST_RUNS",
}
"""Thresholds that a test may set so that a small array behaves like a large one, or a wait is short."""


def constant(name: str) -> Any:
    """Return a constant as it is now."""
    return getattr(*owner_of(CONSTANTS[name]))


PROCESS = pytest.MonkeyPatch()
"""Changes of a whole process, of a run or a worker that was started for them; ``PROCESS.undo()`` takes them back."""


def set_constants(patch: pytest.MonkeyPatch, **values: Any) -> None:
    """Set constants of the table above for as long as ``patch`` lasts."""
    for name, value in values.items():
        patch.setattr(*owner_of(CONSTANTS[name]), value)


@contextmanager
def small(**values: Any) -> Iterator[None]:
    """Set constants of the table above inside a ``with`` block: ``with small(box_bytes=1): …``."""
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch, **values)
        yield


# ---------------------------------------------------------------------- steps of a run

STEPS = {
    "plan stages": "oocarrays.plan.rechunk.ways:_staged",
    "plan again": "oocarrays.graphs.rechunk.resume:plan_rechunk",
    "build graph": "oocarrays.graphs.rechunk.program:add_tasks",
    "lower layers": "oocarrays.graphs.tracing.layers:_written_out",
    "count cores": "oocarrays.graphs.settings:local_cores",
    "abort": "oocarrays.graphs.run.run:Run.abort",
    "pin ranks": "oocarrays.jobs.job:pin",
    "remove rank's scratch": "oocarrays.graphs.slabs.scratch:PassScratch.remove",
    "get object": "oocarrays.storage.stores.remote:RemoteStore.get",
    "read chunk": "oocarrays.storage.chunks.reader:ChunkReader.whole",
    "read window": "oocarrays.storage.sections.windows:Windows.read",
    "count request": "oocarrays.storage.meter:Meter.add",
    "finish reduction": "oocarrays.graphs.reductions.reducing:Reducer.finished",
    "write chunks": "oocarrays.storage.chunks.writer:ChunkWriter.write_all",
    "write pieces": "oocarrays.storage.chunks.assembling:UnfinishedChunks.write_runs",
    "name chunk": "oocarrays.storage.chunks.assembling:UnfinishedChunks.finish",
    "put file": "oocarrays.storage.local.blobs:LocalBlobs.put",
    "put pieces": "oocarrays.storage.local.blobs:LocalBlobs.put_pieces",
    "write file": "oocarrays.storage.local.blobs:LocalBlobs._write",
    "put object": "oocarrays.storage.stores.underway:StoreBlobs.put",
    "put later": "oocarrays.storage.stores.underway:Putting.put",
    "put striped": "oocarrays.storage.striped.catalog:StripedBlobs.put",
    "change window": "oocarrays.storage.sections.write:InWindows._window",
    "read shard": "oocarrays.storage.chunks.rewriting:Sharded._read",
    "begin journal": "oocarrays.storage.journal.journal:Journal.begin",
    "replace journal": "oocarrays.storage.journal.journal:Journal.replace",
    "record part": "oocarrays.storage.journal.journal:Journal.prepare",
    "publish entry": "oocarrays.storage.journal.journal:Journal._publish",
    "begin run": "oocarrays.graphs.run.recording:begin_journal",
    "remove mark": "oocarrays.storage.files.creating:take_mark_away",
    "copy object": "oocarrays.storage.chunks.copies:_copy_file",
    "remove group mark": "oocarrays.storage.files.group_file:take_mark_away",
    "finish group": "oocarrays.storage.files.group_file:finish_group",
    "put documents": "oocarrays.storage.files.making_room:put_documents",
    "remove documents": "oocarrays.storage.files.making_room:remove_documents",
    "remove old files": "oocarrays.storage.files.making_room:make_room",
    "remove old folder": "oocarrays.storage.files.entries:LocalEntries.remove",
    "name start of system": "oocarrays.storage.local.syncing:boot",
    "remove scratch": "oocarrays.graphs.rechunk.program:remove_scratch",
    "sync device": "oocarrays.storage.local.syncing:sync_file_system",
    "can sync device": "oocarrays.storage.local.syncing:is_synced_whole",
    "draw schedule": "oocarrays.show.pictures.schedules:draw",
    "make figure": "oocarrays.show.pictures.plans:Drawing",
    "measure machine": "oocarrays.cli.advice:calibrate",
    "measure exchange": "oocarrays.graphs.calibrate.workers:calibrate_exchange",
    "pin calibration": "oocarrays.graphs.calibrate.workers:pin",
    "call rechunk": "oocarrays.cli.runs:rechunk",
    "call resume": "oocarrays.cli.runs:resume",
    "call clean": "oocarrays.cli.stores:clean",
}
"""Functions that a test may count, delay or make fail."""

KILL_POINTS = {
    "journal": (("begin journal", "after"),),  # there is no target yet
    "begun": (("begin run", "after"),),
    "replaced": (("replace journal", "after"),),  # with another plan, of which nothing is recorded
    "chunk": (("put file", "before"), ("write pieces", "before")),  # of the target or of a scratch array
    "partial": (("write file", "after"), ("write pieces", "after")),  # its file has not got its name yet
    "window": (("change window", "after"),),  # part of a chunk has been read and changed
    "shard": (("read shard", "after"),),
    "pieces": (("put pieces", "after"),),
    "named": (("name chunk", "after"),),
    "unrecorded": (("record part", "before"),),
    "entry": (("publish entry", "after"),),
    "mark": (("remove mark", "before"),),
    "finished": (("remove mark", "after"),),
    "copied": (("copy object", "after"),),  # an object of a group's other arrays
    "consolidated": (("remove group mark", "before"),),
    "group": (("finish group", "after"),),
}
"""Where a run can be stopped: before or after these steps."""


def step(name: str) -> Any:
    """Return a step as it is now."""
    return getattr(*owner_of(STEPS[name]))


def replace_step(patch: pytest.MonkeyPatch, name: str, function: Any) -> None:
    """Replace a step for as long as ``patch`` lasts."""
    patch.setattr(*owner_of(STEPS[name]), function)


TASKS = {
    "begin": "create",
    "make files": "make",
    "give part": "given",
    "write": "write",
    "close": "close",
    "end pass": "over",
    "mark done": "done",
    "end": "finish",
}
"""Tasks of a run; those of one kind have the same name whatever the job."""


def task_of(job: Any, name: str) -> tuple[str, str]:
    """Return a task of a run for a worker to replace: a module and a function."""
    own, function = type(job._run.program).__module__, TASKS[name]
    found = []
    for module in (own, f"{own.rpartition('.')[0]}.tasks", create.__module__):
        with suppress(ImportError):
            found.append(importlib.import_module(module))
    return next(module.__name__ for module in found if hasattr(module, function)), function


def do_task(job: Any, name: str, *args: Any) -> Any:
    """Do a task of a job in this process, of which others may take part in its run."""
    job._run.state.processes = job._run.program.plan.ranks
    module, function = task_of(job, name)
    return getattr(importlib.import_module(module), function)(job._run.live, *args)


def owner_of(path: str) -> tuple[Any, str]:
    """Return the module, class or function that ``"module:a.b"`` is an attribute of, and the attribute's name.

    >>> owner_of("os:path.sep")[1]
    'sep'
    """
    module, _, inside = path.partition(":")
    above, _, name = inside.rpartition(".")
    return (pkgutil.resolve_name(f"{module}:{above}") if above else importlib.import_module(module)), name
