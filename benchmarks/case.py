"""Cases, ways and jobs: what is asked, who answers, and what an answer is given. Only the standard library.

Case ── data, ways, check ──► Job ── JSON ──► run(job) in a fresh process ──► figures
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from math import prod
from typing import Any

MIB, GIB, MB = 2**20, 2**30, 10**6
ITEM = 4
"""Bytes of a float32, the element of most cases."""
LENGTHS = ("shape", "chunks", "target_chunks", "edge", "items")
"""Parameters that `--scale` divides."""


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0))


def function(name: str) -> Callable:
    """Return the function `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def scaled(params: Mapping[str, Any], factor: int) -> dict[str, Any]:
    """Return the parameters with every length divided by `factor`, rounded up."""
    return {name: _shrunk(value, factor) if name in LENGTHS else value for name, value in params.items()}


def _shrunk(value: Any, factor: int) -> Any:
    return tuple(-(-each // factor) for each in value) if isinstance(value, tuple) else -(-value // factor)


@dataclass(frozen=True, slots=True)
class Data:
    """A source: the function that makes it, and its arguments."""

    make: str
    """`module:function`, called as make(path, **params); what it makes appears under its name when it is whole."""
    params: Mapping[str, Any]
    """Arguments, as JSON knows them."""

    def path(self, folder: str) -> str:
        """Where the source with these parameters is kept."""
        digest = sha256(json.dumps([self.make, self.params], sort_keys=True).encode()).hexdigest()[:10]
        return os.path.join(folder, f"{self.make.partition(':')[2]}-{digest}")

    def scaled(self, factor: int) -> Data:
        """Return a smaller source of the same kind."""
        return replace(self, params=scaled(self.params, factor))

    def tiny(self, params: Mapping[str, Any]) -> Data:
        """Return the source with the parameters of a warm-up that it knows."""
        return replace(self, params={**self.params, **{k: v for k, v in params.items() if k in self.params}})


def data(make: str, **params: Any) -> Data:
    """Return a source that `make` makes of some parameters."""
    return Data(make, params)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to answer a case."""

    label: str
    """Its name in tables."""
    run: str
    """`module:function`, called as run(job) in a fresh process."""
    source: str = ""
    """Which of the case's sources it reads; the first where none is named."""
    memory: float = 1.0
    """Its budget is the case's times this."""
    python: str = ""
    """Name of the environment that it needs, given as `--python NAME=PATH`."""
    fault: str = ""
    """`kill-50` or `resume-50`: a worker, or all processes, are killed when 50 % is written."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Further parameters of its jobs."""


def way(label: str, run: str, **given: Any) -> Way:
    """Return a way; what is not a field of `Way` is a parameter of its jobs."""
    known = {name: given.pop(name) for name in ("source", "memory", "python", "fault") if name in given}
    return Way(label, run, **known, params=given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question, the ways that answer it, and the check of their answers."""

    name: str
    """What a person types, and the name of its result file."""
    question: str
    """One sentence."""
    ways: tuple[Way, ...]
    """Who answers; ours first, for ratios are to the first."""
    data: Mapping[str, Data] = field(default_factory=dict)
    """Sources by name."""
    check: str = ""
    """`module:function`, called as check(job) after each run: `ok`, or what is wrong; empty where ways check."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of every job, beside those of its source."""
    tiny: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the job that warms a process up, instead of the case's and its sources'."""
    memory: int = GIB
    """Budget, in bytes; workers share it evenly, and 0 sets them no limit."""
    workers: int = 0
    """Worker processes; 0 for as many as cores."""
    around: str = ""
    """`module:class` of a server that all runs need, see `peers.s3`."""
    measure: str = "run"
    """`run`: a table with a row for each way. `each`: the same, of ways that answer questions of their own, without
    ratios. `figures`: ways time several things themselves; a row for each of these. `own`: the same, without ratios."""
    cache: tuple[str, ...] = ("cold",)
    """States of the page cache before a run: `cold`, `warm`, or both."""
    rounds: int = 0
    """How often each way runs; 0 is 3 in cases of the short set, which pages show, and 2 in others."""
    timeout: float = 180
    """Seconds after which a run is ended."""
    short: bool = False
    """Whether the short set has it."""

    def scaled(self, factor: int) -> Case:
        """Return the same case with every length divided by `factor`; budgets stay."""
        smaller = {name: each.scaled(factor) for name, each in self.data.items()}
        ways = tuple(replace(each, params=scaled(each.params, factor)) for each in self.ways)
        return replace(self, data=smaller, params=scaled(self.params, factor), ways=ways)

    def source(self, chosen: Way) -> Data | None:
        """Return the source that a way reads, if the case has any."""
        return self.data[chosen.source or next(iter(self.data))] if self.data else None

    def warmed(self) -> Case:
        """Return the tiny case that warms a process up."""
        params = {**self.params, **{k: v for k, v in self.tiny.items() if k in self.params}}
        known = {name: each.tiny(self.tiny) for name, each in self.data.items()}
        extra = {name: value for name, value in self.tiny.items() if name in LENGTHS}
        ways = tuple(replace(each, params={**each.params, **extra}) for each in self.ways)
        return replace(self, data=known, params=params, ways=ways)

    def job(self, chosen: Way, sources: str, folder: str) -> Job:
        """Return the job of a way from a source in `sources` into `folder`."""
        found = self.source(chosen)
        given = {**(found.params if found else {}), **self.params, **chosen.params}
        return Job(
            source=found.path(sources) if found else "",
            target=os.path.join(folder, "target"),
            scratch=os.path.join(folder, "scratch"),
            memory=int(self.memory * chosen.memory),
            cores=cores(),
            workers=self.workers,
            fault=chosen.fault,
            params=given,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One case at one place on disk: all that a way is given. Parameters are read as attributes."""

    source: str
    """Path of the source."""
    target: str
    """Path of what is to be made; nothing is there yet."""
    scratch: str
    """Folder for intermediate files, empty."""
    memory: int
    """Budget, in bytes."""
    cores: int
    """Cores that the run may use."""
    workers: int
    """Worker processes of a way that has a cluster; 0 for as many as cores."""
    fault: str
    """See `Way`."""
    params: Mapping[str, Any]
    """Those of the source, the case and the way."""

    def __getattr__(self, name: str) -> Any:
        """Return a parameter."""
        if name.startswith("__") or name == "params" or name not in self.params:
            raise AttributeError(name)
        return self.params[name]

    @property
    def nbytes(self) -> int:
        """Bytes of the decoded array = product of the extents × item size."""
        return prod(self.shape) * ITEM

    @property
    def budget(self) -> str:
        """The budget as oocarrays reads it."""
        return f"{self.memory // MIB}MiB"

    @property
    def fault_share(self) -> float:
        """Share of the target that is written when the fault comes."""
        return int(self.fault.rpartition("-")[2]) / 100

    def written(self) -> float:
        """Share of the target's chunks that exist, by the files of a Zarr 3 store."""
        chunks = prod(-(-extent // edge) for extent, edge in zip(self.shape, self.target_chunks, strict=True))
        files = (name for _, _, names in os.walk(os.path.join(self.target, "c")) for name in names)
        return sum(name.isdigit() for name in files) / chunks

    def to_json(self) -> str:
        """Return the job as one line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Job:
        """Return the job that `to_json` wrote; lists become tuples."""
        fields = json.loads(line)
        params = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.pop("params").items()}
        return cls(**fields, params=params)


def within(context: Callable) -> Callable:
    """Decorate a way that needs a cluster or a pool: `context(job)` is entered before the clock starts.

    The way is then called as run(job, value of the context).
    """

    def mark(run: Callable) -> Callable:
        run.within = context
        return run

    return mark
