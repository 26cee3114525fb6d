"""Calibration of this machine and of a cluster: ``oocarrays calibrate`` measures the costs for plans."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from dask.utils import format_bytes

from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import command
from oocarrays.graphs.calibrate.machine import calibrate
from oocarrays.graphs.calibrate.striping import calibrate_disks
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.settings import costs, keep, keep_disks
from oocarrays.plan.documents import Document
from oocarrays.show import report


@command()
def calibrate_command(
    *, store: str | None = None, scheduler: str | None = None, disks: list[str] | tuple[()] = (), json: bool = False
) -> None:
    """Measure the speed of this machine, and keep it for all later plans.

    store: folder on the device to be measured (default: the current folder)
    scheduler: address of a Dask scheduler: measure its workers too, and messages between them
    disks: disks to measure instead, for striped arrays: folders
    """
    rows, document = _disks(list(disks)) if disks else _machine(store, scheduler)
    print_json(document) if json else print(f"{report.table(rows)}\nkept in {document['file']}")


def _disks(disks: list[str]) -> tuple[list[tuple[str, ...]], Document]:
    """Measure disks alone and together: the milliseconds of a block at each."""
    kept = calibrate_disks(disks)
    path = keep_disks(kept)
    measured = [
        (each.mode, disk, row.block, row.times.disks[place])
        for each in kept
        for place, disk in enumerate(each.disks)
        for row in each.measured
    ]
    rows = [(mode, disk, format_bytes(block), f"{1e3 * took:.2f} ms") for mode, disk, block, took in measured]
    names = ("mode", "disk", "block_bytes", "seconds")
    document = {"file": str(path), "disks": [dict(zip(names, each, strict=True)) for each in measured]}
    return [("", "disk", "block", "takes"), *rows], document


def _machine(store: str | None, scheduler: Any) -> tuple[list[tuple[str, ...]], Document]:
    """Measure this machine, and the workers of a cluster."""
    client = client_of(scheduler or "threads")
    planned = asdict(costs())
    measured = calibrate(store)
    if client:
        with client.as_current():
            measured |= calibrate_workers(client)
    path = keep(measured)
    rows = [(name, report.number_text(planned[name]), report.number_text(value)) for name, value in measured.items()]
    return [("oocarrays.cost.", "planned with", "measured"), *rows], {"file": str(path), "cost": measured}
