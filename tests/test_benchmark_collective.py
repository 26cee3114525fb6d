"""The benchmark of collective reads, tiny: results are right, plans tell the truth, stored chunks are read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarked import results
from tests.dying import Server

pytestmark = pytest.mark.long

SCRIPT = "collective.py"


def test_distributions_are_right_and_two_phase_reads_each_chunk_once(runs: Server, tmp_path: Path) -> None:
    asked = ["--scale", "64", "--files", "column", "--distributions", "row block;column cyclic"]
    asked += ["--ways", "two-phase,direct"]
    for found in results(runs, tmp_path, SCRIPT, "distributions", "--stores", "zstd", *asked):
        for name, (ran,) in found["rounds"].items():
            assert {way: run["verdict"] for way, run in ran.items()} == dict.fromkeys(ran, "ok"), name
            assert ran["two-phase"]["metered"]["read_requests"] == 64, "chunks of the file"
            assert ran["two-phase"]["metered"]["decoded_bytes"] == 256 * 256 * 4
            assert ran["direct"]["metered"]["read_requests"] == 4 * 64
            for run in (ran["two-phase"], ran["direct"], ran["conforming"]):
                assert run["predicted"]["read_requests"] == run["metered"]["read_requests"]
                assert run["predicted"]["decoded_bytes"] == run["metered"]["decoded_bytes"]


def test_sections_on_threads_are_right_and_read_once(runs: Server, tmp_path: Path) -> None:
    asked = ["--scale", "8", "--stores", "plain", "--on", "threads", "--tables", "6_1,6_5"]
    for found in results(runs, tmp_path, SCRIPT, "sections", *asked):
        (ran,) = found["rounds"]
        for way, run in ran.items():
            assert run["verdict"] == "ok", (found["case"], way)
            assert run["predicted"] == run["metered"], (found["case"], way)
        assert ran["dynamic"]["metered"]["read_bytes"] <= ran["static"]["metered"]["read_bytes"]


def test_counts_draw_the_figures(runs: Server, tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    found = results(runs, tmp_path, SCRIPT, "counts", "--tables", "6_2", "--draw", str(picture))
    assert [each["dynamic"]["most_requests"] <= each["static"]["most_requests"] for each in found] == [True] * 8
    assert picture.stat().st_size > 10_000
