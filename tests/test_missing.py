"""Chunks that a source lacks become the fill value, a warning, or an error; and they are counted."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from zarr.codecs import GzipCodec, ZstdCodec
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, MissingChunksWarning, RunError
from tests.flat import flat
from tests.seams import Journal, contents, set_constants
from tests.small import DATA
from tests.unfinished import break_disk

LACKED = [(3, 0), (7, 0), (8, 0)]
"""Chunks that are removed, of 12."""
CODINGS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": ZstdCodec()},
    "shards": {"shards": (8, 80), "chunks": (4, 80)},
    "two codecs": {"compressors": (ZstdCodec(), GzipCodec())},
}
WAYS: dict[str, Callable[..., Any]] = {
    "open_array": lambda source, target, **how: ooc.open_array(source, **how)[...],
    "section": lambda source, target, **how: ooc.open_array(source, **how).read(np.s_[::5, ::3]),
    "prefetch": lambda source, target, **how: ooc.open_array(source, **how).prefetch(...).result(),
    "slabs": lambda source, target, **how: list(ooc.open_array(source, **how).slabs(memory="64MiB")),
    "to_dask": lambda source, target, **how: ooc.open_array(source, **how).to_dask((96, 10)).compute(),
    "read_sections": lambda source, target, **how: (
        ooc.ranks.read_sections(ooc.open_array(source, **how), "(block, *)", ranks=2, scheduler="threads")
        .to_dask()
        .compute(scheduler="threads")
    ),
    "rechunk": lambda source, target, **how: run(flat(ooc.rechunk, source, target, chunks=(96, 10), **KEPT, **how)),
    "opened": lambda source, target, **how: run(
        ooc.rechunk(ooc.open_array(source, **how), target, chunks=(96, 10), **KEPT)
    ),
    "computed": lambda source, target, **how: dask.compute(
        flat(ooc.rechunk, source, target, chunks=(96, 10), **KEPT, **how), scheduler="threads"
    ),
    "map_slabs": lambda source, target, **how: run(flat(ooc.map_slabs, np.negative, source, target, **KEPT, **how)),
    "iterate": lambda source, target, **how: run(
        flat(ooc.iterate, np.negative, source, target, sweeps=3, depth=0, **KEPT, **how)
    ),
    "scatter_files": lambda source, target, **how: run(
        ooc.ranks.scatter_files(ooc.open_array(source, **how), "(block, *)", target, ranks=2, **KEPT)
    ),
}
KEPT: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads", "overwrite": True}


def run(job: Any) -> Any:
    result = job.run()
    assert job.meter.missing_chunks >= len(LACKED)
    assert str(job.meter.missing_chunks) in job.explain().rpartition("missing chunks")[2]
    return result


def make(folder: Path, **options: Any) -> Path:
    array = zarr.create_array(folder / "source", data=DATA, **({"chunks": (8, 80)} | options))
    for index in LACKED:
        os.unlink(folder / "source" / array.metadata.encode_chunk_key(index))
    return folder / "source"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make(tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_read_fills_warns_or_refuses(source: Path, way: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WAYS[way](source, source.parent / "target")
    with pytest.warns(MissingChunksWarning, match=rf"{source} lacks (at least )?\d chunks?: read as") as told:
        WAYS[way](source, source.parent / "target", missing="warn")
    assert len(told) == 1
    if way not in ("slabs", "read_sections"):
        assert any("lacks 3 " in str(each.message) or "at least" in str(each.message) for each in told)
    with pytest.raises(RunError, match=rf"{source} lacks \d chunks?, and missing='error': \([378], 0\)"):
        WAYS[way](source, source.parent / "other", missing="error")


@pytest.mark.parametrize("coding", CODINGS)
def test_of_any_coding_chunks_are_counted_and_named(tmp_path: Path, coding: str) -> None:
    source = make(tmp_path, **CODINGS[coding])
    inner = 2 if coding == "shards" else 1
    job = ooc.rechunk(source, tmp_path / "target", chunks=(96, 10), resources=ooc.Resources(missing="warn"), **KEPT)
    assert f"{source}  3 of 12" in job.explain()
    with pytest.warns(MissingChunksWarning, match=f"lacks {3 * inner} chunks"):
        job.run()
    assert job.meter.missing_chunks == 3 * inner
    with pytest.raises(RunError, match=f"lacks {3 * inner} chunks, and missing='error': .* and|, "):
        ooc.open_array(source, missing="error")[...]


def test_what_is_whole_is_read_in_any_case(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "whole", data=DATA, chunks=(8, 80))
    job = ooc.rechunk(
        tmp_path / "whole", tmp_path / "target", chunks=(96, 10), resources=ooc.Resources(missing="error"), **KEPT
    )
    assert "none of 12" in job.explain()
    np.testing.assert_array_equal(job.run()[...], DATA)
    assert job.meter.missing_chunks == 0


def test_scratch_and_targets_lack_what_they_like(tmp_path: Path) -> None:
    data = DATA.copy()
    data[:, :40] = 0
    zarr.create_array(tmp_path / "whole", data=data, chunks=(8, 80), compressors=None)
    for method in ("staged", "two-phase"):
        job = ooc.rechunk(
            tmp_path / "whole",
            tmp_path / method,
            chunks=(96, 10),
            method=method,
            resources=ooc.Resources(missing="error"),
            **KEPT,
        )
        np.testing.assert_array_equal(job.run()[...], data)
        assert job.meter.missing_chunks == 0
    array = ooc.open_array(tmp_path / "staged", mode="r+", missing="error")
    array[5:7, 5:7] = 3
    assert array[5:7, 5:7].sum() == 12


def test_the_setting_is_for_all_and_an_argument_for_one(source: Path, tmp_path: Path) -> None:
    with dask.config.set({"oocarrays.missing": "error"}):
        array = ooc.open_array(source)
        with pytest.raises(RunError, match="missing='error'"):
            array[...]
        assert ooc.open_array(source, missing="fill")[24:32].sum() == 0
    assert array.missing == pickle.loads(pickle.dumps(array)).missing == "error"
    with pytest.raises(RunError, match="missing='error'"):
        array[...]


@pytest.mark.parametrize("way", WAYS)
def test_another_word_is_refused(source: Path, tmp_path: Path, way: str) -> None:
    says = "missing='ignore' is not 'fill', 'warn' or 'error'"
    with pytest.raises(InputError, match=says):
        WAYS[way](source, tmp_path / "target", missing="ignore")
    with dask.config.set({"oocarrays.missing": "ignore"}), pytest.raises(InputError, match=says):
        WAYS[way](source, tmp_path / "target")


def test_a_group_says_it_of_its_arrays(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "group")
    group.create_array("a", data=DATA, chunks=(8, 80))
    os.unlink(tmp_path / "group" / "a" / "c" / "3" / "0")
    with pytest.raises(RunError, match=r"lacks 1 chunk, and missing='error': \(3, 0\)"):
        ooc.open_group(tmp_path / "group", missing="error")["a"][...]
    job = ooc.rechunk(
        tmp_path / "group", tmp_path / "target", chunks={"a": (96, 10)}, resources=ooc.Resources(missing="warn"), **KEPT
    )
    assert "a  1 of 12" in job.explain()
    with pytest.warns(MissingChunksWarning, match="group/a lacks 1 chunk: read as"):
        job.run()


def _with_a_copy(folder: Path, **coding: Any) -> Path:
    """A group of an array that is rewritten and one that is copied, which lacks two chunks of 12."""
    group = zarr.create_group(folder / "group")
    group.create_array("a", data=DATA, chunks=(8, 80))
    group.create_array("copied", data=DATA, **{"chunks": (8, 80)} | coding)
    for index in (3, 7):
        os.unlink(folder / "group" / "copied" / "c" / str(index) / "0")
    return folder / "group"


@pytest.mark.parametrize("coding", [{}, CODINGS["shards"]], ids=["chunks", "shards"])
def test_arrays_that_are_copied_as_they_are_may_lack_chunks_as_asked(tmp_path: Path, coding: dict[str, Any]) -> None:
    group, how = _with_a_copy(tmp_path, **coding), {"chunks": {"a": (96, 10)}, **KEPT}
    job = flat(ooc.rechunk, group, tmp_path / "error", resources=ooc.Resources(missing="error"), **how)
    assert "copied  2 of 12" in job.explain()
    with pytest.raises(RunError, match=r"group/copied lacks 2 chunks, and missing='error'$"):
        job.run()
    with pytest.warns(MissingChunksWarning, match="group/copied lacks 2 chunks: read as"):
        flat(ooc.rechunk, group, tmp_path / "warn", resources=ooc.Resources(missing="warn"), **how).run()
    whole = flat(ooc.rechunk, group, tmp_path / "fill", **how).run()
    np.testing.assert_array_equal(whole["copied"][...], ooc.open_group(group)["copied"][...])


def test_a_group_that_is_resumed_is_copied_as_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group, how = _with_a_copy(tmp_path), {"chunks": {"a": (96, 10)}, **KEPT}
    job = flat(ooc.rechunk, group, tmp_path / "target", resources=ooc.Resources(missing="warn"), **how)
    with monkeypatch.context() as patch:
        break_disk(patch, after=1)
        with pytest.raises(RunError, match="no space"):
            job.run()
    with pytest.warns(MissingChunksWarning, match="copied lacks 2 chunks"):
        ooc.resume(tmp_path / "target").run()


def test_a_run_is_resumed_as_it_was_asked_for_unless_told(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        ooc.rechunk(
            source, tmp_path / "target", chunks=(96, 10), resources=ooc.Resources(missing="error"), **KEPT
        ).run()
    with pytest.raises(RunError, match="missing='error'"):
        ooc.resume(tmp_path / "target").run()
    assert ooc.resume(tmp_path / "target", resources=ooc.Resources(missing="fill")).run()[24:32].sum() == 0


def test_a_journal_that_does_not_say_it_is_resumed_by_the_setting(source: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError):
        ooc.rechunk(
            source, tmp_path / "target", chunks=(96, 10), resources=ooc.Resources(missing="error"), **KEPT
        ).run()
    older = Journal(tmp_path / "target")
    id, content = older.read()
    del content["missing"]
    older.begin(id, content, instead=True)
    older.release()
    with dask.config.set({"oocarrays.missing": "warn"}), pytest.warns(MissingChunksWarning, match="lacks 3 chunks"):
        ooc.resume(tmp_path / "target").run()


def test_the_command_line_takes_it(source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target = str(tmp_path / "target")
    words = ["rechunk", str(source), target, "--chunks", "96,10", "--quiet", "--missing"]
    assert main([*words, "error"]) == 1
    assert "lacks 3 chunks, and --missing='error': (3, 0), (7, 0), (8, 0)\n" in capfd.readouterr().err
    assert main(["resume", target, "--quiet", "--missing", "warn"]) == 0
    assert capfd.readouterr().err == f"oocarrays: {source} lacks 3 chunks: read as the fill value\n"
    assert main(["read", str(source), "[::5]", "--missing", "error"]) == 1
    assert main(["read", str(source), "[::5]", "--explain"]) == 0
    assert "decoded, 3 chunks missing" in capfd.readouterr().out
    with pytest.raises(SystemExit):
        main([*words, "ignore"])
    assert "invalid choice: 'ignore'" in capfd.readouterr().err


def test_info_counts_what_is_missing(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(source)]) == 0
    assert "chunks missing   3 of 12\n" in capsys.readouterr().out
    assert main(["info", str(source), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["all_chunks"], told["missing_chunks"]) == (12, 3)
    zarr.create_group(source.parent).create_array("whole", data=DATA)
    assert main(["info", str(source.parent)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "lacks" in line)
    assert line.endswith("lacks 3 of 12 chunks")


def test_what_takes_long_is_not_counted(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = zarr.create_array(MemoryStore(), shape=(10**12,), chunks=(1000,), dtype="u1")
    assert contents(many).missing_chunks is None
    sparse = zarr.create_array(tmp_path / "sparse", shape=(10**12,), chunks=(1000,), dtype="u1")
    assert contents(sparse).missing_chunks == 10**9
    set_constants(monkeypatch, counted_chunks=8)
    assert "not counted" in ooc.rechunk(source, tmp_path / "c", chunks=(96, 10), **KEPT).explain()
