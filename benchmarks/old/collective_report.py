"""Tables and a picture of what `collective.py` found."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median

from cases import MIB, Case
from collective_peers import Run
from report import row
from thesis_sections import DATA, PARTITIONS, Count, cases
from thesis_sections import Case as Sections
from thesis_sections import counts as asked_of

PRINTED = {"row": "10", "column": "8"}
"""Tables of 1993, by how the files are stored: on the nCUBE 2 by rows, on the Touchstone Delta by columns."""
Rounds = Sequence[Mapping[str, Run]]


def distributions(title: str, file: str, case: Case, stored: int, rows: Mapping[str, Rounds]) -> str:
    """One of Tables 8 to 11 of 1993: milliseconds, and how often workers read what is stored, in ``stored`` bytes."""
    ways = [way for way in next(iter(rows.values()))[0] if way not in ("conforming", "redistribution", "two-phase")]
    head = ["distribution", "conforming ms", "redistribution", "two-phase", "× conforming", "printed", "read ×"]
    head += [word for way in ways for word in (way, "read ×")]
    lines = [f"**{title}**: {case.shape} float32 in chunks of {case.source_chunks}, {case.nbytes / MIB:.0f} MiB", ""]
    lines += [*_head([*head, "speed-up"])]
    printed = two_phase_printed(PRINTED[file])
    for name, found in rows.items():
        best, both = (_ms(found, way) for way in ("conforming", "two-phase"))
        cells = [name, f"{best:.0f}", f"{_ms(found, 'redistribution'):.0f}", f"{both:.0f}", f"{both / best:.2f}"]
        cells += [printed.get(name, "–"), _reads(found, "two-phase", case, stored)]
        cells += [cell for way in ways for cell in (f"{_ms(found, way):.0f}", _reads(found, way, case, stored))]
        lines.append(row([*cells, f"{_ms(found, 'direct') / both:.2f}" if "direct" in ways else "–"]))
    return "\n".join([*lines, truth(_runs(rows.values())), *_wrong(rows)])


def two_phase_printed(table: str) -> dict[str, str]:
    """Return two-phase's time on 16 processors over the best read, by distribution; of the first array of a table."""
    with (DATA / f"twophase_table{table}.csv").open() as file:
        rows = list(csv.DictReader(file))[:4]
    return {
        row["distribution"].lower().replace("-", " "): (
            f"{float(row['total_read_seconds']) / float(row['best_read_seconds']):.2f}"
        )
        for row in rows
    }


def _runs(rows: Iterable[Rounds]) -> Iterable[Run]:
    return (run for found in rows for each in found for run in each.values())


def _head(names: Sequence[str]) -> tuple[str, str]:
    return row(names), row(["---", *["---:"] * (len(names) - 1)])


def _ms(found: Rounds, way: str) -> float:
    return 1e3 * median(each[way].seconds for each in found)


def _reads(found: Rounds, way: str, case: Case, stored: int) -> str:
    """Requests to a store far away; of files, bytes over those that are stored, or decoded over those of the array."""
    run = found[0][way]
    if run.store:
        return f"{run.store.get('GET', 0)} GET"
    if run.metered:
        return f"{(run.metered['decoded_bytes'] or run.metered['read_bytes']) / case.nbytes:.2f}"
    return f"{run.read_bytes / stored:.2f}"


def truth(runs: Iterable[Run]) -> str:
    """Return whether the plans' requests and bytes are what the meter counted."""
    ours = [run for run in runs if run.predicted]
    off = [run for run in ours if _counted(run.predicted) != _counted(run.metered)]
    lines = [f"\npredicted = metered in {len(ours) - len(off)} of {len(ours)} reads"]
    lines += [f"{run.way}: predicted {run.predicted}, metered {run.metered}" for run in off]
    return "\n".join(lines)


def _counted(counts: Mapping[str, int]) -> tuple[int, ...]:
    """Return the counts that are foretold exactly: the bytes of coded chunks are an estimate."""
    return counts["read_requests"], counts["decoded_bytes"] or counts["read_bytes"]


def _wrong(rows: Mapping[str, Rounds]) -> Iterable[str]:
    """A line for each run whose result was not what was asked for."""
    for name, found in rows.items():
        for way in found[0]:
            bad = [each[way].verdict for each in found if each[way].verdict != "ok"]
            if bad:
                yield f"\n{name}, {way}: {bad[0]}"


# ---------------------------------------------------------------------- chapter 6


def counts(table: str, found: Sequence[tuple[Sections, Mapping[str, Count]]]) -> str:
    """One of Tables 6.1 to 6.8: requests and MiB of all ranks, of the rank with most, and the printed seconds."""
    ways = ("direct", *PARTITIONS)
    names = [f"{way}{of}" for way in ways for of in (" requests", " MiB", ", most")]
    lines = [f"**Table {table.replace('_', '.')}**", "", *_head(["case", "", *names, *(f"{way} s" for way in ways)])]
    for case, asked in found:
        cells = [
            cell
            for way in ways
            for cell in (asked[way].requests, f"{asked[way].nbytes / MIB:.2f}", asked[way].most_requests)
        ]
        printed = [case.seconds.get(way, "–") for way in ways]
        lines.append(row([f"{case.number} on {case.ranks}", f"{case.operation} {case.text}", *cells, *printed]))
    return "\n".join(lines)


def sections(title: str, found: Sequence[tuple[Sections, Rounds]]) -> str:
    """Milliseconds of each method, ratios beside those that are printed, and whether results are right."""
    ways = list(found[0][1][0])
    head = ["case", "", *(f"{way} ms" for way in ways), "static / dynamic", "printed", "direct / dynamic", "printed"]
    lines = [f"**{title}**", "", *_head(head)]
    for case, runs in found:
        ms = {way: _ms(runs, way) for way in ways}
        cells = [f"{case.number} on {case.ranks}", f"{case.kind} {case.text}", *(f"{ms[way]:.1f}" for way in ways)]
        for way in ("static", "direct"):
            printed = case.seconds.get(way, 0.0) / case.seconds["dynamic"]
            cells += [f"{ms[way] / ms['dynamic']:.2f}", f"{printed:.2f}" if printed else "–"]
        lines.append(row(cells))
    wrong = _wrong({case.name: runs for case, runs in found})
    return "\n".join([*lines, truth(_runs(runs for _, runs in found)), *wrong])


def draw(file: Path) -> None:
    """Figures 6.9 and 6.10: case VI of Table 6.8 by processors; as printed, and what is asked of the file."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    picture, places = pyplot.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for column, (figure, operation) in enumerate((("6.9", "read"), ("6.10", "write"))):
        found = [case for case in cases("6_8") if (case.number, case.operation) == ("VI", operation)]
        ranks, asked = [case.ranks for case in found], [asked_of(case) for case in found]
        for way in ("direct", "dynamic"):
            places[0, column].plot(ranks, [case.seconds[way] for case in found], marker="o", label=way)
            places[1, column].plot(ranks, [each[way].requests for each in asked], marker="o", label=way)
        places[0, column].set(title=f"Figure {figure}: {operation}, {found[0].text}", ylabel="seconds, as printed")
        places[1, column].set(ylabel="requests to the file", xlabel="processors", yscale="log")
    for place in places.flat:
        place.set_xscale("log", base=2)
        place.set_xticks(ranks, list(map(str, ranks)))
        place.legend()
    picture.savefig(file, dpi=110)
    pyplot.close(picture)
