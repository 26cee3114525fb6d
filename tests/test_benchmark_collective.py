"""The benchmark of collective reads, tiny: results are right, plans tell the truth, stored chunks are read once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "collective.py"


def results(tmp_path: Path, *arguments: str) -> list[dict]:
    """What the benchmark finds in one round."""
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), *arguments, "--rounds", "1", "--discard", "0", "--pause", "0"]
    command += ["--workdir", str(tmp_path / "work"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text())["results"]


def test_distributions_are_right_and_two_phase_reads_each_chunk_once(tmp_path: Path) -> None:
    asked = ["--scale", "64", "--files", "column", "--distributions", "row block;column cyclic"]
    asked += ["--ways", "two-phase,direct"]
    for found in results(tmp_path, "distributions", "--stores", "zstd", *asked):
        for name, (runs,) in found["rounds"].items():
            assert {way: run["verdict"] for way, run in runs.items()} == dict.fromkeys(runs, "ok"), name
            assert runs["two-phase"]["metered"]["read_requests"] == 64, "chunks of the file"
            assert runs["two-phase"]["metered"]["decoded_bytes"] == 256 * 256 * 4
            assert runs["direct"]["metered"]["read_requests"] == 4 * 64
            for run in (runs["two-phase"], runs["direct"], runs["conforming"]):
                assert run["predicted"]["read_requests"] == run["metered"]["read_requests"]
                assert run["predicted"]["decoded_bytes"] == run["metered"]["decoded_bytes"]


def test_sections_on_threads_are_right_and_read_once(tmp_path: Path) -> None:
    asked = ["--scale", "8", "--stores", "plain", "--on", "threads", "--tables", "6_1,6_5"]
    for found in results(tmp_path, "sections", *asked):
        (runs,) = found["rounds"]
        for way, run in runs.items():
            assert run["verdict"] == "ok", (found["case"], way)
            assert run["predicted"] == run["metered"], (found["case"], way)
        assert runs["dynamic"]["metered"]["read_bytes"] <= runs["static"]["metered"]["read_bytes"]


def test_counts_draw_the_figures(tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    found = results(tmp_path, "counts", "--tables", "6_2", "--draw", str(picture))
    assert [each["dynamic"]["most_requests"] <= each["static"]["most_requests"] for each in found] == [True] * 8
    assert picture.stat().st_size > 10_000
