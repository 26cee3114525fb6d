"""The README and its pages: short enough, linked, and in code that parses."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = sorted((ROOT / "examples" / "guide").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", ROOT / "benchmarks" / "README.md", *GUIDE]
LINK = re.compile(r"\]\(([^)#]+)\)")


def test_the_readme_is_short_and_leads_to_every_page() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    linked = {(ROOT / target).resolve() for target in LINK.findall(text)}
    assert linked >= {page.resolve() for page in PAGES[1:]}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text()):
        assert "://" in target or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_parses(page: Path) -> None:
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        ast.parse(block)
