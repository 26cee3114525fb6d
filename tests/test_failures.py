"""Failures in the middle: one clear error, the source untouched, the target marked unfinished, scratch gone."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, strategies as st
from zarr.storage import LocalStore, MemoryStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    CorruptChunkError,
    DiskFullError,
    InputError,
    OocError,
    RunError,
    TargetError,
    UnfinishedError,
)
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import RECHUNK_METHODS, replace_step, step

pytestmark = pytest.mark.long

CODECS: dict[str, dict[str, Any]] = {
    "plain": {"compressors": None},
    "zstd": {"compressors": zarr.codecs.ZstdCodec()},
    "blosc": {"compressors": zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle")},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "crc and zstd": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "transposed": {"compressors": None, "filters": [zarr.codecs.TransposeCodec(order=(1, 0))]},
    "big-endian": {"compressors": None, "serializer": zarr.codecs.BytesCodec(endian="big")},
}
each_method = pytest.mark.parametrize("method", RECHUNK_METHODS)
each_codec = pytest.mark.parametrize("codec", CODECS)


def noise(shape: tuple[int, ...] = (64, 48)) -> np.ndarray:
    return np.random.default_rng(0).random(shape, dtype="f4")


def make(store: Any, data: np.ndarray | None = None, codec: str = "plain", **settings: Any) -> zarr.Array:
    data = noise() if data is None else data
    return zarr.create_array(store, data=data, **({"chunks": (8, data.shape[1])} | CODECS[codec] | settings))


def plan(source: Any, target: Any, method: str = "auto", **options: Any) -> ooc.Job:
    return flat(ooc.rechunk, source, target, **({"chunks": (64, 6), "memory": "96MiB", "method": method} | options))


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def bits(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def check_unfinished(folder: Path, target: str = "target.zarr") -> None:
    """The target says that it is unfinished, in one line; nothing else is left beside it."""
    assert {p.name for p in folder.iterdir()} <= {"source.zarr", target}
    with pytest.raises(UnfinishedError, match="is unfinished") as caught:
        ooc.open_array(folder / target)
    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------- a full disk


@pytest.mark.parametrize(
    ("method", "codec", "size", "scratch", "target"),
    [
        ("independent", "none", 2 << 20, "", "NotFoundError"),
        ("two-phase", "none", 2 << 20, "", "NotFoundError"),
        ("assembled", "none", 2 << 20, "", "NotFoundError"),
        ("assembled", "zstd", 2 << 20, "small", "NotFoundError"),
        ("staged", "none", 5 << 20, "small", "NotFoundError"),
        ("staged", "zstd", 2 << 20, "small", "NotFoundError"),
        ("independent", "zstd", 2 << 20, "", "UnfinishedError"),
        ("two-phase", "zstd", 2 << 20, "", "UnfinishedError"),
        ("staged", "zstd", 2 << 20, "", "UnfinishedError"),
        ("staged", "zstd", 6 << 20, "small", "UnfinishedError"),
    ],
    ids=[
        "known beforehand, independent",
        "known beforehand, two-phase",
        "known beforehand, assembled",
        "scratch known beforehand, assembled",
        "known beforehand, staged",
        "scratch known beforehand",
        "in the middle, independent",
        "in the middle, two-phase",
        "in the middle, staged",
        "in the middle, after scratch",
    ],
)
def test_a_full_disk(
    tmp_path: Path, runs: Server, method: str, codec: str, size: int, scratch: str, target: str
) -> None:
    make(tmp_path / "source.zarr", noise((1024, 1024)), "zstd", chunks=(64, 1024))  # 4 MiB that do not compress
    (tmp_path / "small").mkdir()
    done = runs.run("tests.small_disk:rechunk", tmp_path, size, method, codec, scratch)
    told = done.told
    assert done.err == ""
    assert told["error"] == "DiskFullError", told
    assert "\n" not in told["message"]
    assert "small" in told["message"]
    assert told["left"] == []
    assert told["untouched"]
    if told["mounted"]:
        assert told["target"] == target


@each_method
def test_a_disk_too_small_is_known_beforehand_on_any_machine(tmp_path: Path, method: str) -> None:
    """A source of 8 EiB, none of which is stored."""
    source = tmp_path / "source.zarr"
    zarr.create_array(source, shape=(2**30, 2**30), chunks=(2**20, 2**30), dtype="f8", compressors=None)
    job = ooc.rechunk(source, tmp_path / "target.zarr", chunks=(2**30, 2**20), memory=2**60, method=method)
    with pytest.raises(DiskFullError, match=r"needs \d+ bytes; its device has \d+ left"):
        job.run()
    assert {p.name for p in tmp_path.iterdir()} == {"source.zarr"}


# ---------------------------------------------------------------------- a corrupt chunk


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def garbage(data: bytes) -> bytes:
    return bytes(reversed(range(256))) * (len(data) // 256)


def garbled_inside(data: bytes) -> bytes:
    return data[:20] + bytes(b ^ 0x5A for b in data[20:])


def too_long(data: bytes) -> bytes:
    return data + bytes(64)


def nothing(data: bytes) -> bytes:
    return b""


def of_other_length(data: bytes) -> bytes:
    return zarr_bytes(noise((8, 47)), "zstd")


def zarr_bytes(data: np.ndarray, codec: str) -> bytes:
    store = MemoryStore()
    make(store, data, codec, chunks=data.shape)
    return store._store_dict["c/0/0"].to_bytes()


SPOILT: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "plain, cut short": ("plain", cut),
    "plain, too long": ("plain", too_long),
    "plain, nothing": ("plain", nothing),
    "zstd, garbage": ("zstd", garbage),
    "zstd, garbled inside": ("crc and zstd", garbled_inside),
    "zstd, cut short": ("zstd", cut),
    "zstd, nothing": ("zstd", nothing),
    "zstd, of another length": ("zstd", of_other_length),
    "blosc, cut short": ("blosc", cut),
    "blosc, garbage": ("blosc", garbage),
    "blosc, nothing": ("blosc", nothing),
    "gzip, garbage": ("gzip", garbage),
    "gzip, cut short": ("gzip", cut),
    "crc, garbage": ("crc and zstd", garbage),
    "big-endian, cut short": ("big-endian", cut),
    "transposed, too long": ("transposed", too_long),
}


@pytest.mark.sampled(1)
@each_method
@pytest.mark.parametrize(("codec", "spoil"), SPOILT.values(), ids=SPOILT)
def test_a_corrupt_chunk(tmp_path: Path, codec: str, spoil: Callable[[bytes], bytes], method: str) -> None:
    make(tmp_path / "source.zarr", codec=codec)
    chunk = tmp_path / "source.zarr/c/3/0"
    chunk.write_bytes(spoil(chunk.read_bytes()))
    before = tree(tmp_path)
    with pytest.raises(CorruptChunkError, match="c/3/0") as caught:
        plan(tmp_path / "source.zarr", tmp_path / "target.zarr", method).run()
    assert len(str(caught.value).splitlines()) == 1
    assert {name: data for name, data in tree(tmp_path).items() if name.startswith("source")} == before
    check_unfinished(tmp_path)


@pytest.mark.parametrize("spoil", [cut, too_long, nothing], ids=["truncated", "too long", "nothing"])
def test_a_corrupt_chunk_of_which_a_part_is_read(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    make(tmp_path / "source.zarr", noise((512, 1024)), chunks=(512, 512))
    chunk = tmp_path / "source.zarr/c/0/1"
    chunk.write_bytes(spoil(chunk.read_bytes()))
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr", "independent", chunks=(64, 1024), memory="28MiB")
    assert job.plan.passes[0].access == "ranges"
    with pytest.raises(CorruptChunkError, match="c/0/1"):
        job.run()
    check_unfinished(tmp_path)


IN_STORES = {name: case for name, case in SPOILT.items() if case[0] in ("plain", "zstd", "transposed")}


@pytest.mark.sampled(1)
@each_method
@pytest.mark.parametrize(("codec", "spoil"), IN_STORES.values(), ids=IN_STORES)
def test_a_corrupt_chunk_in_a_store_of_another_kind(
    tmp_path: Path, codec: str, spoil: Callable[[bytes], bytes], method: str
) -> None:
    make(tmp_path / "source.zarr", codec=codec)
    chunk = tmp_path / "source.zarr/c/3/0"
    chunk.write_bytes(spoil(chunk.read_bytes()))
    source, target = MemoryStore(), MemoryStore()
    for name, data in tree(tmp_path / "source.zarr").items():
        source._store_dict[name] = zarr.core.buffer.default_buffer_prototype().buffer.from_bytes(data)
    with pytest.raises(CorruptChunkError, match="c/3/0"):
        plan(source, target, method, scratch=tmp_path).run()
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    assert {p.name for p in tmp_path.iterdir()} == {"source.zarr"}


# ---------------------------------------------------------------------- a missing chunk, and values at the edge


@each_method
@each_codec
def test_a_missing_chunk_holds_the_fill_value(tmp_path: Path, codec: str, method: str) -> None:
    source = make(tmp_path / "source.zarr", codec=codec, fill_value=7.5)
    (tmp_path / "source.zarr/c/3/0").unlink()
    expected = source[...]
    assert (expected[24:32] == 7.5).all()
    target = plan(source, tmp_path / "target.zarr", method).run()
    np.testing.assert_array_equal(target[...], expected)
    assert target.fill_value == 7.5


def test_a_missing_chunk_of_which_a_part_is_read(tmp_path: Path) -> None:
    source = make(tmp_path / "source.zarr", noise((512, 1024)), chunks=(512, 512), fill_value=-1)
    (tmp_path / "source.zarr/c/0/1").unlink()
    job = plan(source, tmp_path / "target.zarr", "independent", chunks=(64, 1024), memory="28MiB")
    assert job.plan.passes[0].access == "ranges"
    np.testing.assert_array_equal(job.run()[...], source[...])


@each_method
def test_a_source_of_which_nothing_is_stored(tmp_path: Path, method: str) -> None:
    source = make(tmp_path / "source.zarr", np.full((64, 48), 3, "f4"), fill_value=3)
    assert not (tmp_path / "source.zarr/c").exists()
    job = plan(source, tmp_path / "target.zarr", method)
    assert (job.run()[...] == 3).all()
    assert not (tmp_path / "target.zarr/c").exists()


EDGES = {
    "NaN in NaN": (np.array([np.nan, 1, np.nan], "f4"), np.nan),
    "NaN in zero": (np.array([np.nan, 0, 0], "f4"), 0.0),
    "negative zero": (np.array([-0.0, 0.0, -0.0], "f4"), 0.0),
    "zero in negative zero": (np.array([0.0, -0.0, 0.0], "f4"), -0.0),
    "infinity": (np.array([np.inf, -np.inf, 1], "f4"), np.inf),
}


@each_method
@each_codec
@pytest.mark.parametrize("edge", EDGES)
def test_values_keep_their_bits(edge: str, codec: str, method: str, tmp_path: Path) -> None:
    """Each target chunk holds one value: some hold what is taken for nothing."""
    values, fill = EDGES[edge]
    data = np.repeat(values, 16)[None, :].repeat(64, axis=0)
    source = make(tmp_path / "source.zarr", data, codec, fill_value=fill, config={"write_empty_chunks": True})
    assert bits(source[...]) == bits(data)
    target = plan(source, tmp_path / "target.zarr", method, chunks=(64, 16)).run()
    assert bits(target[...]) == bits(data)
    assert bits(np.asarray(target.fill_value, "f4")) == bits(np.asarray(fill, "f4"))


@each_method
def test_zeros_of_the_other_sign_between_fill_values_are_kept(method: str, tmp_path: Path) -> None:
    """No target chunk is taken for nothing by its first and its last element, or because all its values are equal."""
    data = np.zeros((64, 48), "f4")
    data[8:56] = -0.0
    source = make(tmp_path / "source.zarr", data, "plain", fill_value=0.0, config={"write_empty_chunks": True})
    target = plan(source, tmp_path / "target.zarr", method, chunks=(64, 16)).run()
    assert bits(target[...]) == bits(data)


# ---------------------------------------------------------------------- an exception in the middle


class Broken(Exception):
    """What no library raises."""


def break_at(nth: int, action: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Do ``action`` in place of the ``nth`` chunk, or piece of one, written, by whichever thread."""
    write_all, lock, calls = step("write chunks"), threading.Lock(), iter(range(10**6))
    write_runs = step("write pieces")

    def count() -> None:
        with lock:
            number = next(calls)
        if number == nth:
            action()

    def broken(chunks: Iterable[Any]) -> Iterator[Any]:
        for chunk in chunks:
            count()
            yield chunk

    replace_step(patch, "write pieces", lambda self, *args: (count(), write_runs(self, *args)))
    replace_step(patch, "write chunks", lambda self, chunks, *more: write_all(self, broken(chunks), *more))


