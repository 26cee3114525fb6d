"""The documentation site: built without warnings, with no dead link, and in a browser without errors of its console."""

from __future__ import annotations

import functools
import http.server
import runpy
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc

pytestmark = [pytest.mark.long, pytest.mark.once]

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "examples" / "site" / "build.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site."""
    for module in ("sphinx", "myst_parser", "sphinx_book_theme"):
        pytest.importorskip(module, reason="the site is built with the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, BUILD, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_every_public_name_has_a_page_with_signatures(site: Path) -> None:
    spaces = {name: getattr(ooc, name) for name in ("ranks", "streams", "disks", "advise", "networks")}
    names = [name for name in ooc.__all__ if name not in spaces]
    names += [f"{space}.{name}" for space, module in spaces.items() for name in dir(module) if name[0] != "_"]
    assert {f"oocarrays.{name}.html" for name in names} <= {page.name for page in (site / "api").iterdir()}
    text = (site / "api" / "oocarrays.OutOfCoreArray.html").read_text(encoding="utf-8")
    for method in ("read", "write", "to_dask", "prefetch"):
        assert f'id="oocarrays.OutOfCoreArray.{method}"' in text
    assert "method" in text.partition('id="oocarrays.OutOfCoreArray.read"')[2][:3000]
    for page, name in (
        ("oocarrays.kernels", "median"),
        ("oocarrays.xarray.DataArrayMethods", "map_slabs"),
        ("oocarrays.errors", "BudgetError"),
    ):
        assert f'id="{page}.{name}"' in (site / "api" / f"{page}.html").read_text(encoding="utf-8")


def test_the_command_line_is_that_of_the_parser(site: Path) -> None:
    text = (site / "cli.html").read_text(encoding="utf-8")
    for words in ("oocarrays rechunk", "--memory", "oocarrays advise", "--overwrite"):
        assert words in text


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<a href="b.html#x"></a><a href="none.html"></a><a href="https://a.org/"></a>')
    (tmp_path / "b.html").write_text('<a href="a.html"></a><p id="y"></p>')
    assert runpy.run_path(str(BUILD))["dead"](tmp_path) == ["a.html: b.html#x", "a.html: none.html"]


# In a browser, if there is one.


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Address at which the site is served."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the browser is driven by playwright")
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium")
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def page(browser: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page, and the errors of its console and of its requests."""
    opened, faults = browser.new_page(), []
    opened.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    aborted = "net::ERR_ABORTED"  # the icon, when the next page is opened
    opened.on("requestfailed", lambda each: faults.append(each.url) if each.failure != aborted else None)
    opened.on("response", lambda answer: faults.append(answer.url) if answer.status >= 400 else None)
    yield opened, faults
    opened.close()


def test_no_page_has_an_error_in_its_console(site: Path, address: str, page: tuple[Any, list[str]]) -> None:
    opened, faults = page
    for path in sorted(site.glob("*.html")):
        opened.goto(f"{address}/{path.name}")
        broken = opened.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        assert (path.name, faults, broken) == (path.name, [], [])


def test_search_finds_a_page_and_a_function(address: str, page: tuple[Any, list[str]]) -> None:
    opened, faults = page
    opened.goto(f"{address}/search.html?q=rechunk")
    for found in ("api/oocarrays.rechunk.html", "rechunk.html"):  # results come one after the other
        opened.wait_for_selector(f'#search-results li a[href^="{found}"]')
    assert faults == []


def test_light_and_dark_have_other_backgrounds(address: str, page: tuple[Any, list[str]]) -> None:
    opened, faults = page
    opened.goto(f"{address}/index.html")
    seen = {}
    for theme in ("light", "dark"):
        opened.evaluate(f"document.documentElement.dataset.theme = '{theme}'")
        seen[theme] = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    assert seen["light"] != seen["dark"]
    assert faults == []


# Pages of notebooks, in a browser.

WIDE = 900
NOTEBOOK = """<!doctype html><meta charset=utf-8><style>
:root {{ color-scheme: light dark }} body {{ margin: 0; font: 14px/1.5 Helvetica, Arial, sans-serif }}
table {{ font-size: 12px; border-collapse: collapse }} td, th {{ padding: .5em }}
</style>{}"""
"""A page with the sizes of JupyterLab's output, which gives cells a wide margin."""


def jobs(folder: Path) -> dict[str, Any]:
    """What is shown in notebooks, with names as long as those of real files."""
    air = ((720, 1000, 1400), (1, 1000, 1400))
    store, here = folder / "era5-hourly-2m-temperature-1979-2024.zarr", {"memory": "1GiB", "scheduler": "threads"}
    made = zarr.create_array(store, shape=air[0], chunks=air[1], dtype="f4", dimension_names=("time", "lat", "lon"))
    group = zarr.create_group(folder / "group.zarr")
    group.create_array("temperature", shape=(720, 100, 140), chunks=(1, 100, 140), dtype="f4")
    small = zarr.create_array(folder / "small.zarr", data=np.ones((64, 64), "f4"), chunks=(8, 64))
    ran = ooc.rechunk(small, folder / "small-columns.zarr", chunks=(64, 8), memory="64MiB", scheduler="threads")
    ran.run()
    target = ooc.Target(folder / "series.zarr", shards=(720, 100, 200))
    return {
        "rechunk": ooc.rechunk(made, target, chunks=(720, 20, 20), **here),
        "rechunk of two passes": ooc.rechunk(made, folder / "c.zarr", chunks=(720, 20, 20), method="staged", **here),
        "group": ooc.rechunk(group, folder / "d.zarr", chunks={"temperature": (720, 10, 10)}, **here),
        "slabs": ooc.map_slabs(np.negative, made, folder / "e.zarr", depth=(1, 0, 0), **here),
        "reduction": ooc.reduce(made, "mean", axis=0, target=folder / "f.zarr", **here),
        "run": ran,
        "array": ooc.open_array(made),
        "opened group": ooc.open_group(group),
        "layout": ooc.Layout.of(air[0], "(*, block, block)", ranks=64),
        "schedule": ooc.ranks.Schedule.of("bex", 64),
        "comparison": ooc.compare(small, folder / "small-columns.zarr", memory="64MiB"),
    }


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_of_notebooks_fit_and_are_legible(browser: Any, tmp_path: Path, theme: str) -> None:
    view = browser.new_page(viewport={"width": WIDE, "height": 700}, color_scheme=theme)
    for name, each in jobs(tmp_path).items():
        view.set_content(NOTEBOOK.format(each._repr_html_()))
        view.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert view.evaluate("document.documentElement.scrollWidth") <= WIDE, name
    view.close()
