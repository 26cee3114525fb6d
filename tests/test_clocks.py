"""Clocks that jump, and files from the future: nothing that a run relies on is told by the time of day."""

from __future__ import annotations

import itertools
import os
import time
from pathlib import Path

import pytest

import oocarrays as ooc
from oocarrays.errors import JournalError
from tests.flat import flat
from tests.seams import find_leftovers
from tests.small import each_method
from tests.unfinished import FIELD, check_finished, check_unfinished, fail, make_field, options_of

pytestmark = pytest.mark.long

HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture(params=["back", "forth", "to and fro"])
def jumps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of day is an hour off from one look to the next."""
    real, looks = time.time, itertools.count()
    steps = {"back": lambda n: -HOUR * n, "forth": lambda n: HOUR * n, "to and fro": lambda n: HOUR * (-1) ** n}
    monkeypatch.setattr(time, "time", lambda: real() + steps[request.param](next(looks)))


@pytest.mark.sampled
@each_method
def test_a_run_fails_and_goes_on_while_the_clock_jumps(jumps: None, tmp_path: Path, method: str) -> None:
    target = tmp_path / "target.zarr"
    job = flat(ooc.rechunk, make_field(tmp_path), target, **options_of(method))
    fail(job, 12)
    check_unfinished(target)
    rest = ooc.resume(target)
    rest.run()
    check_finished(target)
    assert min(rest.meter.seconds.values()) >= 0


@pytest.mark.parametrize("ahead", [HOUR, -50 * 365 * DAY, 50 * 365 * DAY])
def test_files_of_another_time_are_as_any(tmp_path: Path, ahead: float) -> None:
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    shift(source, ahead)
    fail(flat(ooc.rechunk, source, target, **options_of("two-phase")), 12)
    shift(target, ahead)
    ooc.resume(target).run()
    check_finished(target)


def shift(folder: Path, seconds: float) -> None:
    """Let all files have been written that much later."""
    for path in folder.rglob("*"):
        when = time.time() + seconds
        os.utime(path, (when, when))


def test_a_source_that_is_written_while_the_clock_is_back_has_changed(tmp_path: Path) -> None:
    """It is not that it looks older than the run: it is not as it was."""
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    fail(flat(ooc.rechunk, source, target, **options_of("two-phase")), 12)
    ooc.open_array(source, mode="r+")[:64] = -FIELD[:64]
    shift(source / "c" / "0", -DAY)
    with pytest.raises(JournalError, match="changed"):
        ooc.resume(target)


def test_what_lives_is_not_taken_for_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock tells, not a time: while a run holds its target nothing of it is removed, a day later neither."""
    source, target = make_field(tmp_path), tmp_path / "target.zarr"
    job = flat(ooc.rechunk, source, target, **options_of("two-phase"))
    fail(job, 12)
    job._run.live.journal.claim()
    later = time.time() + DAY
    monkeypatch.setattr(time, "time", lambda: later)
    assert all(found.alive for found in find_leftovers(tmp_path))
    job._run.live.journal.release()
    assert not any(found.alive for found in find_leftovers(tmp_path))
    ooc.resume(target).run()
    check_finished(target)
