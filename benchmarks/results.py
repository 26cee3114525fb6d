"""Results as runs wrote them, and what is drawn from them: tables, blocks of pages, figures, claims.

A result is `results/YYYY-MM/CASE.json`, written by `run.py` and never edited. Of each case the newest file counts.
Everything else is rendered: `results/GROUP.md`, `results/peers.svg`, and in pages each table that follows a line
`<!-- results: CASE; CASE/FIGURE -->`. `claims.json` says which results hold the figures that stand in sentences.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import cases
import machine
from case import GIB, MIB, Case
from measure import Run

HERE = Path(__file__).parent
ROOT = HERE.parent
STORED = HERE / "results"
PAGES = (ROOT / "README.md", HERE / "README.md")
"""Pages that have rendered tables."""
CODE = ("oocarrays", "graphs", "benchmarks", ":!benchmarks/results", ":!benchmarks/*.md", ":!benchmarks/claims.json")
"""What a result depends on, as git names it."""
MARK = re.compile(r"(<!-- results: (.+?) -->\n\n)(?:\|.*\n)*")

Result = dict[str, Any]


# ---------------------------------------------------------------------- written by runs


def git(*words: str) -> str:
    """Return what git says."""
    done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def uncommitted() -> str:
    """Return the changed files that results depend on."""
    return git("status", "--porcelain", "--", *CODE)


def result(case: Case, rounds: list[dict], *, scale: int, command: str, pythons: dict[str, str], load: str) -> Result:
    """Return what is stored of the rounds of a case."""
    elsewhere = [run["busy_elsewhere"] for each in rounds for run in each["runs"].values() if "busy_elsewhere" in run]
    return {
        "case": case.name,
        "question": case.question,
        "commit": git("rev-parse", "HEAD"),
        "uncommitted": uncommitted().splitlines(),
        "machine": machine.facts(),
        "versions": machine.versions(pythons),
        "load": load,
        "busy_elsewhere": {"median": median(elsewhere), "most": max(elsewhere)} if elsewhere else {},
        "command": command,
        "when": datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"),
        "scale": scale,
        "measure": case.measure,
        "about": {**asdict(case), "ways": [each.label for each in case.ways]},
        "rounds": rounds,
    }


def store(found: Result, *, dirty: bool) -> Path:
    """Write a result under its month; refuse one of uncommitted changes unless asked, and any that is scaled down."""
    if found["scale"] != 1:
        raise SystemExit("a result is stored only of the whole size: leave --scale out, or use --json")
    if found["uncommitted"] and not dirty:
        raise SystemExit("a result is stored only of what is committed: " + "; ".join(found["uncommitted"]))
    path = STORED / found["when"][:7] / f"{found['case']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def newest() -> dict[str, Result]:
    """Return the newest stored result of each case."""
    paths = sorted(STORED.glob("????-??/*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def is_current(found: Result | None) -> bool:
    """Whether a result is of the code as it is: nothing that it depends on has changed since."""
    if found is None or found["uncommitted"] or uncommitted():
        return False
    return not git("diff", "--name-only", found["commit"], "HEAD", "--", *CODE) and bool(
        git("cat-file", "-t", found["commit"])
    )


# ---------------------------------------------------------------------- tables


def good(found: Result, label: str, cache: str) -> list[Run]:
    """Return the runs of one way that ended well."""
    return [run for run in ran(found, label, cache) if run["verdict"] == "ok"]


def ran(found: Result, label: str, cache: str) -> list[Run]:
    """Return all runs of one way."""
    return [each["runs"][label] for each in found["rounds"] if each["cache"] == cache and label in each["runs"]]


def caches(found: Result) -> list[str]:
    """Return the states of the cache that were measured."""
    return list(dict.fromkeys(each["cache"] for each in found["rounds"]))


def labels(found: Result) -> list[str]:
    """Return the ways that ran, ours first."""
    ran_ = {label for each in found["rounds"] for label in each["runs"]}
    return [label for label in found["about"]["ways"] if label in ran_]


def ratios(found: Result, label: str, cache: str, of: Callable[[Run], float | None] = lambda run: run["seconds"]):
    """Return a way's figure ÷ ours of the same round, for each round in which both ended well."""
    ours, pairs = labels(found)[0], []
    for each in found["rounds"]:
        both = [each["runs"].get(name, {"verdict": ""}) for name in (label, ours)]
        if each["cache"] == cache and all(run["verdict"] == "ok" for run in both):
            theirs, mine = map(of, both)
            pairs += [theirs / mine] if theirs is not None and mine else []
    return pairs


