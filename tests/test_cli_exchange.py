"""``oocarrays schedule``: the thesis's tables on the terminal, and one clear line for what cannot be shown."""

from __future__ import annotations

import json
import re

import pytest

from oocarrays.cli.main import main
from tests import printed


def shown(capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    """What a command prints, line by line."""
    assert main(line.split()) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(("name", "number"), [("pex", "4_1"), ("rex", "4_2"), ("bex", "4_3")])
def test_a_schedule_is_shown_as_the_thesis_prints_it(
    capsys: pytest.CaptureFixture[str], name: str, number: str
) -> None:
    head, *rows = shown(capsys, f"schedule {name} --ranks 8")[:5]
    steps = printed.steps(number)
    assert re.split(r"  +", head) == [f"Step {step}" for step in range(1, len(steps) + 1)]
    columns = zip(*(re.split(r"  +", row) for row in rows), strict=True)
    assert [{frozenset(map(int, cell.split(" ↔ "))) for cell in column} for column in columns] == steps


def test_what_goes_one_way_has_one_arrow(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "schedule gen --ranks 4")
    assert re.split("  +", lines[1]) == ["0 → 1", "0 ↔ 2", "0 → 3"]
    assert lines[-1] == "GEN: 4 ranks, 3 steps, 12 messages"


def test_json_lists_steps_of_source_and_destination(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = shown(capsys, "schedule gen --ranks 3 --json")
    assert json.loads(line)["steps"] == [[[0, 1], [1, 2], [2, 0]], [[0, 2], [1, 0], [2, 1]]]


def test_many_steps_stand_one_below_the_other_in_lines_that_a_terminal_takes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = shown(capsys, "schedule ipex --ranks 64 --network mesh:8x8 --bytes 1KiB")
    assert lines[0] == "Step  busiest link  predicted"
    assert [int(line.split()[0]) for line in lines[1:64]] == list(range(1, 64))
    assert all(len(line) <= 100 for line in lines)
    assert [float(line.split()[1]) for line in lines[1:10]] == [1, 1, 2, 2, 4, 4, 4, 4, 2]
    shown_pairs, more = lines[1].count("↔"), int(lines[1].split(" … ")[1].split()[0])
    assert shown_pairs + more == 32


def test_the_network_says_columns_busiest_links_and_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(capsys, "schedule rex --ranks 8 --network mesh:2x4 --bytes 16KiB")
    cells = {line[:12].strip(): line[12:].split() for line in lines}
    assert cells["busiest link"] == ["2", "1", "1"]
    assert lines[1].split("  ")[-1].strip() == "0 ↔ 4", "rows of 4 are halved before columns"
    assert "a rank holds 64.00 kiB more, of what it sends on" in lines
    assert lines[-1].endswith("on the Touchstone Delta")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "pex --ranks 6",
            "pex needs a power of two of ranks, not 6; for any number use lex, pex-gen, pex-gen-shift, gen",
        ),
        ("ring --ranks 8", "schedule='ring' is unknown; pass one of lex, pex, rex"),
        ("gen --ranks 0", "ranks=0: an exchange has at least 1"),
        ("ipex --ranks 8 --columns 3", "ipex needs a mesh of powers of two, not 8 ranks in 3 columns"),
        ("ipex --ranks 8 --columns 0", "not 8 ranks in 0 columns"),
        ("pex --ranks 8 --network ring", "network='ring' is unknown; choose from mesh:4x8, torus:4x8"),
        ("pex --ranks 8 --network mesh", "network='mesh' is unknown"),
        ("pex --ranks 8 --network mesh:3x3", "network='mesh:3x3' has 9 places, not one for each of 8 ranks"),
        ("pex --ranks 8 --bytes 1KiB", "--bytes 1KiB needs --network to predict seconds"),
        ("pex --ranks 8 --network flat --bytes much", "bytes='much' is not a size"),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line(capsys: pytest.CaptureFixture[str], line: str, says: str) -> None:
    assert main(["schedule", *line.split()]) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert says in error


def test_ranks_on_one_host_share_what_one_rank_has_alone(capsys: pytest.CaptureFixture[str]) -> None:
    shared = {
        network: shown(capsys, f"schedule pex --ranks 8 --network {network}")[6] for network in ("flat", "flat:2x4")
    }
    assert shared["flat"].split()[2:] == ["1"] * 7
    assert shared["flat:2x4"].split()[2:] == ["4"] * 7


@pytest.mark.parametrize("network", ["fat-tree", "flat", "flat:2x4", "mesh:1x8"])
@pytest.mark.parametrize("name", ["lex", "pex", "gen", "ipex"])
def test_every_network_says_a_busiest_link(capsys: pytest.CaptureFixture[str], network: str, name: str) -> None:
    lines = shown(capsys, f"schedule {name} --ranks 8 --network {network} --bytes 1MiB")
    assert any(line.startswith("busiest link") for line in lines)
    assert any(line.startswith("predicted ") for line in lines)
