"""Overlap of reading and computing, measured (Thakur 1995, section 5.5.2): a kernel that takes as long as the read.

    A   read 0  compute 0  write 0  read 1  compute 1  …        prefetch=0
    B   read 0  read 1     read 2   …                           prefetch=1
                compute 0  compute 1  …

How long reading takes by itself is measured first; the kernel then computes for just as long. Both take turns, and the
fastest run of each counts. What is ideal follows from A's own spans: the longest of all reads, all computing and all
writes, and one slab more, whose read, computing and write nothing can hide.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import machine
import numpy as np
import slab_cases
from cases import MIB
from report import row
from slab_cases import EDGE, Case

import oocarrays as ooc
from oocarrays.storage.meter import MemoryWatch, Span

PHASES = {"read": "#4878a8", "compute": "#d97b29", "write": "#6a9a58"}
SLABS = 16
MUST = 1.1
"""Wall, less one slab, ÷ the longest of reading, computing and writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One pass."""

    seconds: float
    """Wall time."""
    cpu: float
    """Seconds of processors."""
    peak: int
    """Bytes held at most, above the level before."""
    planned: int
    """What the plan says of it."""
    moved: tuple[int, int]
    """Bytes read and written."""
    spans: tuple[Span, ...]
    """When each slab was read, computed and written, in seconds from the first."""

    def each(self, phase: str) -> list[float]:
        """Seconds of each slab."""
        return [span.stop - span.start for span in self.spans if span.phase == phase]


def overlap(options: argparse.Namespace) -> Iterator[dict]:
    """A row for each state of the cache; the picture is of the last."""
    case = Case(operation="none", times=0, dtype="f4", kind="smooth", edge=EDGE // options.scale, memory=options.memory)
    height = max(case.edge // SLABS, 1)
    folder = os.path.join(options.workdir, "sources")
    os.makedirs(folder, exist_ok=True)
    store = slab_cases.source(case, (height, case.edge), folder)
    print(f"\n**overlap**: {case.nbytes / MIB:.0f} MiB in {SLABS} slabs, one rank\n")
    names = ["cache", "slab read / compute / write ms", "without s", "with s", "ideal s", "of the ideal", "must be"]
    print(row([*names, "CPU s", "peak MiB", "read, written MiB"]), row(["---", *["---:"] * 9]), sep="\n", flush=True)
    for cache in options.cache:
        alone = min(sum(_pass(store, height, cache, 0, _taking(0), options).each("read")) for _ in range(2))
        kernel = _taking(alone / SLABS)
        rounds = range(options.discard + options.rounds)
        runs = [[_pass(store, height, cache, prefetch, kernel, options) for prefetch in (0, 1)] for _ in rounds]
        both = [min(each, key=lambda run: run.seconds) for each in zip(*runs[options.discard :], strict=True)]
        print(_row(cache, *both, case), flush=True)
        yield {"question": "overlap", "cache": cache, "best": [asdict(run) for run in both]}
    if options.picture:
        draw(options.picture, *both)
        print(f"\nFigure 5.8: {options.picture}")


def _taking(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
    """A kernel that computes for some time, some rows after others, and leaves its block as it is."""

    def kernel(block: np.ndarray) -> np.ndarray:
        stop = time.perf_counter() + seconds
        scratch = np.empty_like(block[:16])
        while time.perf_counter() < stop:
            np.multiply(block[: len(scratch)], 1.0, out=scratch[: len(block)])
        return block

    return kernel


def _pass(store: str, height: int, cache: str, prefetch: int, kernel, options: argparse.Namespace) -> Watched:
    """One pass of one rank."""
    how = {"height": height, "ranks": 1, "prefetch": prefetch, "memory": options.memory, "workspace": "1MiB"}
    target = os.path.join(options.workdir, "target")
    shutil.rmtree(target, ignore_errors=True)
    job = ooc.map_slabs(kernel, store, target, scheduler="threads", **how)
    {"cold": machine.make_cold, "warm": machine.make_warm}[cache](store)
    return watched(job)


def watched(job) -> Watched:
    """What a job took; its spans from the first on."""
    with MemoryWatch() as watch:
        start, busy = time.perf_counter(), time.process_time()
        job.run()
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    meter = job.meter
    spans = sorted((span for span in meter.spans if span.phase in PHASES), key=lambda span: span.start)
    begin = spans[0].start
    return Watched(
        seconds=seconds,
        cpu=cpu,
        peak=watch.peak_bytes,
        planned=job.plan.peak_bytes,
        moved=(meter.read_bytes, meter.written_bytes),
        spans=tuple(replace_times(span, begin) for span in spans),
    )


def replace_times(span: Span, begin: float) -> Span:
    """The same span, counted from ``begin``."""
    return span._replace(start=span.start - begin, stop=span.stop - begin)


def ideal(without: Watched) -> tuple[float, float]:
    """The longer of all reads, all computing and all writes; and one slab."""
    sums = [sum(without.each(phase)) for phase in PHASES]
    return max(sums), sum(median(without.each(phase)) for phase in PHASES)


def _row(cache: str, without: Watched, ahead: Watched, case: Case) -> str:
    longest, slab = ideal(without)
    share = (ahead.seconds - slab) / longest
    phases = " / ".join(f"{1e3 * median(without.each(phase)):.1f}" for phase in PHASES)
    over = "" if ahead.peak <= ahead.planned <= case.memory else " OVER ITS PLAN"
    cells = [cache, phases, f"{without.seconds:.3f}", f"{ahead.seconds:.3f}", f"{longest:.3f} + {slab:.3f}"]
    cells += [f"{share:.2f}", f"{MUST}: {'reached' if share <= MUST else 'NOT REACHED'}", f"{ahead.cpu:.2f}"]
    cells += [f"{ahead.peak / MIB:.0f} of {ahead.planned / MIB:.0f} planned{over}"]
    return row([*cells, ", ".join(f"{moved / MIB:.0f}" for moved in ahead.moved)])


# ---------------------------------------------------------------------- Figure 5.8


def draw(path: Path, without: Watched, ahead: Watched) -> None:
    """A bar for each read, each computing and each write, without prefetch and with it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, run, name in zip(panels, (without, ahead), ("A: without prefetch", "B: with prefetch"), strict=True):
        for lane, (phase, color) in enumerate(PHASES.items()):
            for span in (span for span in run.spans if span.phase == phase):
                width = 1e3 * (span.stop - span.start)
                axes.barh(lane, width, left=1e3 * span.start, height=0.8, color=color, edgecolor="white", linewidth=0.6)
                axes.annotate(
                    str(span.args[0]),
                    (1e3 * span.start + width / 2, lane),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white",
                    annotation_clip=True,
                )
        axes.set_yticks(range(len(PHASES)), list(PHASES))
        axes.invert_yaxis()
        axes.set_title(f"{name}, {1e3 * run.seconds:.0f} ms", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("ms; numbers are slabs")
    figure.savefig(path, dpi=120)
