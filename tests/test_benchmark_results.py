"""Results of benchmarks: runs wrote them, pages are rendered from them, and sentences claim only what they hold."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import benchmarked

ROOT = Path(__file__).parents[1]
with benchmarked.beside(ROOT / "benchmarks"):
    import cases
    import results

GENERATED = {"settings.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *(page for page in sorted((ROOT / "examples" / "guide").glob("*.md")) if page.name not in GENERATED),
]
UNIT = r"(?:ms|µs|s|seconds|minutes|min|×|times|%|[kKMGT]i?B)(?!\w)"
QUANTITY = re.compile(rf"(?<![\w.])\d+(?:[\d,.]*\d)?(?:(?:–| to | and |, )\d+(?:\.\d+)?)*\s?{UNIT}(?! \d)")
RUN = {"verdict": "ok", "seconds": 2.0, "peak": 2**21, "budget": 2**30, "busy_elsewhere": 0.1, "told": {}}
RESULT: dict[str, Any] = {
    "case": "rechunk-1g",
    "question": "1 GiB from rows to columns",
    "commit": "0" * 40,
    "uncommitted": [],
    "machine": "2 cores",
    "versions": {},
    "load": "0.1",
    "busy_elsewhere": {"median": 0.1, "most": 0.2},
    "command": "python benchmarks/run.py rechunk-1g",
    "when": "2026-11-27T00:00Z",
    "scale": 1,
    "measure": "run",
    "about": {"ways": ["ours", "TensorStore"]},
    "rounds": [
        {"cache": "cold", "runs": {"ours": RUN, "TensorStore": {**RUN, "seconds": seconds}}} for seconds in (3.0, 5.0)
    ],
}


def passages(text: str) -> list[str]:
    """Return paragraphs, list items and rows of a page, each in one line, without code and rendered tables.

    >>> passages("one\\ntwo\\n\\n| a |\\n- c\\n  d\\n```\\ne\\n```\\n<!-- results: x -->\\n\\n| 3 s |\\n")
    ['one two', '| a |', '- c d']
    """
    bare = results.MARK.sub("", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    parts = re.split(r"\n\s*\n|\n(?=[|#]|\s*- )", bare)
    return [" ".join(part.split()) for part in parts if part.strip()]


def quantities(text: str) -> list[str]:
    """Return all that looks measured: numbers with a unit.

    >>> quantities("in 3 rows, 1.25 s and 8 to 11 ms, 5.1 × as long on 3 × 3 of 2,000 `x 4 s`, 70% of 2 GiB")
    ['1.25 s', '8 to 11 ms', '5.1 ×', '70%', '2 GiB']
    """
    return QUANTITY.findall(re.sub(r"`[^`]*`", "", text))


def unclaimed(page: str, text: str, claims: list[Any]) -> list[str]:
    """Return the quantities of a page that no claim knows, each with its passage."""
    found = []
    for passage in passages(text):
        known = {known for c in claims if c.page == page and c.at in passage for known in (*c.figures, *c.given)}
        found += [f"{quantity}: {passage}" for quantity in quantities(passage) if quantity not in known]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_states_a_figure_that_no_result_holds(page: Path) -> None:
    assert unclaimed(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"), results.claims()) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("It takes 3 s.", ["3 s: It takes 3 s."]),
        ("It takes 4 s of a GiB, 8 MiB.", []),
        ("It takes 4 s.\n\nAnother takes 4 s.", ["4 s: Another takes 4 s."]),
    ],
)
def test_a_figure_that_no_result_holds_is_found(text: str, wrong: list[str]) -> None:
    claim = results.Claim(page="p.md", at="It takes", figures={"4 s": "case"}, given=("8 MiB",))
    assert unclaimed("p.md", text, [claim]) == wrong


def test_a_stored_result_was_written_by_a_run_of_the_whole_case() -> None:
    for path in (ROOT / "benchmarks" / "results").glob("????-??/*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        assert path.stem == found["case"]
        assert path.parent.name == found["when"][:7]
        assert set(RESULT) <= set(found)
        assert found["scale"] == 1
        assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
        assert found["rounds"]


def test_pages_are_as_they_are_rendered_from_results() -> None:
    wrong = [path for path, text in results.rendered().items() if path.read_text(encoding="utf-8") != text]
    assert wrong == [], "run benchmarks/run.py render"


def test_a_page_names_cases_that_exist() -> None:
    for page in results.PAGES:
        for _, names in results.MARK.findall(page.read_text(encoding="utf-8")):
            assert {name.strip().partition("/")[0] for name in names.split(";")} <= set(cases.every())


def test_a_claim_is_what_a_result_holds() -> None:
    stored = results.newest()
    for claim in results.claims():
        assert (ROOT / claim.page).read_text(encoding="utf-8").count(claim.at) == 1
        for figure, where in claim.figures.items():
            assert results.written_as(figure, results.held(where, stored)) == figure


@pytest.mark.parametrize(
    ("figure", "seconds", "written"),
    [("8.7 s", 8.72, "8.7 s"), ("0.6 ms", 0.00061, "0.6 ms"), ("9 s", 9.4, "9 s"), ("9 s", 9.6, "10 s")],
)
def test_a_claim_is_rounded_as_the_page_writes_it(figure: str, seconds: float, written: str) -> None:
    assert results.written_as(figure, seconds) == written


def test_a_table_shows_medians_ratios_and_who_failed() -> None:
    found = copy.deepcopy(RESULT)
    found["rounds"][1]["runs"]["Dask p2p"] = {"verdict": "killed: its workers passed their memory limit"}
    found["about"]["ways"].append("Dask p2p")
    assert results.table(found).splitlines()[2:] == [
        "| ours | 2.00 (2.00–2.00) | 1.00 (1.00–1.00) | 2 | |",
        "| TensorStore | 4.00 (3.00–5.00) | 2.00 (1.50–2.50) | 2 | |",
        "| Dask p2p | | | | killed: its workers passed their memory limit |",
    ]
    row = results.headline("rechunk-1g", {"rechunk-1g": found})
    assert row == ["1 GiB from rows to columns, cold", "2.00 s, 2 MiB", "TensorStore 2.0 ×, Dask p2p killed"]


@pytest.mark.parametrize("change", [{"scale": 16}, {"uncommitted": [" M oocarrays/api.py"]}])
def test_a_result_of_a_part_or_of_uncommitted_changes_is_refused(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "STORED", tmp_path)
    with pytest.raises(SystemExit, match="a result is stored only of"):
        results.store({**RESULT, **change}, dirty=False)
    path = results.store(RESULT, dirty=False)
    assert path == tmp_path / "2026-11" / "rechunk-1g.json"
    assert results.newest() == {"rechunk-1g": RESULT}


def test_a_result_of_a_commit_that_is_gone_is_measured_again() -> None:
    assert not results.is_current(None)
    assert not results.is_current(RESULT)