def spread(numbers: Sequence[float], write: Callable[[float], str] = "{:.2f}".format) -> str:
    """`median (least–most)`.

    >>> spread([1.0, 3.0, 2.0]), spread([1.0]), spread([])
    ('2.00 (1.00–3.00)', '1.00', '')
    """
    if not numbers:
        return ""
    middle = write(median(numbers))
    return middle if len(numbers) == 1 else f"{middle} ({write(min(numbers))}–{write(max(numbers))})"


def span(seconds: float) -> str:
    """Write a time with three digits.

    >>> span(12.345), span(1.234), span(0.01234), span(2.5e-6)
    ('12.3 s', '1.23 s', '12.3 ms', '2.5 µs')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size or unit == "µs":
            value = seconds / size
            return f"{value:.{2 if value < 10 and unit == 's' else 1 if value < 100 else 0}f} {unit}"
    raise AssertionError


def times(ratio: float) -> str:
    """Write a ratio: two digits after the point below 2, one below 10, none above."""
    return f"{ratio:.{2 if ratio < 2 else 1 if ratio < 10 else 0}f} ×"


def _mib(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known) / MIB:.0f}" if known else ""


def _gib(runs: list[Run], calls: str, disk: str) -> str:
    moved = [run["moved"] for run in runs if "moved" in run]
    if not moved:
        return ""
    return " / ".join(f"{median(each[name] for each in moved) / GIB:.2f}" for name in (calls, disk))


def _plan(run: Run, name: str) -> float | None:
    return (run["told"].get("plan") or {}).get(name)


def _predicted(run: Run) -> float | None:
    said, took = _plan(run, "seconds"), run["told"].get("measured_seconds") or run["seconds"]
    return said / took if said else None


def _known(values: Iterator[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _workers(runs: list[Run], *facts: str) -> list[float]:
    return [sum(worker[fact] for fact in facts for worker in run["workers"]) for run in runs if "workers" in run]


def _note(runs: list[Run]) -> str:
    if not runs:
        return ""
    first, said = runs[0], [runs[0]["told"].get("note", "")] if "told" in runs[0] else []
    if any(run["budget"] and run.get("peak", 0) > run["budget"] for run in runs if "budget" in run):
        said.append("over its budget")
    if first.get("told", {}).get("server"):
        said.append(first["told"]["server"])
    return "; ".join(filter(None, said))


def _columns(found: Result, cache: str) -> dict[str, Callable[[list[Run], str], str]]:
    """Return a function of each column: of the good runs of a way, and its label."""
    return {
        "s": lambda runs, _: spread([run["seconds"] for run in runs]),
        "× ours": lambda _, label: "" if found["measure"] == "each" else spread(ratios(found, label, cache)),
        "memory, MiB": lambda runs, _: "" if _workers(runs, "own") else _mib([run.get("peak") for run in runs]),
        "a worker, MiB": lambda runs, _: _mib([w["own"] for run in runs for w in run.get("workers", ())]),
        "promised, MiB": lambda runs, _: _mib([_plan(run, "peak_bytes") for run in runs]),
        "predicted ÷ measured": lambda runs, _: spread(_known(_predicted(run) for run in runs)),
        "read, GiB: calls / disk": lambda runs, _: _gib(runs, "rchar", "read_bytes"),
        "written, GiB": lambda runs, _: _gib(runs, "wchar", "write_bytes"),
        "sync, s": lambda runs, _: spread([run["sync"] for run in runs if "sync" in run][:1]),
        "cores busy": lambda runs, _: spread([run["busy"] for run in runs if "busy" in run]).partition(" ")[0],
        "restarted": lambda runs, _: f"{max(_workers(runs, 'lost'), default=0) or ''}",
        "spilled, MiB": lambda runs, _: _mib([max(run["spilled"], 0) for run in runs if run.get("spilled")]),
        "tasks": lambda runs, _: f"{runs[0]['told'].get('tasks') or ''}" if runs and "told" in runs[0] else "",
        "": lambda runs, _: _note(runs),
    }


def table(found: Result) -> str:
    """Return the tables of a result, one for each state of the cache."""
    draw = _by_figure if found["measure"] in ("figures", "own") else _by_way
    return "\n".join(draw(found, cache) for cache in caches(found))


def _by_way(found: Result, cache: str) -> str:
    columns = _columns(found, cache)
    rows = []
    for label in labels(found):
        runs = good(found, label, cache)
        cells = [column(runs, label) for column in columns.values()]
        bad = [run["verdict"] for run in ran(found, label, cache) if run["verdict"] != "ok"]
        rows.append([label, *cells[:-1], "; ".join(filter(None, [cells[-1], *bad[:1]]))])
    return drawn(["way, cache " + cache, *columns], rows)


def _by_figure(found: Result, cache: str) -> str:
    rows = []
    for name in figures(found):
        cells = [_figure_cell(found, name, label, cache) for label in labels(found)]
        rows.append([name, *cells])
    for name in figures(found, "numbers"):
        runs = {label: good(found, label, cache) for label in labels(found)}
        known = {label: _known(run["told"].get("numbers", {}).get(name) for run in runs[label]) for label in runs}
        rows.append([name, *(spread(numbers, "{:.3g}".format) for numbers in known.values())])
    return drawn(["cache " + cache, *labels(found)], rows)


def figures(found: Result, kind: str = "figures") -> list[str]:
    """Return the names of what ways have timed by themselves, or of other numbers that they tell."""
    runs = (run for each in found["rounds"] for run in each["runs"].values())
    return list(dict.fromkeys(name for run in runs for name in run.get("told", {}).get(kind, {})))


def figure_of(name: str) -> Callable[[Run], float | None]:
    """Return a function of a run: the median of one figure."""

    def of(run: Run) -> float | None:
        seconds = run["told"].get("figures", {}).get(name)
        return median(seconds) if seconds else None

    return of


def _figure_cell(found: Result, name: str, label: str, cache: str) -> str:
    runs = good(found, label, cache)
    seconds = _known(figure_of(name)(run) for run in runs)
    if not seconds:
        return next((run["verdict"] for run in ran(found, label, cache) if run["verdict"] != "ok"), "")
    ratio = ratios(found, label, cache, figure_of(name)) if found["measure"] == "figures" else []
    beside = f" ({times(median(ratio))})" if ratio and label != labels(found)[0] else ""
    return span(median(seconds)) + beside


def drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown, without columns that are empty.

    >>> print(drawn(["who", "s", "x"], [["we", "1", ""], ["they", "", ""]]), end="")
    | who | s |
    |---|---|
    | we | 1 |
    | they | |
    """
    kept = [n for n in range(len(columns)) if n == 0 or any(row[n] for row in rows)]
    lines = [[columns[n] for n in kept], *([row[n] for n in kept] for row in rows)]
    text = ["|" + "|".join(f" {cell} " if cell else " " for cell in line) + "|" for line in lines]
    return "".join(f"{line}\n" for line in [text[0], "|" + "---|" * len(kept), *text[1:]])


