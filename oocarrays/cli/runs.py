"""Commands that write arrays: ``rechunk``, ``map``, ``reduce``, ``update``, ``pyramid``, ``resume`` and ``demo``."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask.utils import format_bytes

from oocarrays.arrays.array import open_array
from oocarrays.cli.main import FAILED
from oocarrays.cli.options import lengths, planned_for, sources_of
from oocarrays.cli.reports import print_json, run_and_report, show_and_run
from oocarrays.cli.signatures import asked, command, taken
from oocarrays.errors import ChunksError, InputError, OocError
from oocarrays.graphs.settings import size_in_bytes
from oocarrays.jobs.pyramid import pyramid
from oocarrays.jobs.rechunking import rechunk, update as update_array
from oocarrays.jobs.slabs import map_slabs
from oocarrays.options.rechunks import read_chunks
from oocarrays.recovery.resume import kind_left, resume, run_status
from oocarrays.reductions.reducing import reduce
from oocarrays.storage.files import array_file
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.journal.calls import imported
from oocarrays.storage.stores.urls import check_path
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import StreamsJob, holds_streams

OWN = ("fill_value", "attributes", "dimension_names")
"""Fields of a target that no option states."""


def what_now(options: argparse.Namespace) -> str:
    """Return the next step after an interruption, as text."""
    with suppress(OocError, KeyboardInterrupt):
        left = run_status(placer(dict(options.storage_options or ()) or None)(options.target))
        if left is not None:
            at = "" if left.done is None else f" at {100 * left.done:.0f} %"
            typed_again = "kernel" in options and "again" not in options  # and so are its arguments
            again = [*options.words, *([] if options.resume else ["--resume"])] if typed_again else []
            words = again or ["resume", options.target]
            return f"{at}; written chunks stay, continue with: {shlex.join(['oocarrays', *words])}"
    return ""


def _scalar(given: Any) -> Any:
    """Return one length for all axes from a list of one."""
    return given[0] if isinstance(given, tuple) and len(given) == 1 else given


@command(rechunk, planned_for, show_and_run, leave_out=("filters", *OWN), stopped=what_now)
def rechunk_command(
    source: str,
    target: str,
    *,
    chunks: list[str] | tuple[()] = (),
    update: bool = False,
    concat_dim: str | None = None,
    **how: Any,
) -> None:
    """Write an array, or arrays of a group, again in other chunks.

    chunks: chunk length of each axis in elements: 16384,256 or by name time=-1,lat=20; -1: the whole axis; auto, or a
        size such as 128MiB: chosen; of a group NAME=LENGTHS for each array to be rechunked, such as air=16384,256 or
        air=time:-1,lat:20; may be repeated (default: the source's)
    method: strategy
    schedule: order of the messages between ranks: lex, pex, bex, pex-gen, pex-gen-shift, gen, rex, ipex, coloring or
        unordered (default: the fastest)
    update: bring TARGET up to date with the changes of SOURCE, if it exists
    """
    if not chunks and how["orientation"] is how["zarr_format"] is None and not update:
        raise ChunksError("--chunks is needed, --orientation to have them chosen, or --zarr-format to keep them")
    how["scheduler"] = planned_for(how["scheduler"], how["dry_run"], **taken(how, planned_for))
    (read,) = sources_of(concat_dim, how["storage_options"], source)
    how["filters"] = None if how["compressors"] is None else ()
    how["chunks"] = _chunks(list(chunks), placer(how["storage_options"])(read)) if chunks else None
    if not update:
        _plan_and_run(rechunk, target, how, read)
        return
    if how.pop("overwrite"):
        raise InputError("--update and --overwrite exclude each other: one changes TARGET, the other replaces it")
    if (method := how.pop("method")) != "auto":
        raise InputError(f"--method {method} does not apply to --update")
    _plan_and_run(update_array, target, how, source=read)


def _plan_and_run(call: Callable[..., Any], target: str, how: dict[str, Any], *given: Any, **named: Any) -> None:
    """Plan a job, on threads unless a scheduler is typed, and show or run it; ``given`` is what precedes the target."""
    shown, where = taken(how, show_and_run), how.pop("scheduler") or "threads"
    to, how = asked(call, target, how)
    show_and_run(call(*given, to, scheduler=where, **named, **how), target, **shown)


def _chunks(words: list[str], source: Any) -> Any:
    """Return the chunks of the ``--chunks`` options, of one array or of the arrays of a group."""
    if holds_group(source):
        return read_chunks(words)
    try:
        return lengths(",".join(words))
    except argparse.ArgumentTypeError as error:
        array_file.open_array(source)  # chunks of a group are right, if it is only not where it was looked for
        raise ChunksError(f"--chunks {error}") from None


@command(
    map_slabs, show_and_run, leave_out=("folders", "filters", "shape", "new_axis", "draw", "workers", *OWN),
    stopped=what_now,
)  # fmt: skip
def map_command(
    source: list[str],
    target: str,
    *,
    kernel: str,
    kwargs: Any = None,
    reuse: bool = True,
    concat_dim: str | None = None,
    **how: Any,
) -> None:
    """Apply a function of numpy blocks to an array, or to several of one shape, and write the result.

    source: array to read, or several of one shape: paths or URLs of Zarr, or files of another format
    target: location of the result: a path, or a URL such as s3://bucket/a.zarr
    kernel MODULE:FUNCTION: function of a numpy block of each source, in a module of Python's path or the current folder
    prefetch: number of slabs to read ahead; 0: read, compute and write in turn
    reuse: read rows that two slabs share twice
    dtype: type of the elements of TARGET, such as float32 (default: the source's)
    verify: compute some slabs again with a larger halo; fail if they differ
    """
    how |= {"chunks": _scalar(how["chunks"]), "reuse": reuse}
    read, function = sources_of(concat_dim, how["storage_options"], *source), _kernel(kernel)
    _plan_and_run(map_slabs, target, how, partial(function, **kwargs) if kwargs else function, read)


def _kernel(name: str) -> Any:
    """Import a kernel, from the current folder too, as ``python -m`` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    return imported(name)


@command(reduce, show_and_run, leave_out=("source", "where", "draw", "workers"), stopped=what_now)
def reduce_command(
    source: str,
    target: str,
    *,
    how: str,
    by: str | None = None,
    ddof: int = 0,
    concat_dim: str | None = None,
    **more: Any,
) -> None:
    """Reduce an array along axes, and write the result.

    source: array to read: a path or URL of Zarr, or of a file of another format
    how: reduction
    by FILE: file with a label for each index of --axis, .npy or lines of text: elements are reduced label by label
    axis: axes to reduce, by number or name: 0 or time,lat (default: all)
    skipna: let one NaN make the result NaN
    ddof: number to subtract from the count in the divisor of var and std
    """
    shown, labels = taken(more, show_and_run), None if by is None else _labels(by)
    (read,) = sources_of(concat_dim, more["storage_options"], source)
    where = more.pop("scheduler") or "threads"
    reduction: Any = (how, {"ddof": ddof}) if ddof else how
    _, more = asked(reduce, target, more)
    show_and_run(reduce(read, reduction, by=labels, target=target, scheduler=where, **more), target, **shown)


def _labels(path: str) -> Any:
    place = check_path(path, "--by")
    try:
        if place.endswith(".npy"):
            return np.load(place, allow_pickle=False)
        return np.array(Path(place).read_text(encoding="utf-8").splitlines())
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"--by {path} cannot be read: {why}") from None


@command(
    update_array, show_and_run, leave_out=(*update_array.target, "ranks", "schedule", "scratch", "draw", "workers"),  # type: ignore[attr-defined]
    stopped=what_now,
)  # fmt: skip
def update_command(target: str, *, source: str | None = None, concat_dim: str | None = None, **how: Any) -> None:
    """Bring a rechunked array up to date with its source.

    target: result of an earlier rechunk
    source: location of the source, if it was moved or copied
    dry_run: print the changes and the plan; write nothing
    """
    shown = taken(how, show_and_run)
    read = None if source is None else sources_of(concat_dim, how["storage_options"], source)[0]
    where = how.pop("scheduler") or "threads"
    job: Any = update_array(target, source=read, scheduler=where, **asked(update_array, target, how)[1])
    done = "" if shown["dry_run"] or job.plan.changed else f"{target} is up to date"
    show_and_run(job, target, (), done, **shown)


@command(pyramid, show_and_run, leave_out=("draw", "workers"), stopped=what_now)
def pyramid_command(source: str, target: str, *, concat_dim: str | None = None, **how: Any) -> None:
    """Write an image in several resolutions, as an OME-Zarr group.

    source: image: a Zarr array, an OME-Zarr group, or a TIFF or other file; a path or a URL
    target: group of the levels: a path or a URL
    levels: number of levels, including the image (default: until axes have at most 256 elements)
    method: how elements are merged
    """
    how["chunks"] = _scalar(how["chunks"])
    _plan_and_run(pyramid, target, how, *sources_of(concat_dim, how["storage_options"], source))


@command(resume, show_and_run, leave_out=("kind", "parts", "workers"), stopped=what_now)
def resume_command(
    target: str,
    *,
    source: list[str] | tuple[()] = (),
    kernel: list[str] | tuple[()] = (),
    scheduler: str | None = None,
    concat_dim: str | None = None,
    **how: Any,
) -> None:
    """Continue a run that stopped.

    target: target of the stopped run
    source: location of the source, if it was moved or copied; repeated for several
    kernel MODULE:FUNCTION: function of the run, if it had one; repeated for several
    memory: memory budget of a process in bytes, such as 1GiB; the rest is planned anew (default: as before)
    ranks: number of logical processors; the rest is planned anew (default: as before)
    again: start over, with the source as it is now
    as_is: continue even if the source, or the code of the kernel, has changed
    verify: read written chunks too, and write those again that do not match their checksums
    scheduler: Dask scheduler whose workers run the job, or threads (default: as before)
    missing: chunks that the source lacks: read as fill value, with a warning, or an error (default: as before)
    dry_run: print the rest of the plan; write nothing
    """
    shown, place = taken(how, show_and_run), placer(how["storage_options"])(target)
    if holds_streams(place):
        _rebuild(place, json=shown["json"])
        return
    read = sources_of(concat_dim, how["storage_options"], *source) if source else None
    kernels = list(map(_kernel, kernel)) or None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the notices are printed below
        job = resume(target, source=read, kernel=kernels, scheduler=scheduler, **asked(resume, None, how)[1])
        kind = kind_left(place)
    done = f"{100 * (1 - job.left):.0f} % of {target} is done by {kind}; {100 * job.left:.0f} % is left"
    show_and_run(job, target, (done, *job.notices), **shown)


def _rebuild(place: Any, *, json: bool) -> None:
    done = StreamsJob(place).run()
    if json:
        print_json({"target": str(done.place), "bytes": done.nbytes, "flushed_bytes": done.flushed_bytes})
    else:
        more = format_bytes(done.nbytes - done.flushed_bytes)
        print(f"{done.place} is whole: {format_bytes(done.nbytes)} in IB, {more} of them not flushed before")


@command()
def demo_command(
    *, size: str = "512MiB", memory: str = "128MiB", folder: str | None = None, quiet: bool = False
) -> int:
    """Make an array that is larger than the memory budget, rechunk it, and check the result.

    size SIZE: bytes of the array
    memory: memory budget in bytes
    folder FOLDER: folder to work in (default: the system's temporary folder)
    """
    if folder is not None:
        folder = check_path(folder, "--folder")
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise InputError(f"--folder {folder} is not a folder that can be written to")
    nbytes, free = size_in_bytes(size, "size"), shutil.disk_usage(folder or tempfile.gettempdir()).free
    if 2 * nbytes > free:
        raise InputError(f"--size {size}: source and target need {2 * nbytes} bytes, and {free} are free")
    with tempfile.TemporaryDirectory(prefix="oocarrays-demo-", dir=folder) as work:
        rows, columns = Path(work, "rows.zarr"), Path(work, "columns.zarr")
        print(f"making an array of {size} in row slabs, to be rewritten in column slabs with {memory}")
        edge = _demo_array(rows, nbytes)
        job = rechunk(rows, columns, chunks=(edge, max(edge // 64, 1)), memory=memory, scheduler="threads")
        print(job)
        print("\n".join(run_and_report(job, progress=not quiet)[1]))
        wrong = _wrong_columns(columns, edge)
    print(f"WRONG: {wrong} columns differ" if wrong else "checked: every element is right")
    return FAILED if wrong else 0


def _demo_array(path: Path, nbytes: int) -> int:
    """Create a square array in row slabs, with ``i * edge + j`` in element (i, j); return the edge."""
    edge = max(int((nbytes / 8) ** 0.5), 1)
    array = zarr.create_array(path, shape=(edge, edge), chunks=(max(edge // 64, 1), edge), dtype="i8", compressors=None)
    step = max(edge // 64, 1)
    for start in range(0, edge, step):
        stop = min(start + step, edge)
        array[start:stop] = np.arange(start * edge, stop * edge).reshape(stop - start, edge)
    return edge


def _wrong_columns(path: Path, edge: int) -> int:
    array = open_array(path)
    step: int = array.chunks[1]
    first = np.arange(edge)[:, None] * edge
    return sum(
        int((array[:, start : start + step] != first + np.arange(start, min(start + step, edge))).any(axis=0).sum())
        for start in range(0, edge, step)
    )
