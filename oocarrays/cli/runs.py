"""Commands ``oocarrays rechunk``, ``update``, ``pyramid``, ``resume`` and ``demo``, and their output."""

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
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from dask.utils import format_bytes

from oocarrays.arrays.array import open_array
from oocarrays.cli.main import FAILED
from oocarrays.cli.options import (
    SHARED,
    lengths,
    orientation,
    shared_options,
    sources_of,
    taken,
)
from oocarrays.cli.planning import asked_cluster, cluster_options
from oocarrays.errors import ChunksError, InputError, OocError, UnsupportedError
from oocarrays.graphs.settings import size_in_bytes
from oocarrays.jobs.job import Job
from oocarrays.jobs.pyramid import pyramid
from oocarrays.jobs.rechunking import rechunk
from oocarrays.jobs.stored import GroupJob, RechunkJob
from oocarrays.jobs.updating import update
from oocarrays.kernels.levels import METHODS as LEVEL_METHODS
from oocarrays.leftovers.resume import kind_left, resume, standing
from oocarrays.options.chunks import parsed_chunks
from oocarrays.options.rechunks import read_chunks
from oocarrays.plan.rechunk.ways import METHODS
from oocarrays.show import report
from oocarrays.show.pictures import load_picture
from oocarrays.storage.files.formats import NAMED_CODECS
from oocarrays.storage.files.group_file import holds_group
from oocarrays.storage.meter import MemoryWatch, anonymous_bytes
from oocarrays.storage.stores.urls import check_path
from oocarrays.stored.array import placer
from oocarrays.streaming.opening import holds_streams, rebuilt


def pyramid_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``pyramid``."""
    parser.add_argument("source", metavar="SOURCE", help="an image: a Zarr array, an OME-Zarr group, a TIFF file, …")
    parser.add_argument("target", metavar="TARGET", help="the group of levels, OME-Zarr: a path or a URL")
    shared_options(parser, "storage-option", "concat-dim")
    parser.add_argument("--levels", type=int, help="how many (default: until axes have at most 256 elements)")
    parser.add_argument(
        "--factor", default="2", help="from level to level, in space: 2; of each axis: 1,2,2; by name: z=1,y=2,x=2"
    )
    parser.add_argument("--scale", help="distance of two elements in space: 0.5; of each axis: 2,1,1; by name: z=2")
    parser.add_argument("--unit", help="of the scale in space: µm; of each axis, or by name: t=second,y=µm")
    parser.add_argument(
        "--method", choices=LEVEL_METHODS, default="mean", help="how values are made (default: %(default)s)"
    )
    parser.add_argument("--chunks", help="of the levels, as of rechunk (default: the source's)")
    shared_options(parser, "memory", "ranks", "scheduler", "missing", "dry-run")
    parser.add_argument("--overwrite", action="store_true", help="replace a Zarr group at TARGET")
    shared_options(parser, "resume", "quiet")
    parser.set_defaults(command=_pyramid, what_now=what_now, draw=None)


def _pyramid(options: argparse.Namespace) -> None:
    how = taken(options, "levels", "method", "memory", "ranks", "missing", "overwrite", "resume")
    chunks = None if options.chunks is None else _lengths("chunks", options.chunks)
    where = options.scheduler or "threads"
    (source,) = sources_of(options, options.source)
    job = pyramid(
        source, options.target, factor=_lengths("factor", options.factor), chunks=chunks, scheduler=where,
        scale=_values("scale", options.scale, float), unit=_values("unit", options.unit, str),
        storage_options=dict(options.storage_option), **how,
    )  # fmt: skip
    show_and_run(job, options)


def _lengths(name: str, text: str) -> Any:
    """Parse lengths; one number applies to all axes."""
    try:
        found = parsed_chunks(text)
    except ValueError:
        raise InputError(f"--{name} {text}: give a number, one for each axis (1,2,2), or by name (y=2,x=2)") from None
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


def _values(name: str, text: str | None, kind: Callable[[str], Any]) -> Any:
    """Parse values: one for all axes, one for each, or by name."""
    if text is None:
        return None
    pairs = [each.rpartition("=") for each in text.split(",")]
    try:
        values = {axis.strip() or number: kind(value.strip()) for number, (axis, _, value) in enumerate(pairs)}
    except ValueError:
        values = {}
    named = {bool(equals) for _, equals, _ in pairs}
    if len(values) != len(pairs) or len(named) > 1:
        raise InputError(f"--{name} {text}: give one value, one for each axis (a,b,c), or by name (y=a,x=b)")
    return values if named == {True} else values[0] if len(values) == 1 else tuple(values.values())


def demo_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``demo``."""
    parser.add_argument("--size", default="512MiB", help="bytes of the array (default: %(default)s)")
    parser.add_argument("--memory", default="128MiB", help="the budget (default: %(default)s)")
    parser.add_argument("--folder", help="where to work (default: the system's temporary folder)")
    parser.set_defaults(command=_demo)