def others(found: Result, figure: str = "") -> dict[str, float | str]:
    """Return how many times as long as ours each other way takes, or how it ended, in the first state of the cache."""
    cache, of = caches(found)[0], figure_of(figure) if figure else lambda run: run["seconds"]
    answer: dict[str, float | str] = {}
    for label in labels(found)[1:]:
        ratio = ratios(found, label, cache, of)
        bad = [run["verdict"] for run in ran(found, label, cache) if run["verdict"] != "ok"]
        if ratio:
            answer[label] = median(ratio)
        elif bad and bad[0].partition(":")[0] in ("killed", "failed"):
            answer[label] = bad[0].partition(":")[0]
    return answer


def headline(name: str, stored: dict[str, Result]) -> list[str]:
    """Return the row of a case, or of one figure of it, in a page: question, ours, others."""
    case, _, figure = name.partition("/")
    if case not in stored:
        return [cases.every()[case].question, "not measured yet", ""]
    found = stored[case]
    cache, ours = caches(found)[0], labels(found)[0]
    runs = good(found, ours, cache)
    question = f"{figure}: {found['question']}" if figure else found["question"]
    seconds = [figure_of(figure)(run) for run in runs] if figure else [run["seconds"] for run in runs]
    peaks = [worker["own"] for run in runs for worker in run.get("workers", ())] or [run.get("peak") for run in runs]
    each = " a worker" if any("workers" in run for run in runs) else ""
    held = "" if figure or not _known(iter(peaks)) else f", {_mib(peaks)} MiB{each}"
    beside = [f"{who} {times(x) if isinstance(x, float) else x}" for who, x in others(found, figure).items()]
    return [f"{question}, {cache}", span(median(_known(iter(seconds)))) + held if runs else "", ", ".join(beside)]


def with_tables(page: str, stored: dict[str, Result]) -> str:
    """Return a page with each of its tables as the results are."""

    def render(found: re.Match[str]) -> str:
        rows = [headline(name.strip(), stored) for name in found[2].split(";")]
        return found[1] + drawn(["question", "ours", "others, in times of ours"], rows)

    return MARK.sub(render, page)


