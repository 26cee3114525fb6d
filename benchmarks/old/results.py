"""Tables and figures of pages, drawn from stored results.

    python benchmarks/results.py           # writes the tables of benchmarks/README.md, and the figures
    python benchmarks/results.py --check   # says which tables are not as stored, and writes nothing

A result is a file of JSON in `results/`: how its figures came there, the machine, the commands, tables, and what was
stated beside them. A table is drawn where a page says ``<!-- results: FILE/TABLE -->``. `results/claims.json` says of
each figure in README.md and the guide which row of which table holds it; `tests/test_results.py` compares.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
STORED = HERE / "results"
PAGE = HERE / "README.md"
MARK = re.compile(r"(<!-- results: (\w+)/(\w+) -->\n\n)(?:\|.*\n)*")
RATIO = re.compile(r"([A-Za-z][A-Za-z0-9 -]*(?:, [a-z ]+)?) ([\d.]+) ×")
"""Who, and how many times as long as ours."""


def main() -> None:
    """Write or check what is drawn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if options.check:
        sys.exit(f"{PAGE}: its tables are not as stored: run {__file__}" if drawn(page) != page else None)
    PAGE.write_text(drawn(page), encoding="utf-8")
    for name, draw in FIGURES.items():
        draw(STORED / name)
    print(f"drew {PAGE}, {', '.join(FIGURES)}")


def stored(name: str) -> dict[str, Any]:
    """Return one result."""
    result: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text(encoding="utf-8"))
    return result


def drawn(page: str) -> str:
    """Return a page with each of its tables as it is stored."""
    return MARK.sub(lambda found: found[1] + table(stored(found[2])["tables"][found[3]]), page)


def table(result: dict[str, Any]) -> str:
    """Return a table in Markdown.

    >>> print(table({"columns": ["who", "s"], "rows": [["we", "1"], ["they", ""]]}), end="")
    | who | s |
    |---|---|
    | we | 1 |
    | they | |
    """
    columns = result["columns"]
    lines = [_line(columns), "|" + "---|" * len(columns), *map(_line, result["rows"])]
    return "".join(f"{line}\n" for line in lines)


