"""Drawings of advice: blocks, arrays, and the flows between them, with their seconds today and as advised.

┌───────┐  ━━━━━━━▶  ┌────────┐  ━━━▶  ┌────────┐      a line is as wide as the flow's seconds: pale today,
│ block │   writes   │ array  │  reads │ block  │      dark as advised
└───────┘            └────────┘        └────────┘
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyBboxPatch

from oocarrays.plan.advice.verdict import BlockVerdict, Verdict
from oocarrays.show.advice import layout_text, use_text
from oocarrays.show.pictures.plans import MEASURED, PREDICTED, Drawing
from oocarrays.show.report import seconds_text, shape_text, shortened

TODAY, ADVISED, KEPT = "#BBBBBB", PREDICTED, "#DDDDDD"
CHANGED = "#FBE3C8"
Place = tuple[float, float]


def draw(verdicts: Sequence[Verdict], most_arrays: int = 16) -> Figure:
    """Return a figure of the slowest arrays."""
    shown = sorted(verdicts, key=lambda each: -_finite(each.today.seconds))[:most_arrays]
    columns = _columns(shown)
    places = {
        node: (float(x), float(len(nodes) - 1 - i)) for x, nodes in enumerate(columns) for i, node in enumerate(nodes)
    }
    rows = max(map(len, columns), default=1)
    figure = Drawing(
        figsize=(3.4 * max(len(columns), 1) + 1, 1.5 * rows + 1.6), layout="constrained", facecolor="white"
    )
    axes = figure.subplots()
    most = max((_finite(block.today.seconds) for each in shown for block in each.blocks), default=0.0)
    for each in shown:
        for block in each.blocks:
            _draw_flow(axes, each, block, places, most)
    for each in shown:
        name = each.array if len(each.array) <= 26 else f"…{each.array[-25:]}"
        label = f"{name}\n{shape_text(each.stored.grid.chunks)}{' →' * (not each.kept)}\n{layout_text(each)}"
        _draw_box(axes, places[_array(each)], label, KEPT if each.kept else CHANGED)
    for node, place in places.items():
        if node[0] == "block":
            _draw_box(axes, place, shortened(node[1], most=26, quoted=False), "white")
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(-0.6, rows - 0.4))
    axes.axis("off")
    figure.suptitle(_title(verdicts, len(shown)), fontsize=10, x=0.01, ha="left")
    lines = [Line2D([], [], color=color, linewidth=6) for color in (TODAY, ADVISED)]
    figure.legend(lines, ["seconds today", "seconds as advised"], loc="outside lower left", ncols=2, fontsize=8)
    return figure


def _title(verdicts: Sequence[Verdict], shown: int) -> str:
    today = sum(_finite(each.today.seconds) for each in verdicts)
    advised = sum(each.advised.seconds for each in verdicts)
    rewriting = sum(each.rewriting for each in verdicts)
    more = f"; {shown} of {len(verdicts)} arrays are drawn" if shown < len(verdicts) else ""
    again = f", and {seconds_text(rewriting)} to rewrite" if rewriting else ""
    return f"{seconds_text(today)} today, {seconds_text(advised)} as advised{again}{more}"


def _finite(seconds: float) -> float:
    return seconds if math.isfinite(seconds) else 0.0


def _array(each: Verdict) -> tuple[str, str]:
    return "array", f"{each.array} {each.producer or ''}"


def _columns(verdicts: Sequence[Verdict]) -> list[list[tuple[str, str]]]:
    """Return arrays and blocks in columns: each behind all its inputs."""
    before: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for each in verdicts:
        before[_array(each)]  # an existing array has no inputs
        for block in each.blocks:
            node = "block", block.block
            if block.writes:
                before[_array(each)].add(node)
                before[node]
            elif block.block != each.producer:
                before[node].add(_array(each))
    depth: dict[tuple[str, str], int] = {}
    for node in before:
        _depth(node, before, depth)
    columns: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for node, at in depth.items():
        columns[at].append(node)
    return [columns[at] for at in sorted(columns)]


def _depth(node: tuple[str, str], before: dict[tuple[str, str], set[tuple[str, str]]], known: dict) -> int:
    if node not in known:
        known[node] = 1 + max((_depth(each, before, known) for each in before[node]), default=-1)
    return known[node]


def _draw_flow(axes: Axes, each: Verdict, block: BlockVerdict, places: dict, most: float) -> None:
    """Draw a line between an array and a block, as wide as its seconds, today and as advised."""
    ends = [places[_array(each)], places["block", block.block]]
    (x0, y0), (x1, y1) = reversed(ends) if block.writes else ends
    for seconds, color in ((_finite(block.today.seconds), TODAY), (block.advised.seconds, ADVISED)):
        width = max(14.0 * seconds / most, 0.8) if most else 0.8
        axes.plot([x0, x1], [y0, y1], color=color, linewidth=width, solid_capstyle="butt", zorder=1)
    clear = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1}
    shapes = shortened(", ".join(map(use_text, block.uses)), most=34, quoted=False)
    text = f"{block.weight:g} ×{' writes' * block.writes}\n{shapes}\n{block.method}"
    axes.text((x0 + x1) / 2, (y0 + y1) / 2, text, fontsize=7, ha="center", va="center", zorder=3, bbox=clear)


def _draw_box(axes: Axes, place: Place, label: str, color: str) -> None:
    x, y = place
    edge = MEASURED if color == CHANGED else "black"
    axes.add_patch(
        FancyBboxPatch((x - 0.27, y - 0.24), 0.54, 0.48, "round,pad=0.02", facecolor=color, edgecolor=edge, zorder=2)
    )
    axes.text(x, y, label, fontsize=7, ha="center", va="center", zorder=4)
