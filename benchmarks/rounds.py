"""Rounds of a case: its ways in turn, each in a fresh process, from a clean state, its output checked."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import child
import machine
from case import Case, Data, Job, Way, function
from measure import Run, interrupted, measure, verdict

REST = 1.0
"""Seconds between two runs, before the machine is asked whether it rests."""


@dataclass(slots=True, kw_only=True)
class Options:
    """How rounds are run."""

    workdir: str
    """Sources are kept here."""
    rounds: int | None = None
    """Instead of the case's."""
    cache: tuple[str, ...] = ()
    """Instead of the case's."""
    ways: tuple[str, ...] = ()
    """Labels of the ways that run; all where none is named."""
    patience: float = 30
    """A way that took more seconds runs once."""
    rest: bool = True
    """Whether each run waits until the machine rests."""
    inside: bool = False
    """Whether ways run in this process, their workers as threads, unwatched, without pauses: for tests."""
    pythons: Mapping[str, str] = field(default_factory=dict)
    """Interpreters of environments, by the names that ways have for them."""


def play(case: Case, options: Options) -> Iterator[dict[str, Any]]:
    """Yield each round: the state of the cache, and the runs by label. Each round begins with another way."""
    ways = [each for each in case.ways if not options.ways or each.label in options.ways]
    if not ways:
        raise SystemExit(f"{case.name} has these ways: {', '.join(each.label for each in case.ways)}")
    finished: dict[str, set[str]] = {}
    with around(case, options) as server:
        for cache in options.cache or case.cache:
            over = finished.setdefault(cache, set())
            for number in range(options.rounds or case.rounds or (3 if case.short else 2)):
                first = number % len(ways)
                runs: dict[str, Run] = {}
                for each in ways[first:] + ways[:first]:
                    if each.label not in over:
                        runs[each.label] = run = once(case, each, cache, options, server)
                        _report(f"{case.name}, {cache}, {each.label}", run)
                        if run["verdict"] != "ok" or run["seconds"] > options.patience:
                            over.add(each.label)
                yield {"cache": cache, "runs": runs}


def _report(what: str, run: Run) -> None:
    print(f"{what}: {run.get('seconds', 0):.2f} s, {run['verdict']}", file=sys.stderr, flush=True)


@contextmanager
def around(case: Case, options: Options) -> Iterator[Any]:
    """The server that a case needs, or None."""
    with function(case.around)(case, options) if case.around else nullcontext() as server:
        yield server


def once(case: Case, chosen: Way, cache: str, options: Options, server: Any = None) -> Run:
    """One run of one way from a clean state, its output checked."""
    python = options.pythons.get(chosen.python, "") if chosen.python else sys.executable
    if not python:
        return {"verdict": f"not installed: see --python {chosen.python}=PATH"}
    folder = clean(os.path.join(options.workdir, "run"), options)
    sources = os.path.join(options.workdir, "sources")
    if options.inside and not chosen.fault:
        case = replace(case, params={**case.params, "processes": False})
    job, tiny = case.job(chosen, sources, folder), _tiny(case, chosen, sources, folder)
    for asked, found in ((job, case.source(chosen)), (tiny, case.warmed().source(chosen))):
        if found:
            made(found, asked.source, options.inside)
    if server:
        job, tiny = server.placed(job), server.placed(tiny)
    how = {"cold": machine.make_cold, "warm": machine.make_warm}[cache](job.source)
    if job.fault.startswith("resume"):
        interrupted(python, chosen.run, replace(job, fault=""), tiny, job.fault_share)
        shutil.rmtree(os.path.dirname(tiny.scratch))
        os.makedirs(tiny.scratch)
    ready = server.begin if server else int
    run = inside(chosen, job, tiny) if options.inside else measure(python, chosen.run, job, tiny, case.timeout, ready)
    if server:
        run.setdefault("told", {})["server"] = server.end()
    run["cache_by"] = how
    if run["verdict"] == "ok" and case.check:
        run["verdict"] = function(case.check)(job) if options.inside else apart(case.check, job)
    shutil.rmtree(folder, ignore_errors=True)  # threads of a way that failed may still write
    return run


def inside(chosen: Way, job: Job, tiny: Job) -> Run:
    """Run a way in this process."""
    answers: list[dict] = []
    child.serve(chosen.run, job, tiny, answers.append)
    answer = answers[-1]
    return {"verdict": verdict(answer), "seconds": answer.pop("seconds", 0.0), "budget": job.memory, "told": answer}


def clean(folder: str, options: Options) -> str:
    """Return an empty folder on a disk at rest."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("scratch", "tiny/scratch"):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
    if not options.inside:
        os.sync()
        if options.rest:
            time.sleep(REST)
            machine.wait_for_rest()
    return folder


def _tiny(case: Case, chosen: Way, sources: str, folder: str) -> Job:
    """Return a job of the same kind to warm up with, which no fault befalls."""
    warmed = case.warmed()
    (same,) = (each for each in warmed.ways if each.label == chosen.label)
    return warmed.job(replace(same, fault=""), sources, os.path.join(folder, "tiny"))


def made(found: Data, path: str, inside: bool = False) -> None:
    """Make a source where it does not exist yet; it appears under its name when it is whole."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        partial = f"{path}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        function(found.make)(partial, **found.params) if inside else apart(found.make, partial, **found.params)
        os.sync()
        os.rename(partial, path)


def apart(name: str, *args: Any, **params: Any) -> Any:
    """Call `module:function` in a process of its own, forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["zarr", "oocarrays"])
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_answer, args=(theirs, name, args, params))
    process.start()
    theirs.close()
    try:
        return ours.recv()
    except EOFError:
        raise SystemExit(f"{name} failed, see above") from None
    finally:
        process.join()


def _answer(to: Any, name: str, args: tuple, params: dict) -> None:
    to.send(function(name)(*args, **params))
