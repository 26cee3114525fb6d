"""Pictures of plans: without a display, with what was measured, and one line where they cannot be drawn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest
import zarr
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from oocarrays.cli.main import main
from tests.small import each_method, make, plan

pytestmark = pytest.mark.long


def texts(figure: Figure) -> str:
    """All that can be read in a figure."""
    inside = [text.get_text() for axes in figure.axes for text in (axes.title, axes.xaxis.label, *axes.texts)]
    legends = [text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()]
    return "\n".join([figure.get_suptitle(), *inside, *legends])


@each_method
def test_a_plan_shows_who_has_what(source: Path, tmp_path: Path, method: str) -> None:
    job = plan(source, tmp_path / "target.zarr", method, ranks=2)
    figure = job.plan.draw()
    figure.canvas.draw()
    *panels, seconds = figure.axes
    assert len(panels) == 1 + len(job.plan.passes)
    assert all(any(isinstance(patch, Rectangle) for patch in panel.patches) for panel in panels)
    assert len(seconds.patches) == 4
    assert method in texts(figure)
    assert "chunks 8 × 80" in texts(figure)
    assert "chunks 96 × 10" in texts(figure)


def test_a_job_that_ran_shows_measured_seconds_beside_predicted(tmp_path: Path) -> None:
    make(tmp_path / "source.zarr", dimension_names=("time", None))
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr")
    before, _ = job.draw(), job.run()
    after = job.draw()
    assert "measured" not in texts(before)
    assert {"predicted", "measured"} <= set(texts(after).split())
    wall = max(patch.get_width() for patch in after.axes[-1].patches[4:])
    assert job.measured_seconds is not None
    assert wall >= job.measured_seconds
    for of_plan, of_run in ((before, ()), (after, after.axes[-1].patches[4:])):
        for bars in filter(None, (of_plan.axes[-1].patches[:4], of_run)):
            *phases, wall_time = (bar.get_width() for bar in bars)
            assert 0 < sum(phases) <= wall_time * (1 + 1e-9), "phases are parts of the wall time"
    assert after.axes[0].get_ylabel() == "axis 0 (time)"
    assert after.axes[0].get_xlabel() == "axis 1"


@pytest.mark.parametrize(("shape", "chunks"), [((), ()), ((0, 4), (1, 1)), ((9,), (2,)), ((4,) * 5, (2,) * 5)])
def test_any_number_of_axes_can_be_drawn(tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    z = zarr.create_array({}, shape=shape, chunks=chunks, dtype="f4")
    plan(z, tmp_path / "target.zarr", chunks=shape if 0 not in shape else (1, 4)).draw().savefig(tmp_path / "a.png")


def test_lines_between_many_chunks_are_thinned_which_is_said(tmp_path: Path) -> None:
    z = zarr.create_array({}, shape=(400, 4), chunks=(1, 4), dtype="f4")
    words = texts(plan(z, tmp_path / "target.zarr", chunks=(400, 1)).draw())
    assert "chunks 1 × 4, 1 line in 5" in words
    assert "chunks 400 × 1\n" in words


def test_many_ranks_are_named(source: Path, tmp_path: Path) -> None:
    figure = plan(source, tmp_path / "target.zarr", "two-phase", ranks=12, memory="1GiB", chunks=(96, 5)).draw()
    assert "11:1" in texts(figure)
    assert "12 ranks in all" in figure.legends[0].get_texts()[-1].get_text()


def test_dry_run_draws_and_does_nothing_else(source: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    picture = tmp_path / "plan.png"
    typed = ["rechunk", str(source), str(tmp_path / "t.zarr"), "--chunks=96,10", "--memory=64MiB", "--dry-run"]
    assert main([*typed, "--draw", str(picture)]) == 0
    assert capsys.readouterr().out.endswith(f"drew {picture}\n")
    assert matplotlib.image.imread(picture).shape[1] > 500
    assert sorted(tmp_path.iterdir()) == [picture, source]


WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from oocarrays.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""A fresh interpreter: in this one, modules of pictures have been imported."""


def test_without_matplotlib_one_line_says_what_to_install_before_any_work(source: Path, tmp_path: Path) -> None:
    typed = ["rechunk", source, tmp_path / "t.zarr", "--chunks=96,10", "--memory=64MiB", "--quiet", "--draw=a.png"]
    done = subprocess.run([sys.executable, "-c", WITHOUT, *map(str, typed)], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "oocarrays: drawing needs matplotlib: pip install 'oocarrays[plot]'\n"
    assert list(tmp_path.iterdir()) == [source]


def test_python_m_does_what_the_command_does(source: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "oocarrays", "info", source], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "96 × 80" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "oocarrays", "info", "nowhere"], capture_output=True, text=True)
    assert (wrong.returncode, wrong.stderr) == (2, f"oocarrays: no such store: {Path('nowhere').absolute()}\n")
