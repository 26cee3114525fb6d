"""Plans drawn with matplotlib: parts of source and target by rank, in their order; and time by phase.

Nothing here touches pyplot: figures need no display, and belong to the caller.

source          target
    ┌──────────┐    ┌───┬───┬───┬┄┄    two axes are shown; along the others, index 0
    │ rank 0   │    │0:1│1:1│0:2│ ┊    rank:turn
    ├──────────┤    │   │   │   │ ┊
    │ rank 1   │    │   │   │   │ ┊    of a large plan the first units are shown
    └──────────┘    └───┴───┴───┴┄┄

The source of a two-phase plan shows the rank that reads each chunk; that of an independent plan, the ranks with regions
across it. In an assembled plan, both panels show the rank that reads and places each part.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice, product

from dask.utils import format_bytes
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from oocarrays.errors import InputError, plural
from oocarrays.mapping.grid import ChunkGrid, ceil_div, ravel
from oocarrays.mapping.section import Section
from oocarrays.plan.cost import Phases
from oocarrays.plan.rechunk.passes import ChunkBox, Pass
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.show.report import SweptPlan, seconds_text, shape_text

MOST_UNITS = 24
"""Maximum number of units to show along an axis."""
MOST_BOXES = 1000
"""Maximum number of rectangles to show of one array."""
MOST_READS = 64
"""The same for the source of a two-phase plan: its rectangles may be as thin as chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """Part of an array that a rank holds at one time."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    rank: int
    turn: int
    """Its number among that rank's regions, or the number of its partition, from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One array of a plan."""

    name: str
    chunks: tuple[int, ...]
    grid: ChunkGrid
    """Its chunks, in the axes shown."""
    window: tuple[int, ...]
    """Elements shown of each axis, from the first."""
    boxes: tuple[Box, ...]
    """Parts with their ranks, in the order of their units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A plan from above."""

    axes: tuple[int, ...]
    """Axes shown: two, or all if the array has fewer."""
    panels: tuple[Panel, ...]
    """Source, scratch, target."""
    notes: tuple[str, ...]
    """Notes on parts that are not shown."""


def view(plan: RechunkPlan) -> View:
    axes = _axes(plan)
    panels = tuple(_panels(plan, axes))
    return View(axes=axes, panels=panels, notes=tuple(_notes(plan, axes, panels)))


def _axes(plan: RechunkPlan) -> tuple[int, ...]:
    """Return two axes: the one that cuts the source more than the target, and of the others one that ranks share."""
    source, target = plan.source.grid.counts, plan.target.grid.counts
    order = sorted(range(len(target)), key=lambda a: -source[a] / max(target[a], 1))
    shared = {_shared(step) for step in plan.passes}
    others = sorted(order[1:], key=lambda a: (a not in shared, -target[a]))
    return tuple(sorted([*order[:1], *others[:1]]))


def _shared(step: Pass) -> int | None:
    """Return the axis along which neighbours are of different ranks."""
    if not step.alone:
        return step.split
    return max((a for a, n in enumerate(step.unit_counts) if n > 1), default=None)


def _panels(plan: RechunkPlan, axes: tuple[int, ...]) -> Iterator[Panel]:
    """Yield the source as the first pass reads it, and the target of each pass."""
    for number, step in enumerate(plan.passes):
        window = tuple(min(step.cut.shape[a], MOST_UNITS * step.unit[a] * step.cut.chunks[a]) for a in axes)
        written = tuple(islice(_written(step, axes, window), MOST_BOXES))
        if number == 0:
            read = written if step.alone else tuple(islice(_read(step, axes, window), MOST_READS))
            yield _panel("source", step.source.grid, axes, read)
        name = "target" if step is plan.passes[-1] else f"scratch {number + 1}"
        yield _panel(name, step.target.grid, axes, written)


def _panel(name: str, grid: ChunkGrid, axes: tuple[int, ...], boxes: tuple[Box, ...]) -> Panel:
    seen = ChunkGrid(tuple(grid.shape[a] for a in axes), tuple(grid.chunks[a] for a in axes))
    window = tuple(max(ends) for ends in zip(*(box.upper for box in boxes), strict=True))
    return Panel(name=name, chunks=grid.chunks, grid=seen, window=window, boxes=boxes)


