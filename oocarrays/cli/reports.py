"""Plans and results of jobs: text for people, or one JSON object."""

from __future__ import annotations

import json as text_of
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from oocarrays.errors import UnsupportedError, plural
from oocarrays.jobs.job import Job
from oocarrays.jobs.stored import GroupJob, RechunkJob
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import Plan
from oocarrays.show import report
from oocarrays.show.pictures import load_picture
from oocarrays.show.progress import elapsed_text
from oocarrays.storage.meter import COUNTERS, MemoryWatch, anonymous_bytes


def print_json(document: Document, *, odd: Callable[[float], Any] = lambda number: None, **how: Any) -> None:
    """Print lists and dicts, numbers of Python, and all else as text; ``odd`` stands for NaN and infinity."""

    def plain(value: Any) -> Any:
        match value:
            case Mapping():
                return {str(name): plain(each) for name, each in value.items()}
            case list() | tuple():
                return [plain(each) for each in value]
            case float():
                return value if math.isfinite(value) else odd(value)
            case None | bool() | int() | str():
                return value
        return plain(value.item()) if hasattr(value, "item") else str(value)

    print(text_of.dumps(plain(document), ensure_ascii=False, allow_nan=False, **how))


def show_and_run(
    job: Job[Any, Any],
    name: str,
    before: Sequence[str] = (),
    done: str = "",
    /,
    *,
    draw: str | None = None,
    dry_run: bool = False,
    json: bool = False,
    quiet: bool = False,
) -> None:
    """Print the plan of a job, below other lines, or run it and print the result, unless all is ``done``."""
    done = done or (f"{name}: {job.notices[0]}" if job.is_finished else "")
    if draw:
        if isinstance(job, GroupJob):
            one = "dict(job.plan.members)[NAME].draw()"
            raise UnsupportedError(f"--draw shows the plan of one array; of a group: {one}")
        if not isinstance(job, RechunkJob):
            kind = type(job).__name__
            raise UnsupportedError(f"--draw shows the plan of a rechunk; there is no drawing of a {kind}")
        load_picture().check_file(draw)
    document: Document = {
        "target": name,
        "finished": bool(done),
        "left": 0.0 if done else job.left,
        "notices": job.notices,
        "plan": plan_document(job.plan),
        "run": None,
    }
    text = done or (job.explain() if dry_run else "\n".join([str(job), *(() if before else job.notices)]))
    say: Any = (lambda _: None) if json else print
    say("\n".join([*before, text]))
    if not (done or dry_run):
        made, lines = run_and_report(job, progress=not quiet)
        document |= {"finished": True, "left": 0.0, "notices": job.notices, "run": made}
        say("\n".join(lines))
    if draw and isinstance(job, RechunkJob) and not done:
        job.draw().savefig(draw)
        say(f"drew {draw}")
    if json:
        print_json(document)


def plan_document(plan: Plan) -> Document:
    """Return the values of a plan by name; sizes in bytes, times in seconds."""
    taken = [each.name for each in plan.alternatives if each.taken]
    members = dict(getattr(plan, "members", ()))
    return {
        "strategy": getattr(plan, "strategy", taken[0] if taken and not members else None),
        "ranks": plan.ranks,
        "workers": plan.processes,
        "seconds": plan.seconds,
        "budget_bytes": plan.budget,
        "peak_bytes": plan.peak_bytes,
        "memory": dict(plan.memory.terms),
        "traffic": asdict(plan.traffic),
        "alternatives": [
            {"strategy": each.name, "ranks": each.ranks, "seconds": each.seconds, "peak_bytes": each.peak_bytes,
             "reason": each.reason}
            for each in plan.alternatives if not members
        ],
        "arrays": {name: plan_document(each) for name, each in members.items()},
    }  # fmt: skip


def run_and_report(job: Job[Any, Any], *, progress: bool) -> tuple[Document, list[str]]:
    """Run a job; return its targets, speed and memory, for machines and as lines."""
    with MemoryWatch() as watch:
        target = job.run(progress=progress)
    seconds = job.measured_seconds or 1e-9
    made = target if isinstance(target, list) else [target]
    share = getattr(job.plan, "target_share", 1.0)
    rate = job.left * share * sum(each.nbytes for each in made) / seconds
    workers, budget = len(set(job.placement.values())), f"{job.plan.budget / 2**20:.0f} MiB"
    peak = watch.peak_bytes if anonymous_bytes() and not workers else None
    held = f"in {budget}" if peak is None else f"{peak / 2**20:.0f} MiB held at most of {budget}"
    where = f"{plural(workers, 'worker')} of {budget}" if workers else held
    moves = [report.move_text(move, job.placement) for move in job.moves]
    names = [str(each.store) for each in made]
    document = {
        "targets": names, "share": job.left, "seconds": seconds, "bytes_per_second": rate, "peak_bytes": peak,
        "workers": workers or None, "moves": moves, **{name: getattr(job.meter, name) for name in COUNTERS},
    }  # fmt: skip
    line = f"wrote {', '.join(names)}: {rate / 1e6:.0f} MB/s, {elapsed_text(seconds)}, {where}"
    return document, [line, *moves]
