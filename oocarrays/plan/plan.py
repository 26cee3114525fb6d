"""Plans: their memory, alternatives, searches, and the base of plans of one pass.

Every plan states the memory of a process at one time, by term:

    stacks        24.0 MiB
    regions       16.0 MiB      of two ranks
    messages       4.0 MiB
    ──────────────────────
    in all        44.0 MiB      plan.peak_bytes, at most the budget

    on threads      Resources(budget=2**30, threads=2)                 ranks are threads of this process
    on workers      Resources(budget=2**30, threads=2, workers=4)      ranks are placed on workers of a cluster

Ranks are threads if and only if ``workers is None``. Alternatives are the ways of doing the work that a plan compared.

Plans are drawn, and traces advised, by functions of the layers above; plans themselves contain no such code:

    floor 5   show.pictures, show.notebook, advice …    ◄──┐   imported when they are first called
    floor 2   plan.draw() ── resolve_name("oocarrays.…") ──┘
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, takewhile
from operator import attrgetter, itemgetter
from pkgutil import resolve_name
from typing import Any, NoReturn, Protocol, Self, TypeVar, runtime_checkable

from oocarrays.errors import BudgetError
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.plan.cost import Phases, Pipeline, Traffic, pass_seconds
from oocarrays.plan.machine import Costs


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Memory, processors and requests that a plan may use, and the exchange schedule of its ranks."""

    budget: int = 2**62
    """Bytes that each process may hold above its idle level."""
    costs: Costs = field(default_factory=Costs)
    """Seconds of each kind of work."""
    workers: int | None = None
    """Workers of a cluster, to which ranks are assigned in turn; None if ranks are threads of this process."""
    threads: int = 1
    """Threads of each process."""
    ranks: int | None = None
    """Requested number of logical processors; None for the cheapest number."""
    schedule: str = "auto"
    """Name of the exchange schedule."""
    synchronous: bool = True
    """Whether a step between workers waits until the previous one has been received and consumed."""
    requests: int = 64
    """Maximum number of concurrent network requests of a process."""

    @property
    def on_workers(self) -> bool:
        return self.workers is not None

    def ranks_of_a_process(self, ranks: int) -> int:
        return ranks if self.workers is None else ceil_div(ranks, self.workers)


PROCESS_BYTES = 3 * 2**20
"""Fixed bytes of a process for running tasks on threads: stacks, open arrays, the scheduler, first imports."""
_BYTES = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes held at one time, by term."""

    terms: tuple[tuple[str, int], ...] = ()
    """Unique names of the terms, with their bytes."""

    @classmethod
    def of(cls, **terms: int) -> Self:
        return cls(tuple(terms.items()))

    @classmethod
    def from_number(cls, nbytes: int) -> Self:
        """Return the memory that `to_number` wrote: its terms are not kept."""
        return cls.of(in_all=nbytes)

    def to_number(self) -> int:
        return self.nbytes

    @property
    def nbytes(self) -> int:
        return sum(map(_BYTES, self.terms))

    def __add__(self, other: Memory) -> Memory:
        both = dict(self.terms)
        for name, nbytes in other.terms:
            both[name] = both.get(name, 0) + nbytes
        return Memory(tuple(both.items()))

    def __mul__(self, times: int) -> Memory:
        return Memory(tuple((name, nbytes * times) for name, nbytes in self.terms))

    def __getitem__(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def __repr__(self) -> str:
        return f"Memory({', '.join(f'{name}={nbytes}' for name, nbytes in self.terms)})"


def largest_memory(*memories: Memory) -> Memory:
    """Return the largest of several memories that are never held at the same time."""
    return max(memories, key=attrgetter("nbytes"), default=Memory())


class Holding(ABC):
    """Base of plans with a memory estimate."""

    __slots__ = ()

    @property
    @abstractmethod
    def memory(self) -> Memory:
        """Peak memory of one process."""

    @property
    def considered(self) -> NoReturn:
        """Raise an error that names ``alternatives``."""
        raise AttributeError("'considered' is renamed 'alternatives'")

    @property
    def peak_bytes(self) -> int:
        return self.memory.nbytes

    @property
    def peak_text(self) -> str:
        """Peak memory beside the budget, as text."""
        return f"peak {self.peak_bytes / MIB:.1f} of {(getattr(self, 'budget', 0) or 0) / MIB:.1f} MiB"

    def _repr_html_(self) -> str:
        html: str = resolve_name("oocarrays.show.notebook:facts_html")(self)
        return html


# ---------------------------------------------------------------------- alternatives and searches


TAKEN = "taken"
"""Reason of the chosen way."""
MIB = 2**20
T = TypeVar("T")
P = TypeVar("P", bound=Holding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """Way of doing the work that a plan compared."""

    name: str = field(metadata={"json": "strategy"})
    """Strategy or method, with the number of passes if there are several."""
    ranks: int = 1
    """Number of logical processors; for a collective request, its aggregators."""
    seconds: float | None
    """Predicted elapsed seconds; None if it does not fit."""
    peak_bytes: int
    """Peak bytes of a process, or of a task of a lazy array; the minimum required if it does not fit."""
    reason: str = ""
    """Reason for not choosing it, or `TAKEN`."""
    traffic: Traffic = field(default=Traffic(), metadata={"json": None})
    """Requests, bytes and messages of all ranks together, where alternatives are compared by them."""
    rounds: int = field(default=1, metadata={"json": None})
    """Rounds of reading and sending."""
    domains: str | None = field(default=None, metadata={"json": None})
    """Rule that assigns chunks to aggregators; None without aggregators."""

    @property
    def taken(self) -> bool:
        return self.reason == TAKEN

    def judged(self, taken: Alternative, budget: int) -> Alternative:
        if self is taken:
            reason = TAKEN
        elif self.peak_bytes > budget or self.seconds is None:
            reason = too_large(self.peak_bytes, budget)
        else:
            reason = slower(self.seconds, taken.seconds or 0.0)
        return replace(self, reason=reason)


def too_large(peak_bytes: int, budget: int) -> str:
    return f"needs {peak_bytes / MIB:.1f} MiB, the budget is {budget / MIB:.1f} MiB"


def slower(seconds: float, best: float) -> str:
    return f"{seconds / max(best, 1e-9):.2f} times the predicted seconds of the one taken"


def largest(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number up to ``high`` that fits by bisection, if ``low`` fits."""
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def least(fits: Callable[[int], bool], low: int, high: int, within: int = 1) -> int:
    """Return a number that fits, at most ``within`` above one that does not; ``high`` fits and ``low`` does not."""
    while high - low > within:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def halvings(most: int) -> Iterator[int]:
    return takewhile(bool, (most >> bit for bit in count()))


