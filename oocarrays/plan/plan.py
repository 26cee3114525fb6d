"""Plans: the properties of every kind, and the base of plans of one pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

from oocarrays.mapping.grid import Stored
from oocarrays.plan.cost import Phases, Pipeline, Traffic, pass_seconds
from oocarrays.plan.machine import Costs
from oocarrays.plan.memory import Holding, Memory
from oocarrays.plan.search import TAKEN, Alternative, too_large


class Bytes(int):
    """Number of bytes, displayed with a unit."""


class Duration(float):
    """Number of seconds, displayed with a unit."""


NO_MESSAGES = "none: ranks are threads"
Value = str | int | float | tuple[int, ...]
"""Part of a fact: text, a number, or a shape."""
Facts = list[tuple[str, tuple[Value, ...]]]
"""Names with the parts of their values: explain(), repr and HTML display them as rows."""


@runtime_checkable
class Plan(Protocol):
    """Properties of every plan of a job."""

    @property
    def traffic(self) -> Traffic: ...
    @property
    def memory(self) -> Memory: ...
    @property
    def peak_bytes(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def budget(self) -> int: ...
    @property
    def ranks(self) -> int: ...
    @property
    def processes(self) -> int | None: ...
    @property
    def alternatives(self) -> tuple[Alternative, ...]: ...
    def facts(self) -> Facts: ...


_COMMON: dict[str, Callable[[Any], tuple[Value, ...]]] = {
    "reads": lambda plan: (plan.traffic.read_requests, " requests, ", Bytes(plan.traffic.read_bytes)),
    "decodes": lambda plan: (Bytes(plan.traffic.decoded_bytes),),
    "writes": lambda plan: (plan.traffic.write_requests, " requests, ", Bytes(plan.traffic.written_bytes)),
    "messages": lambda plan: (plan.traffic.messages, ", ", Bytes(plan.traffic.exchanged_bytes)),
    "scratch": lambda plan: (Bytes(plan.scratch_bytes),),
    "tasks": lambda plan: (plan.traffic.tasks, *_scheduled(plan)),
    "peak memory": lambda plan: (Bytes(plan.peak_bytes), " of ", Bytes(plan.budget)),
    "predicted": lambda plan: (Duration(plan.seconds),),
}


def _scheduled(plan: Any) -> tuple[Value, ...]:
    if not getattr(plan, "graph_bytes", 0):
        return ()
    share = plan.scheduler_seconds / plan.seconds if plan.seconds else 0
    return ", ", Bytes(plan.graph_bytes), ", scheduler ", Duration(plan.scheduler_seconds), f" ({share:.0%})"


def shared_facts(plan: Any, **behind: str) -> Facts:
    """Return facts that plans have in common, in the order of the keywords, each followed by its text."""
    names = {name.replace("_", " "): text for name, text in behind.items()}
    return [(name, (*_COMMON[name](plan), text)) for name, text in names.items()]


def alternative(plan: Any, name: str, seconds: float | None, reason: str = "") -> Alternative:
    """Return a plan as an alternative to others."""
    return Alternative(name=name, ranks=plan.ranks, seconds=seconds, peak_bytes=plan.peak_bytes, reason=reason)


def of_members(members: Iterable[tuple[str, Plan]]) -> tuple[Alternative, ...]:
    """Return the alternatives of several plans, each prefixed with the plan's name."""
    every = ((name, each) for name, plan in members for each in plan.alternatives)
    return tuple(replace(each, name=f"{name}: {each.name}") for name, each in every)


def plural(number: int, noun: str, ending: str = "s") -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{ending * (number != 1)}"


def where(processes: int | None) -> str:
    """Return the suffix for the memory of each process."""
    return " in each worker" if processes else ""


def cache_words(past_cache: bool) -> str:
    """Return a description of access to local files."""
    return f"{'past' if past_cache else 'through'} the system's cache"


def estimate(*arrays: bool) -> str:
    """Return the suffix for a number that is estimated if any of the conditions holds."""
    return " (estimate)" if any(arrays) else ""


def table(rows: Sequence[tuple[str, ...]], *, indent: str = "", words: int | None = None) -> str:
    """Return rows with aligned columns: the first ``words`` to the left, or all, and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    places = [f"<{width}" for width in widths[:words]] + [f">{width}" for width in widths[len(widths[:words]) :]]
    return "\n".join(indent + "  ".join(map(format, row, places)).rstrip() for row in rows)


@dataclass(frozen=True, kw_only=True)
class OnePass(Holding):
    """Base of plans of one pass."""

    budget: int
    """Bytes that each process may hold above its idle level."""
    processes: int | None
    """Workers of the target cluster; None for threads of one process."""
    costs: Costs = field(default_factory=Costs)
    """Costs of this machine."""
    refused: tuple[Alternative, ...] = ()
    """Alternatives that exceed the budget."""

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of the plan among alternatives."""

    @property
    @abstractmethod
    def traffic(self) -> Traffic:
        """Reads, writes and messages."""

    @property
    @abstractmethod
    def _work(self) -> tuple[Stored, Stored, Pipeline]:
        """Array read, array written, and concurrency."""

    @cached_property
    def _predicted(self) -> tuple[float, Phases]:
        """Elapsed seconds, and the seconds of all ranks together by phase."""
        return pass_seconds(self.traffic, self.costs, *self._work)

    @property
    def seconds(self) -> float:
        return self._predicted[0]

    @property
    def phases(self) -> Phases:
        """Predicted seconds of all ranks together."""
        return self._predicted[1]

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        return alternative(self, self.title, self.seconds, TAKEN), *self.refused

    def after(self, refused: Iterable[OnePass]) -> Self:
        """Return the plan with rejected alternatives that exceed the budget."""
        others = [alternative(each, each.title, None, too_large(each.peak_bytes, self.budget)) for each in refused]
        return replace(self, refused=tuple(others)) if others else self
