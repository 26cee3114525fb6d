"""Page ``/oocarrays`` of a scheduler's dashboard: runs, ranks by steps, bytes, memory, percentage, seconds left.

    ┌ rechunk a → b  62 %, 3.1 s left ┐
    │ rank  read  exchange  …  write  │    pale: to be done; dark: done
    ├ held by each worker, of budget ─┤
    └─────────────────────────────────┘

Bokeh is imported only if the scheduler has a dashboard.

tasks arrive ─► awaited      by column and rank: ``("send step 2", 3)``
a task ends  ─► done
workers report ─► counted    bytes and requests, as in `oocarrays.graphs.events`
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from dask.utils import format_bytes, format_time

from oocarrays.graphs.events import Events
from oocarrays.storage.meter import COUNTERS, Expected

if TYPE_CHECKING:
    from distributed import Scheduler

Cell = tuple[str, int]
"""Column name and rank of a group of tasks."""
ORDER = ("read", "send", "receive", "exchange", "assemble", "copy", "write")
"""Order of the columns of a rank; the steps of an exchange follow the reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Description of a run by its client, before the run begins."""

    title: str
    """Operation and target."""
    budget: int = 0
    """Memory budget of each worker, in bytes; 0 if not reported."""
    peak_bytes: int = 0
    """Planned maximum memory of a worker, in bytes."""
    expected: Expected = field(default_factory=Expected)
    """Planned requests and bytes."""


@dataclass(slots=True, kw_only=True)
class SeenRun(Events):
    told: Told
    homes: Mapping[int, str] = field(default_factory=dict)
    """Worker of each rank."""
    idle: dict[str, int] = field(default_factory=dict)
    """Bytes that each worker held before the run."""
    begun: float = field(default_factory=time.monotonic)
    """Monotonic time in seconds at which the first task arrived."""
    over: float | None = None
    """Monotonic time in seconds at which the last task ended."""
    awaited: Counter[Cell] = field(default_factory=Counter)
    """Number of all tasks."""
    done: Counter[Cell] = field(default_factory=Counter)
    """Number of tasks done."""
    counted: Counter[str] = field(default_factory=Counter)
    """Counts reported by workers."""

    def arrive(self, keys: Iterable[Any], suffix: str) -> None:
        cells = [cell_of(key, suffix) for key in keys]
        if cells and not self.awaited:
            self.begun = time.monotonic()
        self.awaited.update(cells)

    def end(self, key: Any, suffix: str) -> None:
        """Record a finished task; a task that is repeated counts once."""
        cell = cell_of(key, suffix)
        self.done[cell] = min(self.done[cell] + 1, self.awaited[cell])

    def on_task(self, counts: Mapping[str, Any]) -> None:
        self.counted.update({name: counts[name] for name in COUNTERS if name in counts})

    def on_end(self, run: Any, error: BaseException | None) -> None:
        self.over = time.monotonic()

    def columns(self) -> list[str]:
        """Return the names of the columns, in the order of the work, without tasks that move no data."""
        unseen = ("run", "create", "probe", "start", "free", "finish", "taken", "written", "name", "carry")
        names = {name for name, _ in self.awaited if name.split()[0] not in unseen}
        return sorted(names, key=_place)

    def ranks(self) -> list[int]:
        return sorted({rank for _, rank in self.awaited})

    def cell(self, column: str, rank: int) -> float | None:
        """Return the share of done tasks in a column of a rank; None without tasks."""
        count = self.awaited[column, rank]
        return self.done[column, rank] / count if count else None

    def share(self) -> float:
        """Return the share of the work that is done, from 0 to 1: by planned bytes, or else by tasks."""
        if self.over is not None:
            return 1.0
        expected, counted = self.told.expected, self.counted
        if not expected.nbytes:
            return self.done.total() / max(self.awaited.total(), 1)
        writes = counted["write_requests"] + counted["skipped_chunks"]
        return expected.done(counted["read_requests"], writes) / expected.nbytes

    def seconds(self) -> float:
        return (time.monotonic() if self.over is None else self.over) - self.begun

    def left(self) -> float | None:
        """Return the estimated remaining seconds at the current pace; None if unknown or over."""
        share = self.share()
        return self.seconds() * (1 - share) / share if share > 0 and self.over is None else None


def cell_of(key: Any, suffix: str) -> Cell:
    rank = key[-1]
    return key[0].partition(suffix)[0], rank if isinstance(rank, int) else 0


def _place(column: str) -> tuple[int, int, int, str]:
    """Return the sort key of a column: reads, then the steps in order, then writes."""
    step = re.match(r"(\w+) step (\d+)$", column)
    verb = step[1] if step else column.split()[0]
    order = ORDER.index(verb) if verb in ORDER else len(ORDER)
    if step:
        return 1, int(step[2]), order, column
    return (0 if verb == "read" else 2), 0, order, column


PATH = "/oocarrays"
MOST_RUNS = 20
"""Maximum number of runs kept."""


def courses(scheduler: Scheduler) -> dict[str, SeenRun]:
    """Return the runs known to a scheduler, by the suffix of their keys, the latest last."""
    return scheduler.extensions.setdefault("oocarrays-courses", {})


def keep(scheduler: Scheduler, suffix: str, course: SeenRun) -> SeenRun:
    """Register the state of a run on a scheduler, add the dashboard page, and discard the oldest runs."""
    kept = courses(scheduler)
    course.idle = {address: int(worker.metrics.get("memory", 0)) for address, worker in scheduler.workers.items()}
    former = kept.pop(suffix, None)
    known = kept[suffix] = course if former is None or former.over is not None else former
    for old in list(kept)[:-MOST_RUNS]:
        del kept[old]
    serve(scheduler)
    return known


def serve(scheduler: Scheduler) -> bool:
    """Add the page to a scheduler's dashboard; return whether it exists. An error here does not fail a run."""
    application = getattr(scheduler, "http_application", None)
    pages = [each for each in getattr(application, "applications", ()) if hasattr(each, "app_paths")]
    if not pages:
        return False  # no dashboard was asked for, or Bokeh is not installed
    if any(PATH in page.app_paths for page in pages):
        return True
    try:
        from distributed.dashboard.core import BokehApplication
        from tornado.ioloop import IOLoop

        page = BokehApplication({PATH: _document}, scheduler, prefix=pages[0].prefix)
        application.add_application(page)  # type: ignore[union-attr]
        page.initialize(IOLoop.current())
    except Exception as error:  # noqa: BLE001  a failing page must not fail a run
        logging.getLogger("oocarrays").warning("the dashboard has no page %s: %s", PATH, error)
        return False
    return True


