"""The picture of a sweep: predicted seconds, and tasks, against workers that are not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from oocarrays.show.pictures.plans import Drawing


def draw(found: Sequence[dict[str, Any]]) -> Figure:
    """Return the picture: a line for each memory and number of threads; what does not fit is left out."""
    figure = Drawing(figsize=(9, 4), layout="constrained")
    lines: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        if each["seconds"] is not None:
            lines.setdefault(f"{each['memory']}, {each['threads']} threads", []).append(each)
    for axes, what, label in zip(
        figure.subplots(1, 2), ("seconds", "tasks"), ("predicted seconds", "tasks"), strict=True
    ):
        for name, points in lines.items():
            axes.plot([each["workers"] for each in points], [each[what] for each in points], marker="o", label=name)
        axes.set(xlabel="workers", ylabel=label, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
    if lines:
        figure.axes[0].legend()
    return figure
