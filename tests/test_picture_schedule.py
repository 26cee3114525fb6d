"""Pictures of schedules: an arrow for each message of each step, an animation that ends with all that arrived."""

from __future__ import annotations

from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch
from PIL import Image

from oocarrays.cli.main import main
from oocarrays.ranks import Schedule
from tests.seams import SCHEDULES, arrivals, step

pytestmark = pytest.mark.long


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SCHEDULES)
def test_each_step_has_an_arrow_for_each_message(name: str) -> None:
    schedule = Schedule.of(name, 8)
    figure = step("draw schedule")(schedule)
    figure.canvas.draw()
    *steps, arrived = [axes for axes in figure.axes if axes.get_visible()]
    assert [sum(isinstance(each, FancyArrowPatch) for each in axes.patches) for axes in steps] == [
        len(step.pairs) for step in schedule
    ]
    shown = arrived.images[1].get_array()
    assert np.array_equal(np.ma.filled(shown, -1), arrivals(schedule).steps)
    assert arrived.get_title() == "56 of 56 parts have arrived"


def test_an_animation_shows_each_step_and_stays_with_the_last(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "bex.gif"
    assert main(["schedule", "bex", "--ranks", "4", "--draw", str(file)]) == 0
    assert capsys.readouterr().out.endswith(f"BEX: 4 ranks, 3 steps, 12 messages\ndrew {file}\n")
    with Image.open(file) as picture:
        shown = [(picture.seek(n), np.asarray(picture.convert("RGB")), picture.info["duration"])[1:] for n in range(4)]
        assert picture.n_frames == 4  # before the first, and after each
    images, lengths = zip(*shown, strict=True)
    coloured = [int((np.ptp(image, axis=2) > 30).sum()) for image in images]
    assert coloured[0] == 0
    assert coloured == sorted(coloured)
    assert lengths[-1] == 3 * lengths[0]


@pytest.mark.parametrize(
    ("name", "ranks", "file", "says"),
    [
        ("pex", "128", "a.gif", "PEX on 128 ranks in 127 steps cannot be drawn: at most 64 ranks"),
        ("pex", "8", "a.wrong", "its name must end in one of"),
        ("pex", "8", "nowhere/a.gif", "no such folder"),
    ],
)
def test_what_cannot_be_drawn_is_said_before_anything_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, name, ranks, file, says
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["schedule", name, "--ranks", ranks, "--draw", file]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert says in printed.err
    assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ranks", [1, 2, 12])
def test_few_and_many_ranks_are_drawn(tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "lone.png"
    assert main(["schedule", "gen", "--ranks", str(ranks), "--draw", str(file), "--json"]) == 0
    assert "drew" not in capsys.readouterr().out
    assert matplotlib.image.imread(file).shape[1] > 100
