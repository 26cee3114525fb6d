"""Measurements of runs beside their plans.

plan and meter    the same, and phases that the tasks declare  ─► measured    a name, planned, measured
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask.utils import format_bytes

from oocarrays.storage.meter import Meter

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


def counted_rows(planned: Any, meter: Meter, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return rows of some counts, planned and measured."""
    wanted = ((name, *COUNTED[name]) for name in names)
    return [(name, show(getattr(planned, of)), show(getattr(meter, of))) for name, of, show in wanted]


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
    return [
        ("", "planned", "measured"),
        ("seconds", _seconds(getattr(plan, "seconds", None)), _seconds(seconds)),
        *((f"  {name}, all ranks", _seconds(planned), _seconds(took)) for name, planned, took in shown),
        ("  begin and end, all ranks", "", _seconds(seconds_outside(meter, phases))),
        *counted_rows(plan.traffic, meter, counted),
    ]


def _seconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.2f}"
