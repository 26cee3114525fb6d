"""Table of option names, types and help; and values as they are typed."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable, Sequence
from functools import partial
from os.path import expanduser
from typing import Any, NamedTuple

from oocarrays.errors import InputError
from oocarrays.options.chunks import parsed_chunks
from oocarrays.options.networks import planned_cluster
from oocarrays.storage.files.formats import NAMED_CODECS
from oocarrays.storage.foreign.places import WILD, open_files


def _parsed(parse: Callable[[str], Any], what: str, text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}") from None


def _or_text(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError:
        return text


named = partial(_or_text, int)
workspace = partial(_or_text, float)
whole = partial(_parsed, int, "a whole number")
number = partial(_parsed, float, "a number")
lengths = partial(_parsed, parsed_chunks, "a list of lengths such as 16384,256, or time=-1,lat=20, auto, 128MiB")
"""Lengths of each axis in order, or of some by name; one number or size is for all axes."""


def values(text: str, kind: Callable[[str], Any]) -> Any:
    """Parse values: one for all axes, one for each, or by name."""
    pairs = [each.rpartition("=") for each in text.split(",")]
    try:
        found = {named(axis.strip()) if axis else place: kind(value.strip())
                 for place, (axis, _, value) in enumerate(pairs)}  # fmt: skip
    except (ValueError, argparse.ArgumentTypeError):
        found = {}
    by_name = {bool(equals) for _, equals, _ in pairs}
    nameless = any(equals and not axis.strip() for axis, equals, _ in pairs)
    if len(found) != len(pairs) or len(by_name) > 1 or nameless:
        raise argparse.ArgumentTypeError(f"{text!r} is not one value, one for each axis (2,1,1), or by name (y=2,x=1)")
    return found if by_name == {True} else found[0] if len(found) == 1 else tuple(found.values())


def length(text: str) -> int | str:
    return text if text == "auto" else int(text)


def axes(text: str) -> Any:
    found = [named(each.strip()) for each in text.split(",")]
    return found[0] if len(found) == 1 else found


def orientation(text: str) -> str | tuple[int | str, ...]:
    return text if text in ("row", "column") else tuple(named(each.strip()) for each in text.split(","))


def boundary(text: str) -> int | float | str:
    return workspace(text) if text[:1].isdigit() or text[:1] in "-+." else text


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


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def option(text: str) -> tuple[str, str | bool]:
    name, value = pair(text)
    return name, {"true": True, "false": False}.get(value.lower(), value)


def argument(text: str) -> tuple[str, Any]:
    name, value = pair(text)
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return name, value


def sources_of(concat_dim: str | None, storage_options: Any, *places: str) -> list[Any]:
    """Return locations as sources, with files that match wildcards joined along ``--concat-dim``."""
    if concat_dim is None:
        return list(places)
    if not any(map(WILD.search, places)):
        raise InputError(f"--concat-dim {concat_dim}: {', '.join(places)} has no wildcard such as 'day*.nc'")
    how = {"concat_dim": concat_dim, "storage_options": storage_options}
    return [open_files(place, **how) if WILD.search(place) else place for place in places]


class Kind(NamedTuple):
    """Option of all parameters with a name."""

    help: str = ""
    """Help, in place of the docstring of the function."""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    """Function that parses the value; by default that of the annotation."""
    flags: tuple[str, ...] = ()
    """Flags, if not that of the name."""
    choices: Sequence[Any] = ()
    """Accepted values, if the annotation does not list them."""
    repeat: bool = False
    several: bool = False
    """Whether one flag takes several values."""
    collect: Callable[[Any], Any] | None = None
    """Function of the parsed value, or of all that were repeated."""


KINDS = {
    "source": Kind("array or group to read: a path or URL of Zarr, or of a file of another format", "SOURCE"),
    "target": Kind("location of the result: a path, or a URL such as s3://bucket/a.zarr", "TARGET"),
    "store": Kind("array or group: a path or a URL", "STORE"),
    "storage_options": Kind(
        "option for URLs, such as anon=true or endpoint_url=http://127.0.0.1:9000; may be repeated",
        "NAME=VALUE", option, ("--storage-option",), repeat=True, collect=lambda given: dict(given) or None,
    ),
    "concat_dim": Kind(
        "axis along which files such as 'day*.nc' are joined (default: the unlimited axis, or that of the only "
        "coordinate that differs)",
        "AXIS",
    ),
    "chunks": Kind(
        "chunk length of each axis in elements: 16384,256 or by name time=-1,lat=20; -1: the whole axis; auto, or a "
        "size such as 128MiB: chosen (default: the source's)",
        "LENGTHS", lengths,
    ),
    "shards": Kind(
        "shard length of each axis in elements, a multiple of the chunk length (default: no shards)", "LENGTHS", lengths
    ),
    "orientation": Kind(
        "storage order of the axes in a chunk: row, column, or from the slowest to the fastest, by number or name, "
        "such as 2,0,1",
        "ORDER", orientation,
    ),
    "memory": Kind("memory budget of a process in bytes, such as 1GiB (default: half of the free memory)", "SIZE"),
    "ranks": Kind("number of logical processors (default: chosen by the plan)"),
    "scheduler": Kind(
        "Dask scheduler whose workers run the job, such as tcp://host:8786 (default: threads of this process)",
        "ADDRESS", address,
    ),
    "missing": Kind("chunks that the source lacks: read as fill value, with a warning, or an error (default: fill)"),
    "overwrite": Kind("replace an array or group at TARGET"),
    "resume": Kind("start, continue a stopped run of the same command, or exit with 0 if it has finished"),
    "scratch": Kind(
        "folder for intermediate data; may be repeated for several disks (default: beside the target)",
        "FOLDER", repeat=True, collect=lambda given: given or None,
    ),
    "compressors": Kind(
        "codec of the target (default: the source's)", choices=sorted(NAMED_CODECS),
        flags=("--codec", "--compressors"),
    ),
    "zarr_format": Kind("Zarr format of the target (default: the source's)"),
    "factor": Kind(
        "elements along each axis that become one: 2, or 1,2,2, or z=1,y=2,x=2", "LENGTHS", partial(values, kind=int)
    ),
    "scale": Kind(
        "distance of two elements: 0.5, or 2,1,1, or z=2,y=1 (default: the source's, or 1)", "NUMBERS",
        partial(values, kind=float),
    ),
    "unit": Kind(
        "unit of the scale: µm, or t=second,y=µm (default: the source's)", "UNITS", partial(values, kind=str)
    ),
    "depth": Kind(
        "neighbours on each side that the kernel reads, in elements: 1, or 0,1,1, or y=1 (default: as the kernels of "
        "oocarrays need, otherwise 0)",
        "LENGTHS", partial(values, kind=int),
    ),
    "boundary": Kind(
        "values beyond the edges: reflect, nearest, periodic, none or a number; of some axes by name: y=reflect,x=0",
        "BOUNDARY", partial(values, kind=boundary),
    ),
    "window": Kind(
        "elements of a slab along each axis: 64,-1 or y=64; -1: the whole axis, time=auto: slabs along time (default: "
        "chosen by the plan)",
        "LENGTHS", partial(values, kind=length),
    ),
    "workspace": Kind(
        "working memory of the kernel: a size such as 64MiB, or a multiple of its blocks such as 2 (default: 2)",
        "SIZE", workspace,
    ),
    "kwargs": Kind(
        "argument of the kernel by name, such as sigma=1.5; may be repeated",
        "NAME=VALUE", argument, ("--arg",), repeat=True, collect=lambda given: dict(given) or None,
    ),
    "axis": Kind("", "AXIS", axes),
    "drop_axis": Kind("axes that the results lack, by number or name: 0 or time,y", "AXES", axes),
    "equal_nan": Kind(flags=("--nan-differs", "--no-equal-nan")),
    "how": Kind(choices=("sum", "mean", "var", "std", "min", "max", "count")),
    "shape": Kind(metavar="SHAPE", flags=("--shape", "--extent")),
    "constants": Kind(
        "costs of messages: delta, delta-fitted, cm-5, workers, a YAML file, or startup=5us,exchange=0.1ns,"
        "saturated=0.1ns in seconds and seconds a byte (default: the setting oocarrays.networks, or of the network)",
        "NAME|FILE|TEXT",
    ),
    "dtype": Kind("type of the elements", "DTYPE"),
    "draw": Kind("draw the plan, and after a run its measurements, to a .png, .svg or .pdf file", "FILE", expanduser),
    "dry_run": Kind("print the plan and its alternatives; write nothing"),
    "json": Kind("print one JSON object to standard output, for programs"),
    "quiet": Kind("print nothing on success, and no progress bar"),
    "disks": Kind(metavar="DISK", several=True),
}  # fmt: skip
"""Options by the name of the parameter."""


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
