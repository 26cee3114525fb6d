"""The benchmark of passes over slabs, tiny: results are right, plans keep their word, stored bytes are read once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests import benchmarked
from tests.dying import Server

pytestmark = pytest.mark.long


def results(runs: Server, folder: Path, question: str, *arguments: str) -> list[dict]:
    """What the benchmark finds in one round of small arrays."""
    return benchmarked.results(runs, folder, "slabs.py", question, *arguments, "--cache", "warm")


def test_overlap_is_drawn_from_spans_of_which_every_slab_has_three(runs: Server, tmp_path: Path) -> None:
    picture = tmp_path / "figure58.png"
    (found,) = results(runs, tmp_path, "overlap", "--scale", "16", "--picture", str(picture))
    for run in found["best"]:
        done = {(phase, args[0]) for phase, args, _, _ in run["spans"]}
        assert done == {(phase, slab) for phase in ("read", "compute", "write") for slab in range(128)}
    without = sorted(found["best"][0]["spans"], key=lambda span: span[2])
    assert all(a[3] <= b[2] + 1e-3 for a, b in pairwise(without)), "nothing at the same time"
    assert picture.stat().st_size > 10_000


def test_medians_are_those_of_both_tables_and_each_byte_is_read_once(runs: Server, tmp_path: Path) -> None:
    (table,) = results(runs, tmp_path, "median", "--scale", "8", "--stores", "slow", "--latency", "0", "--windows", "5")
    assert len(table["runs"]) == 18
    for each in table["runs"]:
        assert each["run"]["moved"] == [256 * 256 * 4] * 2


def test_reuse_reads_what_is_stored_and_without_it_neighbours_again(runs: Server, tmp_path: Path) -> None:
    for found in results(runs, tmp_path, "reuse", "--scale", "16", "--codec", "none,zstd"):
        assert found["with"]["moved"][0] == found["stored"] < found["without"]["moved"][0]


@pytest.mark.parametrize(
    ("question", "arguments", "ways"),
    [
        ("filter", ("--windows", "3", "--dtypes", "u1", "--kinds", "noisy"), "ours;in-core scipy"),
        ("jacobi", ("--sweeps", "5"), "ours;dask fused by hand;in-core numpy"),
    ],
)
def test_all_ways_of_a_race_agree(
    runs: Server, tmp_path: Path, question: str, arguments: tuple[str, ...], ways: str
) -> None:
    (found,) = results(runs, tmp_path, question, *arguments, "--ways", ways, "--scale", "32")
    ran = found["rounds"][0]
    assert {way: run["verdict"] for way, run in ran.items()} == dict.fromkeys(ways.split(";"), "ok")
    ours = ran["ours"]
    assert ours["peak"] <= ours["budget"]
    assert ours["told"]["meter"]["read_bytes"] == ours["told"]["plan"]["read_bytes"]
