"""Rows of plans, and of what was measured: one of each for all kinds, of the words that plans have in common.

plan              traffic, peak_bytes, budget, seconds, …      ─► rows        a name and a text
plan and meter    the same, and phases that the tasks declare  ─► measured    a name, planned, measured
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask.utils import format_bytes, format_time

from oocarrays.storage.meter import Meter

ROWS: dict[str, Callable[[Any], str]] = {
    "reads": lambda plan: f"{plan.traffic.read_requests} requests, {format_bytes(plan.traffic.read_bytes)}",
    "decodes": lambda plan: format_bytes(plan.traffic.decoded_bytes),
    "writes": lambda plan: f"{plan.traffic.write_requests} requests, {format_bytes(plan.traffic.written_bytes)}",
    "messages": lambda plan: f"{plan.traffic.messages}, {format_bytes(plan.traffic.exchanged_bytes)}",
    "scratch": lambda plan: format_bytes(plan.scratch_bytes),
    "tasks": lambda plan: str(plan.traffic.tasks) + _scheduled(plan),
    "peak memory": lambda plan: f"{format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget)}",
    "predicted": lambda plan: format_time(plan.seconds),
}
"""Rows that plans have in common, and how they are shown."""
COUNTED: dict[str, tuple[str, Callable[[int], str]]] = {
    "read requests": ("read_requests", str),
    "read": ("read_bytes", format_bytes),
    "decoded": ("decoded_bytes", format_bytes),
    "write requests": ("write_requests", str),
    "written": ("written_bytes", format_bytes),
    "messages": ("messages", str),
}
"""Counts that are planned and measured under the same name, and how they are shown."""
READ_AND_WRITTEN = ("read requests", "read", "write requests", "written")


def _scheduled(plan: Any) -> str:
    """Say what the graph of a plan is to the scheduler of a cluster; nothing where there is none."""
    if not getattr(plan, "graph_bytes", 0):
        return ""
    share = plan.scheduler_seconds / plan.seconds if plan.seconds else 0
    return f", {format_bytes(plan.graph_bytes)}, scheduler {format_time(plan.scheduler_seconds)} ({share:.0%})"


def rows(plan: Any, **said: str) -> list[tuple[str, str]]:
    """Show some of what plans have in common, a row each in the order that is asked for."""
    names = {name.replace("_", " "): behind for name, behind in said.items()}
    return [(name, ROWS[name](plan) + behind) for name, behind in names.items()]


def counted_rows(planned: Any, meter: Meter, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """Show some of what is counted, beside what was planned."""
    wanted = ((name, *COUNTED[name]) for name in names)
    return [(name, show(getattr(planned, of)), show(getattr(meter, of))) for name, of, show in wanted]


def phase_seconds(meter: Meter, phases: Mapping[str, str]) -> dict[str, float]:
    """Add up the seconds that all ranks of a run together spent in each phase."""
    found: dict[str, float] = dict.fromkeys(phases.values(), 0)
    for verb, phase in phases.items():
        found[phase] += meter.seconds.get(verb, 0)
    return found


def seconds_outside(meter: Meter, phases: Mapping[str, str]) -> float:
    """Add up the seconds of all ranks in what is no phase: making files, marking, syncing, and cleaning up."""
    return sum(seconds for verb, seconds in meter.seconds.items() if verb not in phases)


def measured(
    plan: Any, meter: Meter, seconds: float, phases: Mapping[str, str], counted: Sequence[str] = tuple(COUNTED)
) -> list[tuple[str, str, str]]:
    """Compare a run with its plan, row by row; the seconds of phases are those of all ranks together."""
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
