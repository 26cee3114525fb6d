"""The benchmark itself, tiny: it runs, checks its outputs, and our plan's promises hold in what it measures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests import benchmarked
from tests.benchmarked import found
from tests.dying import Server

pytestmark = pytest.mark.long


def results(runs: Server, folder: Path, script: str, *arguments: str) -> dict:
    """What one table of `script` says, tiny, in one round."""
    (result,) = benchmarked.results(runs, folder, script, *arguments, "--scale", "16", "--cache", "warm")
    first: dict = result["rounds"][0]
    return first


@pytest.mark.parametrize("case", ["1g-zstd", "3d"])
def test_the_benchmark_runs_and_our_numbers_hold(runs: Server, tmp_path: Path, case: str) -> None:
    ours = results(runs, tmp_path, "rechunk.py", case, "--peers", "oocarrays,limit")["oocarrays"]
    assert ours["verdict"] == "ok"
    plan, meter = ours["told"]["plan"], ours["told"]["meter"]
    assert ours["peak"] <= plan["peak_bytes"] <= ours["budget"]
    if case != "1g-zstd":
        assert meter["read_bytes"] == plan["read_bytes"]
        assert meter["written_bytes"] == plan["written_bytes"]


def test_the_benchmark_of_formats_runs(runs: Server, tmp_path: Path) -> None:
    asked = ("--jobs", "netcdf,tiff,open", "--ways", "ours,ours-zarr", "--files", "20", "--scale", "16")
    ran = benchmarked.results(runs, tmp_path, "formats.py", *asked)
    assert {result["job"]: set(result["rounds"][0]) for result in ran} == {
        "netcdf": {"ours", "ours-zarr"},
        "tiff": {"ours"},
        "open": {"ours"},
    }
    for result in ran:
        for way, run in result["rounds"][0].items():
            assert run["verdict"] == "ok", (result["job"], way)
            assert run["peak"] <= run.get("planned", run["peak"])


def test_the_matrix_runs_and_says_how_near_predictions_are(runs: Server, tmp_path: Path) -> None:
    asked = ("rows", "jacobi", "--codec", "none,zstd", "--budgets", "64", "--scale", "16", "--cache", "warm")
    cells = benchmarked.results(runs, tmp_path, "matrix.py", *asked)
    assert [set(cell["rounds"][0]) for cell in cells] == [
        {"oocarrays", "limit-inplace", "limit-append", "bytes"},
        {"oocarrays", "codecs", "bytes"},
        *[{"oocarrays", "oocarrays, compiled kernel", "numba"}] * 2,
    ]
    for cell in cells:
        ours = cell["rounds"][0]["oocarrays"]
        assert ours["verdict"] == "ok"
        assert ours["peak"] <= ours["told"]["plan"]["peak_bytes"] <= cell["budget"] == 64 * 2**20
        assert ours["told"]["plan"]["seconds"] > 0


def test_the_benchmark_of_shards_runs(runs: Server, tmp_path: Path) -> None:
    ran = results(runs, tmp_path, "shards.py", "--codec", "zstd")
    assert {name: run["verdict"] for name, run in ran.items()} == dict.fromkeys(
        ["plain", "source in shards", "target in shards", "both in shards"], "ok"
    )
    assert all(run["peak"] <= run["told"]["plan"]["peak_bytes"] for run in ran.values())


def test_the_benchmark_on_s3_runs(runs: Server, tmp_path: Path) -> None:
    ran = results(runs, tmp_path, "s3.py", "small", "--peers", "oocarrays,dask", "--latency", "0.002")
    assert {name: run["verdict"] for name, run in ran.items()} == {"oocarrays": "ok", "dask": "ok"}
    assert ran["oocarrays"]["peak"] <= ran["oocarrays"]["told"]["plan"]["peak_bytes"]


def test_the_cluster_benchmark_runs_and_watches_every_worker(runs: Server, tmp_path: Path) -> None:
    ran = results(runs, tmp_path, "cluster.py", "two", "--peers", "oocarrays,p2p")
    assert {name: run["verdict"] for name, run in ran.items()} == {"oocarrays": "ok", "p2p": "ok"}
    assert ran["oocarrays"]["told"]["tasks"] > 0
    for run in ran.values():
        assert len(run["workers"]) == 2
        assert run["spilled"] == 0
        for worker in run["workers"]:
            assert 0 < worker["rss"] < worker["limit"] == 2**30
            assert worker["paused"] == worker["lost"] == worker["over_limit"] == 0


def test_the_benchmark_of_groups_runs_and_memory_is_that_of_one_array(runs: Server, tmp_path: Path) -> None:
    ran = results(runs, tmp_path, "groups.py", "--arrays", "3")
    assert {name: run["verdict"] for name, run in ran.items()} == {"group": "ok", "singles": "ok"}
    group, singles = ran["group"], ran["singles"]
    assert group["peak"] <= group["predicted_peak"] == singles["predicted_peak"] <= group["budget"]


def test_the_benchmark_of_redistribution_runs_and_all_ways_agree(runs: Server, tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    asked = ["all", "--rounds", "1", "--scale", "256", "--draw", picture]
    told = found(runs, tmp_path, "redistribution.py", *asked)
    assert [len(told[name]) for name in ("sets", "copies", "figures")] == [3, 8, 11]
    assert all(case["seconds"] < 0.05 for case in told["sets"])
    assert picture.stat().st_size > 10_000


def test_the_benchmark_of_lazy_arrays_runs_and_stored_bytes_are_read_once(runs: Server, tmp_path: Path) -> None:
    ran = results(runs, tmp_path, "lazy.py", "--codec", "zstd", "--memory", "64MiB")
    assert {name: run["verdict"] for name, run in ran.items()} == {"oocarrays": "ok", "dask": "ok"}
    ours = ran["oocarrays"]
    assert ours["requests"][0] == ours["requests"][1]
    assert ours["read"] <= ours["stored"]


def test_the_benchmark_of_section_writes_runs_and_asks_what_the_thesis_counts(
    runs: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = found(runs, tmp_path, "section_writes.py", "--rounds", "1")
    assert [ways["direct"]["requests"] for ways in told.values()] == [16384, 4096, 2373, 2275, 5643]
    assert [ways["sieve"]["requests"] for ways in told.values()] == [4] * 5


@pytest.mark.parametrize(("what", "tables"), [("sparse", 6), ("table52", 5)])
def test_the_benchmark_of_sections_runs_and_all_ways_agree(
    runs: Server, tmp_path: Path, what: str, tables: int
) -> None:
    asked = ["--scale", "64", "--cache", "warm"]
    assert len(benchmarked.results(runs, tmp_path, "sections.py", what, *asked)) == tables


def test_the_benchmark_of_striped_files_runs(runs: Server, tmp_path: Path) -> None:
    told = found(runs, tmp_path, "striped.py", "--scale", "64", "--rounds", "1")
    assert {name: len(rows) for name, rows in told.items()} == {
        "cells": 18, "figures": 24, "paper": 2, "real": 5, "devices": 2, "rechunk": 2, "arrays": 4
    }  # fmt: skip
    assert all(row["speed-up"] > 0 for row in told["cells"])


def test_a_checkout_beside_another_runs_the_same_script_of_both(runs: Server, tmp_path: Path) -> None:
    root, out = Path(__file__).parents[1], tmp_path / "turns.json"
    script = ("rechunk.py", "1g", "--scale", "64", "--cache", "warm", "--peers", "oocarrays", *benchmarked.ONCE)
    other = ("--other", root, "--python", sys.executable, "--turns", "1", "--out", out)
    told = benchmarked.printed(runs, "beside.py", *other, *script)
    assert "| 1g, warm, none, oocarrays, seconds |" in told
    turns = json.loads(out.read_text())["turns"]
    assert [set(turn) for turn in turns] == [{"this", "other"}]
    assert all(set(turn["this"]) == set(turn["other"]) for turn in turns)


def test_plans_of_huge_arrays_are_made_before_the_system_stops_them(runs: Server, tmp_path: Path) -> None:
    told = found(runs, tmp_path, "planning.py")["results"]
    assert [case for case in told if "failed" in case or case["mib"] > 50] == []


def test_the_benchmark_of_advised_pipelines_runs_and_answers_agree(runs: Server, tmp_path: Path) -> None:
    asked = ["maps", "columns", "--scale", "32"]
    (told,) = benchmarked.results(runs, tmp_path, "advice/pipelines.py", *asked)
    for pipeline in told["pipelines"]:
        assert not pipeline["kept"]
        assert pipeline["layouts"].keys() == pipeline["seconds"].keys()
        assert pipeline["predicted"]["advised"] < pipeline["predicted"]["today"]


@pytest.mark.long
def test_the_benchmark_of_selective_collective_reads_runs_and_answers_agree(runs: Server, tmp_path: Path) -> None:
    picture = tmp_path / "figures.png"
    asked = ["--figures", "7", "--scale", "64", "--setups", "20", "--draw", picture]
    (told,) = benchmarked.results(runs, tmp_path, "advice/paper.py", *asked)
    assert all(seconds > 0 for seconds in told["seconds"]["7"].values())
    assert told["averages"].keys() == {"7"}
    assert picture.stat().st_size > 10_000


def test_the_benchmark_of_streams_runs(runs: Server, tmp_path: Path) -> None:
    asked = ("--scale", "0.002", "--rounds", "1", "--folder", tmp_path)
    told = benchmarked.printed(runs, "streams.py", *asked)
    assert "the paper, 1 to 4 I/O nodes" in told
    assert "as fast" in told


def test_pyramids_beside_peers(runs: Server, tmp_path: Path) -> None:
    told = results(runs, tmp_path, "pyramid.py", "--codecs", "zstd", "--ways", "ours,dask", "--memory", "64MiB")
    assert {way: each["verdict"] for way, each in told.items()} == {"ours": "ok", "dask": "ok"}
    assert told["ours"]["peak"] <= 2**26
