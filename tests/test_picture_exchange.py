"""Pictures of redistributions: what is drawn is what is sent, and one line says why where nothing can be drawn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import ScheduleError
from tests.seams import seconds_text
from tests.test_picture import WITHOUT

pytestmark = pytest.mark.long


def transpose(ranks: int) -> ooc.ranks.Redistribution:
    """Every rank has as much for every rank."""
    shape = (ranks * 2, ranks * 2)
    layouts = (ooc.Layout.of(shape, text, ranks=ranks) for text in ("(block, *)", "(*, block)"))
    return ooc.ranks.plan_redistribution(*layouts, "f4")


def row(figure: Figure, number: int = 0) -> list[Axes]:
    """The axes of a transfer: messages, links, and by step the busiest link and the seconds."""
    figure.canvas.draw()
    return list(figure.subfigs[number].axes)


def cells(axes: Axes) -> np.ma.MaskedArray:
    """What is in the communication matrix, by source and target."""
    return np.ma.asarray(axes.images[0].get_array())


def texts(figure: Figure) -> str:
    """All that is said above axes, and above all of them."""
    inside = [axes.get_title() for part in figure.subfigs for axes in part.axes]
    return "\n".join([figure.get_suptitle(), *inside])


def test_messages_have_the_colour_of_their_step() -> None:
    messages, *_ = row(transpose(8).draw(schedule="pex"))
    source, target = np.indices((8, 8))
    assert np.array_equal(cells(messages).filled(-1), (source ^ target) - 1)
    assert {text.get_text() for text in messages.texts} == {"1", "2", "3", "4", "5", "6", "7"}
    assert not any(isinstance(each, PathCollection) and len(each.get_offsets()) for each in messages.collections)


def test_nothing_is_drawn_where_nothing_goes_and_empty_steps_have_no_number() -> None:
    plan = ooc.ranks.plan_redistribution(*(ooc.Layout.of(960, text, ranks=8) for text in ("cyclic(15)", "cyclic(10)")))
    messages, *_, seconds = row(plan.draw("mesh:2x4", "gen"))
    element = np.arange(960)
    sizes = np.zeros((8, 8), int)
    np.add.at(sizes, (element // 15 % 8, element // 10 % 8), 1)
    np.fill_diagonal(sizes, 0)
    assert np.array_equal(np.ma.getmaskarray(cells(messages)), sizes == 0)
    turns = sorted({(target - source) % 8 for source, target in zip(*np.nonzero(sizes), strict=True)})
    assert len(seconds.patches) == len(turns)
    expected = [turns.index((target - source) % 8) for source, target in zip(*np.nonzero(sizes), strict=True)]
    assert cells(messages)[np.nonzero(sizes)].tolist() == expected


def test_what_rides_through_others_has_a_dot() -> None:
    messages, *_ = row(transpose(8).draw(schedule="rex"))
    (dots,) = (each for each in messages.collections if isinstance(each, PathCollection))
    found = {(int(source), int(target)) for target, source in dots.get_offsets()}
    assert found == {(s, t) for s in range(8) for t in range(8) if (s ^ t).bit_count() > 1}
    assert "rides through other ranks" in [text.get_text() for text in messages.get_legend().get_texts()]


def test_the_links_of_a_mesh_carry_every_message_all_its_way() -> None:
    _, links, shared, seconds = row(transpose(8).draw("mesh:2x4", "pex"))
    (lines,) = (each for each in links.collections if isinstance(each, LineCollection))
    assert len(lines.get_segments()) == 2 * (2 * 3 + 4)
    ranks = [divmod(rank, 4) for rank in range(8)]
    hops = sum(abs(y - to_y) + abs(x - to_x) for y, x in ranks for to_y, to_x in ranks)
    assert np.asarray(lines.get_array()).sum() == hops * 2 * 2 * 4
    loads = dict(zip(map(tuple, np.rint(lines.get_segments()).reshape(-1, 4).tolist()), lines.get_array(), strict=True))
    ends = [(1, row, 2, row) for row in (0, 1)]
    assert [loads[each] for each in ends] == [(2 * 4) * 2 * 2 * 4] * 2, (
        "of two sources left of it, for four right of it"
    )
    assert [patch.get_height() > 0 for patch in seconds.patches] == [True] * 7
    assert shared.get_ylim()[1] >= 2


def test_what_all_send_to_rank_0_goes_left_and_up() -> None:
    plan = ooc.ranks.plan_redistribution(ooc.Layout.of(80, "block", ranks=8), ooc.Layout.of(80, "*", ranks=1), "u1")
    _, links, *_ = row(plan.draw("mesh:2x4"))
    (lines,) = (each for each in links.collections if isinstance(each, LineCollection))
    ways = np.diff(np.rint(lines.get_segments()), axis=1).sum(axis=(1, 2))
    loads = np.asarray(lines.get_array())
    assert not loads[ways > 0].any()
    assert sorted(loads[(ways < 0) & (loads > 0)].tolist()) == [10, 10, 20, 20, 30, 30, 40]


def test_the_seconds_of_all_steps_are_those_of_the_title() -> None:
    figure = transpose(8).draw("mesh:2x4", "pex")
    *_, seconds = row(figure)
    total = sum(patch.get_height() for patch in seconds.patches)
    assert f"direct by PEX on a mesh of 2 × 4 · 56 messages in 7 steps · {seconds_text(total)} predicted" in texts(
        figure
    )


@pytest.mark.sampled
@pytest.mark.parametrize("network", ["flat", "flat:2x8", "fat-tree", "mesh:4x4", "mesh:1x16", None])
@pytest.mark.parametrize("schedule", ["lex", "ipex", None])
def test_every_network_can_be_drawn(network: str | None, schedule: str | None) -> None:
    figure = transpose(16).draw(network, schedule)
    assert len(row(figure)) >= 4
    assert "bytes on each link, all steps together" in texts(figure)


def test_of_a_flat_cluster_bars_are_what_leaves_and_what_comes() -> None:
    _, links, *_ = row(transpose(4).draw("flat", "gen"))
    assert [bar.get_height() for bar in links.patches] == [3 * 2 * 2 * 4] * 8


def test_each_transfer_has_a_row() -> None:
    layouts = (ooc.Layout.of(960, text, ranks=4) for text in ("cyclic(15)", "cyclic(10)"))
    figure = ooc.ranks.plan_redistribution(*layouts, method="lcm").draw()
    assert len(figure.subfigs) == 2
    assert [row(figure, number)[0].get_ylabel() for number in (0, 1)] == [
        "from rank, (cyclic(15)) on 4",
        "from rank, (cyclic(30)) on 4",
    ]


def test_more_ranks_afterwards_are_more_columns() -> None:
    plan = ooc.ranks.plan_redistribution(
        ooc.Layout.of(960, "block", ranks=4), ooc.Layout.of(960, "cyclic(7)", ranks=6), "f8", method="general"
    )
    assert cells(row(plan.draw())[0]).shape == (4, 6)
    assert cells(row(plan.reversed().draw())[0]).shape == (6, 4)


def test_many_ranks_are_an_image_without_numbers() -> None:
    messages, *_ = row(transpose(128).draw("mesh:8x16", "rex"))
    assert (cells(messages).shape, len(messages.texts)) == ((128, 128), 0)
    words = [text.get_text() for text in messages.get_legend().get_texts()]
    assert f"{128 * (128 - 8)} pairs' data rides through other ranks" in words


def test_of_more_ranks_no_message_is_lost_between_points() -> None:
    layouts = (ooc.Layout.of(10**6, text, ranks=600) for text in ("cyclic(11)", "cyclic(3)"))
    plan = ooc.ranks.plan_redistribution(*layouts, method="general")
    figure = plan.draw(schedule="gen")
    element = np.arange(600 * 33)
    points = {(s // 2, t // 2) for s, t in zip(element // 11 % 600, element // 3 % 600, strict=True) if s != t}
    shown = cells(row(figure)[0])
    assert shown.shape == (300, 300)
    assert {tuple(map(int, each)) for each in np.argwhere(~np.ma.getmaskarray(shown))} == points
    assert "a point is 2 × 2 ranks" in texts(figure)


def test_one_rank_has_nothing_to_draw() -> None:
    figure = transpose(1).draw()
    figure.canvas.draw()
    assert figure.get_suptitle().endswith("nothing has to move from rank to rank")


def test_what_a_distributed_array_came_by_can_be_drawn() -> None:
    rows = ooc.ranks.distribute(np.arange(24).reshape(4, 6), "(block, *)", ranks=2, scheduler="threads")
    plan = ooc.ranks.redistribute(rows, "(*, block)").plan
    assert plan is not None
    assert cells(row(plan.draw())[0]).filled(-1).tolist() == [[-1, 0], [0, -1]]


class Ring:
    """A network of the caller's own: messages go around in one direction."""

    ranks = 4

    def loads(self, sources: np.ndarray, destinations: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
        links = np.zeros(4)
        for source, target, load in zip(sources, destinations, np.ones(4) if sizes is None else sizes, strict=False):
            links[(source + np.arange((target - source) % 4)) % 4] += load
        return links


def test_a_network_of_the_callers_own_is_drawn_as_bars() -> None:
    figure = transpose(4).draw(Ring(), "gen")
    _, links, shared, _ = row(figure)
    assert [bar.get_height() for bar in links.patches] == [(1 + 2 + 3) * 2 * 2 * 4] * 4
    assert "on a network of 4 ranks" in figure.get_suptitle()
    assert shared.patches[0].get_data().values.tolist() == [1, 2, 3]


def test_a_wrong_network_is_refused() -> None:
    with pytest.raises(ScheduleError, match="network='ring' is unknown"):
        transpose(4).draw("ring")


TYPED = ["redistribute", "--from=cyclic(11)", "--to=cyclic(3)", "--extent=1M", "--ranks=64", "--network=mesh:8x8"]


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "exchange.png"
    assert main([*TYPED, "--draw", str(picture)]) == 0
    assert capsys.readouterr().out.endswith(f"drew {picture}\n")
    assert matplotlib.image.imread(picture).shape[1] > 1000
    assert os.listdir(tmp_path) == [picture.name]


def test_without_matplotlib_one_line_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, *TYPED, "--draw=a.png"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "oocarrays: drawing needs matplotlib: pip install 'oocarrays[plot]'\n"
