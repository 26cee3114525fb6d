"""The benchmark itself, tiny: it runs, checks its outputs, and our plan's promises hold in what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


def results(tmp_path: Path, script: str, *arguments: str) -> dict:
    """What one table of `script` says, tiny, in one round."""
    out = tmp_path / "out.json"
    command = [sys.executable, str(FOLDER / script), *arguments, "--scale", "16", "--rounds", "1", "--discard", "0"]
    command += ["--pause", "0", "--cache", "warm", "--workdir", str(tmp_path / "work"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(out.read_text())["results"]
    return result["rounds"][0]


@pytest.mark.parametrize("case", ["1g-zstd", "3d"])
def test_the_benchmark_runs_and_our_numbers_hold(tmp_path: Path, case: str) -> None:
    ours = results(tmp_path, "rechunk.py", case, "--peers", "oocarrays,limit")["oocarrays"]
    assert ours["verdict"] == "ok"
    plan, meter = ours["told"]["plan"], ours["told"]["meter"]
    assert ours["peak"] <= plan["peak_bytes"] <= ours["budget"]
    if case != "1g-zstd":
        assert meter["read_bytes"] == plan["read_bytes"]
        assert meter["written_bytes"] == plan["written_bytes"]


def test_the_benchmark_of_shards_runs(tmp_path: Path) -> None:
    runs = results(tmp_path, "shards.py", "--codec", "zstd")
    assert {name: run["verdict"] for name, run in runs.items()} == dict.fromkeys(
        ["plain", "source in shards", "target in shards", "both in shards"], "ok"
    )
    assert all(run["peak"] <= run["told"]["plan"]["peak_bytes"] for run in runs.values())


def test_the_benchmark_on_s3_runs(tmp_path: Path) -> None:
    runs = results(tmp_path, "s3.py", "small", "--peers", "oocarrays,dask", "--latency", "0.002")
    assert {name: run["verdict"] for name, run in runs.items()} == {"oocarrays": "ok", "dask": "ok"}
    assert runs["oocarrays"]["peak"] <= runs["oocarrays"]["told"]["plan"]["peak_bytes"]


def test_the_cluster_benchmark_runs_and_watches_every_worker(tmp_path: Path) -> None:
    runs = results(tmp_path, "cluster.py", "two", "--peers", "oocarrays,p2p")
    assert {name: run["verdict"] for name, run in runs.items()} == {"oocarrays": "ok", "p2p": "ok"}
    assert runs["oocarrays"]["told"]["tasks"] > 0
    for run in runs.values():
        assert len(run["workers"]) == 2
        assert run["spilled"] == 0
        for worker in run["workers"]:
            assert 0 < worker["rss"] < worker["limit"] == 2**30
            assert worker["paused"] == worker["lost"] == worker["over_limit"] == 0


def test_the_benchmark_of_groups_runs_and_memory_is_that_of_one_array(tmp_path: Path) -> None:
    runs = results(tmp_path, "groups.py", "--arrays", "3")
    assert {name: run["verdict"] for name, run in runs.items()} == {"group": "ok", "singles": "ok"}
    group, singles = runs["group"], runs["singles"]
    assert group["peak"] <= group["predicted_peak"] == singles["predicted_peak"] <= group["budget"]


def test_the_benchmark_of_redistribution_runs_and_all_ways_agree(tmp_path: Path) -> None:
    out, picture = tmp_path / "out.json", tmp_path / "figures.png"
    command = [sys.executable, str(FOLDER / "redistribution.py"), "all", "--rounds", "1", "--scale", "256"]
    command += ["--json", str(out), "--draw", str(picture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [len(found[name]) for name in ("sets", "copies", "figures")] == [3, 8, 11]
    assert all(case["seconds"] < 0.05 for case in found["sets"])
    assert picture.stat().st_size > 10_000


def test_the_benchmark_of_lazy_arrays_runs_and_stored_bytes_are_read_once(tmp_path: Path) -> None:
    runs = results(tmp_path, "lazy.py", "--codec", "zstd", "--memory", "64MiB")
    assert {name: run["verdict"] for name, run in runs.items()} == {"oocarrays": "ok", "dask": "ok"}
    ours = runs["oocarrays"]
    assert ours["requests"][0] == ours["requests"][1]
    assert ours["read"] <= ours["stored"]


def test_the_benchmark_of_section_writes_runs_and_asks_what_the_thesis_counts(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(FOLDER / "section_writes.py"), "--rounds", "1", "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert [ways["direct"]["requests"] for ways in found.values()] == [16384, 4096, 2373, 2275, 5643]
    assert [ways["sieve"]["requests"] for ways in found.values()] == [4] * 5


@pytest.mark.parametrize(("what", "tables"), [("sparse", 6), ("table52", 5)])
def test_the_benchmark_of_sections_runs_and_all_ways_agree(tmp_path: Path, what: str, tables: int) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(FOLDER / "sections.py"), what, "--scale", "64", "--rounds", "1", "--discard", "0"]
    command += ["--cache", "warm", "--workdir", str(tmp_path / "work"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(out.read_text())["results"]) == tables


def test_plans_of_huge_arrays_are_made_before_the_system_stops_them(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(FOLDER / "planning.py"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["results"]
    assert [case for case in found if "failed" in case or case["mib"] > 50] == []
