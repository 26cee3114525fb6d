"""The command that counts requests before anything is read: ``oocarrays requests``."""

from __future__ import annotations

import argparse
import json

from oocarrays.plan.sections.requests import RequestCounts
from oocarrays.show.exchanges import count_requests, distributions_of, parsed_chunk, requests_table
from oocarrays.show.redistributions import itemsize, shape


def requests_options(parser: argparse.ArgumentParser) -> None:
    """Let ``requests`` take an array, its storage and its distribution."""
    parser.add_argument("--shape", required=True, help="elements in each axis, such as 4096,4096")
    parser.add_argument("--ranks", type=int, required=True, help="logical processors")
    parser.add_argument("--layout", help="such as '(block, *)' (default: every one of block and cyclic axes)")
    parser.add_argument(
        "--orientation", default="row", help="how it is stored: row, column, or axes such as 1,0 (default: %(default)s)"
    )
    parser.add_argument("--chunk", help="a stripe in elements, or in bytes such as 128KiB; or chunks such as 256,4096")
    parser.add_argument("--dtype", default="float32", help="of the elements (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="for machines")
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
