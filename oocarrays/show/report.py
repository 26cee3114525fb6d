"""Reports as text: lines and tables, of plans, of measurements beside them, and of sweeps of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from oocarrays.errors import in_number
from oocarrays.plan.plan import Alternative, Bytes, Duration, Memory, Value, table as table
from oocarrays.storage.meter import Meter

if TYPE_CHECKING:
    from oocarrays.graphs.events import Move

LINE_WIDTH = 100


def bytes_text(nbytes: int) -> str:
    """Return a size as text, for any number of bytes: arrays may exceed the range of a float."""
    return format_bytes(nbytes) if nbytes < 2**512 else f"2**{nbytes.bit_length() - 1} B"


def seconds_text(seconds: float | None) -> str:
    return "–" if seconds is None else format_time(seconds)


def shape_text(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape)) or "scalar"


def missing_text(missing: int | None, chunks: int) -> str:
    return "not counted" if missing is None else f"{missing or 'none'} of {chunks}"


def shortened(value: Any, *, most: int = 80, quoted: bool = True) -> str:
    """Return a value in one line of at most ``most`` characters."""
    text = repr(value) if quoted else str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def first_rows(rows: list[tuple[str, ...]], most: int) -> list[tuple[str, ...]]:
    if len(rows) <= most:
        return rows
    return [*rows[:most], (f"… {len(rows) - most} more", *[""] * (len(rows[0]) - 1))]


def fact_text(parts: Iterable[Value]) -> str:
    return in_number("".join(map(_value_text, parts)))


def _value_text(value: Value) -> str:
    match value:
        case Bytes():
            return bytes_text(value)
        case Duration():
            return seconds_text(value)
        case tuple():
            return shape_text(value)
    return str(value)


def plan_rows(plan: Any) -> list[tuple[str, str]]:
    return [(name, fact_text(parts)) for name, parts in plan.facts()]


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


def number_text(value: float | Mapping[str, float]) -> str:
    """Return a constant of the cost model, or one for each codec."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number_text(part)}" for name, part in value.items())
    return f"{value:.3g}"


def move_text(move: Move, placement: Mapping[int, str]) -> str:
    there = len(move.ranks) + sum(home == move.worker for home in placement.values())
    several = f", whose budget now holds {there} ranks" if there > len(move.ranks) else ""
    return f"worker {move.lost} was lost: ranks {', '.join(map(str, move.ranks))} went to {move.worker}{several}"


COUNTED: dict[str, tuple[str, Callable[[int], str]]] = {
    "read requests": ("read_requests", str),
    "read": ("read_bytes", format_bytes),
    "decoded": ("decoded_bytes", format_bytes),
    "write requests": ("write_requests", str),
    "written": ("written_bytes", format_bytes),
    "messages": ("messages", str),
}
"""Counts that are planned and measured under the same name, with their text form."""
READ_AND_WRITTEN = ("read requests", "read", "write requests", "written")


def phase_seconds(meter: Meter, phases: Mapping[str, str]) -> dict[str, float]:
    """Return the seconds of all ranks of a run together in each phase."""
    found: dict[str, float] = dict.fromkeys(phases.values(), 0)
    for verb, phase in phases.items():
        found[phase] += meter.seconds.get(verb, 0)
    return found


def seconds_outside(meter: Meter, phases: Mapping[str, str]) -> float:
    """Return the seconds of all ranks outside the phases: creating files, marking, syncing, and cleaning up."""
    return sum(seconds for verb, seconds in meter.seconds.items() if verb not in phases)


def measured(
    plan: Any, meter: Meter, seconds: float, phases: Mapping[str, str], counted: Sequence[str] = tuple(COUNTED)
) -> list[tuple[str, str, str]]:
    """Return a run beside its plan, row by row; the seconds of phases are those of all ranks together."""
    predicted = getattr(plan, "phases", None)
    each = [(name, getattr(predicted, name, None), took) for name, took in phase_seconds(meter, phases).items()]
    shown = [(name, planned, took) for name, planned, took in each if took or planned is not None]
    counts = ((name, *COUNTED[name]) for name in counted)
    return [
        ("", "planned", "measured"),
        ("seconds", _seconds(getattr(plan, "seconds", None)), _seconds(seconds)),
        *((f"  {name}, all ranks", _seconds(planned), _seconds(took)) for name, planned, took in shown),
        ("  begin and end, all ranks", "", _seconds(seconds_outside(meter, phases))),
        *((name, show(getattr(plan.traffic, of)), show(getattr(meter, of))) for name, of, show in counts),
    ]


def verdict(rows: Sequence[tuple[str, ...]]) -> str:
    """Return in a line whether a run did as its plan says: rows are those of `measured`; stored bytes are predicted."""
    found = {name: (planned, took) for name, planned, took in rows[1:]}
    planned, took = found["seconds"]
    exact = [name for name in found if name in COUNTED and name not in ("read", "written")]
    other = [name for name in exact if found[name][0] != found[name][1]]
    counts = f"not as planned: {', '.join(other)}" if other else f"{', '.join(exact)} as planned"
    if not planned or not float(planned):
        return counts
    return f"{counts}; {float(took) / float(planned):.1f} × the predicted seconds"


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPlan:
    """Plan of a rechunk on one cluster; if it does not fit, only the reason."""

    workers: int
    memory: str
    """Memory of a worker, as given."""
    threads: int
    strategy: str | None = None
    ranks: int | None = None
    seconds: float | None = None
    tasks: int | None = None
    bytes: int | None = None
    """Bytes sent between workers."""
    peak_bytes: int | None = None
    why: str | None = None
    """Reason that it does not fit."""

    def row(self) -> tuple[str, ...]:
        cluster = (str(self.workers), self.memory, str(self.threads))
        if self.seconds is None:
            return (*cluster, "–", self.why or "", "", "", "")
        moved = format_bytes(self.bytes or 0), format_bytes(self.peak_bytes or 0)
        return (*cluster, self.strategy or "", seconds_text(self.seconds), str(self.tasks), *moved)


def sweep_text(found: Sequence[SweptPlan]) -> str:
    head = ("workers", "memory", "threads", "strategy", "predicted", "tasks", "exchanged", "a worker holds")
    return table([head, *(each.row() for each in found)])