def _demo(options: argparse.Namespace) -> int:
    if options.folder is not None:
        check_path(options.folder, "--folder")
        if not (os.path.isdir(options.folder) and os.access(options.folder, os.W_OK)):
            raise InputError(f"--folder {options.folder} is not a folder that can be written to")
    nbytes, free = size_in_bytes(options.size, "size"), shutil.disk_usage(options.folder or tempfile.gettempdir()).free
    if 2 * nbytes > free:
        raise InputError(f"--size {options.size}: source and target need {2 * nbytes} bytes, and {free} are free")
    with tempfile.TemporaryDirectory(prefix="oocarrays-demo-", dir=options.folder) as folder:
        rows, columns = Path(folder, "rows.zarr"), Path(folder, "columns.zarr")
        print(f"making an array of {options.size} in row slabs, to be rewritten in column slabs with {options.memory}")
        edge = _demo_array(rows, nbytes)
        job = rechunk(rows, columns, chunks=(edge, max(edge // 64, 1)), memory=options.memory, scheduler="threads")
        print(job)
        run_and_tell(job, progress=True)
        wrong = _wrong_columns(columns, edge)
    print("checked: every element is right" if not wrong else f"WRONG: {wrong} columns differ")
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
    """Return the number of wrong columns in the demo's target."""
    array = open_array(path)
    step: int = array.chunks[1]
    first = np.arange(edge)[:, None] * edge
    return sum(
        int((array[:, start : start + step] != first + np.arange(start, min(start + step, edge))).any(axis=0).sum())
        for start in range(0, edge, step)
    )


def rechunk_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``rechunk``."""
    parser.add_argument("source", metavar="SOURCE", help="a Zarr array, or a group of them")
    parser.add_argument("target", metavar="TARGET", help="where to write: a path, or a URL such as s3://bucket/a.zarr")
    shared_options(parser, "storage-option", "concat-dim")
    parser.add_argument(
        "--chunks",
        action="append",
        help="chunk length in each axis, such as 16384,256, or by name: time=-1,lat=20; -1 for a whole axis, auto or a "
        "size such as 128MiB to have it chosen. Of a group: NAME=LENGTHS for each array that is to be rechunked, as in "
        "air=16384,256,time=-1, in one word or in several --chunks; by dimensions: air=time:-1,lat:20. Arrays that are "
        "not named are copied as they are stored",
    )
    parser.add_argument(
        "--shards", type=lengths, help="shard length in each axis, a multiple of the chunk's (default: none)"
    )
    parser.add_argument(
        "--memory",
        help="bytes to hold at most, on a cluster in each worker, such as 1GiB (default: half of what is free, or what "
        "the workers' limits leave)",
    )
    shared_options(parser, "scheduler")
    cluster_options(parser)
    parser.add_argument("--orientation", type=orientation, help="row, column, or axes from slowest to fastest: 2,0,1")
    shared_options(parser, "ranks")
    parser.add_argument("--method", choices=("auto", *METHODS), default="auto", help="(default: %(default)s)")
    parser.add_argument("--schedule", help="order of messages: gen, coloring, unordered, … (default: auto)")
    parser.add_argument("--codec", choices=sorted(NAMED_CODECS), help="codec of the target (default: the source's)")
    parser.add_argument(
        "--zarr-format",
        type=int,
        choices=(2, 3),
        help="of the target (default: the source's); a group, too, changes it",
    )
    parser.add_argument(
        "--scratch",
        action="append",
        help="folder for what is written on the way, once for each of several disks (default: beside the target)",
    )
    shared_options(parser, "missing", "dry-run", dry_run="show the plan and every strategy considered; do nothing")
    parser.add_argument("--overwrite", action="store_true", help="replace a Zarr array at TARGET")
    shared_options(parser, "resume")
    parser.add_argument(
        "--update", action="store_true", help="bring a Zarr array at TARGET up to date that was made of SOURCE"
    )
    shared_options(parser, "draw", "quiet")
    parser.set_defaults(command=_rechunk, what_now=what_now)


def resume_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``resume``."""
    shared_options(parser, "storage-option")
    parser.add_argument("target", metavar="TARGET", help="where the run was writing")
    parser.add_argument(
        "--source", metavar="SOURCE", action="append", help="what it was reading, where that has been moved or copied"
    )
    shared_options(parser, "concat-dim")
    parser.add_argument(
        "--kernel", metavar="MODULE:NAME", action="append", help="the function of a pass over slabs: it is imported"
    )
    shared_options(
        parser, "memory", "ranks", memory="other memory, such as 1GiB: what is left is planned anew",
        ranks="other logical processors: what is left is planned anew",
    )  # fmt: skip
    changed = parser.add_mutually_exclusive_group()
    changed.add_argument("--again", action="store_true", help="start over, with the source as it is now")
    changed.add_argument("--as-is", action="store_true", help="go on though the source has changed since")
    parser.add_argument(
        "--verify", action="store_true", help="read what was written, and write again what is not as it was"
    )
    shared_options(
        parser, "scheduler", "missing", "dry-run", "draw", "quiet",
        scheduler="the cluster to run on, or threads (default: where the run was planned for)",
        missing=SHARED["missing"]["help"].replace("the setting, fill", "as the run was asked"),
        dry_run="show what is left to do; do nothing",
    )  # fmt: skip
    parser.set_defaults(command=_resume, what_now=what_now)


def update_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``update``."""
    shared_options(parser, "storage-option")
    parser.add_argument("target", metavar="TARGET", help="what rechunk has written")
    parser.add_argument("--source", metavar="SOURCE", help="what it was made of, where that has been moved or copied")
    shared_options(
        parser, "concat-dim", "resume", "memory", "scheduler", "missing", "dry-run", "quiet",
        dry_run="show what has changed, and the plan; do nothing",
    )  # fmt: skip
    parser.set_defaults(command=_update, what_now=what_now, draw=None)


def _update(options: argparse.Namespace) -> None:
    how = taken(options, "memory", "missing", "resume")
    how["source"] = sources_of(options, options.source)[0] if options.source else None
    where = options.scheduler or "threads"
    job = update(options.target, **how, storage_options=dict(options.storage_option), scheduler=where)
    if options.dry_run or job.plan.changed:
        show_and_run(job, options)
    else:
        print(f"{options.target} is up to date")


def what_now(options: argparse.Namespace) -> str:
    """Return the next step after an interruption, as text."""
    with suppress(OocError):
        left = standing(placer(dict(options.storage_option))(options.target))
        if left is not None:
            at = "" if left.done is None else f" at {100 * left.done:.0f} %"
            return f"{at}; what was written stays, go on with: oocarrays resume {shlex.quote(options.target)}"
    return ""


def _chunks(options: argparse.Namespace, source: Any) -> Any:
    """Return the chunks of the ``--chunks`` options, of one array or of the arrays of a group."""
    if holds_group(placer(dict(options.storage_option))(source)):
        return read_chunks(options.chunks)
    text = ",".join(options.chunks)
    try:
        return parsed_chunks(text)
    except ValueError:
        raise ChunksError(
            f"--chunks {text!r} is not a list of lengths such as 16384,256, or time=-1,lat=20, auto, 128MiB"
        ) from None


def _rechunk(options: argparse.Namespace) -> None:
    if options.chunks is options.orientation is options.zarr_format is None and not options.update:
        raise ChunksError("--chunks is needed, --orientation to have them chosen, or --zarr-format to keep them")
    (source,) = sources_of(options, options.source)
    how = taken(
        options, "update", "shards", "orientation", "memory", "ranks", "method", "schedule", "zarr_format", "overwrite",
        "resume", "scratch", "missing",
    )  # fmt: skip
    job: Job[Any, Any] = rechunk(
        source,
        options.target,
        chunks=None if options.chunks is None else _chunks(options, source),
        compressors=options.codec,
        filters=None if options.codec is None else (),
        storage_options=dict(options.storage_option),
        scheduler=asked_cluster(options) or options.scheduler or "threads",
        **how,
    )
    show_and_run(job, options)


def show_and_run(job: Job[Any, Any], options: argparse.Namespace, *, resumed: bool = False) -> None:
    """Print the plan of a job, or run it and print the result."""
    if job.is_finished:
        print(f"{options.target}: {job.notices[0]}")
        return
    if options.draw:
        if isinstance(job, GroupJob):
            raise UnsupportedError(
                "--draw shows the plan of one array; of a group: dict(job.plan.members)[NAME].draw()"
            )
        if not isinstance(job, RechunkJob):
            raise UnsupportedError(f"--draw shows the plan of a rechunk; there is no drawing of a {type(job).__name__}")
        load_picture().check_file(options.draw)
    if options.dry_run:
        print(job.explain())
    else:
        if not options.quiet:
            print("\n".join([str(job), *(() if resumed else job.notices)]))
        run_and_tell(job, progress=not options.quiet)
    if options.draw and isinstance(job, RechunkJob):
        job.draw().savefig(options.draw)
        print(f"drew {options.draw}")


def _resume(options: argparse.Namespace) -> None:
    place = placer(dict(options.storage_option))(options.target)
    if holds_streams(place):
        done = rebuilt(place)
        more = format_bytes(done.nbytes - done.flushed_bytes)
        print(f"{done.place} is whole: {format_bytes(done.nbytes)} in IB, {more} of them not flushed before")
        return
    how = taken(options, "missing", "scheduler", "memory", "ranks", "kernel", "again", "as_is", "verify")
    how["source"] = sources_of(options, *options.source) if options.source else None
    if options.kernel:
        sys.path.insert(0, os.getcwd())  # as python -m has it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the same is printed below
        job: Job[Any, Any] = resume(options.target, storage_options=dict(options.storage_option), **how)
        kind = kind_left(placer(dict(options.storage_option))(options.target))
    print(f"{100 * (1 - job.left):.0f} % of {options.target} is done by {kind}; {100 * job.left:.0f} % is left")
    for notice in job.notices:
        print(notice)
    show_and_run(job, options, resumed=True)


def run_and_tell(job: Job[Any, Any], *, progress: bool) -> None:
    """Run a job, and print its targets, speed and memory."""
    with MemoryWatch() as watch:
        target = job.run(progress=progress)
    seconds = job.measured_seconds or 1e-9
    budget = f"{job.plan.budget / 2**20:.0f} MiB"
    held = f"{watch.peak_bytes / 2**20:.0f} MiB held at most of {budget}" if anonymous_bytes() else f"in {budget}"
    workers = len(set(job.placement.values()))
    where = f"{workers} workers of {budget}" if workers else held
    made = target if isinstance(target, list) else [target]
    share = getattr(job.plan, "target_share", 1.0)
    rate = job.left * share * sum(each.nbytes for each in made) / 1e6 / seconds
    print(f"wrote {', '.join(str(each.store) for each in made)}: {rate:.0f} MB/s, {seconds:.2f} s, {where}")
    for move in job.moves:
        print(report.move_text(move, job.placement))
