"""The adapter between plans and golden files: the only module to change when plans are designed anew."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tests.golden.records import rounded

WAYS = ("strategy", "method", "way", "direction")
"""Attributes by which kinds of plans name their strategy."""
COUNTS = (
    "ranks", "processes", "tasks", "fuse", "axis", "height", "grid", "margin", "prefetch", "messages",
    "scratch_bytes", "read_bytes", "read_requests", "written_bytes", "write_requests", "again_bytes", "sent_bytes",
    "nbytes", "exchanged_bytes", "part_bytes", "result_bytes", "distribution_requests", "distribution_elements",
    "rank_requests", "transaction_requests",
)  # fmt: skip
"""Attributes that are whole numbers, or tuples of them."""
RATIOS = ("times_decoded", "times_read", "estimated")
"""Attributes that are floats, or tuples of them."""


def facts(plan: Any) -> dict[str, Any]:
    """Return the strategy, traffic, memory, seconds and alternatives of any plan as plain data."""
    price = getattr(plan, "price", None)
    found = {
        "way": next((way for way in (getattr(plan, name, None) for name in WAYS) if isinstance(way, str)), None),
        **{name: _plain(_value(plan, name)) for name in COUNTS if hasattr(plan, name)},
        **{name: _ratio(_value(plan, name)) for name in RATIOS if hasattr(plan, name)},
        "peak_bytes": _value(plan, "peak_bytes") or _value(price, "peak_bytes"),
        "seconds": rounded(_value(plan, "seconds") or _value(price, "seconds")),
        "phases": _numbers(getattr(plan, "phases", None)),
        "traffic": _numbers(getattr(plan, "traffic", None) or getattr(price, "traffic", None)),
        "memory": _memory(plan),
        "schedule": _schedule(plan),
        "alternatives": [_alternative(each) for each in _alternatives(plan)],
    }
    return {name: value for name, value in found.items() if value not in (None, [], {})}


def refusal(error: Any) -> dict[str, Any]:
    """Return the type and least budget of an error."""
    return {"refused": type(error).__name__, "least": getattr(error, "least", None)}


def _value(plan: Any, name: str) -> Any:
    value = getattr(plan, name, None)
    return value() if callable(value) else value


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return list(map(_plain, value))
    return value if value is None or isinstance(value, str) else int(value)


def _ratio(value: Any) -> Any:
    return list(map(_ratio, value)) if isinstance(value, tuple) else rounded(value)


def _numbers(of: Any) -> dict[str, Any] | None:
    """Return the fields that are not zero."""
    if of is None:
        return None
    values = {each.name: getattr(of, each.name) for each in fields(of)}
    return {n: rounded(v) if isinstance(v, float) else int(v) for n, v in values.items() if v}


def _memory(plan: Any) -> dict[str, int] | None:
    memory = _value(plan, "memory") or _value(plan, "task_memory") or getattr(plan, "price", None)
    return {name: int(nbytes) for name, nbytes in memory.terms if nbytes} if hasattr(memory, "terms") else None


def _schedule(plan: Any) -> str | None:
    order = getattr(plan, "schedule", None)
    return order if order is None or isinstance(order, str) else str(order.name)


def _alternatives(plan: Any) -> Any:
    return next((getattr(plan, name) for name in ("alternatives", "offers") if hasattr(plan, name)), ())


def _alternative(each: Any) -> list[Any]:
    """Return name, ranks, bytes, seconds, and whether it is taken; of a redistribution its prices."""
    if hasattr(each, "transfers"):
        return [_plain(getattr(each, f.name)) if f.name != "seconds" else rounded(each.seconds) for f in fields(each)]
    return [each.name, each.ranks, int(each.peak_bytes), rounded(each.seconds), each.taken]


def recommendations(advice: Any) -> list[dict[str, Any]]:
    """Return the chunks, methods and savings that are recommended for each array, and the reasons against them."""
    return [_recommendation(each) for each in advice.arrays]


def _recommendation(verdict: Any) -> dict[str, Any]:
    return {
        "array": verdict.array.rpartition("/")[2],
        "producer": verdict.producer,
        "made": _plain(verdict.made),
        "copied": _plain(verdict.copied),
        "saving": rounded(verdict.saving),
        "rewriting": rounded(verdict.rewriting),
        "today": _numbers(verdict.today),
        "advised": _numbers(verdict.advised),
        "blocks": {each.block: [each.today_method, each.method, _plain(each.chunks)] for each in verdict.blocks},
        "against": list(verdict.against),
    }
