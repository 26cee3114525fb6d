"""Kinds of jobs, and how to plan each again from its journal.

    journal ─► the function that was called ─► RESUMERS ─► the same job, less the work done

A new kind of job writes `call_content` into its journal, and one function here that calls it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from oocarrays.arrays.creating import open_array
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError, JournalError, NotFoundError, PlacementError
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.rechunk.resume import planned, planned_group, resumed, resumed_group
from oocarrays.graphs.run.recovery import Interrupted
from oocarrays.graphs.settings import setting
from oocarrays.jobs.collective_writes import resume_sections
from oocarrays.jobs.converting import resume_files
from oocarrays.jobs.iterating import iterate
from oocarrays.jobs.job import Job
from oocarrays.jobs.pyramid import pyramid, source_image
from oocarrays.jobs.shifting import shift
from oocarrays.jobs.slabs import map_slabs
from oocarrays.jobs.stored import GroupJob, RechunkJob
from oocarrays.jobs.updating import resume_update
from oocarrays.options.asked import as_list, cluster_of, resources_of
from oocarrays.options.given import Resources, Target, nested
from oocarrays.options.shapes import NAMES, Results
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.reductions.reducing import resumed_reduction
from oocarrays.storage.journal.calls import CALL, CODE, NAME, given_again
from oocarrays.storage.journal.leftovers import scratch_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRequest:
    """Interrupted job, and the arguments of `resume`."""

    left: Interrupted
    given: Sequence[Any] | None
    """Its sources, if given again."""
    functions: Sequence[Callable[..., Any]]
    """Its functions, if given again."""
    place: Callable[[Any], Any]
    """Function that opens a URL as a store."""
    parts: Any
    """Parts to write, one a rank, if given again."""
    asked: Resources
    """Memory, ranks and location, if they differ from the plan's, and treatment of chunks that sources lack."""

    @property
    def call(self) -> Mapping[str, Any]:
        """Call recorded in the journal; version 0.5.0 recorded only some of it."""
        if CALL in self.left.content:
            return self.left.content[CALL]
        name = self.left.content["asked"]["kernel"]
        module, _, last = name.rpartition(".")
        kernel = {NAME: f"{module}:{last}", CODE: None}
        sources = [None] * len(self.left.content["asked"]["source"])
        return {
            "function": self.left.content["pass"], "source": sources, "functions": [kernel], "memory": None,
            "processes": None, "options": {},
        }  # fmt: skip

    def sources(self, missing: str | None = None) -> list[Any]:
        known = self.call["source"]
        places = known if self.given is None else self.given
        if len(places) != len(known):
            raise InputError(f"{len(places)} sources were passed; the run in {self.left.target} had {len(known)}")
        if None in places:
            raise NotFoundError(f"the source of {self.left.target} is not a path or URL: pass source=")
        scheduler = self.arranged[1].scheduler
        return [open_array(self.place(each), scheduler=scheduler, missing=missing) for each in places]  # type: ignore[arg-type]

    @property
    def arranged(self) -> tuple[Cluster | None, Resources]:
        """Location and resources of the resumed run."""
        return self.means(self.call["processes"], self.call["memory"])

    def means(self, processes: int | None, budget: int | None) -> tuple[Cluster | None, Resources]:
        """Return the location and resources of a run that was planned for these processes and this memory."""
        on_threads = processes is None
        asked = self.asked.scheduler is not None or self.asked.workers is not None
        cluster = cluster_of(self.asked.scheduler, self.asked.workers) if asked or not on_threads else None
        if cluster is None and not on_threads and self.asked.scheduler is None:
            raise PlacementError(
                f"the run was planned for {processes} workers: pass scheduler=, or create a client; "
                "scheduler='threads' plans the rest for threads"
            )
        stays = (cluster is None) is on_threads
        return cluster, replace(
            self.asked,
            scheduler="threads" if cluster is None else cluster.client,
            memory=budget if self.asked.memory is None and stays else self.asked.memory,
        )

    def kernels(self) -> list[Callable[..., Any] | None]:
        as_is = self.left.trust.as_is or bool(self.left.trust.again)
        return given_again(self.call, self.functions, str(self.left.target), as_is=as_is)

    def without(self) -> None:
        """Raise if sources or functions are given for a job that takes none."""
        self.sources()
        self.kernels()

    def slabs(self) -> Document:
        """Return the arguments that every pass over slabs has in common."""
        options, (_, means), asked = dict(self.call["options"]), self.arranged, self.left.content["asked"]
        before = {name: options.pop(name, None) for name in ("ranks", "missing")}
        ranks = before["ranks"] if means.ranks is None else means.ranks
        missing = before["missing"] if means.missing is None else means.missing
        axis = options.pop("axis", None)
        return options | {
            "depth": tuple(asked["depth"]), "boundary": asked["boundary"], "memory": means.memory, "ranks": ranks,
            "missing": missing, "scheduler": means.scheduler, "workers": means.workers, "resume": self.left.trust,
            "window": None if axis is None else {axis: "auto"},
        }  # fmt: skip

    def target(self, call: Callable[..., Any], slabs: Document, **stated: Sequence[Any]) -> tuple[Any, Document]:
        """Return the target of a pass, or the list of them, with what each is stated to be, and other arguments."""
        was = self.left.content["asked"]["target"]
        single = slabs.pop("single", len(was) == 1)
        _, how = nested(call, None, slabs | {"folders": None})
        stores = [self.left.target, *map(self.place, was[1:])]
        targets = [
            Target(store, folders=slabs.get("folders"), **{name: each[number] for name, each in stated.items()})
            for number, store in enumerate(stores)
        ]
        return targets[0] if single else targets, how


