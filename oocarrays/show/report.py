"""Text that a person reads: lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from oocarrays.plan.memory import Memory
from oocarrays.plan.rechunk.passes import Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.show.planned import rows

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.placement import Move

LINE_WIDTH = 100


def bytes_text(nbytes: int) -> str:
    """Show a size of any number of bytes: arrays may be named that have more than a float can hold."""
    return format_bytes(nbytes) if nbytes < 2**512 else f"2**{nbytes.bit_length() - 1} B"


def cache_text(past_cache: bool) -> str:
    """Return how local files are read and written."""
    return f"{'past' if past_cache else 'through'} the system's cache"


def seconds_text(seconds: float) -> str:
    return format_time(seconds)


def shape_text(shape: Iterable[int]) -> str:
    """Extents as a person writes them."""
    return " × ".join(map(str, shape)) or "scalar"


def missing_text(missing: int | None, chunks: int) -> str:
    """Return how many chunks an array lacks."""
    return "not counted" if missing is None else f"{missing or 'none'} of {chunks}"


def table(rows: Sequence[tuple[str, ...]], *, indent: str = "") -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(indent + line.rstrip() for line in lines)


def shortened(value: Any, *, most: int = 80, quoted: bool = True) -> str:
    """Return a value in one line of at most ``most`` characters."""
    text = repr(value) if quoted else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


# ---------------------------------------------------------------------- arrays


def first_rows(rows: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… {len(rows) - most} more", *[""] * (len(rows[0]) - 1))]


# ---------------------------------------------------------------------- plans


ACCESS_WORDS = {
    "ranges": "byte ranges",
    "sieved": "one byte range a chunk",
    "chunks": "whole chunks",
}


def pass_text(step: Pass) -> str:
    """Describe one pass in a few words."""
    reads = ACCESS_WORDS[step.access]
    unit = {"independent": "regions", "assembled": "boxes"}.get(step.method, "partitions")
    side = "source" if step.assembled else "target"
    return (
        f"{step.method}: {step.units} {unit} of {shape_text(step.unit)} {side} chunks "
        f"({shape_text(step.cut.chunks)} each), {reads}, {step.ranks} ranks"
        + ("" if step.alone else f", {step.schedule.name}")
        + (f", {step.traffic.placed_runs} runs in place" if step.assembled else "")
        + (f", {step.requests} requests a rank under way" if step.requests > 1 else "")
    )


def plan_rows(plan: RechunkPlan) -> list[tuple[str, str]]:
    each = " in each worker" if plan.processes else ""
    about = " (estimate)" if plan.source.coded or plan.target.coded else ""
    return [
        *([("workers", f"{plan.processes}, {plan.ranks} ranks")] if plan.processes else []),
        ("strategy", plan.strategy if plan.passes else "nothing to move"),
        ("chunks", f"{shape_text(plan.source.grid.chunks)} → {shape_text(plan.target.grid.chunks)}"),
        *((f"pass {i}", pass_text(step)) for i, step in enumerate(plan.passes, 1)),
        *rows(plan, reads=about, decodes="", writes=about, messages="", scratch="", tasks=""),
        *rows(plan, peak_memory=each, predicted=""),
    ]


def considered_rows(plan: RechunkPlan) -> list[tuple[str, ...]]:
    """Every strategy that was looked at, a row each, below a head."""
    rows = [
        (
            c.name,
            str(c.ranks),
            "–" if c.seconds is None else f"{c.seconds:.2f}",
            format_bytes(c.peak_bytes),
            c.reason,
        )
        for c in plan.considered
    ]
    return [("strategy", "ranks", "seconds", "memory", ""), *rows]


def memory_text(memory: Memory) -> str:
    """Return what is held at one time, a row each for what holds any."""
    rows = [(name.replace("_", " "), format_bytes(nbytes)) for name, nbytes in memory.terms if nbytes]
    return f"held at one time, at most\n{table(rows or [('nothing',)], indent='  ')}"


def explain(plan: RechunkPlan) -> str:
    """Return the plan, and every strategy that was looked at."""
    considered = table(considered_rows(plan), indent="  ") if plan.considered else "  none: the array is empty"
    return f"{table(plan_rows(plan))}\n\nconsidered\n{considered}"


def number_text(value: float | Mapping[str, float]) -> str:
    """Return a constant of the cost model, or one for each codec."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number_text(part)}" for name, part in value.items())
    return f"{value:.3g}"


def move_text(move: Move, placement: Mapping[int, str]) -> str:
    """Say where the ranks of a lost worker went."""
    there = len(move.ranks) + sum(home == move.worker for home in placement.values())
    several = f", whose budget now holds {there} ranks" if there > len(move.ranks) else ""
    return f"worker {move.lost} was lost: ranks {', '.join(map(str, move.ranks))} went to {move.worker}{several}"
