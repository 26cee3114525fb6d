"""Schedules drawn with matplotlib: messages of each step, and the parts that have arrived by then.

┌ step 2 of 3 ──┐   ┌ has arrived ──┐
│     0 ⇄ 2     │   │ from          │     one after the other in a .gif,
│     1 ⇄ 3     │   │  × to         │     side by side in any other picture
└───────────────┘   └───────────────┘
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

from oocarrays.errors import ScheduleError, plural
from oocarrays.plan.exchange.schedule import IDLE, Schedule
from oocarrays.plan.exchange.trace import arrivals
from oocarrays.show.exchanges import pair_texts
from oocarrays.show.pictures.exchanges import KEPT, step_colors
from oocarrays.show.pictures.plans import Drawing, check_file

MOST_RANKS = 64
"""Maximum number of ranks on a circle."""
MOST_STEPS = 256
"""Maximum number of steps of an animation, and of panels of a picture."""


def is_animation(path: str) -> bool:
    return os.path.splitext(path)[1].lower() == ".gif"


def check(schedule: Schedule, path: str) -> None:
    """Raise if the schedule is too large to be drawn."""
    check_file(f"{os.path.splitext(path)[0]}.png" if is_animation(path) else path)
    if schedule.ranks > MOST_RANKS or len(schedule) > MOST_STEPS:
        raise ScheduleError(
            f"{schedule.name} on {schedule.ranks} ranks in {len(schedule)} steps cannot be drawn: at most {MOST_RANKS} "
            f"ranks and {MOST_STEPS} steps can be told apart"
        )


def save(schedule: Schedule, path: str) -> None:
    check(schedule, path)
    if is_animation(path):
        _animation(schedule).save(path, writer=PillowWriter(fps=1 / 1.2))  # type: ignore[arg-type]  # any number will do
    else:
        draw(schedule).savefig(path)


def draw(schedule: Schedule) -> Figure:
    """Return a figure of all steps side by side, and of the step in which each part arrives."""
    panels = len(schedule) + 1
    across = min(panels, 4)
    rows = math.ceil(panels / across)
    figure = Drawing(figsize=(3.1 * across, 3.3 * rows + 0.4), layout="constrained", facecolor="white")
    colors = step_colors(len(schedule))
    axes = figure.subplots(rows, across, squeeze=False).flat
    for number, panel in zip(range(len(schedule)), axes, strict=False):
        _draw_step(panel, schedule, number, colors)
        panel.set_title(f"step {number + 1}", fontsize=10)
    _draw_arrived(axes[len(schedule)], schedule, len(schedule), colors)
    for panel in axes[panels:]:
        panel.set_visible(False)
    figure.suptitle(f"{schedule.name} on {plural(schedule.ranks, 'rank')}", fontsize=11, x=0.01, ha="left")
    return figure


def _animation(schedule: Schedule) -> FuncAnimation:
    """Return the animation: a frame for each step, after one before any message; the last stays."""
    figure = Drawing(figsize=(8.4, 4.6), dpi=90, facecolor="white")
    circle, matrix = figure.subplots(1, 2)
    colors = step_colors(len(schedule))

    def frame(shown: int) -> None:
        done = min(shown, len(schedule))
        for axes in (circle, matrix):
            axes.clear()
        _draw_step(circle, schedule, done - 1, colors)
        _draw_arrived(matrix, schedule, done, colors)
        figure.suptitle("\n".join(_title(schedule, done)), fontsize=11, x=0.02, y=0.98, ha="left")
        figure.subplots_adjust(left=0.02, right=0.97, top=0.8, bottom=0.12)

    return FuncAnimation(figure, frame, frames=len(schedule) + 3)  # type: ignore[arg-type]


def _title(schedule: Schedule, done: int) -> list[str]:
    what = f"{schedule.name} on {plural(schedule.ranks, 'rank')}"
    if done == 0:
        return [f"{what} · {plural(len(schedule), 'step')}", "each has something for each"]
    pairs = "   ".join(pair_texts(schedule.step(done - 1))[0])
    shown = pairs if len(pairs) <= 72 else f"{pairs[:72].rpartition('   ')[0]} …"
    return [f"{what} · step {done} of {len(schedule)}", shown]


def _draw_step(axes: Axes, schedule: Schedule, number: int, colors: Colormap) -> None:
    """Draw ranks on a circle, and an arrow for each message of a step."""
    turn = 2 * np.pi * np.arange(schedule.ranks) / max(schedule.ranks, 1)
    x, y = np.sin(turn), np.cos(turn)
    size = 360 / max(schedule.ranks, 8)
    for source, target in schedule.step(number).pairs if number >= 0 else ():
        begin, end = (x[source], y[source]), (x[target], y[target])
        head: Any = {"connectionstyle": "arc3,rad=0.12", "arrowstyle": "-|>", "mutation_scale": min(14.0, size / 2)}
        line: Any = {"shrinkA": size / 4, "shrinkB": size / 4, "linewidth": max(size / 24, 0.8)}
        axes.add_patch(FancyArrowPatch(begin, end, **head, **line, color=colors(number)))
    axes.scatter(x, y, s=(size / 2) ** 2, facecolor="white", edgecolor="#555555", zorder=3)
    for rank in range(schedule.ranks):
        axes.text(x[rank], y[rank], str(rank), ha="center", va="center", fontsize=max(size / 5, 4), zorder=4)
    axes.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), aspect="equal")
    axes.axis("off")


def _draw_arrived(axes: Axes, schedule: Schedule, done: int, colors: Colormap) -> None:
    """Draw from × to: the step in which each part arrives, for the steps so far."""
    steps = arrivals(schedule).steps
    shown = np.ma.masked_where((steps == IDLE) | (steps >= done), steps)
    own = np.where(np.eye(schedule.ranks, dtype=bool), 1.0, np.nan)
    edge = schedule.ranks - 0.5
    extent = (-0.5, edge, edge, -0.5)
    axes.imshow(own, cmap=ListedColormap([KEPT]), extent=extent, interpolation="none")
    axes.imshow(
        shown, cmap=colors, norm=Normalize(-0.5, len(schedule) - 0.5), extent=extent, interpolation="none", zorder=2
    )
    every = max(1, math.ceil(schedule.ranks / 16))
    axes.set_xticks(range(0, schedule.ranks, every))
    axes.set_yticks(range(0, schedule.ranks, every))
    axes.tick_params(labelsize=8, length=0)
    axes.set_xlabel("to rank", fontsize=9)
    axes.set_ylabel("from rank", fontsize=9)
    pairs = schedule.ranks * (schedule.ranks - 1)
    axes.set_title(f"{int(shown.count())} of {pairs} parts have arrived", fontsize=10)
