"""This machine, and a cluster: ``oocarrays calibrate`` measures what plans are made by."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from oocarrays.cli.options import Commands, scheduler_option
from oocarrays.graphs.calibrate.machine import calibrate, keep
from oocarrays.graphs.calibrate.workers import calibrate_workers
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.settings import costs
from oocarrays.show import report


def add_calibrate(commands: Commands) -> None:
    """Put ``calibrate`` beside the others of the command line."""
    measure = commands.add_parser("calibrate", help="measure this machine, and plan by what was measured from now on")
    measure.add_argument("--store", metavar="PATH", help="a folder on the device to be measured (default: this one)")
    scheduler_option(measure, "measure the workers of a cluster, too, and messages between them")
    measure.set_defaults(command=_calibrate)


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
