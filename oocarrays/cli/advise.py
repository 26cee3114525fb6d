"""Command ``oocarrays advise``: recommend chunks for the arrays of a trace."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from oocarrays.advice import Advice
from oocarrays.cli.options import shared_options
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.documents import Document
from oocarrays.show.pictures import load_picture


def advise_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``advise``."""
    parser.add_argument(
        "traces", metavar="TRACE.json", nargs="+", help="what ooc.trace(...).save wrote; several are added"
    )
    parser.add_argument("--memory", help="bytes that each process may hold, such as 1GiB (default: what is free)")
    parser.add_argument(
        "--ranks", type=int, help="ranks that may read for each other (default: as the trace says, or none)"
    )
    parser.add_argument("--keep", metavar="ARRAY", action="append", default=[], help="an array that stays as it is")
    parser.add_argument(
        "--weight",
        metavar="[PRODUCER:]CONSUMER=NUMBER",
        type=_edge_weight,
        action="append",
        default=[],
        help="how often a block runs after the block that wrote its input; once for each pair",
    )
    parser.add_argument("--no-copies", action="store_true", help="advise one layout of each array, no second copy")
    shared_options(
        parser, "json", "draw", draw="draw blocks, arrays, and the weight and seconds of each flow: .png, .svg, .pdf"
    )
    parser.set_defaults(command=_advise)


def _advise(options: argparse.Namespace) -> None:
    if options.draw:
        load_picture().check_file(options.draw)
    traces = [Trace.load(path) for path in options.traces]
    how = {"memory": options.memory, "ranks": options.ranks, "keep": options.keep, "weights": dict(options.weight)}
    advice: Advice = sum(traces[1:], traces[0]).advise(copies=not options.no_copies, **how)
    print(json.dumps(_as_json(advice), ensure_ascii=False) if options.json else advice)
    if options.draw:
        advice.draw().savefig(options.draw)
        print(f"drew {options.draw}", file=sys.stderr if options.json else sys.stdout)


def _edge_weight(text: str) -> tuple[tuple[str | None, str], float]:
    edge, _, number = text.rpartition("=")
    producer, _, consumer = edge.rpartition(":")
    try:
        return (producer or None, consumer), float(number if consumer else "")
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not [PRODUCER:]CONSUMER=NUMBER") from None


def _as_json(advice: Advice) -> list[Document]:
    return [
        {
            "array": each.array,
            "producer": each.producer,
            "chunks": each.stored.grid.chunks,
            "advised": each.chunks,
            "keep": each.kept,
            "saving": each.saving,
            "rewriting_seconds": each.rewriting,
            "blocks": [
                {
                    "block": block.block,
                    "writes": block.writes,
                    "weight": block.weight,
                    "method": block.method,
                    "today": _load(block.today),
                    "advised": _load(block.advised),
                }
                for block in each.blocks
            ],
        }
        for each in advice.arrays
    ]


def _load(load: Any) -> dict[str, float]:
    return {"requests": float(load.requests), "bytes": float(load.nbytes), "seconds": float(load.seconds)}
