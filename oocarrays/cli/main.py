"""The command line: ``oocarrays demo | rechunk | resume | clean | info | calibrate | schedule | redistribute``."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn, get_args

import numpy as np
import zarr
from dask.utils import format_bytes

from oocarrays.arrays.array import open_array
from oocarrays.cli.advise import add_commands as add_advise
from oocarrays.cli.exchange import add_commands
from oocarrays.cli.planning import add_commands as add_plan
from oocarrays.cli.planning import asked_cluster, cluster_options
from oocarrays.cli.requests import add_commands as add_requests
from oocarrays.cli.sections import add_section_commands
from oocarrays.cli.stripes import add_commands as add_stripes
from oocarrays.errors import ChunksError, InputError, OocError, UnsupportedError
from oocarrays.graphs.calibrate.machine import calibrate, keep
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.run.missing import MissingChunksWarning
from oocarrays.graphs.settings import costs, size_in_bytes
from oocarrays.jobs.group import GroupJob
from oocarrays.jobs.job import Job
from oocarrays.jobs.rechunking import RechunkJob, clean, load_picture, rechunk
from oocarrays.leftovers.resume import kind_left, resume
from oocarrays.options.chunks import parsed_chunks
from oocarrays.options.group_chunks import read_chunks
from oocarrays.plan.rechunk.ways import METHODS
from oocarrays.show import report
from oocarrays.show.contents import GroupFacts, array_rows, as_json, contents, tree
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.group_file import holds_group
from oocarrays.storage.files.presence import Policy
from oocarrays.storage.journal.leftovers import Leftover, find_leftovers
from oocarrays.storage.meter import MemoryWatch
from oocarrays.storage.stores.urls import check_path
from oocarrays.storage.streams.rebuilding import Rebuilt
from oocarrays.stored.array import placer
from oocarrays.streaming.rebuilding import holds_streams, rebuilt, stream_rows

WRONG_INPUT, FAILED = 2, 1
INTERRUPTED = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
CODECS = {
    "none": (),
    "zstd": zarr.codecs.ZstdCodec(),
    "blosc": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle"),
    "gzip": zarr.codecs.GzipCodec(),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line, and the exit code of wrong input."""
        print(f"{self.prog}: {OocError(message)} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(WRONG_INPUT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0, 1 where a run failed, 2 for wrong input."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files may be no text
    options = _parser().parse_args(_with_negative_chunks(sys.argv[1:] if arguments is None else arguments))
    try:
        with _terminated_as_interrupted(), _warnings_in_a_line():
            return int(options.command(options) or 0)
    except InputError as error:
        print(f"oocarrays: {error}", file=sys.stderr)
        return WRONG_INPUT
    except OocError as error:
        print(f"oocarrays: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0] if interrupt.args else signal.SIGINT
        print(f"oocarrays: {INTERRUPTED[number]}{_what_now(options)}", file=sys.stderr)
        return 128 + int(number)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM, by which batch systems end a job, end a command as Ctrl-C does: in order, and with a word."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt(number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


@contextmanager
def _warnings_in_a_line() -> Iterator[None]:
    """Show our own warnings as our errors are shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", MissingChunksWarning)
        shown = warnings.showwarning

        def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, MissingChunksWarning):
                print(f"oocarrays: {message}", file=sys.stderr)
            else:
                shown(message, category, *where, **more)

        warnings.showwarning = show
        yield


def _what_now(options: argparse.Namespace) -> str:
    """Say how to go on after an interruption."""
    target = getattr(options, "target", None)
    if target is None:
        return ""
    with suppress(OocError):
        if unfinished_run(placer(dict(options.storage_option))(target)) is None:
            return ""
    return f"; what was written stays, go on with: oocarrays resume {shlex.quote(target)}"


def _with_negative_chunks(arguments: Sequence[str]) -> list[str]:
    """Let ``--chunks -1,8`` and ``--shards -1,8`` be written as they are read: argparse takes ``-1,8`` for an option.

    >>> _with_negative_chunks(["a", "--chunks", "-1,8"])
    ['a', '--chunks=-1,8']
    """
    joined: list[str] = []
    for word in arguments:
        if joined and joined[-1] in ("--chunks", "--shards") and word.startswith("-"):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="oocarrays", description="Rewrite Zarr arrays larger than memory, in a memory budget.")
    parser.add_argument("--version", action="version", version=f"oocarrays {version('oocarrays')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _demo_options(commands.add_parser("demo", help="rechunk an array larger than its budget, and check it"))
    _rechunk_options(commands.add_parser("rechunk", help="write an array again in other chunks"))
    _resume_options(commands.add_parser("resume", help="go on with a run that stopped"))
    _clean_options(commands.add_parser("clean", help="remove what dead runs have left in a folder"))
    info = commands.add_parser("info", help="show what a store holds: an array, or a group as a tree")
    info.add_argument("store", metavar="STORE")
    info.add_argument("--json", action="store_true", help="for machines")
    _store_options(info)
    info.set_defaults(command=_info)
    measure = commands.add_parser("calibrate", help="measure this machine, and plan by what was measured from now on")
    measure.add_argument("--store", metavar="PATH", help="a folder on the device to be measured (default: this one)")
    _scheduler_option(measure, "measure the workers of a cluster, too, and messages between them")
    measure.set_defaults(command=_calibrate)
    add_commands(commands)
    add_requests(commands)
    add_plan(commands)
    _store_options(add_stripes(commands))
    add_advise(commands)
    reading = add_section_commands(commands)
    _store_options(reading)
    _missing_option(reading)
    return parser


def _demo_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", default="512MiB", help="bytes of the array (default: %(default)s)")
    parser.add_argument("--memory", default="128MiB", help="the budget (default: %(default)s)")
    parser.add_argument("--folder", help="where to work (default: the system's temporary folder)")
    parser.set_defaults(command=_demo)


def _rechunk_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a Zarr array, or a group of them")
    parser.add_argument("target", metavar="TARGET", help="where to write: a path, or a URL such as s3://bucket/a.zarr")
    _store_options(parser)
    parser.add_argument(
        "--chunks",
        action="append",
        help="chunk length in each axis, such as 16384,256, or by name: time=-1,lat=20; -1 for a whole axis, auto or a "
        "size such as 128MiB to have it chosen. Of a group: NAME=LENGTHS for each array that is to be rechunked, as in "
        "air=16384,256,time=-1, in one word or in several --chunks; by dimensions: air=time:-1,lat:20. Arrays that are "
        "not named are copied as they are stored",
    )
    parser.add_argument(
        "--shards", type=_lengths, help="shard length in each axis, a multiple of the chunk's (default: none)"
    )
    parser.add_argument(
        "--memory",
        help="bytes to hold at most, on a cluster in each worker, such as 1GiB (default: half of what is free, or what "
        "the workers' limits leave)",
    )
    _scheduler_option(parser, "run on the workers of a cluster (default: on threads of this process)")
    cluster_options(parser)
    parser.add_argument("--orientation", type=_orientation, help="row, column, or axes from slowest to fastest: 2,0,1")
    parser.add_argument("--ranks", type=int, help="logical processors (default: the plan chooses)")
    parser.add_argument("--method", choices=("auto", *METHODS), default="auto", help="(default: %(default)s)")
    parser.add_argument("--schedule", help="the order in which ranks exchange, such as gen (default: auto)")
    parser.add_argument("--codec", choices=sorted(CODECS), help="codec of the target (default: the source's)")
    parser.add_argument("--zarr-format", type=int, choices=(2, 3), help="of the target (default: the source's)")
    parser.add_argument("--scratch", help="folder for what is written on the way (default: beside the target)")
    _missing_option(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="show the plan and every strategy considered; do nothing"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a Zarr array at TARGET")
    _draw_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no plan, no bar")
    parser.set_defaults(command=_rechunk)


def _missing_option(parser: argparse.ArgumentParser, default: str = "the setting, fill") -> None:
    """Let a command say what is made of chunks that are not there."""
    parser.add_argument(
        "--missing",
        choices=get_args(Policy),
        help="what is made of a chunk that is not there: the fill value, that and a warning, or an error "
        f"(default: {default})",
    )


def _scheduler_option(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--scheduler", metavar="ADDRESS", type=_address, help=what)


def _store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage-option",
        metavar="NAME=VALUE",
        type=_storage_option,
        action="append",
        default=[],
        help="how URLs are opened, such as endpoint_url=http://127.0.0.1:9000 or anon=true; once for each",
    )


def _storage_option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, {"true": True, "false": False}.get(value.lower(), value)


def _resume_options(parser: argparse.ArgumentParser) -> None:
    _store_options(parser)
    parser.add_argument("target", metavar="TARGET", help="where the run was writing")
    parser.add_argument(
        "--source", metavar="SOURCE", action="append", help="what it was reading, where that has been moved or copied"
    )
    parser.add_argument(
        "--kernel", metavar="MODULE:NAME", action="append", help="the function of a pass over slabs: it is imported"
    )
    parser.add_argument("--memory", help="other memory, such as 1GiB: what is left is planned anew")
    parser.add_argument("--ranks", type=int, help="other logical processors: what is left is planned anew")
    changed = parser.add_mutually_exclusive_group()
    changed.add_argument("--again", action="store_true", help="start over, with the source as it is now")
    changed.add_argument("--as-is", action="store_true", help="go on though the source has changed since")
    parser.add_argument(
        "--verify", action="store_true", help="read what was written, and write again what is not as it was"
    )
    _scheduler_option(parser, "the cluster to run on, or threads (default: where the run was planned for)")
    _missing_option(parser, "as the run was asked")
    parser.add_argument("--dry-run", action="store_true", help="show what is left to do; do nothing")
    _draw_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no plan, no bar")
    parser.set_defaults(command=_resume)


def _draw_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draw", metavar="FILE", help="draw the plan, and what a run measured: .png, .svg, .pdf")


def _clean_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", metavar="PATH", help="a folder")
    parser.add_argument("--unfinished", action="store_true", help="remove unfinished targets, too: see resume")
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed; do nothing")
    parser.set_defaults(command=_clean)


def _chunks(options: argparse.Namespace) -> Any:
    """Return the chunks that ``--chunks`` options ask for, of one array or of the arrays of a group."""
    if holds_group(placer(dict(options.storage_option))(options.source)):
        return read_chunks(options.chunks)
    text = ",".join(options.chunks)
    try:
        return parsed_chunks(text)
    except ValueError:
        raise ChunksError(
            f"--chunks {text!r} is not a list of lengths such as 16384,256, or time=-1,lat=20, auto, 128MiB"
        ) from None


def _lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of lengths such as 16384,256") from None


def _address(text: str) -> str:
    """Where a scheduler is: a client that is given less takes long to give up, and more than a line."""
    from distributed.comm.addressing import get_address_host_port

    if text == "threads":
        return text
    try:
        get_address_host_port(text)
    except (ValueError, NotImplementedError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as tcp://127.0.0.1:8786: {error}") from None
    return text


def _orientation(text: str) -> str | tuple[int, ...]:
    return text if text in ("row", "column") else _lengths(text)


def _rechunk(options: argparse.Namespace) -> None:
    if options.chunks is None and options.orientation is None:
        raise ChunksError("--chunks is needed, or --orientation to have them chosen")
    job = rechunk(
        options.source,
        options.target,
        chunks=None if options.chunks is None else _chunks(options),
        shards=options.shards,
        orientation=options.orientation,
        memory=options.memory,
        ranks=options.ranks,
        method=options.method,
        schedule=options.schedule,
        compressors=None if options.codec is None else CODECS[options.codec],
        filters=None if options.codec is None else (),
        zarr_format=options.zarr_format,
        overwrite=options.overwrite,
        scratch=options.scratch,
        missing=options.missing,
        storage_options=dict(options.storage_option),
        scheduler=asked_cluster(options) or options.scheduler or "threads",
    )
    _show_and_run(job, options)


def _show_and_run(job: Job[Any, Any], options: argparse.Namespace) -> None:
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
            print(job)
        _run(job, progress=not options.quiet)
    if options.draw and isinstance(job, RechunkJob):
        job.draw().savefig(options.draw)
        print(f"drew {options.draw}")


def _resume(options: argparse.Namespace) -> None:
    place = placer(dict(options.storage_option))(options.target)
    if holds_streams(place):
        print(_rebuilt_text(rebuilt(place)))
        return
    how = {name: getattr(options, name) for name in ("missing", "scheduler", "memory", "ranks")}
    names = ("source", "kernel", "again", "as_is", "verify")
    trust = {name: getattr(options, name) for name in names}
    if options.kernel:
        sys.path.insert(0, os.getcwd())  # as python -m has it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the same is printed below
        job: Job[Any, Any] = resume(options.target, storage_options=dict(options.storage_option), **how, **trust)
        kind = kind_left(placer(dict(options.storage_option))(options.target))
    print(f"{100 * (1 - job.left):.0f} % of {options.target} is done by {kind}; {100 * job.left:.0f} % is left")
    for notice in job.notices:
        print(notice)
    _show_and_run(job, options)


def _rebuilt_text(done: Rebuilt) -> str:
    more = format_bytes(done.nbytes - done.flushed_bytes)
    return f"{done.place} is whole: {format_bytes(done.nbytes)} in IB, {more} of them not flushed before"


def _clean(options: argparse.Namespace) -> None:
    removed = clean(options.path, unfinished=options.unfinished, dry_run=options.dry_run)
    kept = [each for each in find_leftovers(options.path) if each not in removed]
    rows = [*_leftover_rows(removed, "to be removed" if options.dry_run else "removed"), *_leftover_rows(kept, "")]
    print(report.table(rows) if rows else f"nothing was left in {options.path}")


def _leftover_rows(leftovers: Sequence[Leftover], word: str) -> list[tuple[str, ...]]:
    """List the leftovers that were found, each with what became of it."""
    reasons = {True: "kept: a run is at work on it", False: "kept: resume it, or ask for --unfinished"}
    return [(each.kind, format_bytes(each.nbytes), word or reasons[each.alive], each.path) for each in leftovers]


def _run(job: Job[Any, Any], *, progress: bool) -> None:
    with MemoryWatch() as watch:
        target = job.run(progress=progress)
    seconds = job.measured_seconds or 1e-9
    budget = f"{job.plan.budget / 2**20:.0f} MiB"
    held = f"{watch.peak_bytes / 2**20:.0f} MiB held at most of {budget}"
    workers = len(set(job.placement.values()))
    where = f"{workers} workers of {budget}" if workers else held
    made = target if isinstance(target, list) else [target]
    rate = job.left * sum(each.nbytes for each in made) / 1e6 / seconds
    print(f"wrote {', '.join(str(each.store) for each in made)}: {rate:.0f} MB/s, {seconds:.2f} s, {where}")
    for move in job.moves:
        print(report.move_text(move, job.placement))


def _info(options: argparse.Namespace) -> None:
    place = placer(dict(options.storage_option))(options.store)
    if holds_streams(place) and not options.json:
        print(report.table(stream_rows(place)))
        return
    found = contents(place)
    if options.json:
        print(json.dumps(as_json(found), ensure_ascii=False, indent=2, allow_nan=False))
    elif isinstance(found, GroupFacts):
        print(tree(found, options.store))
    else:
        print(report.table(array_rows(found)))


def _calibrate(options: argparse.Namespace) -> None:
    client = client_of(options.scheduler or "threads")
    planned = asdict(costs())
    measured = calibrate(options.store)
    if client:
        with client.as_current():
            measured |= calibrate_workers(client)
    path = keep(measured)
    rows = [(name, report.number_text(planned[name]), report.number_text(value)) for name, value in measured.items()]
    print(report.table([("oocarrays.cost.", "planned with", "measured"), *rows]))
    print(f"kept in {path}")


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
        _run(job, progress=True)
        wrong = _wrong_columns(columns, edge)
    print("checked: every element is right" if not wrong else f"WRONG: {wrong} columns differ")
    return FAILED if wrong else 0


def _demo_array(path: Path, nbytes: int) -> int:
    """Make a square array whose element (i, j) is ``i * edge + j``, in row slabs; returns the edge."""
    edge = max(int((nbytes / 8) ** 0.5), 1)
    array = zarr.create_array(path, shape=(edge, edge), chunks=(max(edge // 64, 1), edge), dtype="i8", compressors=None)
    step = max(edge // 64, 1)
    for start in range(0, edge, step):
        stop = min(start + step, edge)
        array[start:stop] = np.arange(start * edge, stop * edge).reshape(stop - start, edge)
    return edge


def _wrong_columns(path: Path, edge: int) -> int:
    """Columns of the demo's target that do not hold what they should."""
    array = open_array(path)
    step: int = array.chunks[1]
    first = np.arange(edge)[:, None] * edge
    return sum(
        int((array[:, start : start + step] != first + np.arange(start, min(start + step, edge))).any(axis=0).sum())
        for start in range(0, edge, step)
    )