def _line(cells: Sequence[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


# ---------------------------------------------------------------------- what pages claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Figures of one paragraph or row of a page."""

    page: str
    """Path of the page in the repository."""
    at: str
    """Words that stand in this paragraph and in no other of the page."""
    figures: dict[str, str]
    """Each figure as the page writes it, and the numbers of the row that it is: one, a range, or ``"104 / 7.8"``."""
    held: str = ""
    """``FILE/TABLE/first cell`` of the row that holds those numbers."""
    given: tuple[str, ...] = ()
    """Quantities that were chosen, not measured: sizes and budgets."""


def claims() -> Iterator[Claim]:
    """Yield what pages claim."""
    for each in stored("claims")["claims"]:
        yield Claim(**{**each, "given": tuple(each.get("given", ()))})


def held_in(claim: Claim) -> str:
    """Return the text of the row that holds a claim's numbers.

    Raises
    ------
    KeyError
        Where no row of that name is stored.
    """
    file, name, first = claim.held.split("/", 2)
    for row in stored(file)["tables"][name]["rows"]:
        if row[0] == first:
            return " | ".join(row[1:])
    raise KeyError(f"{claim.held} is not stored")


# ---------------------------------------------------------------------- figures


def peers() -> dict[str, dict[str, float]]:
    """Return, for each row of README.md that a stored one holds, how many times as long as ours others take."""
    readme = (HERE.parents[1] / "README.md").read_text(encoding="utf-8")
    held = {claim.at: claim for claim in claims() if claim.page == "README.md" and claim.held}
    found: dict[str, dict[str, float]] = {}
    for line in readme.splitlines():
        for at in held:
            if line.startswith("|") and at in line:
                job, ours, by_hand, *others = (cell.strip() for cell in re.sub(r"[*`]", "", line).strip("|").split("|"))
                cells = " | ".join([f"by hand {by_hand}", *others])
                found[f"{job}: {ours}"] = {who: float(times) for who, times in RATIO.findall(cells)}
    return {job: ratios for job, ratios in found.items() if ratios}


def draw_peers(path: Path) -> None:
    """Draw how many times as long as ours others take."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    jobs = peers()
    bars = [(job, who, times) for job, ratios in jobs.items() for who, times in sorted(ratios.items(), key=_times)]
    figure = Figure(figsize=(9, 0.34 * (len(bars) + 1.2 * len(jobs)) + 0.9), layout="constrained", facecolor="white")
    axes, place = figure.subplots(), 0.0
    for job in jobs:
        axes.text(0.53, place, job, fontsize=9, fontweight="bold", va="center", backgroundcolor="white")
        place += 1
        for _, who, times in (bar for bar in bars if bar[0] == job):
            axes.barh(place, times - 1, left=1, height=0.8, color="#D55E00" if times < 1 else "#56B4E9")
            axes.text(max(times, 1) * 1.03, place, f"{times:g} ×  {who}", fontsize=8, va="center")
            place += 1
        place += 0.3
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlim=(0.5, 60), ylim=(place, -0.8), yticks=[], xticks=[0.5, 1, 2, 5, 10, 20])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
    axes.tick_params(which="minor", length=0, labelbottom=False)
    axes.set_xlabel("time, in times of ours; to the left of the line others are faster", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    _save(figure, path)


def draw_curves(path: Path) -> None:
    """Draw measured and predicted seconds against size, ranks and chunks."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(11, 3.4), layout="constrained", facecolor="white")
    labels = {"size": "MiB of the array", "ranks": "ranks", "chunks": "MiB of a chunk"}
    for axes, (name, label) in zip(figure.subplots(1, 3, sharey=True), labels.items(), strict=True):
        rows = stored("curves")["tables"][name]["rows"]
        x = [float(row[0]) for row in rows]
        rounds = [[float(second) for second in row[-1].split(",")] for row in rows]
        axes.fill_between(x, [min(each) for each in rounds], [max(each) for each in rounds], color="#56B4E9", alpha=0.3)
        for place, said, style in ((1, "measured", "o-"), (2, "predicted", "x:")):
            axes.plot(x, [float(row[place].split()[0]) for row in rows], style, label=said)
        axes.set(xscale="log", yscale="log", xlabel=label, xticks=x)
        axes.set_xticklabels([row[0] for row in rows])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].set_ylabel("seconds")
    figure.axes[0].legend(frameon=False)
    _save(figure, path)


WHO = {"two-phase": "ours, told to exchange", "auto": "ours, as it chooses", "p2p": "Dask p2p", "tasks": "Dask tasks"}
COLORS = dict(zip(WHO, ("#0072B2", "#009E73", "#D55E00", "#CC79A7"), strict=True))


def draw_ranks(path: Path) -> None:
    """Draw time and tasks of one rechunk against workers, and beside them what was simulated."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained", facecolor="white")
    times, tasks = figure.subplots(1, 2)
    rows = stored("ranks")["tables"]["in_process"]["rows"]
    for place, who in enumerate(WHO):
        for axes, column in ((times, 1 + 2 * place), (tasks, 2 + 2 * place)):
            found = [(int(row[0]), float(row[column].split()[0])) for row in rows if row[column]]
            if found:
                axes.plot(*zip(*found, strict=True), "o-", color=COLORS[who], label=f"{WHO[who]}: 256 MiB, real")
    simulated = stored("thousand")["tables"]["simulated"]
    at = {name: simulated["columns"].index(name) for name in ("workers", "tasks", "scheduler", "predicted")}
    of = {name: [float(row[n].split()[0].replace(",", "")) for row in simulated["rows"]] for name, n in at.items()}
    times.plot(
        of["workers"], of["scheduler"], "s", mfc="none", color="black", label="scheduler of 1 to 65 TB, simulated"
    )
    times.plot(of["workers"], of["predicted"], "x", color="grey", label="1 to 65 TB, predicted")
    tasks.plot(of["workers"], of["tasks"], "s", mfc="none", color="black", label="ours, 1 to 65 TB, simulated")
    for axes, said in ((times, "seconds"), (tasks, "tasks")):
        axes.set(xscale="log", yscale="log", xlabel="workers", ylabel=said, xticks=[4, 16, 64, 256, 1000])
        axes.set_xticklabels(["4", "16", "64", "256", "1000"])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "oocarrays", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


FIGURES = {"peers.svg": draw_peers, "curves.svg": draw_curves, "ranks.svg": draw_ranks}


def _times(bar: tuple[str, float]) -> float:
    return bar[1]


if __name__ == "__main__":
    main()
