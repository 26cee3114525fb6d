"""Markdown tables of what the peers of `slabs.py` took, and whether what must be reached is reached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from cases import GIB, MIB
from measure import Run
from report import DISTURBED, Rounds, head, labels, ratios, row, spread
from slab_cases import Case

HEAD = ("way", "wall s", "× {}", "CPU s", "peak MiB", "mapped MiB", "read GiB", "written GiB", "note")
OURS = "ours"
"""Labels of our ways begin with it: they keep to the budget."""
LEGEND = (
    "Wall: median (least–most). Ratio: of wall times within a round. Peak: resident and not backed by files, summed "
    "over the run's processes, above the same processes idle; mapped file pages apart. Read, written: through calls / "
    "at the disk. Every output was compared with what is right, element by element, after its time was taken."
)
"""What the columns mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Must:
    """A goal: the ratio that one way must reach beside another."""

    ours: str
    """The way's label."""
    other: str
    """The other's."""
    times: float
    """Other's wall ÷ ours, at least."""


def table(case: Case, cache: str, played: Rounds, musts: Sequence[Must]) -> str:
    """Return the table of one case, and below it what must be reached."""
    budget = f"budget {case.memory // MIB} MiB" if case.memory else "no budget"
    title = f"**{case.name}**: {case.edge}² ({case.nbytes / MIB:.0f} MiB), codec {case.codec}, {budget}, {cache}"
    names = labels(played)
    first = next((name for name in names if name.startswith(OURS)), names[0])
    rows = [_row(name, played, first, case) for name in names]
    return "\n".join([f"{title}; {len(played)} rounds", "", *head(HEAD, first), *rows, "", *_reached(played, musts)])


def _row(label: str, played: Rounds, baseline: str, case: Case) -> str:
    runs = [found[label] for found in played if label in found]
    good = [run for run in runs if run.verdict == "ok"]
    if not good:
        return row([label, *["–"] * (len(HEAD) - 2), runs[0].verdict])
    return row(
        [
            label,
            spread([run.seconds for run in good]),
            spread(ratios(label, played, baseline)),
            f"{median(run.told['cpu'] for run in good):.2f}",
            f"{max(run.peak for run in good) / MIB:.0f}",
            f"{max(run.mapped for run in good) / MIB:.0f}",
            *(_moved(good, calls, disk) for calls, disk in (("rchar", "read_bytes"), ("wchar", "write_bytes"))),
            "; ".join(_notes(label, runs, good, case)),
        ]
    )


def _moved(runs: Sequence[Run], calls: str, disk: str) -> str:
    return " / ".join(f"{median(run.moved[name] for run in runs) / GIB:.2f}" for name in (calls, disk))


def _notes(label: str, runs: Sequence[Run], good: Sequence[Run], case: Case) -> Iterator[str]:
    if note := good[0].told.get("note"):
        yield note
    if label.startswith(OURS) and max(run.peak for run in good) > case.memory:
        yield "OVER ITS BUDGET"
    if (others := max(run.others for run in good)) > DISTURBED:
        yield f"others were busy: {others:.0%}"
    yield from (run.verdict for run in runs if run.verdict != "ok")


def _reached(played: Rounds, musts: Sequence[Must]) -> Iterator[str]:
    """A line for each: of the medians within a round."""
    for must in musts:
        if found := ratios(must.other, played, must.ours):
            reached = "reached" if median(found) >= must.times else "NOT REACHED"
            yield f"- {must.ours} beside {must.other}: {spread(found)} × as fast, must be {must.times:.2g}: {reached}"
