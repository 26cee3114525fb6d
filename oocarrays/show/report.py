"""Reports as text: lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from oocarrays.plan.alternative import Alternative
from oocarrays.plan.collective.read import CollectivePlan
from oocarrays.plan.memory import Memory
from oocarrays.plan.plan import Bytes, Duration, Facts, Plan, Value
from oocarrays.plan.plan import table as table

if TYPE_CHECKING:
    from oocarrays.graphs.cluster.placement import Move

LINE_WIDTH = 100


def bytes_text(nbytes: int) -> str:
    """Return a size as text, for any number of bytes: arrays may exceed the range of a float."""
    return format_bytes(nbytes) if nbytes < 2**512 else f"2**{nbytes.bit_length() - 1} B"


def seconds_text(seconds: float | None) -> str:
    return "–" if seconds is None else format_time(seconds)


def shape_text(shape: Iterable[int]) -> str:
    """Return extents as text."""
    return " × ".join(map(str, shape)) or "scalar"


def missing_text(missing: int | None, chunks: int) -> str:
    """Return the number of missing chunks of an array as text."""
    return "not counted" if missing is None else f"{missing or 'none'} of {chunks}"


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


def fact_rows(facts: Facts) -> list[tuple[str, str]]:
    """Return the facts of a plan as rows of name and text."""
    return [(name, fact_text(parts)) for name, parts in facts]


def fact_text(parts: Iterable[Value]) -> str:
    """Return a fact as text."""
    return "".join(map(_value_text, parts))


def _value_text(value: Value) -> str:
    match value:
        case Bytes():
            return bytes_text(value)
        case Duration():
            return seconds_text(value)
        case tuple():
            return shape_text(value)
    return str(value)


def plan_rows(plan: Plan) -> list[tuple[str, str]]:
    """Return a plan as rows of name and text."""
    return fact_rows(plan.facts())


def considered_rows(alternatives: Sequence[Alternative]) -> list[tuple[str, ...]]:
    """Return every compared alternative as a row, below a header."""
    rows = [
        (each.name, str(each.ranks), "–" if each.seconds is None else f"{each.seconds:.2f}",
         format_bytes(each.peak_bytes), each.reason)
        for each in alternatives
    ]  # fmt: skip
    return [("strategy", "ranks", "seconds", "memory", ""), *rows]


def memory_text(memory: Memory) -> str:
    """Return the peak memory as text, a row for each nonzero term."""
    rows = [(name.replace("_", " "), format_bytes(nbytes)) for name, nbytes in memory.terms if nbytes]
    return f"held at one time, at most\n{table(rows or [('nothing',)], indent='  ')}"


def planned_text(rows: Sequence[tuple[str, ...]], alternatives: Sequence[Alternative]) -> str:
    """Return a plan and every compared alternative as text."""
    ways = table(considered_rows(alternatives), indent="  ") if alternatives else "  none: the array is empty"
    return f"{table(rows)}\n\nconsidered\n{ways}"


def collective_text(plan: CollectivePlan) -> str:
    """Return the compared read methods, cheapest first, and the memory of the chosen one."""
    head = (
        "method", "domains", "aggregators", "rounds", "requests", "read", "decoded", "messages", "held", "seconds",
    )  # fmt: skip
    return f"{table([head, *map(_collective_row, plan.alternatives)])}\n\n{memory_text(plan.memory)}"


def _collective_row(way: Alternative) -> tuple[str, ...]:
    traffic = way.traffic
    numbers = way.ranks, way.rounds, traffic.read_requests
    sizes = format_bytes(traffic.read_bytes), format_bytes(traffic.decoded_bytes)
    ends = str(traffic.messages), format_bytes(way.peak_bytes), f"{way.seconds:.3g}"
    return (f"{way.name}{' ◄' * way.taken}", way.domains or "–", *map(str, numbers), *sizes, *ends)


def number_text(value: float | Mapping[str, float]) -> str:
    """Return a constant of the cost model, or one for each codec."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number_text(part)}" for name, part in value.items())
    return f"{value:.3g}"


def move_text(move: Move, placement: Mapping[int, str]) -> str:
    """Return a text on the new workers of a lost worker's ranks."""
    there = len(move.ranks) + sum(home == move.worker for home in placement.values())
    several = f", whose budget now holds {there} ranks" if there > len(move.ranks) else ""
    return f"worker {move.lost} was lost: ranks {', '.join(map(str, move.ranks))} went to {move.worker}{several}"