def first_fitting(plans: Iterable[P], budget: int, what: str) -> tuple[P, list[P]]:
    """Return the first plan that fits the budget, and those before it, or raise with the minimum of all."""
    refused: list[P] = []
    for plan in plans:
        if plan.peak_bytes <= budget:
            return plan, refused
        refused.append(plan)
    raise BudgetError(budget, min(plan.peak_bytes for plan in refused), what)


def cheapest(
    candidates: Iterable[T], price: Callable[[T], Alternative], budget: int, what: str
) -> tuple[T, tuple[Alternative, ...]]:
    """Return the candidate with the least seconds that fits, and every candidate with the reason against it."""
    priced = [(each, price(each)) for each in candidates]
    fitting = [(each, its) for each, its in priced if its.seconds is not None and its.peak_bytes <= budget]
    if not fitting:
        raise BudgetError(budget, min(its.peak_bytes for _, its in priced), what)
    best, taken = min(fitting, key=lambda both: both[1].seconds or 0.0)
    return best, tuple(its.judged(taken, budget) for _, its in priced)


# ---------------------------------------------------------------------- plans


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


def shared_facts(plan: Any, **behind: str | None) -> Facts:
    """Return facts that plans have in common, in the order of the keywords, each followed by its text.

    None stands for the text that names a worker, if processes are workers.
    """
    names = {name.replace("_", " "): where(plan.processes) if text is None else text for name, text in behind.items()}
    return [(name, (*_COMMON[name](plan), text)) for name, text in names.items()]


def alternative(plan: Any, name: str, seconds: float | None, reason: str = "") -> Alternative:
    return Alternative(name=name, ranks=plan.ranks, seconds=seconds, peak_bytes=plan.peak_bytes, reason=reason)


def of_members(members: Iterable[tuple[str, Plan]]) -> tuple[Alternative, ...]:
    """Return the alternatives of several plans, each prefixed with the plan's name."""
    every = ((name, each) for name, plan in members for each in plan.alternatives)
    return tuple(replace(each, name=f"{name}: {each.name}") for name, each in every)


def where(processes: int | None) -> str:
    """Return the suffix for the memory of each process."""
    return " in each worker" if processes else ""


def cache_words(past_cache: bool) -> str:
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
        return pass_seconds(self.traffic, self.costs, *self._work)

    @property
    def seconds(self) -> float:
        return self._predicted[0]

    @property
    def phases(self) -> Phases:
        return self._predicted[1]

    @property
    def alternatives(self) -> tuple[Alternative, ...]:
        return alternative(self, self.title, self.seconds, TAKEN), *self.refused

    def after(self, refused: Iterable[OnePass]) -> Self:
        """Return the plan with rejected alternatives that exceed the budget."""
        others = [alternative(each, each.title, None, too_large(each.peak_bytes, self.budget)) for each in refused]
        return replace(self, refused=tuple(others)) if others else self