def _document(scheduler: Scheduler, extra: Mapping[str, Any], document: Any) -> None:
    from bokeh.layouts import column

    shown = RunsPage()
    document.title = "oocarrays"
    document.add_root(column(*shown.roots, sizing_mode="stretch_width"))
    shown.look(scheduler)
    document.add_periodic_callback(lambda: shown.look(scheduler), 500)  # milliseconds


class RunsPage:
    """Content of one page: a text, a table of ranks by steps, and the memory of the workers."""

    def __init__(self) -> None:
        from bokeh.models import ColumnDataSource, Div, FactorRange, LinearColorMapper, Span
        from bokeh.plotting import figure
        from bokeh.transform import transform

        self.text = Div(text="")
        self.cells = ColumnDataSource({"column": [], "rank": [], "share": [], "said": []})
        self.held = ColumnDataSource({"worker": [], "held": [], "said": []})
        colors = LinearColorMapper(palette=list(shades()), low=0, high=1)
        wide: dict[str, Any] = {"sizing_mode": "stretch_width", "toolbar_location": None}
        self.grid = figure(
            title="ranks × steps: what is done",
            x_range=FactorRange(),
            y_range=FactorRange(),
            x_axis_location="above",
            tooltips=[("", "rank @rank, @column: @said")],
            height=320,
            **wide,
        )
        self.grid.rect(
            "column", "rank", 0.96, 0.92, source=self.cells, fill_color=transform("share", colors), line_color=None
        )
        self.grid.xaxis.major_label_orientation = 0.9
        self.grid.grid.visible = False
        self.memory = figure(title="", y_range=FactorRange(), x_range=(0, 1), height=220, **wide)
        self.memory.hbar("worker", 0.7, "held", source=self.held, fill_color="#56B4E9", line_color=None)
        small: dict[str, Any] = {"text_baseline": "middle", "text_font_size": "11px"}
        self.memory.text("held", "worker", "said", source=self.held, x_offset=4, **small)
        self.budget = Span(dimension="height", line_color="#D55E00", line_width=2, visible=False)
        self.memory.add_layout(self.budget)
        self.roots = [self.text, self.grid, self.memory]

    def look(self, scheduler: Scheduler) -> None:
        """Show the current state of the latest run, and the others in a line each."""
        runs = list(courses(scheduler).values())
        self.text.text = runs_html(runs)
        if not runs:
            return
        course = runs[-1]
        self._look_at_cells(course)
        self._look_at_memory(course, scheduler)

    def _look_at_cells(self, course: SeenRun) -> None:
        columns, ranks = course.columns()[:48], course.ranks()[:64]
        more = len(course.ranks()) - len(ranks)
        self.grid.title.text = "ranks × steps: what is done" + (f"; {more} more ranks" if more else "")
        found = [(column, str(rank), course.cell(column, rank)) for column in columns for rank in ranks]
        there = [(column, rank, share) for column, rank, share in found if share is not None]
        self.grid.x_range.factors = columns
        self.grid.y_range.factors = [str(rank) for rank in reversed(ranks)]
        self.grid.height = 140 + 24 * len(ranks)
        self.cells.data = {
            "column": [column for column, _, _ in there],
            "rank": [rank for _, rank, _ in there],
            "share": [share for _, _, share in there],
            "said": [f"{share:.0%}" for _, _, share in there],
        }

    def _look_at_memory(self, course: SeenRun, scheduler: Scheduler) -> None:
        rows = list(held(course, scheduler))
        self.memory.y_range.factors = [worker for worker, _ in reversed(rows)]
        self.memory.height = 90 + 26 * len(rows)
        budget = course.told.budget / 2**20
        most = max([budget, *(nbytes / 2**20 for _, nbytes in rows)], default=1.0)
        self.memory.x_range.end = 1.25 * max(most, 1)
        self.budget.visible, self.budget.location = budget > 0, budget
        planned = f"; the line is the budget, of which {format_bytes(course.told.peak_bytes)} are planned"
        self.memory.title.text = "MiB that each worker holds above what it held before" + (planned if budget else "")
        self.held.data = {
            "worker": [worker for worker, _ in rows],
            "held": [nbytes / 2**20 for _, nbytes in rows],
            "said": [format_bytes(nbytes) for _, nbytes in rows],
        }


