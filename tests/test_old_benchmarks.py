"""The scripts of benchmarks/old, tiny, until each is a case of the runner."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import benchmarked
from tests.dying import Server

pytestmark = pytest.mark.long


def test_the_benchmark_of_advised_pipelines_runs_and_answers_agree(runs: Server, tmp_path: Path) -> None:
    asked = ["maps", "columns", "--scale", "32"]
    (told,) = benchmarked.results(runs, tmp_path, "advice/pipelines.py", *asked)
    for pipeline in told["pipelines"]:
        assert not pipeline["kept"]
        assert pipeline["layouts"].keys() == pipeline["seconds"].keys()
        assert pipeline["predicted"]["advised"] < pipeline["predicted"]["today"]


def test_the_benchmark_of_selective_collective_reads_runs_and_answers_agree(runs: Server, tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    asked = ["--figures", "7", "--scale", "64", "--setups", "20", "--draw", picture]
    (told,) = benchmarked.results(runs, tmp_path, "advice/paper.py", *asked)
    assert all(seconds > 0 for seconds in told["seconds"]["7"].values())
    assert told["averages"].keys() == {"7"}
    assert picture.stat().st_size > 10_000
