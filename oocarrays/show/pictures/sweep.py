"""Picture of a sweep: predicted seconds and tasks by the number of planned workers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from oocarrays.show.pictures.plans import Drawing
from oocarrays.show.sweep import SweptPlan


def draw(found: Sequence[SweptPlan]) -> Figure:
    """Return the picture: a line for each memory and number of threads, without plans that do not fit."""
    figure = Drawing(figsize=(9, 4), layout="constrained")
    lines: dict[str, list[SweptPlan]] = {}
    for each in found:
        if each.seconds is not None:
            lines.setdefault(f"{each.memory}, {each.threads} threads", []).append(each)
    for axes, what, label in zip(
        figure.subplots(1, 2), ("seconds", "tasks"), ("predicted seconds", "tasks"), strict=True
    ):
        for name, points in lines.items():
            axes.plot(
                [each.workers for each in points], [getattr(each, what) for each in points], marker="o", label=name
            )
        axes.set(xlabel="workers", ylabel=label, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    if lines:
        figure.axes[0].legend()
    return figure
