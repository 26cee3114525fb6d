"""Pyramids: ``oocarrays pyramid`` writes an image in several resolutions."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from oocarrays.cli.options import (
    concat_option,
    missing_option,
    resume_option,
    scheduler_option,
    sources_of,
    store_options,
)
from oocarrays.cli.runs import show_and_run, what_now
from oocarrays.errors import InputError
from oocarrays.jobs.pyramid import pyramid
from oocarrays.kernels.levels import METHODS
from oocarrays.options.chunks import parsed_chunks


def pyramid_options(parser: argparse.ArgumentParser) -> None:
    """Let ``pyramid`` take an image, a target, and how levels are made."""
    parser.add_argument("source", metavar="SOURCE", help="an image: a Zarr array, an OME-Zarr group, a TIFF file, …")
    parser.add_argument("target", metavar="TARGET", help="the group of levels, OME-Zarr: a path or a URL")
    store_options(parser)
    concat_option(parser)
    parser.add_argument("--levels", type=int, help="how many (default: until axes have at most 256 elements)")
    parser.add_argument(
        "--factor", default="2", help="from level to level, in space: 2; of each axis: 1,2,2; by name: z=1,y=2,x=2"
    )
    parser.add_argument("--scale", help="distance of two elements in space: 0.5; of each axis: 2,1,1; by name: z=2")
    parser.add_argument("--unit", help="of the scale in space: µm; of each axis, or by name: t=second,y=µm")
    parser.add_argument("--method", choices=METHODS, default="mean", help="how values are made (default: %(default)s)")
    parser.add_argument("--chunks", help="of the levels, as of rechunk (default: the source's)")
    parser.add_argument("--memory", help="as of rechunk")
    parser.add_argument("--ranks", type=int, help="logical processors (default: the plan chooses)")
    scheduler_option(parser, "run on the workers of a cluster (default: on threads of this process)")
    missing_option(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the plan; do nothing")
    parser.add_argument("--overwrite", action="store_true", help="replace a Zarr group at TARGET")
    resume_option(parser)
    parser.add_argument("--quiet", action="store_true", help="no plan, no bar")
    parser.set_defaults(command=_pyramid, what_now=what_now, draw=None)


def _pyramid(options: argparse.Namespace) -> None:
    names = ("levels", "method", "memory", "ranks", "missing", "overwrite", "resume")
    how = {name: getattr(options, name) for name in names}
    chunks = None if options.chunks is None else _lengths("chunks", options.chunks)
    where = options.scheduler or "threads"
    (source,) = sources_of(options, options.source)
    job = pyramid(
        source, options.target, factor=_lengths("factor", options.factor), chunks=chunks, scheduler=where,
        scale=_values("scale", options.scale, float), unit=_values("unit", options.unit, str),
        storage_options=dict(options.storage_option), **how,
    )  # fmt: skip
    show_and_run(job, options)


def _lengths(name: str, text: str) -> Any:
    """Lengths as they are typed; one number is of all axes."""
    try:
        found = parsed_chunks(text)
    except ValueError:
        raise InputError(f"--{name} {text}: give a number, one for each axis (1,2,2), or by name (y=2,x=2)") from None
    return found[0] if isinstance(found, tuple) and len(found) == 1 else found


def _values(name: str, text: str | None, kind: Callable[[str], Any]) -> Any:
    """Values as they are typed: one of all axes, one of each, or by name."""
    if text is None:
        return None
    pairs = [each.rpartition("=") for each in text.split(",")]
    try:
        values = {axis.strip() or number: kind(value.strip()) for number, (axis, _, value) in enumerate(pairs)}
    except ValueError:
        values = {}
    named = {bool(equals) for _, equals, _ in pairs}
    if len(values) != len(pairs) or len(named) > 1:
        raise InputError(f"--{name} {text}: give one value, one for each axis (a,b,c), or by name (y=a,x=b)")
    return values if named == {True} else values[0] if len(values) == 1 else tuple(values.values())
