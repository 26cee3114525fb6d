"""Scratch is where a run put it, and holds what a run puts there; nothing else is removed, and no link is followed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError, JournalError
from oocarrays.storage.files.creating import remove_scratch
from tests.seams import (
    JOURNAL_FOLDER,
    JOURNAL_PLAN,
    Journal,
    find_leftovers,
    journal_digest,
    replace_step,
    set_constants,
    step,
    unfinished_run,
)

ID = "0123456789ab"
SCRATCH = f".oocarrays-{ID}"


def test_links_are_not_followed_out_of_scratch(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "zarr.json").write_text("{}")
    scratch = tmp_path / SCRATCH
    scratch.mkdir()
    (scratch / "0").symlink_to(mine)
    remove_scratch(str(scratch))
    assert (mine / "zarr.json").exists()
    (tmp_path / "link").symlink_to(mine)
    remove_scratch(str(tmp_path / "link"))
    assert (mine / "zarr.json").exists()


@pytest.mark.parametrize("name", ["notes.txt", "zarr.json", "c"])
def test_a_folder_that_holds_what_no_run_puts_there_is_no_leftover(tmp_path: Path, name: str) -> None:
    (tmp_path / SCRATCH / "0").mkdir(parents=True)
    assert [leftover.kind for leftover in find_leftovers(tmp_path)] == ["scratch"]
    (tmp_path / SCRATCH / name).write_text("mine")
    assert not find_leftovers(tmp_path)


def left_unfinished(folder: Path) -> Path:
    """A target whose run was stopped when its first part had been recorded."""
    publish = step("publish entry")

    def stop(self: Journal, *done: Any) -> None:
        publish(self, *done)
        raise KeyboardInterrupt

    source, target = folder / "source.zarr", folder / "target.zarr"
    ooc.create_array(source, shape=(64, 64), dtype="f4", chunks=(1, 64))[...] = np.ones((64, 64), "f4")
    with pytest.MonkeyPatch.context() as patch:
        set_constants(patch, record_seconds=0.0)
        replace_step(patch, "publish entry", stop)
        with pytest.raises(KeyboardInterrupt):
            ooc.rechunk(source, target, chunks=(64, 1)).run()
    return target


def changed(target: Path, **others: str) -> None:
    """Write a journal's plan anew, with a digest that fits."""
    data = json.loads((target / JOURNAL_FOLDER / JOURNAL_PLAN).read_text())
    run, content = others.pop("run", data["run"]), data["content"] | others
    digest = journal_digest(run, content)
    (target / JOURNAL_FOLDER / JOURNAL_PLAN).write_text(json.dumps({"run": run, "content": content, "digest": digest}))
    for entry in (target / JOURNAL_FOLDER / "done").iterdir():
        entry.write_text(digest)


def test_a_journal_cannot_name_scratch_where_no_run_has_put_it(tmp_path: Path) -> None:
    target = left_unfinished(tmp_path)
    away = tmp_path / "away"
    away.mkdir()
    changed(target, scratch=str(away))
    assert ooc.resume(target)._run.program.below == f"{tmp_path}/.oocarrays-{unfinished_run(target)}"
    (away / f".oocarrays-{unfinished_run(target)}").mkdir()
    assert ooc.resume(target)._run.program.below.startswith(str(away))
    (away / f".oocarrays-{unfinished_run(target)}" / "mine").write_text("mine")
    with pytest.raises(JournalError, match="holds files that no run has created"):
        ooc.resume(target)


def test_a_run_whose_name_is_a_path_is_refused(tmp_path: Path) -> None:
    target = left_unfinished(tmp_path)
    changed(target, run="x/../../mine")
    with pytest.raises(JournalError, match="invalid run id"):
        ooc.resume(target)
    assert Journal(str(target)).is_there()


@pytest.mark.parametrize("inside", ["source.zarr", "source.zarr/c/deep", "target.zarr/scratch"])
def test_scratch_in_the_source_or_the_target_is_refused(tmp_path: Path, inside: str) -> None:
    source = tmp_path / "source.zarr"
    ooc.create_array(source, shape=(8, 8), dtype="f4", chunks=(1, 8))[...] = np.ones((8, 8), "f4")
    os.symlink(tmp_path, tmp_path / "by link")
    for folder in (tmp_path, tmp_path / "by link"):
        with pytest.raises(InputError, match=r"is inside the (source|target)"):
            ooc.rechunk(
                source, tmp_path / "target.zarr", chunks=(8, 1), resources=ooc.Resources(scratch=folder / inside)
            )
    ooc.rechunk(
        source,
        tmp_path / "target.zarr",
        chunks=(8, 1),
        resources=ooc.Resources(scratch=tmp_path / "source.zarr.scratch"),
    )
