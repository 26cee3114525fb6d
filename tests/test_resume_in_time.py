"""What a slow run has done is recorded by time, too: a part in the middle is not done again from its beginning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from tests.dying import Server
from tests.flat import flat
from tests.seams import Journal
from tests.unfinished import FIELD, fail, recorded, stamps

SLOW = {"oocarrays.record-every": "0s", "oocarrays.durable": False}
"""So slow a run that each region takes longer than what is recorded after."""
ONE_PART: dict[str, Any] = {"chunks": (1024, 64), "memory": "6.5MiB", "ranks": 1, "method": "independent"}


SCRIPT = """
import sys, json, oocarrays as ooc
from tests.flat import flat
if sys.argv[1] == "resume":
    ooc.resume(sys.argv[2]).run()
else:
    flat(ooc.rechunk, sys.argv[2], sys.argv[3], scheduler="threads", **json.loads(sys.argv[4])).run()
"""


def die(runs: Server, folder: Path, *words: Any, at: str = "entry", after: int = 1, config: Any = SLOW) -> None:
    """Run a call in another process, with batches as large as ever, until it dies."""
    (folder / "script.py").write_text(SCRIPT)
    runs.run("script", folder / "script.py", *words, at=at, after=after, config=config)


def killed(runs: Server, field: Path, target: Path, after: int) -> None:
    die(runs, field.parent, "rechunk", field, target, json.dumps(ONE_PART), after=after)
    (step,) = ooc.resume(target).plan.passes
    assert list(step.parts(0)) == [(0, 0, 0)], "by size there is one part"
    assert step.units > after


def test_what_was_done_of_a_part_is_not_done_again(field: Path, target: Path, runs: Server) -> None:
    killed(runs, field, target, 3)
    here = stamps(target)
    job = ooc.resume(target)
    assert job.left == pytest.approx(1 - 3 / job.plan.passes[0].units)
    assert 0 < len(here) < 16
    done = job.run()
    np.testing.assert_array_equal(done[...], FIELD)
    assert {path: stamp for path, stamp in stamps(target).items() if path in here} == here
    assert job.meter.write_requests == 16 - 3 * (16 // job.plan.passes[0].units)
    assert not (target / ".oocarrays").exists()


def test_so_it_is_when_it_is_killed_again_and_what_was_lost_is_done_again(
    field: Path, target: Path, runs: Server
) -> None:
    killed(runs, field, target, 2)
    die(runs, field.parent, "resume", target, after=2)
    assert max(recorded(target))[:3] == (0, 0, 0)
    job = ooc.resume(target)
    assert job.left == pytest.approx(1 - 4 / job.plan.passes[0].units)
    lost = next(iter(stamps(target)))
    (target / lost).unlink()
    with pytest.warns(RuntimeWarning, match="1 of .* chunks that had been written are not as they were"):
        job = ooc.resume(target)
    np.testing.assert_array_equal(job.run()[...], FIELD)


def test_it_is_verified_and_goes_on_in_other_memory(field: Path, target: Path, runs: Server) -> None:
    killed(runs, field, target, 3)
    job = ooc.resume(target, memory="96MiB", verify=True, resources=ooc.Resources(ranks=2))
    assert 0 < job.left < 1
    np.testing.assert_array_equal(job.run()[...], FIELD)
    assert job.meter.write_requests < 16


def test_the_command_line_says_what_is_left(
    field: Path, target: Path, runs: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(runs, field, target, 3)
    units = ooc.resume(target).plan.passes[0].units
    assert main(["resume", str(target), "--dry-run"]) == 0
    assert f"{100 * 3 / units:.0f} % of {target} is done by rechunk" in capsys.readouterr().out


def test_a_group_of_which_an_array_is_in_the_middle(tmp_path: Path, runs: Server) -> None:
    group = zarr.create_group(tmp_path / "g.zarr")
    group.create_array("a", data=FIELD, chunks=(64, 1024), compressors=None)
    options = ONE_PART | {"chunks": {"a": (1024, 64)}}
    die(runs, tmp_path, "rechunk", tmp_path / "g.zarr", tmp_path / "t", json.dumps(options), after=2)
    job = ooc.resume(tmp_path / "t")
    assert 0 < job.left < 1
    np.testing.assert_array_equal(job.run()["a"][...], FIELD)


def test_a_run_that_is_not_slow_records_its_parts_only(field: Path, target: Path, runs: Server) -> None:
    how = {"oocarrays.durable": False}
    die(runs, field.parent, "rechunk", field, target, json.dumps(ONE_PART), at="unrecorded", config=how)
    assert recorded(target) == set()
    assert Journal(target).is_there()


@pytest.mark.parametrize("method", ["independent", "two-phase"])
def test_what_an_interruption_leaves_of_a_part_is_not_done_again(field: Path, target: Path, method: str) -> None:
    """Nothing is recorded by time here: what fails in the middle of a part records the chunks that it has written."""
    job = flat(ooc.rechunk, field, target, scheduler="threads", **{**ONE_PART, "method": method, "memory": "16MiB"})
    fail(job, 3)
    here = stamps(target)
    assert len(here) == 3
    again = ooc.resume(target)
    assert again.left == pytest.approx(1 - 3 / 16)
    np.testing.assert_array_equal(again.run()[...], FIELD)
    assert again.meter.write_requests == 16 - 3
    assert {path: stamp for path, stamp in stamps(target).items() if path in here} == here
