"""Plans for models of clusters: ``--workers`` with ``--dry-run``, and ``oocarrays plan --sweep``."""

from __future__ import annotations

import argparse
import itertools
import json
from dataclasses import asdict
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.options import shared_options, sources_of
from oocarrays.errors import BudgetError, InputError
from oocarrays.jobs.rechunking import rechunk
from oocarrays.jobs.stored import RechunkJob
from oocarrays.options.chunks import parsed_chunks
from oocarrays.options.networks import NETWORKS, planned_cluster
from oocarrays.show.pictures import load_picture
from oocarrays.show.report import SweptPlan, sweep_text

SWEPT = ("workers", "memory", "threads")
MOST_PLANS = 256
"""Maximum number of plans of a sweep."""


def cluster_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a model of a cluster."""
    parser.add_argument("--workers", type=int, help="with --dry-run: plan for so many workers that are not there")
    parser.add_argument("--worker-memory", metavar="SIZE", help="the limit of each of these, such as 4GiB")
    parser.add_argument("--worker-threads", type=int, default=1, help="threads of each (default: %(default)s)")
    parser.add_argument("--network", help=f"what carries their messages: {NETWORKS} (default: as calibrated)")
    parser.add_argument("--constants", metavar="NAME|FILE|TEXT", help="what messages take on it: see redistribute")
    parser.add_argument(
        "--storage", metavar="RATE", help="bytes a second that all of them read, and write, such as 10GB"
    )


def asked_cluster(options: argparse.Namespace) -> Any:
    if options.workers is None:
        return None
    if not options.dry_run:
        raise InputError(f"--workers {options.workers} are not there: add --dry-run, or give --scheduler ADDRESS")
    if options.scheduler is not None:
        raise InputError("--workers are of a cluster that is not there, --scheduler of one that is: give one of them")
    if options.worker_memory is None:
        raise InputError(f"--workers {options.workers} need --worker-memory, such as 4GiB")
    return _cluster(options, workers=options.workers, memory=options.worker_memory, threads=options.worker_threads)


def _cluster(options: argparse.Namespace, *, workers: int, memory: str, threads: int) -> Any:
    return planned_cluster(
        workers=workers,
        memory=memory,
        threads=threads,
        network=options.network,
        constants=options.constants,
        storage=options.storage,
    )


def plan_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``plan``."""
    parser.add_argument("source", metavar="SOURCE", help="a Zarr array")
    parser.add_argument("target", metavar="TARGET", help="where it would be written")
    parser.add_argument("--chunks", required=True, help="chunk length in each axis, such as 16384,256")
    parser.add_argument(
        "--sweep",
        metavar="NAME=VALUES",
        action="append",
        required=True,
        help="such as workers=8,64,512 or memory=2GiB,8GiB; once for each of workers, memory, threads",
    )
    cluster_options(parser)
    shared_options(parser, "concat-dim", "json", "draw", draw="draw seconds and tasks: .png, .svg, .pdf")
    parser.set_defaults(command=_plan)


def _plan(options: argparse.Namespace) -> None:
    swept = _swept(options)
    found = [_planned(options, dict(zip(SWEPT, each, strict=True))) for each in itertools.product(*swept.values())]
    print(json.dumps([asdict(each) for each in found]) if options.json else sweep_text(found))
    if options.draw:
        _draw(found, options.draw)


def _swept(options: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the values of each swept option: one, unless it is swept."""
    values: dict[str, list[Any]] = {
        "workers": [options.workers],
        "memory": [options.worker_memory],
        "threads": [options.worker_threads],
    }
    for text in options.sweep:
        name, equals, said = text.partition("=")
        if name not in SWEPT or not equals or not all(said.split(",")):
            raise InputError(f"--sweep {text!r} is not one of {', '.join(SWEPT)} with values, such as workers=8,64,512")
        whole = name != "memory"
        if whole and not all(each.isdecimal() for each in said.split(",")):
            raise InputError(f"--sweep {text!r}: {name} are whole numbers")
        values[name] = [int(each) if whole else each for each in said.split(",")]
    missing = [name for name, each in values.items() if each == [None]]
    if missing:
        option = {"workers": "--workers", "memory": "--worker-memory"}[missing[0]]
        raise InputError(f"nothing is said of {missing[0]}: give {option}, or --sweep {missing[0]}=…")
    if (many := len(list(itertools.product(*values.values())))) > MOST_PLANS:
        raise InputError(f"--sweep asks for {many} plans, more than {MOST_PLANS}")
    return values


def _planned(options: argparse.Namespace, how: dict[str, Any]) -> SweptPlan:
    """Plan for one cluster; if it does not fit, return the memory that it needs."""
    try:
        chunks = parsed_chunks(options.chunks)
    except ValueError:
        raise InputError(f"--chunks {options.chunks!r} is not a list of lengths such as 16384,256") from None
    (source,) = sources_of(options, options.source)
    try:
        job = rechunk(source, options.target, chunks=chunks, scheduler=_cluster(options, **how))
    except BudgetError as error:
        return SweptPlan(**how, why=f"needs {format_bytes(error.least)}")
    if not isinstance(job, RechunkJob):
        raise InputError(f"{options.source} is a group: plan its arrays one by one")
    plan = job.plan
    return SweptPlan(
        **how,
        strategy=plan.strategy,
        ranks=plan.ranks,
        seconds=plan.seconds,
        tasks=plan.traffic.tasks,
        bytes=plan.traffic.exchanged_bytes,
        peak_bytes=plan.peak_bytes,
    )


def _draw(found: list[SweptPlan], file: str) -> None:
    """Draw seconds, and tasks, against workers: a line for each memory and number of threads."""
    load_picture().check_file(file)
    load_picture().draw_sweep(found).savefig(file)
    print(f"drew {file}")
