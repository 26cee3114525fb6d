"""Calibration of this machine and of a cluster: ``oocarrays calibrate`` measures the costs for plans."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from dask.utils import format_bytes

from oocarrays.cli.options import shared_options
from oocarrays.graphs.calibrate.machine import calibrate
from oocarrays.graphs.calibrate.striping import calibrate_disks
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.settings import costs, keep, keep_disks
from oocarrays.show import report


def calibrate_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``calibrate``."""
    parser.add_argument("--store", metavar="PATH", help="a folder on the device to be measured (default: this one)")
    shared_options(parser, "scheduler", scheduler="measure the workers of a cluster, too, and messages between them")
    parser.add_argument("--disks", metavar="DISK", nargs="+", help="measure these disks instead, for striped arrays")
    parser.set_defaults(command=_calibrate)


def _calibrate(options: argparse.Namespace) -> None:
    if options.disks:
        _calibrate_disks(options.disks)
    else:
        _calibrate_machine(options)


def _calibrate_disks(disks: list[str]) -> None:
    """Measure disks alone and together, and print the milliseconds of a block at each."""
    kept = calibrate_disks(disks)
    path = keep_disks(kept)
    rows = [
        (each.mode, disk, format_bytes(row.block), f"{1e3 * row.times.disks[place]:.2f} ms")
        for each in kept
        for place, disk in enumerate(each.disks)
        for row in each.measured
    ]
    print(report.table([("", "disk", "block", "takes"), *rows]))
    print(f"kept in {path}")


def _calibrate_machine(options: argparse.Namespace) -> None:
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
