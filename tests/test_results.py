"""Figures that pages claim, compared with the results that are stored."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks" / "old"
GENERATED = {"api.md", "settings.md"}
PAGES = [
    ROOT / "README.md",
    ROOT / "examples" / "README.md",
    *(page for page in sorted((ROOT / "examples" / "guide").glob("*.md")) if page.name not in GENERATED),
]
NUMBER = re.compile(r"(?<![\w.])\d+(?:[\d,.]*\d)?")
UNIT = r"(?:ms|µs|s|seconds|minutes|min|×|times|%|[kKMGT]i?B)(?!\w)"
QUANTITY = re.compile(rf"(?<![\w.])\d+(?:[\d,.]*\d)?(?:(?:–| to | and |, )\d+(?:\.\d+)?)*\s?{UNIT}(?! \d)")
RESULTS = SimpleNamespace(**runpy.run_path(str(BENCHMARKS / "results.py")))
CLAIMS = list(RESULTS.claims())


def passages(text: str) -> list[str]:
    """Return paragraphs, list items and rows of a page, each in one line, without blocks of code.

    >>> passages("one\\ntwo\\n\\n| a |\\n| b |\\n- c\\n  d\\n```\\ne\\n```")
    ['one two', '| a |', '| b |', '- c d']
    """
    bare = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    parts = re.split(r"\n\s*\n|\n(?=[|#]|\s*- )", bare)
    return [" ".join(part.split()) for part in parts if part.strip()]


def quantities(text: str) -> list[str]:
    """Return all that looks measured: numbers with a unit.

    >>> quantities("in 3 rows, 1.25 s and 8 to 11 ms, 5.1 × as long on 3 × 3 of 2,000 `x 4 s`, 70% of 2 GiB")
    ['1.25 s', '8 to 11 ms', '5.1 ×', '70%', '2 GiB']
    """
    return QUANTITY.findall(re.sub(r"`[^`]*`", "", text))


def unheld(page: str, text: str, claims: list[Any]) -> list[str]:
    """Quantities of a page that no claim knows, each with its passage."""
    found = []
    for passage in passages(text):
        known = {known for c in claims if c.page == page and c.at in passage for known in (*c.figures, *c.given)}
        found += [f"{quantity}: {passage}" for quantity in quantities(passage) if quantity not in known]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_claims_a_figure_that_is_not_stored(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert unheld(str(page.relative_to(ROOT)), text, CLAIMS) == []


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.at)
def test_a_claim_stands_on_its_page_once_and_says_what_its_row_holds(claim: Any) -> None:
    said = [passage for passage in passages((ROOT / claim.page).read_text(encoding="utf-8")) if claim.at in passage]
    assert len(said) == 1
    assert set(quantities(said[0])) == {*claim.figures, *claim.given}
    if claim.figures:
        numbers = NUMBER.findall(RESULTS.held_in(claim))
        for figure, origin in claim.figures.items():
            of = NUMBER.findall(origin)
            assert set(of) <= set(numbers), figure
            values = [float(of[0]) / float(of[1])] if "/" in origin else list(map(float, of))
            for said, value in zip(NUMBER.findall(figure), values, strict=True):
                assert said == f"{value:.{len(said.partition('.')[2])}f}", figure


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("It takes 3 s.", ["3 s: It takes 3 s."]),
        ("It takes 4 s of a GiB, 8 MiB.", []),
        ("It takes 4 s.\n\nAnother takes 4 s.", ["4 s: Another takes 4 s."]),
    ],
)
def test_a_figure_that_is_not_stored_is_found(text: str, wrong: list[str]) -> None:
    claim = RESULTS.Claim(page="p.md", at="It takes", figures={"4 s": "4"}, given=("8 MiB",))
    assert unheld("p.md", text, [claim]) == wrong


def test_figures_beside_tables_are_stored_with_them() -> None:
    held = "".join(path.read_text(encoding="utf-8") for path in (BENCHMARKS / "results").glob("*.json"))
    numbers = set(NUMBER.findall(held))
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for passage in passages(page):
        for quantity in quantities(passage):
            assert set(NUMBER.findall(quantity)) <= numbers, (quantity, passage)


def test_every_result_says_how_and_where_it_was_made() -> None:
    for path in (BENCHMARKS / "results").glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert result["how"], path
        if "tables" in result:
            assert result["machine"], path
            for name, table in result["tables"].items():
                assert re.match(r"\d{4}-\d\d-\d\d", table["entered"]), (path, name)
                assert {len(row) for row in table["rows"]} == {len(table["columns"])}, (path, name)


def test_every_stored_table_is_drawn_and_every_table_is_stored() -> None:
    page = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert RESULTS.drawn(page) == page, "run benchmarks/results.py"
    drawn = {f"{file}/{name}" for _, file, name in RESULTS.MARK.findall(page)}
    files = (path for path in (BENCHMARKS / "results").glob("*.json") if path.stem != "claims")
    assert drawn == {f"{path.stem}/{name}" for path in files for name in RESULTS.stored(path.stem)["tables"]}
    rest = RESULTS.MARK.sub("", page)
    assert not [line for line in rest.splitlines() if line.startswith("|")]


def test_one_command_draws_tables_and_figures_and_says_which_are_not_as_stored(tmp_path: Path) -> None:
    shutil.copytree(BENCHMARKS, tmp_path / "benchmarks" / "old", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "README.md", tmp_path)
    page, script = tmp_path / "benchmarks" / "old" / "README.md", str(tmp_path / "benchmarks" / "old" / "results.py")
    page.write_text(page.read_text(encoding="utf-8").replace("353 MiB", "35 MiB"), encoding="utf-8")
    checked = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True)
    assert checked.returncode == 1
    assert "not as stored" in checked.stderr
    subprocess.run([sys.executable, script], check=True, capture_output=True)
    assert page.read_text(encoding="utf-8") == (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    assert subprocess.run([sys.executable, script, "--check"]).returncode == 0
    picture = (tmp_path / "benchmarks" / "old" / "results" / "peers.svg").read_text(encoding="utf-8")
    for ratios in RESULTS.peers().values():
        for who, times in ratios.items():
            assert f"{times:g} ×  {who}" in picture