def _units(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[int]:
    counts = step.unit_counts
    lengths = [1] * len(counts)
    for a, most in zip(axes, window, strict=True):
        lengths[a] = min(counts[a], ceil_div(most, step.unit[a] * step.cut.chunks[a]))
    for index in product(*map(range, lengths)):
        yield ravel(index, counts)


def _written(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[Box]:
    """Yield the regions, or the ranks' shares of the partitions."""
    for unit in _units(step, axes, window):
        if step.alone:
            yield _box(step.cut, step.chunk_box(unit), axes, unit % step.ranks, unit // step.ranks + 1)
            continue
        for rank in range(step.ranks):
            share = step.share(unit, rank)
            if share is not None:
                yield _box(step.target.grid, share, axes, rank, unit + 1)


def _read(step: Pass, axes: tuple[int, ...], window: tuple[int, ...]) -> Iterator[Box]:
    """Yield the chunks that ranks read for the partitions."""
    others = [a for a in range(len(step.source.grid.shape)) if a not in axes]
    for unit in _units(step, axes, window):
        for turn, rank in product(range(step.rounds(unit)), range(step.ranks)):
            for first, last in step.read_boxes(unit, turn, rank):
                if not any(first[a] for a in others):
                    yield _box(step.source.grid, (first, last), axes, rank, unit + 1)


def _box(grid: ChunkGrid, chunks: ChunkBox, axes: tuple[int, ...], rank: int, turn: int) -> Box:
    section: Section = grid.block(*chunks)
    lower, upper = (tuple(side[a] for a in axes) for side in (section.lower, section.upper))
    return Box(lower=lower, upper=upper, rank=rank, turn=turn)


def _notes(plan: RechunkPlan, axes: tuple[int, ...], panels: tuple[Panel, ...]) -> Iterator[str]:
    shape = plan.target.grid.shape
    counts = plan.passes[-1].unit_counts if plan.passes else ()
    others = [a for a in range(len(counts)) if a not in axes]
    if others:
        parts = {a: f", in {counts[a]} parts" if counts[a] > 1 else "" for a in others}
        hidden = ", ".join(f"axis {a} ({shape[a]} long{parts[a]})" for a in others)
        yield f"seen at index 0 of {hidden}"
    for panel in panels:
        cut = [f"{w} of {shape[a]} along axis {a}" for a, w in zip(axes, panel.window, strict=True) if w < shape[a]]
        if cut:
            yield f"{panel.name} thinned: the first {', '.join(cut)}"


COLORS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
"""Colours of ranks: Okabe and Ito's, which are distinct for colour-blind readers, too."""
PREDICTED, MEASURED = "#56B4E9", "#D55E00"


class Drawing(Figure):
    """Figure that a notebook shows as SVG, with or without pyplot."""

    def _repr_svg_(self) -> str:
        page = io.StringIO()
        self.savefig(page, format="svg")
        return page.getvalue()


def check_file(path: str) -> None:
    known = FigureCanvasBase.get_supported_filetypes()
    ending = os.path.splitext(path)[1].lower().lstrip(".")
    if ending not in known:
        raise InputError(f"no picture can be written to {path}: its name must end in one of {', '.join(sorted(known))}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise InputError(f"no picture can be written to {path}: no such folder")


def draw(
    plan: RechunkPlan, *, names: Sequence[str | None] | None = None, measured: Mapping[str, float] | None = None
) -> Figure:
    seen = view(plan)
    figure = Drawing(figsize=(3.2 * len(seen.panels) + 4.4, 4.4), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(seen.panels) + 1, squeeze=False, width_ratios=[1.0] * len(seen.panels) + [1.25])[0]
    for axes, panel in zip(panels, seen.panels, strict=False):
        _draw_panel(axes, panel, seen, plan.ranks, names)
    _draw_seconds(panels[-1], plan, measured)
    if plan.passes:
        _draw_legend(figure, plan)
    memory = f"{format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget)}"
    title = f"{plan.strategy} · {plural(plan.ranks, 'rank')} · {memory}" if plan.passes else "nothing to move"
    figure.suptitle("\n".join([title, *seen.notes]), fontsize=10, x=0.01, ha="left")
    return figure


def _draw_panel(axes: Axes, panel: Panel, seen: View, ranks: int, names: Sequence[str | None] | None) -> None:
    height, width = _two(panel.window)
    for box in panel.boxes:
        _draw_box(axes, box, (height, width), ranks)
    lines = [*_lines(panel, (height, width), 0), *_lines(panel, (height, width), 1)]
    axes.add_collection(LineCollection(lines, colors="black", linewidths=0.4, alpha=0.55))
    axes.set(xlim=(0, width), ylim=(height, 0))
    most = max(_chunks_a_line(panel, (height, width), axis) for axis in (0, 1))
    thinned = f", 1 line in {most}" if most > 1 else ""
    axes.set_title(f"{panel.name}\nchunks {shape_text(panel.chunks)}{thinned}", fontsize=10)
    labels = [f"axis {a}" + (f" ({names[a]})" if names and names[a] else "") for a in seen.axes]
    down, right = ("", *labels) if len(labels) == 1 else (*labels, "", "")[:2]
    axes.set_xlabel(right, fontsize=9)
    axes.set_ylabel(down, fontsize=9)
    axes.set_xticks([0, width] if right else [])
    axes.set_yticks([0, height] if down else [])
    axes.tick_params(labelsize=8)


def _two(lengths: tuple[int, ...]) -> tuple[int, int]:
    """Return lengths down and to the right; a missing axis is one element long."""
    down, right = (*(1 for _ in range(2 - len(lengths))), *lengths)
    return down, right


def _draw_box(axes: Axes, box: Box, window: tuple[int, int], ranks: int) -> None:
    top, left = _two(box.lower) if box.lower else (0, 0)
    top = 0 if len(box.lower) < 2 else top
    bottom, right = (min(end, most) for end, most in zip(_two(box.upper), window, strict=True))
    if bottom <= top or right <= left:
        return
    color = COLORS[box.rank % len(COLORS)]
    size = (right - left, bottom - top)
    axes.add_patch(Rectangle((left, top), *size, facecolor=color, edgecolor="white", linewidth=1.0))
    narrow = size[0] / window[1]
    if min(narrow, size[1] / window[0]) >= 0.035:
        text = str(box.turn) if ranks <= len(COLORS) else f"{box.rank}:{box.turn}"
        middle = (left + size[0] / 2, top + size[1] / 2)
        ink = "white" if color == "#0072B2" else "black"
        upright = narrow < 0.03 * (len(text) + 1)
        axes.text(
            *middle, text, ha="center", va="center", fontsize=7, rotation=90 if upright else 0, clip_on=True, color=ink
        )


def _lines(panel: Panel, window: tuple[int, int], axis: int) -> list[list[tuple[float, float]]]:
    """Return the lines between chunks along one axis; of many, some."""
    step = _two(panel.grid.chunks)[axis] * _chunks_a_line(panel, window, axis)
    places = range(step, window[axis], step)
    if axis == 0:
        return [[(0, y), (window[1], y)] for y in places]
    return [[(x, 0), (x, window[0])] for x in places]


def _chunks_a_line(panel: Panel, window: tuple[int, int], axis: int) -> int:
    """Return the number of chunks between two lines."""
    return max(ceil_div(ceil_div(window[axis], _two(panel.grid.chunks)[axis]), 80), 1)


def _draw_legend(figure: Figure, plan: RechunkPlan) -> None:
    """Draw the colour of each rank, and the meaning of the numbers."""
    turns = "each rank's turns"
    what = {"independent": turns, "assembled": turns, "staged": "turns or partitions"}.get(plan.strategy, "partitions")
    shown = [Patch(facecolor=color, label=f"rank {n}") for n, color in enumerate(COLORS[: plan.ranks])]
    several = f"{plan.ranks} ranks in all; numbers: rank:" if plan.ranks > len(COLORS) else "numbers: "
    shown.append(Patch(facecolor="none", label=several + what))
    figure.legend(handles=shown, loc="outside lower left", ncols=len(shown), fontsize=8, frameon=False)


def _draw_seconds(axes: Axes, plan: RechunkPlan, measured: Mapping[str, float] | None) -> None:
    """Draw bars of the predicted wall time and its phases, and of measured ones under them."""
    phases = [each.name for each in fields(Phases)]
    predicted = _of_wall({name: getattr(plan.phases, name) for name in phases} | {"wall": plan.seconds})
    sides = [("predicted", PREDICTED, predicted), *([("measured", MEASURED, _of_wall(measured))] if measured else [])]
    thick = 0.8 / len(sides)
    for number, (label, color, seconds) in enumerate(sides):
        places = [place + (number - (len(sides) - 1) / 2) * thick for place in range(len(predicted))]
        bars = axes.barh(places, [seconds[name] for name in predicted], thick * 0.94, color=color, label=label)
        texts = [seconds_text(seconds[name]) if seconds[name] else "0 s" for name in predicted]
        axes.bar_label(bars, texts, padding=3, fontsize=8)
    axes.set_yticks(range(len(predicted)), [*phases, "wall time"], fontsize=9)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.set_xlim(left=0)
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("seconds", fontsize=9)
    axes.set_title("wall time by phase", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    if measured:
        axes.legend(fontsize=8, frameon=False, loc="best")


def _of_wall(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the wall time, and each phase's part of it by its share of the seconds of all ranks, which overlap."""
    wall, together = seconds["wall"], sum(each for name, each in seconds.items() if name != "wall")
    return {name: each * wall / (together or 1) for name, each in seconds.items()} | {"wall": wall}


def draw_sweep(found: Sequence[SweptPlan]) -> Figure:
    """Return the picture of a sweep: a line for each memory and number of threads, without plans that do not fit."""
    figure = Drawing(figsize=(9, 4), layout="constrained")
    lines: dict[str, list[SweptPlan]] = {}
    for each in found:
        if each.seconds is not None:
            lines.setdefault(f"{each.memory}, {plural(each.threads, 'thread')}", []).append(each)
    labels = {"seconds": "predicted seconds", "tasks": "tasks"}
    for axes, (what, label) in zip(figure.subplots(1, 2), labels.items(), strict=True):
        for name, points in lines.items():
            found = [getattr(each, what) for each in points]
            axes.plot([each.workers for each in points], found, marker="o", label=name)
        axes.set(xlabel="workers", ylabel=label, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    if lines:
        figure.axes[0].legend()
    return figure
