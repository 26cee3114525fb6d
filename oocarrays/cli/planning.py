"""Plans for models of clusters: ``--workers`` with ``--dry-run``, and ``oocarrays plan --sweep``."""

from __future__ import annotations

import itertools
from dataclasses import asdict
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.options import sources_of
from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import command
from oocarrays.errors import BudgetError, InputError
from oocarrays.jobs.rechunking import rechunk
from oocarrays.jobs.stored import RechunkJob
from oocarrays.options.networks import planned_cluster
from oocarrays.show.pictures import load_picture
from oocarrays.show.report import SweptPlan, sweep_text

SWEPT = ("workers", "memory", "threads")
MOST_PLANS = 256
"""Maximum number of plans of a sweep."""


def planned_for(
    scheduler: str | None,
    dry_run: bool,
    /,
    *,
    workers: int | None = None,
    worker_memory: str | None = None,
    worker_threads: int = 1,
    network: str | None = None,
    constants: str | None = None,
    storage: str | None = None,
) -> Any:
    """Return the scheduler of a plan: a model of a cluster, an address, or threads.

    workers: with --dry-run: plan for a cluster of N workers that does not exist
    worker_memory SIZE: memory limit of each of these workers in bytes, such as 4GiB
    worker_threads: threads of each of these workers
    network: network of these workers: see schedule --help (default: as calibrated)
    storage RATE: bytes a second that all of these workers together read, and write, such as 10GB (default: no limit)
    """
    if workers is None:
        return scheduler or "threads"
    if not dry_run:
        raise InputError(f"--workers {workers} is for plans: add --dry-run, or give --scheduler ADDRESS")
    if scheduler is not None:
        raise InputError("--workers plans for a cluster that does not exist, --scheduler for one that does: give one")
    if worker_memory is None:
        raise InputError(f"--workers {workers} needs --worker-memory, such as 4GiB")
    return planned_cluster(
        workers=workers, memory=worker_memory, threads=worker_threads, network=network, constants=constants,
        storage=storage,
    )  # fmt: skip


@command(planned_for)
def plan_command(
    source: str,
    target: str,
    *,
    chunks: str,
    sweep: list[str],
    concat_dim: str | None = None,
    draw: str | None = None,
    json: bool = False,
    **cluster: Any,
) -> None:
    """Plan a rechunk for clusters that do not exist.

    source: array to read: a path or URL of Zarr, or of a file of another format
    chunks: chunk length of each axis in elements, such as 16384,256 or time=-1,lat=20
    workers: number of workers, unless it is swept
    sweep NAME=VALUES: workers, memory or threads to plan for, such as workers=8,64 or memory=2GiB,8GiB; may be repeated
    draw: draw seconds and tasks to a .png, .svg or .pdf file
    """
    if draw:
        load_picture().check_file(draw)
    swept = _swept(sweep, cluster)
    (read,) = sources_of(concat_dim, None, source)
    found = []
    for values in itertools.product(*swept.values()):
        one = dict(zip(SWEPT, values, strict=True))
        how = cluster | {"workers": one["workers"], "worker_memory": one["memory"], "worker_threads": one["threads"]}
        found.append(_planned(read, target, chunks, one, planned_for(None, True, **how)))
    print_json({"plans": list(map(asdict, found))}) if json else print(sweep_text(found))
    if draw:
        load_picture().draw_sweep(found).savefig(draw)
        print("" if json else f"drew {draw}\n", end="")


def _swept(sweep: list[str], cluster: dict[str, Any]) -> dict[str, list[Any]]:
    """Return the values of each swept option: one, unless it is swept."""
    values: dict[str, list[Any]] = {
        "workers": [cluster["workers"]],
        "memory": [cluster["worker_memory"]],
        "threads": [cluster["worker_threads"]],
    }
    for text in sweep:
        name, equals, said = text.partition("=")
        if name not in SWEPT or not equals or not all(said.split(",")):
            raise InputError(f"--sweep {text!r} is not one of {', '.join(SWEPT)} with values, such as 'workers=8,64'")
        whole = name != "memory"
        if whole and not all(each.isdecimal() for each in said.split(",")):
            raise InputError(f"--sweep {text!r}: {name} are whole numbers")
        values[name] = [int(each) if whole else each for each in said.split(",")]
    missing = [name for name, each in values.items() if each == [None]]
    if missing:
        option = {"workers": "--workers", "memory": "--worker-memory"}[missing[0]]
        raise InputError(f"--sweep needs the {missing[0]} of the clusters: add {option}, or --sweep {missing[0]}=…")
    if (many := len(list(itertools.product(*values.values())))) > MOST_PLANS:
        raise InputError(f"--sweep asks for {many} plans, more than {MOST_PLANS}")
    return values


def _planned(source: Any, target: str, chunks: Any, one: dict[str, Any], cluster: Any) -> SweptPlan:
    """Plan for one cluster; if it does not fit, return the memory that it needs."""
    try:
        job = rechunk(source, target, chunks=chunks, scheduler=cluster)
    except BudgetError as error:
        return SweptPlan(**one, why=f"needs {format_bytes(error.least)}")
    if not isinstance(job, RechunkJob):
        raise InputError(f"{source} is a group: plan its arrays one by one")
    plan = job.plan
    return SweptPlan(
        **one,
        strategy=plan.strategy,
        ranks=plan.ranks,
        seconds=plan.seconds,
        tasks=plan.traffic.tasks,
        bytes=plan.traffic.exchanged_bytes,
        peak_bytes=plan.peak_bytes,
    )
