"""Command ``oocarrays advise``: recommend chunks for the arrays of a trace."""

from __future__ import annotations

import sys
from typing import Any

from oocarrays.advice import Advice
from oocarrays.cli.reports import print_json
from oocarrays.cli.signatures import command
from oocarrays.errors import InputError
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.documents import Document
from oocarrays.show.pictures import load_picture


@command()
def advise_command(
    traces: list[str],
    *,
    memory: str | None = None,
    ranks: int | None = None,
    keep: list[str] | tuple[()] = (),
    weight: list[str] | tuple[()] = (),
    copies: bool = True,
    draw: str | None = None,
    json: bool = False,
) -> None:
    """Recommend chunks of arrays from recorded reads and writes.

    traces TRACE.json: files written by ooc.trace(...).save; several are added
    memory: bytes that each process may hold, such as 1GiB (default: the free memory)
    ranks: number of ranks that may read for each other (default: that of the trace, or none)
    keep ARRAY: array whose chunks stay as they are; may be repeated
    weight [PRODUCER:]CONSUMER=NUMBER: how often CONSUMER runs after the block that wrote its input; may be repeated
    copies: recommend one layout of each array, and no second copy
    draw: draw blocks, arrays, and the weight and seconds of each flow, to a .png, .svg or .pdf file
    """
    if draw:
        load_picture().check_file(draw)
    loaded = [Trace.load(path) for path in traces]
    how: dict[str, Any] = {"memory": memory, "ranks": ranks, "keep": list(keep), "weights": dict(map(_weight, weight))}
    advice: Advice = sum(loaded[1:], loaded[0]).advise(copies=copies, **how)
    print_json({"arrays": _documents(advice)}) if json else print(advice)
    if draw:
        advice.draw().savefig(draw)
        print(f"drew {draw}", file=sys.stderr if json else sys.stdout)


def _weight(text: str) -> tuple[tuple[str | None, str], float]:
    edge, _, number = text.rpartition("=")
    producer, _, consumer = edge.rpartition(":")
    try:
        return (producer or None, consumer), float(number if consumer else "")
    except ValueError:
        raise InputError(f"--weight {text!r} is not [PRODUCER:]CONSUMER=NUMBER") from None


def _documents(advice: Advice) -> list[Document]:
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
