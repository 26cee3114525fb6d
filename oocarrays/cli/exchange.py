"""Previews of exchanges: ``oocarrays schedule``, ``redistribute`` and ``requests``."""

from __future__ import annotations

import argparse
import json

from oocarrays.cli.options import shared_options
from oocarrays.errors import ScheduleError
from oocarrays.graphs.settings import costs, size_in_bytes
from oocarrays.options.networks import NAMED, NETWORKS, carrier_of
from oocarrays.plan.exchange.network import Mesh
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.exchange.schedule import COLORING, NAMES, Schedule
from oocarrays.plan.layouts.redistribution import METHODS, plan_redistribution
from oocarrays.plan.sections.requests import RequestCounts
from oocarrays.show.exchanges import (
    count_requests,
    distributions_of,
    parsed_chunk,
    requests_table,
    schedule_json,
    schedule_text,
)
from oocarrays.show.pictures import load_picture
from oocarrays.show.redistributions import Outlook, itemsize, layouts, shape


def requests_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``requests``."""
    parser.add_argument("--shape", required=True, help="elements in each axis, such as 4096,4096")
    parser.add_argument("--ranks", type=int, required=True, help="logical processors")
    parser.add_argument("--layout", help="such as '(block, *)' (default: every one of block and cyclic axes)")
    parser.add_argument(
        "--orientation", default="row", help="how it is stored: row, column, or axes such as 1,0 (default: %(default)s)"
    )
    parser.add_argument("--chunk", help="a stripe in elements, or in bytes such as 128KiB; or chunks such as 256,4096")
    parser.add_argument("--dtype", default="float32", help="of the elements (default: %(default)s)")
    shared_options(parser, "json")
    parser.set_defaults(command=_requests)


def _requests(options: argparse.Namespace) -> None:
    extents, order = shape(options.shape), options.orientation
    itemsize(options.dtype)
    counts = [
        count_requests(
            extents,
            layout,
            ranks=options.ranks,
            orientation=tuple(map(int, order.split(","))) if order.replace(",", "").isdigit() else order,
            chunk=None if options.chunk is None else parsed_chunk(options.chunk),
            dtype=options.dtype,
        )
        for layout in ([options.layout] if options.layout else distributions_of(len(extents)))
    ]
    print(json.dumps(list(map(_as_json, counts))) if options.json else requests_table(counts))


def _as_json(counts: RequestCounts) -> dict[str, object]:
    return {
        "layout": str(counts.layout),
        "distribution_requests": counts.distribution_requests,
        "distribution_elements": counts.distribution_elements,
        "transaction_requests": counts.transaction_requests,
        "rank_requests": counts.rank_requests,
    }


MOST_MESSAGES = 2**20
"""Maximum number of messages of a schedule to print."""


def schedule_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``schedule``."""
    names = ", ".join(name.lower() for name in NAMES)
    parser.add_argument("name", metavar="NAME", help=f"one of {names}")
    parser.add_argument("--ranks", type=int, required=True, help="logical processors")
    parser.add_argument(
        "--columns", type=int, help="columns of the mesh that ipex and rex stand on (default: --network's)"
    )
    parser.add_argument("--network", help=f"show the busiest link of each step: {NETWORKS}")
    _constants_option(parser)
    parser.add_argument(
        "--bytes", metavar="SIZE", help="that every pair exchanges, such as 16KiB: show predicted seconds"
    )
    shared_options(
        parser, "json", "draw", json="for machines: a list of steps, each of [source, destination]",
        draw="draw the steps: .png, .svg, .pdf; .gif shows one after another",
    )  # fmt: skip
    parser.set_defaults(command=_schedule)


def _constants_option(parser: argparse.ArgumentParser) -> None:
    names = ", ".join([*NAMED, "workers"])
    parser.add_argument(
        "--constants",
        metavar="NAME|FILE|TEXT",
        help=f"what messages take: {names}; a file in YAML; or startup=5us,exchange=0.1ns,saturated=0.1ns in seconds "
        "and seconds a byte (default: the setting oocarrays.networks, or what is known of such a network)",
    )


