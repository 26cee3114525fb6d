"""Tables of runs on a cluster: what each worker held and what befell it, and predictions beside what was measured."""

from __future__ import annotations

from statistics import median

from cases import GIB, MIB, Case
from cluster_cases import Trial
from measure import Run
from report import Rounds, head, heading, labels, ratios, row, spread

HEAD = (
    "peer",
    "verdict",
    "seconds",
    "× {}",
    "a worker's peak MiB",
    "above idle MiB",
    "promised MiB",
    "paused",
    "spilled MiB",
    "restarted",
    "tasks",
    "note",
)
PREDICTED = (
    "case",
    "workers",
    "array",
    "codec",
    "asked",
    "predicted s",
    "measured s",
    "predicted / measured",
    "strategy",
)

LEGEND = (
    "Seconds: median (least–most) of wall time from the call that plans. Ratio: of times within a round. A worker's "
    "peak: most resident bytes of any one worker process at any time, in all rounds; above idle: those not backed by "
    "files, above the same when idle; promised: what the plan says a worker may hold. Paused, spilled, restarted: most "
    "in one run, all workers together; spilled is what Dask put on disk for want of memory, files that P2P keeps by "
    "design not counted. Every output was compared with the source, element by element, after its time was taken."
)
"""What the columns mean."""


def table(case: Case, cache: str, rounds: Rounds, baseline: str) -> str:
    """Return the Markdown table of one case with one state of the cache."""
    rows = [_peer_row(label, rounds, baseline) for label in labels(rounds)]
    return "\n".join([heading(case, _workers(case), cache, rounds), "", *head(HEAD, baseline), *rows])


def _workers(case: Case) -> str:
    limit = f"{case.memory / case.workers / MIB:.0f} MiB each" if case.memory else "no limit"
    return f"{case.workers} workers, {limit}"


def _peer_row(label: str, rounds: Rounds, baseline: str) -> str:
    runs = [found[label] for found in rounds if label in found]
    good = [run for run in runs if run.verdict == "ok"]
    told = (good or runs)[0].told
    promised = told.get("plan", {}).get("peak_bytes")
    return row(
        [
            label,
            next((run.verdict for run in runs if run.verdict != "ok"), "ok"),
            spread([run.seconds for run in good]),
            spread(ratios(label, rounds, baseline)),
            _mib(_most(runs, "rss")),
            _mib(_most(runs, "own")),
            _mib(promised),
            max(_sum(run, "paused") for run in runs),
            _mib(max(spilled(run) for run in runs)),
            max(_sum(run, "lost") for run in runs),
            told.get("tasks") or "–",
            told.get("note", ""),
        ]
    )


def _most(runs: list[Run], what: str) -> int:
    return max((worker[what] for run in runs for worker in run.workers), default=0)


def _sum(run: Run, what: str) -> int:
    return sum(worker[what] for worker in run.workers)


def spilled(run: Run) -> int:
    """Bytes spilled: all that was counted as written, or the most that heartbeats saw, whichever is more."""
    return max(run.spilled, _sum(run, "spilled_memory"), _sum(run, "spilled_disk"))


def _mib(found: int | None) -> str:
    return "–" if found is None else f"{found / MIB:.0f}"


def predictions(found: list[tuple[Trial, list[Run]]]) -> str:
    """Return the Markdown table of trials, and the median error."""
    rows = [_trial_row(trial, runs) for trial, runs in found]
    off = f"median |predicted / measured − 1| = {median_error(found):.2f} of {len(found)} cases"
    return "\n".join([*head(PREDICTED, ""), *rows, "", off])


def _trial_row(trial: Trial, runs: list[Run]) -> str:
    case, ratio = trial.case, prediction(runs)
    array = f"{case.nbytes / GIB:.2f} GiB {case.source_chunks} → {case.target_chunks}"
    found = [f"{ratio[0]:.2f}", f"{ratio[1]:.2f}", f"{ratio[0] / ratio[1]:.2f}"] if ratio else ["–"] * 3
    bad = next((run.verdict for run in runs if run.verdict != "ok"), None)
    return row([case.name, case.workers, array, case.codec, trial.method, *found, bad or runs[0].told["note"]])


def prediction(runs: list[Run]) -> tuple[float, float] | None:
    """Seconds (predicted, measured): medians of the runs that finished; None where none did."""
    good = [run.told for run in runs if run.verdict == "ok"]
    if not good:
        return None
    return median(told["plan"]["seconds"] for told in good), median(told["measured_seconds"] for told in good)


def median_error(found: list[tuple[Trial, list[Run]]]) -> float:
    """Median of |predicted / measured − 1| over the trials that finished."""
    pairs = [pair for _, runs in found if (pair := prediction(runs))]
    return median([abs(predicted / measured - 1) for predicted, measured in pairs] or [float("nan")])
