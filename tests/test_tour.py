"""The notebook of ten cells, and what people see in a notebook's kernel: widgets, bars, and short errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.seams import step

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
TOUR = json.loads((ROOT / "examples" / "tour.ipynb").read_text(encoding="utf-8"))
CODE = ["".join(cell["source"]) for cell in TOUR["cells"] if cell["cell_type"] == "code"]
VALUES = """
from ipywidgets.widgets.widget import _instances
[widget.value for widget in _instances.values() if hasattr(widget, "value")]
"""
PREPARED = """
import numpy as np, zarr, oocarrays as ooc
zarr.create_array("a.zarr", data=np.zeros((64, 64)), chunks=(1, 64))
job = ooc.rechunk("a.zarr", "b.zarr", chunks=(-1, 8), memory="64MiB")
"""


def test_the_tour_has_ten_cells_and_no_path_of_a_machine() -> None:
    assert len(TOUR["cells"]) == 10
    text = json.dumps(TOUR)
    for path in ("/tmp/", "/home/", "/root/", "/work/"):
        assert path not in text
    for cell in TOUR["cells"]:
        assert not [each for each in cell.get("outputs", []) if each["output_type"] == "error"]


def test_its_cells_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__tour__"}
    for number, code in enumerate(CODE):
        exec(compile(code, f"cell {number + 1}", "exec"), names)
    air, days = names["air"], np.arange(730)
    assert np.array_equal(names["series"][...], air)
    padded = np.pad(air.astype("f8"), ((3, 3), (0, 0), (0, 0)), mode="edge")
    assert np.abs(names["smooth"][...] - sum(padded[k : k + 730] for k in range(7)) / 7).max() < 1e-3
    for month in range(12):
        expected = air[(days % 365.25 // 30.44).astype(int) == month].mean(axis=0, dtype="f8")
        assert np.abs(names["monthly"][month] - expected).max() < 1e-3


def test_a_drawing_is_svg_in_a_notebook() -> None:
    figure = step("make figure")()
    figure.subplots().set_title("what it shows")
    assert figure._repr_svg_().rstrip().endswith("</svg>")


def executed(folder: Path, *cells: str) -> list[list[Any]]:
    """What each cell shows in a kernel of its own."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources, allow_errors=True).execute()
    return [cell.outputs for cell in notebook.cells]


def test_a_kernel_shows_progress_as_a_widget_or_a_line_and_jobs_and_errors_in_short(tmp_path: Path) -> None:
    """One kernel for all: to start one takes seconds."""
    pytest.importorskip("ipywidgets")
    run, without = "series = job.run(progress=True)", "import sys; sys.modules['ipywidgets'] = None"
    again = "job = ooc.rechunk('a.zarr', 'c.zarr', chunks=(-1, 8), memory='64MiB')"
    cells = (PREPARED, run, VALUES, again, "job", "ooc.open_array('nowhere.zarr')", f"{without}\n{run}")
    _, [shown, *rest], [state], _, [page], [error], line = executed(tmp_path, *cells)
    assert "application/vnd.jupyter.widget-view+json" in shown["data"]
    assert rest == []
    assert "1.0" in state["data"]["text/plain"]
    assert "100 %" in state["data"]["text/plain"]
    assert "oocarrays.RechunkJob" in page["data"]["text/html"]
    assert error["ename"] == "NotFoundError"
    assert len("\n".join(error["traceback"]).splitlines()) < 8
    text = "".join(each["text"] for each in line)
    assert [each["name"] for each in line] == ["stderr"] * len(line)
    assert "100 %" in text.splitlines()[-1]
    assert text.count("\n") == 1


@pytest.mark.long
def test_the_tour_runs_in_a_kernel(tmp_path: Path) -> None:
    outputs = executed(tmp_path, *CODE)
    for cell, shown in zip(CODE, outputs, strict=True):
        assert not [each for each in shown if each["output_type"] == "error"], cell