def held(course: SeenRun, scheduler: Scheduler) -> Iterable[tuple[str, int]]:
    """Yield each live worker of a run, and the bytes that its process holds above its memory before the run."""
    for address in sorted(set(course.homes.values())):
        worker = scheduler.workers.get(address)
        if worker is not None:
            memory = int(worker.metrics.get("memory", 0))
            yield f"{worker.name}", max(memory - course.idle.get(address, memory), 0)


def shades(count: int = 32) -> Iterable[str]:
    """Yield the colours from no task done to all tasks done."""
    pale, dark = (232, 238, 244), (0, 114, 178)
    for number in range(count):
        part = number / (count - 1)
        mixed = (round(a + part * (b - a)) for a, b in zip(pale, dark, strict=True))
        yield "#" + "".join(f"{value:02x}" for value in mixed)


def runs_html(runs: list[SeenRun]) -> str:
    if not runs:
        return "No run of oocarrays has been seen yet."
    latest, *others = reversed(runs)
    counted = latest.counted
    lines = [
        f"<h2>{escape(latest.told.title)}</h2>",
        f'<div style="font-size:1.4em">{run_text(latest)}</div>',
        f"<p>{format_bytes(counted['read_bytes'])} read, {format_bytes(counted['sent_bytes'])} sent in "
        f"{counted['messages']} messages, {format_bytes(counted['written_bytes'])} written</p>",
    ]
    before = "".join(f"<li>{escape(each.told.title)}: {run_text(each)}</li>" for each in others)
    return "".join(lines) + (f"<details><summary>Runs before</summary><ul>{before}</ul></details>" if before else "")


def run_text(course: SeenRun) -> str:
    if course.over is not None:
        return f"100 %, done in {format_time(course.seconds())}"
    left = course.left()
    return f"{100 * course.share():.0f} %" + ("" if left is None else f", {format_time(left)} left")