def _schedule(options: argparse.Namespace) -> None:
    carrier = None if options.network is None else carrier_of(options.network, options.ranks, options.constants)
    network = carrier.network if carrier else None
    columns = options.columns
    if columns is None and isinstance(network, Mesh):
        columns = network.columns
    schedule = Schedule.of(options.name, options.ranks, columns=columns)
    if len(schedule) * options.ranks > MOST_MESSAGES:
        raise ScheduleError(
            f"--ranks {options.ranks}: {len(schedule)} steps of up to {options.ranks} messages are more than the "
            f"{MOST_MESSAGES} that are shown"
        )
    if options.draw:
        load_picture("schedules").check(schedule, options.draw)
    if options.json:
        print(json.dumps(schedule_json(schedule)))
    else:
        _print_schedule(options, schedule, carrier)
    if options.draw:
        load_picture("schedules").save(schedule, options.draw)
        if not options.json:
            print(f"drew {options.draw}")


def _print_schedule(options: argparse.Namespace, schedule: Schedule, carrier: Carrier | None) -> None:
    network = carrier.network if carrier else None
    if options.bytes is not None and network is None:
        raise ScheduleError(f"--bytes {options.bytes} needs --network to predict seconds: {NETWORKS}")
    nbytes = None if options.bytes is None else size_in_bytes(options.bytes, "bytes")
    constants = carrier.constants if carrier else ()
    print(schedule_text(schedule, network=network, nbytes=nbytes, constants=constants))
    if nbytes and carrier:
        print(f"predicted by {carrier.whose}")


def redistribute_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``redistribute``."""
    names = ", ".join(name.lower() for name in (*NAMES, COLORING))
    parser.add_argument("--from", dest="source", metavar="LAYOUT", required=True, help="such as 'cyclic(11)'")
    parser.add_argument("--to", dest="target", metavar="LAYOUT", required=True, help="such as '(*, block)'")
    extents = parser.add_mutually_exclusive_group(required=True)
    extents.add_argument("--extent", dest="shape", metavar="N", help="elements of an array of one axis, such as 1M")
    extents.add_argument("--shape", dest="shape", help="elements in each axis, such as 1024x1024")
    parser.add_argument("--ranks", type=int, help="logical processors")
    parser.add_argument("--to-ranks", type=int, help="afterwards (default: as many)")
    parser.add_argument("--grid", type=_grid, help="ranks along each axis, such as 2x2 (default: as even as can be)")
    parser.add_argument("--to-grid", type=_grid, help="afterwards")
    parser.add_argument("--dtype", default="float32", help="of the elements (default: %(default)s)")
    parser.add_argument(
        "--method", default="auto", help=f"one of {', '.join(METHODS)} (default: the cheapest of those that apply)"
    )
    parser.add_argument("--schedule", help=f"one of {names} (default: all that take the ranks, the cheapest first)")
    parser.add_argument("--network", default="flat", help=f"{NETWORKS} (default: %(default)s)")
    _constants_option(parser)
    shared_options(parser, "json", "draw", draw="draw messages by step, and the links' load: .png, .svg, .pdf")
    parser.set_defaults(command=_redistribute)


def _grid(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.replace("×", "x").split("x")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no grid such as 2x2") from None


def _redistribute(options: argparse.Namespace) -> None:
    if options.draw:
        load_picture().check_file(options.draw)
    before, after = layouts(
        shape(options.shape),
        options.source,
        options.target,
        ranks=(options.ranks, options.to_ranks),
        grids=(options.grid, options.to_grid),
    )
    carrier = carrier_of(options.network, max(before.ranks, after.ranks), options.constants)
    plan = plan_redistribution(
        before,
        after,
        itemsize(options.dtype),
        options.method,
        costs=costs(),
        carrier=carrier,
        schedule=options.schedule,
    )
    outlook = Outlook.of(plan, carrier, options.schedule)
    print(json.dumps(outlook.as_json()) if options.json else outlook.text())
    if options.draw:
        load_picture("exchanges").draw(outlook).savefig(options.draw)
        if not options.json:
            print(f"drew {options.draw}")