def fail() -> None:
    raise Broken("the nth chunk")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a source, for many runs."""
    made = tmp_path_factory.mktemp("broken")
    make(made / "source.zarr", codec="zstd")
    yield made
    assert bits(ooc.open_array(made / "source.zarr")[...]) == bits(noise())


@given(nth=st.integers(0, 7), method=st.sampled_from(RECHUNK_METHODS), ranks=st.integers(1, 4), overlap=st.booleans())
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_exception_in_the_middle_then_the_right_answer(
    folder: Path, nth: int, method: str, ranks: int, overlap: bool
) -> None:
    source, target = folder / "source.zarr", folder / "target.zarr"
    shutil.rmtree(target, ignore_errors=True)
    options = {"ranks": ranks, "memory": "256MiB" if overlap else "64MiB"}
    with pytest.MonkeyPatch.context() as patch:
        break_at(nth, fail, patch)
        with pytest.raises(Broken, match="the nth chunk"):
            plan(source, target, method, **options).run()
    check_unfinished(folder)
    with pytest.raises(TargetError, match="exists"):
        plan(source, target, method, **options)
    again = plan(source, target, method, overwrite=True, **options).run()
    np.testing.assert_array_equal(again[...], noise())
    assert {p.name for p in folder.iterdir()} == {"source.zarr", "target.zarr"}


@each_method
def test_the_same_job_can_run_again_after_an_exception(tmp_path: Path, method: str) -> None:
    source = make(tmp_path / "source.zarr", codec="zstd")
    job = plan(source, tmp_path / "target.zarr", method, overwrite=True)
    with pytest.MonkeyPatch.context() as patch:
        break_at(2, fail, patch)
        with pytest.raises(Broken):
            job.run()
    np.testing.assert_array_equal(job.run()[...], source[...])
    assert job.meter.write_requests == job.plan.write_requests


@each_method
def test_a_job_that_starts_over_leaves_no_chunk_of_before(tmp_path: Path, method: str) -> None:
    source = make(tmp_path / "source.zarr")
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr", method)
    with pytest.MonkeyPatch.context() as patch:
        break_at(2, fail, patch)
        with pytest.raises(Broken):
            job.run()
    source[:, :-6] = source.fill_value
    np.testing.assert_array_equal(job.run()[...], source[...])


def test_an_interrupted_command_line_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    make(tmp_path / "source.zarr")
    break_at(2, interrupt, monkeypatch)
    names = [str(tmp_path / "source.zarr"), str(tmp_path / "target.zarr")]
    assert main(["rechunk", *names, "--chunks=64,6", "--memory=64MiB", "--quiet"]) == 130
    err = capsys.readouterr().err
    assert re.fullmatch(r"oocarrays: interrupted at \d+ %; .*: oocarrays resume .*target\.zarr\n", err), err
    check_unfinished(tmp_path)


@pytest.mark.parametrize("method", ["independent", "two-phase"])
def test_a_killed_run_leaves_its_target_unfinished(
    tmp_path: Path, runs: Server, method: str, capsys: pytest.CaptureFixture
) -> None:
    source, target = tmp_path / "source.zarr", tmp_path / "target.zarr"
    make(source, codec="zstd")
    before = tree(source)
    runs.run("rechunk", source, target, at="chunk", after=4, chunks=(64, 6), memory="64MiB", method=method)
    check_unfinished(tmp_path)
    assert main(["info", str(target)]) == 0
    assert re.search(r"unfinished +run \w+ did not write all of it\n.*oocarrays resume", capsys.readouterr().out)
    assert tree(source) == before
    np.testing.assert_array_equal(plan(source, target, method, overwrite=True).run()[...], noise())


# ---------------------------------------------------------------------- two at one target, and refusals


def test_the_second_of_two_jobs_at_one_target_is_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "source.zarr")
    first, second = (plan(source, tmp_path / "target.zarr") for _ in range(2))
    first.run()
    before = tree(tmp_path)
    with pytest.raises(TargetError, match="exists"):
        second.run()
    assert tree(tmp_path) == before


@each_method
def test_a_job_that_begins_while_another_writes_the_target_is_refused(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make(tmp_path / "source.zarr")
    first, second = (plan(source, tmp_path / "target.zarr", method) for _ in range(2))
    refused: list[type] = []

    def begin() -> None:
        try:
            second.run()
        except OocError as error:
            refused.append(type(error))

    break_at(2, begin, monkeypatch)
    np.testing.assert_array_equal(first.run()[...], source[...])
    assert refused == [TargetError]


def test_a_refused_target_and_the_source_stay_as_they_were(tmp_path: Path) -> None:
    make(tmp_path / "source.zarr")
    make(tmp_path / "target.zarr", noise((9, 4)), "zstd")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/thesis.txt").write_text("three years of work")
    before = tree(tmp_path)
    for target, overwrite in [("target.zarr", False), ("notes", True), ("source.zarr", True), ("source.zarr/c", True)]:
        with pytest.raises(TargetError):
            plan(tmp_path / "source.zarr", tmp_path / target, overwrite=overwrite)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("kind", ["a full folder", "an array", "a group"])
def test_what_appeared_at_the_target_since_the_plan_is_kept(tmp_path: Path, kind: str) -> None:
    """Without overwrite nothing that is there is touched; with it, only an array may be replaced."""
    target = tmp_path / "target.zarr"
    source = make(tmp_path / "source.zarr")
    job = plan(source, target, overwrite=kind != "an array")
    if kind == "an array":
        make(target, noise((9, 4)))
    elif kind == "a group":
        make(zarr.create_group(target).store, noise((9, 4)), name="inside")
    else:
        target.mkdir()
        (target / "thesis.txt").write_text("three years of work")
    before = tree(tmp_path)
    with pytest.raises(TargetError):
        job.run()
    assert tree(tmp_path) == before


def read_only(folder: Path) -> Any:
    make(folder / "there.zarr", noise((8, 4)))
    return LocalStore(folder / "there.zarr", read_only=True)


TARGETS = {
    "below a regular file": lambda folder: folder / "file.txt" / "target.zarr",
    "a store opened for reading": lambda folder: LocalStore(folder / "new.zarr", read_only=True),
    "an array in a store opened for reading": read_only,
    "in memory, opened for reading": lambda folder: MemoryStore(read_only=True),
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_target_that_cannot_be_written_gets_one_clear_error(tmp_path: Path, target: Callable) -> None:
    source = make(tmp_path / "source.zarr")
    (tmp_path / "file.txt").write_text("a file")
    store = target(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(OocError) as caught:
        plan(source, store, overwrite=True).run()
    assert len(str(caught.value).splitlines()) == 1
    assert tree(tmp_path) == before


def test_a_scratch_folder_without_its_parent_is_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "source.zarr")
    with pytest.raises(InputError, match=r"scratch=.*/no/such cannot be created: folder .*/no does not exist"):
        plan(source, tmp_path / "target.zarr", "staged", scratch=tmp_path / "no" / "such")


def test_a_scratch_folder_that_cannot_be_made_gets_one_clear_error(tmp_path: Path) -> None:
    source = make(tmp_path / "source.zarr")
    with tempfile.NamedTemporaryFile() as file, pytest.raises(RunError) as caught:
        plan(source, tmp_path / "target.zarr", "staged", scratch=os.path.join(file.name, "scratch")).run()
    assert len(str(caught.value).splitlines()) == 1
    check_unfinished(tmp_path)
