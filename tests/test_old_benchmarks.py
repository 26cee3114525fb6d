"""The scripts of benchmarks/old, tiny, until each is a case of the runner."""

from __future__ import annotations

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


def test_the_benchmark_of_striped_files_runs(runs: Server, tmp_path: Path) -> None:
    told = found(runs, tmp_path, "striped.py", "--scale", "64", "--rounds", "1")
    assert {name: len(rows) for name, rows in told.items()} == {
        "cells": 18, "figures": 24, "paper": 2, "real": 5, "devices": 2, "rechunk": 2, "arrays": 4
    }  # fmt: skip
    assert all(row["speed-up"] > 0 for row in told["cells"])


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


def test_pyramids_beside_peers(runs: Server, tmp_path: Path) -> None:
    told = results(runs, tmp_path, "pyramid.py", "--codecs", "zstd", "--ways", "ours,dask", "--memory", "64MiB")
    assert {way: each["verdict"] for way, each in told.items()} == {"ours": "ok", "dask": "ok"}
    assert told["ours"]["peak"] <= 2**26
