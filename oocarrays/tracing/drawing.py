"""Traces as a person sees them: blocks at the left, arrays at the right, and what flows between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oocarrays.plan.advice.trace import Trace
from oocarrays.show.notebook import rows_html
from oocarrays.show.pictures import load_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 40
"""Blocks or arrays that are drawn, at most."""


def trace_html(trace: Trace) -> str:
    """Return a trace for a notebook."""
    return rows_html(trace.rows()[: MOST + 1], title="oocarrays.Trace")


def draw(trace: Trace) -> Figure:
    """Return a trace as a figure: lines are the wider the more elements flow, weights counted."""
    load_picture()
    from matplotlib.figure import Figure

    blocks, arrays = trace.blocks[:MOST], [each.name for each in trace.datasets][:MOST]
    figure = Figure(figsize=(9, 1 + 0.5 * max(len(blocks), len(arrays), 2)), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.6, 1.6), ylim=(-max(len(blocks), len(arrays)), 1))
    axes.axis("off")
    most = max((access.elements * access.weight for access in trace.accesses), default=0) or 1
    for access in trace.accesses:
        if access.block in blocks and access.dataset in arrays:
            ends = (0.0, -blocks.index(access.block)), (1.0, -arrays.index(access.dataset))
            start, stop = ends if access.writes else ends[::-1]
            width = 0.8 + 4 * access.elements * access.weight / most
            colour = "tab:orange" if access.writes else "tab:blue"
            axes.annotate("", stop, start, arrowprops={"arrowstyle": "->", "lw": width, "color": colour, "alpha": 0.7})
            each = " × ".join(map(str, access.largest))
            label = f"{access.tasks} of {each}, weight {access.weight:g}"
            axes.text(0.5, (start[1] + stop[1]) / 2, label, ha="center", va="bottom", fontsize=7)
    for x, names, side in ((-0.02, blocks, "right"), (1.02, arrays, "left")):
        for place, name in enumerate(names):
            axes.text(x, -place, name if len(name) < 32 else f"…{name[-30:]}", ha=side, va="center")
    return figure