def _rechunk(asked: ResumeRequest) -> Job[Any, Any]:
    left, is_group = asked.left, "members" in asked.left.content
    before = planned_group(left) if is_group else planned(left)
    means = cache(lambda: asked.means(before.processes, before.budget))

    def terms() -> PlanResources | None:
        """Return the resources for another plan; None if no other memory, ranks or workers are given."""
        cluster, given = means()
        there = None if cluster is None else len(cluster.workers())
        was = before.processes
        stays = there is was if there is None or was is None else there >= min(was, before.ranks)
        if stays and asked.asked.memory is asked.asked.ranks is None:
            return None
        ranks = setting("ranks") if given.ranks is None else given.ranks
        return resources_of(cluster, given.memory, ranks=ranks)

    source = None if asked.given is None else asked.given[0]
    scratch = scratch_of(asked.place(setting("scratch")), asked.left.target)
    how: Any = {"place": asked.place, "scratch": scratch, "missing": asked.asked.missing}
    if is_group:
        return GroupJob(resumed_group(left, terms, source, **how), means()[0])
    return RechunkJob(resumed(left, terms, source, **how), means()[0])


def _map_slabs(asked: ResumeRequest) -> Job[Any, Any]:
    (kernel,), slabs, was = asked.kernels(), asked.slabs(), asked.left.content["asked"]
    shapes = {name: was[name] for name in NAMES if name in was}
    dtypes, chunks = as_list(was["dtype"]), list(map(tuple, was["chunks"]))
    verify = bool(slabs.pop("verify", False))
    target, how = asked.target(map_slabs, slabs, dtype=dtypes, chunks=chunks)
    single = isinstance(target, Target)
    results = Results(verify=verify, **{name: each[0] if single else each for name, each in shapes.items()})
    return map_slabs(kernel, asked.sources(), target, results=results, **how)  # type: ignore[arg-type]


def _pyramid(asked: ResumeRequest) -> Job[Any, Any]:
    asked.kernels()
    given = asked.given and [source_image(each, asked.place) for each in asked.given]
    slabs, was, (source,) = asked.slabs(), asked.left.content["asked"], replace(asked, given=given).sources()
    how = {name: slabs[name] for name in ("memory", "ranks", "missing", "scheduler", "workers", "resume")}
    how |= {name: was[name] for name in ("levels", "factor", "method", "scale", "unit") if name in was}
    target, how = nested(pyramid, asked.left.target, how | {"chunks": tuple(was["chunks"][0])})
    return pyramid(source, target, **how)


def _iterate(asked: ResumeRequest) -> Job[Any, Any]:
    (kernel, *watched), slabs, was = asked.kernels(), asked.slabs(), asked.left.content["asked"]
    if was["residual"] and not watched:
        raise JournalError(f"{asked.left.target} was being written with residual={was['residual']}: call iterate again")
    target, how = asked.target(iterate, slabs)
    until = (was["until"], watched[0]) if watched else was["until"]
    return iterate(kernel, asked.sources(), target, sweeps=was["sweeps"], until=until, **how)  # type: ignore[arg-type]


def _files(asked: ResumeRequest) -> Job[Any, Any]:
    left = asked.left
    if CALL not in left.content:
        way = left.content["files"]
        again = "pass overwrite=True (--overwrite) to write it again"
        raise JournalError(f"{asked.left.target} was being written by {way}_files: {again}")
    missing = asked.asked.missing or asked.call["options"].get("missing")
    (source,) = asked.sources(missing)
    return resume_files(left, source, *asked.arranged)


def _write_sections(asked: ResumeRequest) -> Job[Any, Any]:
    asked.without()
    return resume_sections(asked.left, asked.parts, asked.arranged[1])


def _shift(asked: ResumeRequest) -> Job[Any, Any]:
    asked.without()
    _, means = asked.arranged
    a = open_array(asked.left.target, mode="r+", scheduler=means.scheduler)
    if not isinstance(a, LocalArrays):
        raise JournalError(f"{asked.left.target} was being written by shift, and is not a group of local array files")
    where = {"memory": means.memory, "scheduler": means.scheduler, "workers": means.workers}
    return shift(a, **nested(shift, None, {**asked.call["options"], **where})[1])


def _update(asked: ResumeRequest) -> Job[Any, Any]:
    asked.kernels()
    return resume_update(asked.left, asked.place, None if asked.given is None else asked.given[0], *asked.arranged)


def _reduce(asked: ResumeRequest) -> Job[Any, Any]:
    functions, (source,) = asked.kernels(), asked.sources(asked.asked.missing)
    return resumed_reduction(asked.left, functions, source, *asked.arranged)


RESUMERS: dict[str, Callable[[ResumeRequest], Job[Any, Any]]] = {
    "rechunk": _rechunk,
    "map_slabs": _map_slabs,
    "pyramid": _pyramid,
    "iterate": _iterate,
    "scatter_files": _files,
    "gather_files": _files,
    "write_sections": _write_sections,
    "shift": _shift,
    "update": _update,
    "reduce": _reduce,
}
"""Function that resumes each kind of job, by the name of the original call."""


def kind_of(content: Mapping[str, Any]) -> str:
    """Return the name of the called function, from a journal of any version."""
    if CALL in content:
        return str(content[CALL]["function"])
    if "files" in content:
        return f"{content['files']}_files"
    return str(content.get("pass", "rechunk"))
