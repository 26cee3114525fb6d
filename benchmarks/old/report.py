"""Runs become a Markdown table: medians, ratios within a round, spread."""

from __future__ import annotations

from statistics import median

from cases import GIB, MIB, Case
from measure import Run

HEAD = (
    "peer",
    "wall s",
    "× {}",
    "sync s",
    "memory MiB",
    "mapped MiB",
    "read GiB",
    "written GiB",
    "busy",
    "tasks",
    "note",
)

DISTURBED = 0.15
"""Share of the cores' time from which other processes are worth a note; writeback alone takes less."""

Rounds = list[dict[str, Run]]
"""One dict a round: the runs by the peer's label."""


def table(case: Case, cache: str, rounds: Rounds, baseline: str) -> str:
    """Return the Markdown table of one case with one state of the cache."""
    rows = [_peer_row(label, rounds, baseline) for label in labels(rounds)]
    budget = f"budget {case.memory // MIB} MiB"
    return "\n".join([heading(case, budget, cache, rounds), "", *head(HEAD, baseline), *rows])


def heading(case: Case, budget: str, cache: str, rounds: Rounds) -> str:
    """Describe the case that was run, in one line."""
    how = {run.told["cache"] for runs in rounds for run in runs.values() if "cache" in run.told}
    return (
        f"**{case.name}**: {case.shape} float32 ({case.nbytes / GIB:.2f} GiB), {case.source_chunks} → "
        f"{case.target_chunks}, codec {case.codec}, {budget}; "
        f"cache {' by '.join([cache, *how])}; {len(rounds)} rounds"
    )


def head(names: tuple[str, ...], baseline: str) -> list[str]:
    """Return a table's first two rows; the outermost columns hold words."""
    rule = ("---" if n in (0, len(names) - 1) else "---:" for n in range(len(names)))
    return [row(name.format(baseline) for name in names), row(rule)]


def labels(rounds: Rounds) -> list[str]:
    """Every peer's label, in the order in which they first ran."""
    return list(dict.fromkeys(label for runs in rounds for label in runs))


def _peer_row(label: str, rounds: Rounds, baseline: str) -> str:
    runs = [found[label] for found in rounds if label in found]
    good = [run for run in runs if run.verdict == "ok"]
    if not good:
        return row([label, *["–"] * (len(HEAD) - 2), runs[0].verdict])
    first = good[0]
    others = max(run.others for run in good)
    disturbed = f"others were busy: {others:.0%}" if others > DISTURBED else None
    over = "over its budget" if any(run.peak > run.budget for run in good) else None
    bad = [run.verdict for run in runs if run.verdict != "ok"]
    return row(
        [
            label,
            spread([run.seconds for run in good]),
            spread(ratios(label, rounds, baseline)),
            f"{median(run.sync for run in good):.2f}",
            f"{max(run.peak for run in good) / MIB:.0f}",
            f"{max(run.mapped for run in good) / MIB:.0f}",
            _bytes(good, "rchar", "read_bytes"),
            _bytes(good, "wchar", "write_bytes"),
            f"{median(run.busy for run in good):.0%}",
            first.told.get("tasks") or "",
            "; ".join(filter(None, [first.told.get("note"), over, disturbed, *bad])),
        ]
    )


def ratios(label: str, rounds: Rounds, baseline: str) -> list[float]:
    """Wall time ÷ the baseline's in the same round, for each round where both finished."""
    pairs = [(found.get(label), found.get(baseline)) for found in rounds]
    return [a.seconds / b.seconds for a, b in pairs if a and b and a.verdict == b.verdict == "ok"]


def spread(numbers: list[float]) -> str:
    """`median (least–most)`, or a dash."""
    if not numbers:
        return "–"
    if len(numbers) == 1:
        return f"{numbers[0]:.2f}"
    return f"{median(numbers):.2f} ({min(numbers):.2f}–{max(numbers):.2f})"


def _bytes(runs: list[Run], calls: str, disk: str) -> str:
    called, moved = (median(run.moved[name] for run in runs) / GIB for name in (calls, disk))
    return f"{called:.2f} / {moved:.2f}"


def row(cells) -> str:
    """One row of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


LEGEND = (
    "Wall: median (least–most). Ratio: of wall times within a round. Memory: most at any time, resident and "
    "not backed by files, summed over the run's processes, above the same processes idle; mapped file pages "
    "apart. Read, written: through read and write calls / at the disk; mapped reads make no calls. Busy: CPU "
    "seconds ÷ (wall × cores). Every output was compared with the source, element by element, after its time "
    "was taken. `others were busy`: this share of the cores' time went to other processes meanwhile."
)
"""What the columns mean."""
