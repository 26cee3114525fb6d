"""Commands that show exchanges before they are run: ``oocarrays schedule``."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from oocarrays.errors import ScheduleError
from oocarrays.exchanges import NETWORKS, parsed_network, schedule_json, schedule_text
from oocarrays.graphs.settings import costs, size_in_bytes
from oocarrays.plan.network import FatTree, Mesh, Network
from oocarrays.plan.prediction import DELTA, Constants, flat_constants
from oocarrays.plan.schedule import NAMES, Schedule
from oocarrays.plan.wormhole import MEASURED_DELTA

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction


def add_commands(commands: Commands) -> None:
    """Put them beside the others of the command line."""
    _schedule_options(commands.add_parser("schedule", help="show who sends to whom in each step of an exchange"))


def _schedule_options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(name.lower() for name in NAMES)
    parser.add_argument("name", metavar="NAME", help=f"one of {names}")
    parser.add_argument("--ranks", type=int, required=True, help="logical processors")
    parser.add_argument(
        "--columns", type=int, help="columns of the mesh that ipex and rex stand on (default: --network's)"
    )
    parser.add_argument("--network", help=f"show the busiest link of each step: {NETWORKS}")
    parser.add_argument(
        "--bytes", metavar="SIZE", help="that every pair exchanges, such as 16KiB: show predicted seconds"
    )
    parser.add_argument(
        "--json", action="store_true", help="for machines: a list of steps, each of [source, destination]"
    )
    parser.set_defaults(command=_schedule)


def _schedule(options: argparse.Namespace) -> None:
    network = None if options.network is None else parsed_network(options.network, options.ranks)
    columns = options.columns
    if columns is None and isinstance(network, Mesh):
        columns = network.columns
    schedule = Schedule.of(options.name, options.ranks, columns=columns)
    if options.json:
        print(json.dumps(schedule_json(schedule)))
        return
    if options.bytes is not None and network is None:
        raise ScheduleError(f"--bytes {options.bytes} needs --network to predict seconds: {NETWORKS}")
    nbytes = None if options.bytes is None else size_in_bytes(options.bytes, "bytes")
    constants, whose = _constants(network)
    print(schedule_text(schedule, network=network, nbytes=nbytes, constants=constants))
    if nbytes:
        print(f"predicted by {whose}")


def _constants(network: Network | None) -> tuple[Sequence[Constants], str]:
    """The constants that predict seconds on a network, and what they are."""
    match network:
        case Mesh():
            return MEASURED_DELTA, "constants fitted to what the thesis measured on the Touchstone Delta"
        case FatTree():
            return DELTA, "the thesis's constants of the Touchstone Delta: it has none of the CM-5"
    return flat_constants(costs()), "the costs of messages between workers: see oocarrays calibrate"
