"""``oocarrays redistribute``: what it says is what owners of elements, listed one by one, come to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import ScheduleError
from tests.seams import SCHEDULES, Outlook

FROM_THE_ISSUE = "--from cyclic(11) --to cyclic(3) --extent 1M --ranks 64 --network mesh:8x8"


def shown(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """What the command prints."""
    assert main(["redistribute", *line.split()]) == 0
    return capsys.readouterr().out


def facts(capsys: pytest.CaptureFixture[str], line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, f"{line} --json"))
    return found


def test_a_transfer_is_what_the_elements_owners_say(capsys: pytest.CaptureFixture[str]) -> None:
    element = np.arange(10**6)
    sizes = np.zeros((64, 64), int)
    np.add.at(sizes, (element // 11 % 64, element // 3 % 64), 4)
    parts = sizes.sum(axis=0) + sizes.sum(axis=1)
    np.fill_diagonal(sizes, 0)
    found = facts(capsys, FROM_THE_ISSUE)
    (transfer,) = found["transfers"]
    assert transfer["messages"] == np.count_nonzero(sizes)
    assert transfer["moved_bytes"] == sizes.sum()
    assert (transfer["least_sent_bytes"], transfer["most_sent_bytes"]) == (sizes.sum(1).min(), sizes.sum(1).max())
    assert transfer["most_messages_received"] == np.count_nonzero(sizes, axis=0).max()
    pex = next(each for each in found["schedules"] if each["schedule"] == "PEX")
    partners = {int(source ^ target) for source, target in zip(*np.nonzero(sizes), strict=True)}
    assert (pex["steps"], pex["messages"]) == (len(partners), np.count_nonzero(sizes))
    under_way = sum(np.sort(sizes, axis=axis).take((-1, -2), axis=axis).sum(axis=axis) for axis in (0, 1))
    assert (pex["buffer_bytes"], pex["peak_bytes"]) == (0, (parts + under_way).max())
    assert pex["peak_bytes"] < found["peak_bytes"], (
        "of its messages a rank has two at one time, in the order of arrival"
    )


def test_every_schedule_is_priced_the_cheapest_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, FROM_THE_ISSUE)
    seconds = [each["seconds"] for each in found["schedules"]]
    assert {each["schedule"] for each in found["schedules"]} == {*SCHEDULES, "COLORING"}
    assert len(seconds) == 9
    assert seconds == sorted(seconds)
    rex = next(each for each in found["schedules"] if each["schedule"] == "REX")
    assert (rex["columns"], rex["steps"]) == (8, 6)
    pex = next(each for each in found["schedules"] if each["schedule"] == "PEX")
    assert pex["peak_bytes"] < rex["peak_bytes"] <= found["peak_bytes"] + rex["buffer_bytes"]
    six = facts(capsys, "--from cyclic --to block --extent 3600 --ranks 6")["schedules"]
    assert {each["schedule"] for each in six} == {"LEX", "PEX-GEN", "PEX-GEN-SHIFT", "GEN"}  # all have for all


def test_a_person_reads_methods_transfers_and_schedules(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, FROM_THE_ISSUE)
    lines = text.splitlines()
    assert lines[0] == "1000000 elements of 4 bytes: (cyclic(11)) on 64 → (cyclic(3)) on 64"
    assert [line.split()[0] for line in lines[3:6]] == ["general", "lcm", "gcd"]
    assert "serve for the way back" in text
    assert "on a mesh of 8 × 8" in lines
    (cheapest,) = (line for line in lines[6:] if "◄" in line)
    assert lines[lines.index(cheapest) - 1].startswith("schedule ")
    assert text.endswith("measured on the Touchstone Delta\n")
    assert max(map(len, lines)) <= 110


def test_one_schedule_and_one_method_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    found = facts(capsys, f"{FROM_THE_ISSUE} --schedule gen --method lcm --dtype f8")
    assert [each["schedule"] for each in found["schedules"]] == ["GEN"]
    assert [each["target"] for each in found["transfers"]] == ["(cyclic(33)) on 64", "(cyclic(3)) on 64"]
    assert (found["method"], found["itemsize"]) == ("lcm", 8)


@pytest.mark.parametrize(
    ("line", "source", "target", "network"),
    [
        ("(block,*) (*,block) --shape 64x1k --ranks 4", "(block, *) on 4 × 1", "(*, block) on 1 × 4", 4),
        ("(block,block) (block,*) --shape 64x64 --grid 2x4", "(block, block) on 2 × 4", "(block, *) on 8 × 1", 8),
        ("block cyclic --extent 64 --ranks 4 --to-ranks 6", "(block) on 4", "(cyclic) on 6", 6),
        ("(*,block) (block,block) --shape 8,9 --ranks 2 --to-grid 3x1", "(*, block) on 1 × 2", "on 3 × 1", 3),
        ("gen_block(3,4) cyclic --extent 7", "(gen_block(3,4)) on 2", "(cyclic) on 2", 2),
        ("cyclic gen_block(3,4) --extent 7 --ranks 5 --to-ranks 2", "(cyclic) on 5", "(gen_block(3,4)) on 2", 5),
    ],
)
def test_layouts_are_said_in_words(
    capsys: pytest.CaptureFixture[str], line: str, source: str, target: str, network: int
) -> None:
    before, after, *others = line.split()
    found = facts(capsys, f"--from {before} --to {after} {' '.join(others)}")
    assert found["source"] == source
    assert found["target"].endswith(target)
    assert found["network"] == f"a flat cluster of {network} ranks"


@pytest.mark.parametrize(
    "line", ["--from cyclic --to cyclic", "--from cyclic --to cyclic(2) --extent 0", "--from block --to *"]
)
def test_where_nothing_moves_that_is_said(capsys: pytest.CaptureFixture[str], line: str, tmp_path: Path) -> None:
    extent = "" if "--extent" in line else "--extent 10"
    ranks = 1 if "*" in line else 3
    picture = tmp_path / "nothing.svg"
    out = shown(capsys, f"{line} {extent} --ranks {ranks} --draw {picture}").splitlines()
    assert out[-2:] == ["nothing has to move from rank to rank", f"drew {picture}"]
    assert picture.exists()


def test_what_takes_long_to_price_is_named() -> None:
    plan = ooc.ranks.plan_redistribution(*(ooc.Layout.of(64, text, ranks=4) for text in ("block", "cyclic")))
    text = replace(Outlook.of(plan), left_out=["BEX", "LEX"]).text()
    assert "not priced, as that takes long for so many: bex, lex; --schedule prices one" in text


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--from block(2) --to cyclic --extent 100", "block(2) over 4 ranks holds 8 elements of 100"),
        ("--from cyclic(0) --to cyclic --extent 100", "cyclic(0): the length of a block must be"),
        ("--from cyclic --to ring --extent 100", "'ring' is not a distribution such as"),
        ("--from cyclic --to block --extent 100 --grid 3", "--grid=(3,) has 3 ranks, but --ranks=4"),
        ("--from cyclic --to block --extent 100 --to-ranks 0", "ranks=0 must be a whole number, at least 1"),
        ("--from cyclic --to block --shape 10x10", "(cyclic) has 1 axis; the array has 2"),
        ("--from cyclic --to block --extent ten", "'ten' is not a number of elements; write 960, 1M"),
        ("--from cyclic --to block --extent 1.5", "'1.5' is not a number of elements"),
        ("--from cyclic --to block --extent -1", "'-1' is not a number of elements"),
        ("--from cyclic --to block --extent 100 --schedule ring", "schedule='ring' is unknown; pass one of lex, pex"),
        ("--from cyclic --to block --extent 100 --to-ranks 6 --schedule pex", "for any number use lex, pex-gen"),
        ("--from cyclic --to block --extent 100 --network mesh:3x3", "has 9 places, not one for each of 4 ranks"),
        ("--from cyclic --to block --extent 100 --network ring", "network='ring' is unknown; choose from mesh:4x8"),
        ("--from cyclic --to block --extent 100 --method direct", "method='direct' does not apply to"),
        ("--from cyclic --to block --extent 100 --method best", "method='best' is unknown"),
        ("--from cyclic --to block --extent 100 --dtype float3", "dtype='float3' is no type of numpy's elements"),
        ("--from cyclic --to block --extent 100 --dtype object", "dtype='object' has elements of no fixed size"),
        ("--from cyclic --to block --extent 100 --draw a.ring", "its name must end in one of"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    words = line.replace("--extent -1", "--extent=-1").split()
    assert main(["redistribute", *words, "--ranks=4"]) == 2
    captured = capsys.readouterr()
    (error,) = captured.err.splitlines()
    assert says in error
    assert captured.out == ""


def test_a_network_of_other_ranks_is_refused() -> None:
    plan = ooc.ranks.plan_redistribution(*(ooc.Layout.of(64, text, ranks=4) for text in ("block", "cyclic")))
    with pytest.raises(ScheduleError, match="a mesh of 2 × 4 has 8 places, not one for each of 4 ranks"):
        Outlook.of(plan, ooc.networks.Mesh(rows=2, columns=4))
