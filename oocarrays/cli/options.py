"""Options that several commands share: stores, schedulers, missing chunks, drawings; and lengths as they are typed."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from oocarrays.errors import InputError
from oocarrays.mapping.given import from_home
from oocarrays.storage.files.presence import Policy
from oocarrays.storage.foreign.places import WILD, files


def _storage_option(text: str) -> tuple[str, str | bool]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, {"true": True, "false": False}.get(value.lower(), value)


def taken(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return some options as keywords of a function."""
    return {name: getattr(options, name) for name in names}


def sources_of(options: argparse.Namespace, *places: str) -> list[Any]:
    """Return locations as sources, with files that match wildcards joined along ``--concat-dim``."""
    if options.concat_dim is None:
        return list(places)
    if not any(map(WILD.search, places)):
        raise InputError(f"--concat-dim {options.concat_dim}: {', '.join(places)} has no wildcard such as 'day*.nc'")
    how = {"concat_dim": options.concat_dim, "storage_options": dict(getattr(options, "storage_option", ()))}
    return [files(place, **how) if WILD.search(place) else place for place in places]


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


SHARED: dict[str, dict[str, Any]] = {
    "storage-option": {
        "metavar": "NAME=VALUE", "type": _storage_option, "action": "append", "default": [],
        "help": "how URLs are opened, such as endpoint_url=http://127.0.0.1:9000 or anon=true; once for each",
    },
    "concat-dim": {
        "metavar": "AXIS",
        "help": "join the files of a source such as 'day*.nc' along this axis, or stack them along a new one (default: "
        "the only unlimited axis, or that of the only coordinate that differs)",
    },
    "memory": {"help": "as of rechunk"},
    "ranks": {"type": int, "help": "logical processors (default: the plan chooses)"},
    "scheduler": {
        "metavar": "ADDRESS", "type": address,
        "help": "run on the workers of a cluster (default: on threads of this process)",
    },
    "missing": {
        "choices": get_args(Policy),
        "help": "what is made of a chunk that is not there: the fill value, that and a warning, or an error (default: "
        "the setting, fill)",
    },
    "resume": {
        "action": "store_true",
        "help": "start, or go on with what a run of the same command has left, or do nothing (exit code 0) where such "
        "a run has finished TARGET: for cron jobs and batch queues",
    },
    "dry-run": {"action": "store_true", "help": "show the plan; do nothing"},
    "json": {"action": "store_true", "help": "for machines"},
    "draw": {
        "metavar": "FILE", "type": from_home, "help": "draw the plan, and what a run measured: .png, .svg, .pdf",
    },
    "quiet": {"action": "store_true", "help": "no plan, no bar"},
}  # fmt: skip
"""Options that several commands share, by name."""


def shared_options(parser: argparse.ArgumentParser, *names: str, **helps: str) -> None:
    """Add shared options, in this order, some with a help of the command's own."""
    for name in names:
        own = {"help": helps[name.replace("-", "_")]} if name.replace("-", "_") in helps else {}
        parser.add_argument(f"--{name}", **SHARED[name] | own)
