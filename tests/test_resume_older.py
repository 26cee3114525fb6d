"""Runs that version 0.5.0 left are gone on with: its journals keep neither receipts nor fingerprints of chunks."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import JournalError, NotFoundError
from tests.flat import flat
from tests.seams import JOURNAL_FOLDER, Journal, journal_digest, source_digest, unfinished_run

KEPT = Path(__file__).parent / "data" / "journals_0_5_0.json"
"""What was in the folder of each run that was killed, but for its lock: kind, path, bytes."""
THERE = "/tmp/oocarrays-0.5.0"
"""Where that folder was."""
DATA = np.arange(1, 257, dtype="i2").reshape(16, 16)
SLABS: dict[str, Any] = {"depth": 0, "memory": "64MiB", "ranks": 1, "height": 4, "scheduler": "threads"}


def left(kind: str, folder: Path) -> Path:
    """The folder as if the run had been there: places and digests are those of this one."""
    for name, data in json.loads(KEPT.read_text())[kind.partition(" by ")[0]].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
    for path in folder.rglob(".oocarrays-*/[0-9]"):  # scratch has a lock of its own
        assert path.is_dir()
    for plan in folder.rglob(f"{JOURNAL_FOLDER}/plan.json"):
        settle(plan, folder)
    return folder / "target.zarr"


def settle(plan: Path, folder: Path) -> None:
    data = json.loads(plan.read_text().replace(THERE, str(folder)))
    content = data["content"]
    if "source_metadata" in content:
        content["source_metadata"] = source_digest(content["source"])
    if "asked" in content and isinstance(content["asked"]["source"][0], str):  # of local files what they say is kept
        content["asked"]["source"] = [source_digest(folder / "source.zarr")]
    data["digest"] = journal_digest(data["run"], content)
    plan.write_text(json.dumps(data))
    for entry in (plan.parent / "done").iterdir():
        entry.write_text(data["digest"])


def resume(target: Path) -> Any:
    return ooc.resume(target)


def map_slabs(target: Path) -> Any:
    return flat(ooc.map_slabs, np.negative, target.parent / "source.zarr", target, resume=True, **SLABS)


def iterate(target: Path) -> Any:
    more = SLABS | {"sweeps": 3, "fuse": 1}
    return flat(ooc.iterate, np.negative, target.parent / "source.zarr", target, resume=True, **more)


def resume_pass(target: Path) -> Any:
    """Of a pass the journal of 0.5.0 does not keep where its source is."""
    with pytest.raises(NotFoundError, match="pass source="):
        ooc.resume(target, scheduler="threads")
    return ooc.resume(target, source=target.parent / "source.zarr", scheduler="threads")


KINDS: dict[str, tuple[Callable[[Path], Any], dict[str, np.ndarray], str]] = {
    "rechunk": (resume, {"": DATA}, "target.zarr"),
    "two-phase": (resume, {"": DATA}, "target.zarr"),
    "staged": (resume, {"": DATA}, ".oocarrays-*/0"),
    "kept": (resume, {"": DATA}, ".oocarrays-*/0"),
    "group": (resume, {"air": DATA, "lat": DATA[0]}, "target.zarr/air"),
    "map_slabs": (map_slabs, {"": -DATA}, "target.zarr"),
    "iterate": (iterate, {"": -DATA}, ".oocarrays-*/1"),
    "map_slabs by resume": (resume_pass, {"": -DATA}, "target.zarr"),
    "iterate by resume": (resume_pass, {"": -DATA}, ".oocarrays-*/1"),
}
each_kind = pytest.mark.parametrize(("kind", "again", "expected", "written"), [(k, *v) for k, v in KINDS.items()])


def check(target: Path, expected: dict[str, np.ndarray]) -> None:
    for name, data in expected.items():
        np.testing.assert_array_equal(zarr.open_array(target / name, mode="r")[...], data)
    assert not list(target.rglob(JOURNAL_FOLDER))


@each_kind
def test_it_goes_on(tmp_path: Path, kind: str, again: Any, expected: Any, written: str) -> None:
    target = left(kind, tmp_path)
    job = again(target)
    assert "no fingerprint of its chunks was kept" in job.explain() or kind == "group"
    job.run()
    check(target, expected)


def test_a_pass_over_local_files_goes_on(tmp_path: Path) -> None:
    """Which of its chunks are as they were is seen only by their sizes: no receipts were kept."""
    target = left("local_slabs", tmp_path)
    job = ooc.resume(target, source=tmp_path / "source.zarr", scheduler="threads")
    assert job.left == 0.5
    np.testing.assert_array_equal(job.run()[...], -DATA)
    assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.parametrize("kind", ["scatter_files", "gather_files"])
def test_a_scatter_or_gather_is_written_again(tmp_path: Path, kind: str) -> None:
    """On threads it had no journal, and on workers one that kept nothing of what it did."""
    target = left(kind, tmp_path)
    with pytest.raises(NotFoundError, match="has no journal"):
        ooc.resume(target)
    Journal(target).begin(unfinished_run(target) or "", {"files": kind.partition("_")[0]})
    with pytest.raises(
        JournalError, match=rf"was being written by {kind}: pass overwrite=True \(--overwrite\) to write it again"
    ):
        ooc.resume(target)
    again = (ooc.ranks.gather_files if kind == "gather_files" else ooc.ranks.scatter_files)(
        tmp_path / "source.zarr", *(() if kind == "gather_files" else ("(block, *)",)), target,
        **({} if kind == "gather_files" else {"ranks": 2}), overwrite=True, scheduler="threads",
    )  # fmt: skip
    np.testing.assert_array_equal(again.run()[...], DATA)


@pytest.mark.parametrize("fault", ["removed", "truncated"])
def test_messages_that_are_lost_are_never_taken_for_whole(tmp_path: Path, fault: str) -> None:
    target = left("kept", tmp_path)
    (message,) = tmp_path.glob(".oocarrays-*/0/1-0")
    data = message.read_bytes()
    message.unlink() if fault == "removed" else message.write_bytes(data[:-1])
    ooc.resume(target).run()
    check(target, {"": DATA})


@pytest.mark.parametrize("name", ["target", "global", "local"])
def test_what_it_finished_is_read(tmp_path: Path, name: str) -> None:
    left("descriptors", tmp_path)
    a = ooc.open_array(tmp_path / f"{name}.zarr")
    np.testing.assert_array_equal(a[...], DATA)
    assert name != "global" or a.attrs["units"] == "K"
    write = ooc.ranks.gather_files if name == "local" else ooc.rechunk
    write(tmp_path / f"{name}.zarr", ooc.Target(tmp_path / "again.zarr", chunks=(4, 4)), scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "again.zarr", mode="r")[...], DATA)


@pytest.mark.parametrize(("kind", "again", "expected", "written"), [(k, *v) for k, v in KINDS.items() if k != "kept"])
@pytest.mark.parametrize("fault", ["removed", "truncated"])
def test_chunks_that_are_lost_are_written_again(
    tmp_path: Path, kind: str, again: Any, expected: Any, written: str, fault: str
) -> None:
    target = left(kind, tmp_path)
    (folder,) = tmp_path.glob(written)
    chunk = (max if kind == "rechunk" else min)(path for path in (folder / "c").rglob("*") if path.is_file())
    data = chunk.read_bytes()
    chunk.unlink() if fault == "removed" else chunk.write_bytes(data[:-1])
    with pytest.warns(RuntimeWarning, match="they are written again"):
        job = again(target)
    job.run()
    check(target, expected)