def group(name: str, stored: dict[str, Result]) -> str:
    """Return the page of a module of cases."""
    module = cases.modules()[name]
    title, _, about = (module.__doc__ or "").partition("\n")
    parts = [f"# {title.rstrip('.')}\n", f"Rendered by `python benchmarks/run.py render`.\n{about.rstrip()}\n"]
    for case in module.CASES:
        if case.name in stored:
            found = stored[case.name]
            parts += [f"## {found['question']}\n", table(found), origin(found)]
    return "\n".join(parts)


def origin(found: Result) -> str:
    """Return how a result was made, in one paragraph."""
    busy, dirty = found["busy_elsewhere"], " with uncommitted changes" if found["uncommitted"] else ""
    idle = f"; cores busy elsewhere {busy['median']:.2f}, at most {busy['most']:.2f}" if busy else ""
    return (
        f"`{found['command']}`, {found['when']}, commit {found['commit'][:8]}{dirty}, {found['machine']}; "
        f"load {found['load']}{idle}.\n"
    )


def rendered() -> dict[Path, str]:
    """Return what every page of tables should be."""
    stored = newest()
    measured = [name for name, module in cases.modules().items() if any(c.name in stored for c in module.CASES)]
    pages = {page: with_tables(page.read_text(encoding="utf-8"), stored) for page in PAGES}
    return pages | {STORED / f"{name}.md": group(name, stored) for name in measured}


# ---------------------------------------------------------------------- what pages claim


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Figures in a sentence of a page."""

    page: str
    """Path of the page in the repository."""
    at: str
    """Words that stand in this paragraph and in no other of the page."""
    figures: dict[str, str]
    """Each figure as the page writes it, and what holds it: `CASE`, `CASE/WAY` or `CASE/WAY/FIGURE`."""
    given: tuple[str, ...] = ()
    """Quantities that were chosen, not measured: sizes and budgets."""


def claims() -> list[Claim]:
    """Return what pages claim."""
    known = json.loads((HERE / "claims.json").read_text(encoding="utf-8"))
    return [Claim(**{**each, "given": tuple(each.get("given", ()))}) for each in known]


def held(where: str, stored: dict[str, Result]) -> float:
    """Return the seconds that a claim names."""
    case, _, rest = where.partition("/")
    way, _, figure = rest.partition("/")
    found = stored[case]
    runs = good(found, way or labels(found)[0], caches(found)[0])
    return median(_known((figure_of(figure)(run) if figure else run["seconds"]) for run in runs))


def written_as(figure: str, seconds: float) -> str:
    """Write seconds with the unit and the digits of a figure.

    >>> written_as("8.7 s", 8.72), written_as("600 µs", 0.00061)
    ('8.7 s', '610 µs')
    """
    number, unit = figure.split(" ")
    value = seconds / {"s": 1, "ms": 1e-3, "µs": 1e-6}[unit]
    return f"{value:.{len(number.partition('.')[2])}f} {unit}"


# ---------------------------------------------------------------------- figures


def draw_peers(path: Path, names: Sequence[str], stored: dict[str, Result]) -> None:
    """Draw how many times as long as ours others take."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    jobs = {}
    for name in names:
        case, _, part = name.partition("/")
        ratio = {w: x for w, x in others(stored[case], part).items() if isinstance(x, float)} if case in stored else {}
        jobs |= {" · ".join(headline(name, stored)[:2]): ratio} if ratio else {}
    if not jobs:
        return
    bars = sum(map(len, jobs.values()))
    figure = Figure(figsize=(9, 0.3 * (bars + 1.3 * len(jobs)) + 0.9), layout="constrained", facecolor="white")
    axes, place = figure.subplots(), 0.0
    for job, ratio in jobs.items():
        axes.text(0.53, place, job, fontsize=9, fontweight="bold", va="center", backgroundcolor="white")
        for who, x in sorted(ratio.items(), key=lambda item: item[1]):
            place += 1
            axes.barh(place, x - 1, left=1, height=0.8, color="#D55E00" if x < 1 else "#56B4E9")
            axes.text(max(x, 1) * 1.03, place, f"{times(x)}  {who}", fontsize=8, va="center")
        place += 1.3
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlim=(0.5, 60), ylim=(place - 0.5, -0.8), yticks=[], xticks=[0.5, 1, 2, 5, 10, 20, 50])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
    axes.tick_params(which="minor", length=0, labelbottom=False)
    axes.set_xlabel("time, in times of ours; to the left of the line others are faster", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    with mpl.rc_context({"svg.hashsalt": "oocarrays", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})


def render() -> list[Path]:
    """Write every page and figure; returns those that changed."""
    changed = []
    for path, text in rendered().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    marked = MARK.findall((HERE / "README.md").read_text(encoding="utf-8"))
    draw_peers(STORED / "peers.svg", [name.strip() for _, names in marked for name in names.split(";")], newest())
    return changed
