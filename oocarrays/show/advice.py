"""Advice as tables: a row for each array, below it a row for each block that reads or writes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask.utils import format_bytes

from oocarrays.plan.advice.access import Access
from oocarrays.plan.advice.verdict import BlockVerdict, Verdict, WeightedLoad
from oocarrays.show.notebook import rows_html
from oocarrays.show.report import first_rows, seconds_text, shape_text, table

MOST_ROWS = 60
SECONDS = "seconds are of reading and writing these arrays alone, not of what is computed"


def text(verdicts: Sequence[Verdict]) -> str:
    """Return advice as text: the verdict on each array, and below it the gain of each block."""
    parts = [table(array_rows(verdicts)), table(block_rows(verdicts)), SECONDS]
    said = [f"{each.array}: {line}" for each in verdicts for line in each.against]
    return "\n\n".join([*parts, *(["speaks against it\n" + "\n".join(f"  {line}" for line in said)] if said else [])])


def html(verdicts: Sequence[Verdict]) -> str:
    said: list[tuple[str, ...]] = [(each.array, line) for each in verdicts for line in each.against]
    against = rows_html(first_rows(said, MOST_ROWS), title="speaks against it") if said else ""
    blocks = rows_html(block_rows(verdicts), title="blocks")
    return rows_html(array_rows(verdicts), title="oocarrays.Advice", below=f"{blocks}<p>{SECONDS}</p>{against}")


def array_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Return a row for each array and producer, below a header; seconds are of all traced runs together."""
    head = ("array", "chunks today", "advised", "requests", "bytes", "seconds", "saves", "")
    return [head, *first_rows([_array_row(each) for each in verdicts], MOST_ROWS)]


def _array_row(each: Verdict) -> tuple[str, ...]:
    today, advised = each.today, each.advised
    named = each.array if each.producer is None else f"{each.array} (made by {each.producer})"
    loads = [
        (f"{load.requests:.0f}", format_bytes(int(load.nbytes)), seconds_of(load))
        for load in ((today,) if each.kept else (today, advised))
    ]
    saves = f"{each.saving:.0%}".replace("%", " %") if math.isfinite(today.seconds) and not each.kept else "–"
    found = *map(" → ".join, zip(*loads, strict=True)), saves, "" if each.kept else _rewriting(each)
    return named, shape_text(each.stored.grid.chunks), layout_text(each), *found


def layout_text(each: Verdict) -> str:
    """Return the advised chunks: of the array and of its copy."""
    if each.kept:
        return "keep it as it is"
    chunks = shape_text(each.copied)
    if each.made == each.copied or (each.producer is None and not each.copies):
        return chunks
    before = "as it is" if each.producer is None else shape_text(each.made)
    size = format_bytes(each.stored.nbytes)
    return f"{before}, and a copy of {size} in {chunks}" if each.copies else f"{before}, then {chunks}"


def _rewriting(each: Verdict) -> str:
    if not each.rewriting:
        return ""
    pays = f", pays after {each.runs_to_pay:.0%} of that".replace("%", " %") if each.runs_to_pay < math.inf else ""
    return f"rewriting takes {seconds_text(each.rewriting)}{pays}"


def block_rows(verdicts: Sequence[Verdict]) -> list[tuple[str, ...]]:
    """Return a row for each block that reads or writes an array, slowest first, below a header."""
    each = [(block.today.seconds, _block_row(verdict, block)) for verdict in verdicts for block in verdict.blocks]
    rows = [row for _, row in sorted(each, key=lambda pair: -pair[0])]
    head = ("block", "does", "array", "sections", "weight", "finds chunks", "method", "today", "advised")
    return [head, *first_rows(rows, MOST_ROWS)]


def _block_row(verdict: Verdict, block: BlockVerdict) -> tuple[str, ...]:
    does = "writes" if block.writes else "reads", verdict.array, ", ".join(map(use_text, block.uses))
    found = f"{block.weight:g}", shape_text(block.chunks), block.method
    return block.block, *does, *found, seconds_of(block.today), seconds_of(block.advised)


def use_text(use: Access) -> str:
    """Return the number and the shapes of the sections in use."""
    cut, more = ", chunk by chunk" * use.cut_by_chunks, len(use.patterns) - 2
    texts = [f"{each.count} of {shape_text(each.largest)}{cut}" for each in use.patterns[:2]]
    return " and ".join([*texts, *([f"{more} more kinds"] if more > 0 else [])])


def seconds_of(load: WeightedLoad) -> str:
    """Return the seconds of a load; infinite seconds mean that it does not fit the memory."""
    return seconds_text(load.seconds) if math.isfinite(load.seconds) else "does not fit"
