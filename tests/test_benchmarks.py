"""The benchmarks, tiny: every case runs, every way answers rightly, and what is watched from outside keeps its word."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import benchmarked
from tests.dying import Server

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
RUN = ROOT / "benchmarks" / "run.py"
TINY = ("--scale", "64", "--rounds", "1")
SECONDS = 240

with benchmarked.beside(ROOT / "benchmarks"):
    import cases
CASES = cases.every()


def asked() -> dict[str, list[str]]:
    """Of each case the first way, and those that no case before it has."""
    seen: set[tuple[str, str]] = set()
    found = {}
    for name, case in CASES.items():
        ways = {each.label: (each.run, repr(sorted(each.params))) for each in case.ways}
        found[name] = [label for number, (label, way) in enumerate(ways.items()) if not number or way not in seen]
        seen |= set(ways.values())
    return found


ASKED = asked()


def found(runs: Server, folder: Path, *arguments: object) -> list[dict[str, Any]]:
    """What the runner writes as JSON of a tiny round of some cases."""
    out = folder / "out.json"
    child = runs.start("script", RUN, *map(str, (*arguments, "--workdir", folder / "work", "--json", out)))
    assert child.ends_within(SECONDS) == 0, child.err
    results: list[dict[str, Any]] = json.loads(out.read_text())
    return results


def ways(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The runs of the first round by way."""
    runs: dict[str, dict[str, Any]] = result["rounds"][0]["runs"]
    return runs


@pytest.mark.sampled
@pytest.mark.parametrize("case", [(name.partition("-")[0], name) for name in CASES], ids=lambda case: case[1])
def test_ways_answer_rightly(runs: Server, tmp_path: Path, case: tuple[str, str]) -> None:
    """By day a third of the cases, with each kind that has several."""
    name = case[1]
    (result,) = found(runs, tmp_path, name, *TINY, "--inside", "--peers", ";".join(ASKED[name]) + ";")
    verdicts = {label: run["verdict"] for label, run in ways(result).items()}
    there = {label: verdict for label, verdict in verdicts.items() if not verdict.startswith("not installed")}
    assert set(verdicts) == set(ASKED[name])
    assert there == dict.fromkeys(there, "ok")
    assert CASES[name].ways[0].label in there


def test_ours_holds_no_more_than_is_promised_where_it_is_watched(runs: Server, tmp_path: Path) -> None:
    (result,) = found(runs, tmp_path, "rechunk-1g", "--scale", 16, "--rounds", 1, "--hurry", "--peers", "ours,limit")
    ours = ways(result)["ours"]
    assert {run["verdict"] for run in ways(result).values()} == {"ok"}
    plan, meter = ours["told"]["plan"], ours["told"]["meter"]
    assert ours["peak"] <= plan["peak_bytes"] <= ours["budget"]
    assert (meter["read_bytes"], meter["written_bytes"]) == (plan["read_bytes"], plan["written_bytes"])
    assert ours["busy_elsewhere"] >= 0
    assert {"commit", "machine", "versions", "load", "busy_elsewhere", "command", "when"} <= set(result)


def test_every_worker_of_a_cluster_is_watched(runs: Server, tmp_path: Path) -> None:
    (result,) = found(runs, tmp_path, "cluster-1g", *TINY, "--hurry", "--peers", "ours,Dask p2p")
    for run in ways(result).values():
        assert run["verdict"] == "ok"
        assert len(run["workers"]) == 2
        for worker in run["workers"]:
            assert 0 < worker["rss"] < worker["limit"] == 2**30
            assert worker["paused"] == worker["lost"] == worker["over_limit"] == 0


def test_a_checkout_beside_another_runs_the_same_case_of_both(runs: Server, tmp_path: Path) -> None:
    out = tmp_path / "turns.json"
    other = ("--other", ROOT, "--python", sys.executable, "--turns", 1, "--out", out)
    child = runs.start(
        "script", ROOT / "benchmarks" / "beside.py", *map(str, (*other, "rechunk-1g", *TINY[:2], "--hurry"))
    )
    assert child.ends_within(SECONDS) == 0, child.err
    assert "| rechunk-1g, cold, ours |" in child.out
    (turn,) = json.loads(out.read_text())["turns"]
    assert set(turn["this"]) == set(turn["other"]) == {"rechunk-1g, cold, ours"}
