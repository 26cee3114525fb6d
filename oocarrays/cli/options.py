"""Options that several commands share: stores, schedulers, missing chunks, drawings; and lengths as they are typed."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from oocarrays.errors import InputError
from oocarrays.mapping.given import from_home
from oocarrays.storage.files.presence import Policy
from oocarrays.storage.foreign.places import WILD, files


def resume_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to repeat a command that writes a target."""
    parser.add_argument(
        "--resume",
        action="store_true",
        help="start, or go on with what a run of the same command has left, or do nothing (exit code 0) where such a "
        "run has finished TARGET: for cron jobs and batch queues",
    )


def missing_option(parser: argparse.ArgumentParser, default: str = "the setting, fill") -> None:
    """Add the option for the treatment of missing chunks."""
    parser.add_argument(
        "--missing",
        choices=get_args(Policy),
        help="what is made of a chunk that is not there: the fill value, that and a warning, or an error "
        f"(default: {default})",
    )


def scheduler_option(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option for the scheduler."""
    parser.add_argument("--scheduler", metavar="ADDRESS", type=address, help=what)


def store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for opening URLs."""
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


def concat_option(parser: argparse.ArgumentParser) -> None:
    """Add the option to join the files of a source along an axis."""
    parser.add_argument(
        "--concat-dim",
        metavar="AXIS",
        help="join the files of a source such as 'day*.nc' along this axis, or stack them along a new one (default: "
        "the only unlimited axis, or that of the only coordinate that differs)",
    )


def sources_of(options: argparse.Namespace, *places: str) -> list[Any]:
    """Return locations as sources, with files that match wildcards joined along ``--concat-dim``."""
    if options.concat_dim is None:
        return list(places)
    if not any(map(WILD.search, places)):
        raise InputError(f"--concat-dim {options.concat_dim}: {', '.join(places)} has no wildcard such as 'day*.nc'")
    how = {"concat_dim": options.concat_dim, "storage_options": dict(getattr(options, "storage_option", ()))}
    return [files(place, **how) if WILD.search(place) else place for place in places]


def draw_option(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the option for the file of a picture."""
    parser.add_argument("--draw", metavar="FILE", type=from_home, help=help)


def lengths(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",") if part)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of lengths such as 16384,256") from None


def address(text: str) -> str:
    """Parse the address of a scheduler: a client that is given less takes long to fail, and prints more than a line."""
    from distributed.comm.addressing import get_address_host_port

    if text == "threads":
        return text
    try:
        get_address_host_port(text)
    except (ValueError, NotImplementedError, OSError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no address such as tcp://127.0.0.1:8786: {error}") from None
    return text


def orientation(text: str) -> str | tuple[int, ...]:
    """Parse an orientation: ``row``, ``column``, or an order of the axes."""
    return text if text in ("row", "column") else lengths(text)
