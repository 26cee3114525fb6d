"""The README and its pages: short enough, linked, and in code that parses."""

from __future__ import annotations

import ast
import inspect
import re
import runpy
import shutil
from pathlib import Path

import dask
import pytest

import oocarrays as ooc
from tests.pages import fences, play

ROOT = Path(__file__).resolve().parents[1]
GUIDE = sorted((ROOT / "examples" / "guide").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "examples" / "README.md", ROOT / "benchmarks" / "README.md", *GUIDE]
LINK = re.compile(r"\]\(([^)#]+)\)")


def linked(page: Path) -> set[Path]:
    return {(page.parent / target).resolve() for target in LINK.findall(page.read_text(encoding="utf-8"))}


def test_the_readme_is_short_and_leads_to_every_page_through_the_index() -> None:
    readme, index = ROOT / "README.md", ROOT / "examples" / "guide" / "index.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 80
    assert index in linked(readme)
    assert linked(index) >= set(PAGES[1:]) - {index}


def test_the_api_page_lists_every_public_name_once() -> None:
    listed = re.findall(r"^oocarrays\.([\w.]+)$", (ROOT / "examples" / "guide" / "api.md").read_text(), re.MULTILINE)
    spaces = {name: getattr(ooc, name) for name in ("advise", "disks", "networks", "ranks", "streams")}
    inner = {f"{space}.{name}" for space, module in spaces.items() for name in vars(module) if not name.startswith("_")}
    assert sorted(each for each in listed if not each.startswith("xarray.")) == sorted(
        {*ooc.__all__} - spaces.keys() | inner
    )


def test_the_picture_of_the_readme_shows_the_newest_results(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    picture = runpy.run_path(str(ROOT / "examples" / "guide" / "picture.py"))
    picture["draw"](tmp_path / "again.png", edge=2048)
    drawn, kept = tmp_path / "again.png", ROOT / "examples" / "guide" / "readme_picture.png"
    assert image.imread(drawn).shape == image.imread(kept).shape
    commit = picture["measured"](picture["CASE"])[0]
    assert f"of commit {commit}".encode() in kept.read_bytes(), "run examples/guide/picture.py"


def test_the_changelog_has_short_dated_sections() -> None:
    newest, *older = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert len(newest.splitlines()) <= 80
    assert re.findall(r"^### (.*)$", newest, re.MULTILINE) == ["Added", "Changed", "Fixed", "Removed"]
    assert all(re.match(r"\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\)\n", each) for each in (newest, *older))


def test_links_lead_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in LINK.findall(page.read_text()) if "://" not in target]
    assert [f"{page}: {target}" for page, target in links if not (page.parent / target).exists()] == []


def test_code_parses() -> None:
    faults = []
    for where, fence in [(page, each) for page in PAGES for each in fences(page) if each.language == "python"]:
        try:
            ast.parse(fence.text)
        except SyntaxError as error:
            faults.append(f"{where}: {error}")
    assert faults == []


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_pages_run_from_top_to_bottom(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for data in (ROOT / "examples" / "data").iterdir():
        if data.name in page.read_text(encoding="utf-8"):
            shutil.copy(data, tmp_path)
    play(page)


def test_generated_pages_are_in_step_with_the_source() -> None:
    generate = runpy.run_path(str(ROOT / "examples" / "guide" / "generate.py"))
    for name, written in generate["PAGES"].items():
        said = (ROOT / "examples" / "guide" / name).read_text(encoding="utf-8")
        assert said == written(), f"{name}: run examples/guide/generate.py"


def test_every_setting_says_what_it_is() -> None:
    said = (ROOT / "examples" / "guide" / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`oocarrays\.([\w-]+)`", said)) == set(dask.config.get("oocarrays")) - {"cost"}


def test_every_error_has_its_advice() -> None:
    said = (ROOT / "examples" / "guide" / "errors.md").read_text(encoding="utf-8")
    for name, kind in vars(ooc.errors).items():
        if inspect.isclass(kind) and issubclass(kind, ooc.OocError):
            assert f"`{name}`" in said or f"`ooc.{name}`" in said, name


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("```python\n1 / 0\n```", ZeroDivisionError),
        ("```python\n2 + 2\n```\n```text\n5\n```", AssertionError),
        ("```sh\noocarrays info nowhere.zarr\n```", AssertionError),
    ],
)
def test_a_page_that_is_wrong_is_found(text: str, fault: type[Exception], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(fault):
        play(page)
