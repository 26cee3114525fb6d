"""Tables of what `exchange.py` found."""

from __future__ import annotations

import statistics
from itertools import combinations

from cases import MIB


def table(rounds: list[dict[str, dict]], workers: int, nbytes: int) -> str:
    """Return a line a peer: seconds, ratio to our best, memory and queue."""
    peers = list(rounds[0])
    good = {peer: [found[peer] for found in rounds if found[peer]["verdict"] == "ok"] for peer in peers}
    ours = [peer for peer in peers if good[peer] and peer not in ("unordered", "p2p", "tasks")]
    best = min(ours, key=lambda peer: statistics.median(run["seconds"] for run in good[peer]), default=None)
    lines = [
        f"**all-to-all of {nbytes / MIB:.0f} MiB on {workers} workers, {len(rounds)} rounds**",
        "",
        "| peer | seconds | × our best | worker's memory | worst queue |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(peer, good[peer], rounds, best) for peer in peers)])


def _line(peer: str, runs: list[dict], rounds: list[dict[str, dict]], best: str | None) -> str:
    if not runs:
        return f"| {peer} | {rounds[0][peer]['verdict']} | | | |"
    seconds = [run["seconds"] for run in runs]
    ratios = [
        found[peer]["seconds"] / found[best]["seconds"]
        for found in rounds
        if best and found[peer]["verdict"] == found[best]["verdict"] == "ok"
    ]
    spread = f" ({min(seconds):.2f}–{max(seconds):.2f})" if len(seconds) > 1 else ""
    ratio = f"{statistics.median(ratios):.2f}" if ratios else ""
    most = max(run["peak"] for run in runs)
    queue = max(run["queue"] for run in runs)
    return (
        f"| {peer} | {statistics.median(seconds):.2f}{spread} | {ratio} | {most / MIB:.0f} MiB | "
        f"{'–' if peer == 'p2p' else queue} |"
    )


def predictions(rounds: list[list[dict]]) -> str:
    """Predicted beside measured, the median error, and how often the predicted order holds."""
    lines = [
        "| schedule | workers | MiB | predicted | measured | predicted / measured |",
        "|---|---|---|---|---|---|",
    ]
    trials = list(zip(*rounds, strict=True))
    for runs in trials:
        measured = [run["seconds"] for run in runs]
        predicted = statistics.median(run["predicted"] for run in runs)
        middle = statistics.median(measured)
        lines.append(
            f"| {runs[0]['peer']} | {runs[0]['workers']} | {runs[0]['nbytes'] / MIB:.0f} | {predicted:.3f} | "
            f"{middle:.3f} ({min(measured):.3f}–{max(measured):.3f}) | {predicted / middle:.2f} |"
        )
    right, told = order(trials)
    lines += [
        "",
        f"median error {error(trials):.0%}; order as predicted in {right} of {told} pairs of schedules whose spreads "
        "do not meet",
    ]
    return "\n".join(lines)


def error(trials: list[tuple[dict, ...]]) -> float:
    """Return the median of |predicted / measured − 1|."""
    return statistics.median(
        abs(statistics.median(run["predicted"] / run["seconds"] for run in runs) - 1) for runs in trials
    )


def order(trials: list[tuple[dict, ...]]) -> tuple[int, int]:
    """Pairs of schedules on the same workers and bytes whose measured spreads do not meet: in how many the predicted
    order is the measured one, and how many there are."""
    right = told = 0
    for one, other in combinations(trials, 2):
        if (one[0]["workers"], one[0]["nbytes"]) != (other[0]["workers"], other[0]["nbytes"]):
            continue
        quick, slow = sorted((one, other), key=lambda runs: max(run["seconds"] for run in runs))
        if max(run["seconds"] for run in quick) < min(run["seconds"] for run in slow):
            told += 1
            right += _predicted(quick) <= _predicted(slow)
    return right, told


def _predicted(runs: tuple[dict, ...]) -> float:
    return statistics.median(run["predicted"] for run in runs)
