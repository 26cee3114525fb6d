"""``oocarrays requests``: Table 1 of the 1993 paper on the terminal."""

from __future__ import annotations

import json

import pytest

from oocarrays.cli.main import main


def shown(capsys: pytest.CaptureFixture[str], line: str) -> str:
    assert main(line.split()) == 0
    return capsys.readouterr().out


def test_the_eight_distributions_stand_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = shown(capsys, "requests --shape 4096,4096 --ranks 16 --orientation column").splitlines()
    assert head.split() == ["layout", "R_dist", "S_dist", "R_trans", "of", "a", "rank,", "at", "most"]
    counts = {row.split(" on ")[0]: tuple(map(int, row.split()[-4:-1])) for row in rows}
    assert len(counts) == 8
    assert counts["(block, *)"] == (4096 * 16, 256, 4096 * 16)
    assert counts["(*, block)"] == (16, 2**20, 16)


def test_one_layout_cut_in_stripes_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    line = "requests --shape 64x64 --ranks 4 --layout block,* --orientation 1,0 --chunk 64B --json"
    (found,) = json.loads(shown(capsys, line))["layouts"]
    assert (found["distribution_requests"], found["distribution_elements"]) == (256, 16)
    assert (found["transaction_requests"], found["rank_requests"]) == (256, [64] * 4)


def test_wrong_input_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["requests", "--shape", "8,8", "--ranks", "4", "--chunk", "0"]) != 0
    assert capsys.readouterr().err.count("\n") == 1
