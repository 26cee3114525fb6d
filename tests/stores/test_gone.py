"""A source on a store that goes away, or is not ours any more, is an error: never the fill value."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from dask.callbacks import Callback
from zarr.codecs import GzipCodec, ZstdCodec
from zarr.storage import FsspecStore, LoggingStore, MemoryStore, ZipStore

import oocarrays as ooc
from tests.flat import flat
from tests.groups import write
from tests.seams import store_at, unfinished_run
from tests.small import DATA
from tests.stores.servers import BUCKET, S3
from tests.stores.test_s3 import make, plan

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]

LOST = "lost"
"""A bucket that is deleted."""
CODINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "zstd": {"compressors": ZstdCodec()},
    "shards": {"chunks": (8, 10), "shards": (16, 80), "compressors": ZstdCodec()},
    "two codecs": {"compressors": (ZstdCodec(), GzipCodec())},
}


def remove(s3: S3, bucket: str, prefix: str = "") -> None:
    listed = s3.client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    for each in listed:
        s3.client.delete_object(Bucket=bucket, Key=each["Key"])


@pytest.fixture
def lost(s3: S3) -> Iterator[str]:
    """The URL of a bucket, which the test may delete."""
    s3.client.create_bucket(Bucket=LOST)
    yield f"s3://{LOST}"
    with suppress(s3.client.exceptions.NoSuchBucket):
        remove(s3, LOST)
        s3.client.delete_bucket(Bucket=LOST)


def readings(s3: S3, source: str, target: str) -> dict[str, Callable[[], Any]]:
    """Ways to read all of a source, which is looked at now."""
    a = ooc.open_array(source, storage_options=s3.options)
    job = plan(s3, a, f"{target}-rechunked", overwrite=True)
    how: Any = {"memory": "128MiB", "storage_options": s3.options, "overwrite": True}
    slabs = flat(ooc.map_slabs, np.negative, a, f"{target}-slabs", **how)
    lazy, parts = a.to_dask((96, 10)), ooc.ranks.read_sections(a, "(block, *)", ranks=2, scheduler="threads")
    return {
        "rechunk": job.run,
        "map_slabs": slabs.run,
        "index": lambda: a[...],
        "section": lambda: a[::3, ::7],
        "to_dask": lazy.compute,
        "read_sections": lambda: parts.to_dask().compute(),
    }


class Meanwhile(Callback):  # type: ignore[misc]
    """Does something when a run has made its target, and before it reads."""

    def __init__(self, what: Callable[[], Any]) -> None:
        super().__init__()
        self.left = [what]

    def _pretask(self, key: Any, *state: Any) -> None:
        if self.left and not str(key[0]).startswith(("probe", "create")):
            self.left.pop()()


def assert_refused(s3: S3, target: str, ways: dict[str, Callable[[], Any]], says: str) -> None:
    """Each way fails in one line; a run that finds its source gone when it begins writes nothing."""
    for name, read in ways.items():
        with pytest.raises(ooc.errors.RunError, match=says) as failed:
            read()
        assert "\n" not in str(failed.value), name
    assert s3.keys(target.removeprefix(f"s3://{BUCKET}/")) == []


def test_a_bucket_that_is_deleted_is_no_fill_value(s3: S3, library: str, lost: str) -> None:
    source, target = make(s3, f"{lost}/source"), s3.url(f"of-lost-{library}")
    ways = readings(s3, source, target)
    remove(s3, LOST)
    s3.client.delete_bucket(Bucket=LOST)
    assert_refused(s3, target, ways, "s3://lost/source: there is no such bucket")


@pytest.mark.parametrize("status", ["400", "403"])
def test_revoked_credentials_are_no_fill_value(s3: S3, library: str, status: str) -> None:
    source, target = make(s3, s3.url("revoked")), s3.url(f"of-revoked-{library}")
    ways = readings(s3, source, target)
    s3.tell(fault=status, times=10**6, match="/revoked/")
    assert_refused(s3, target, ways, r"s3://cubes/revoked: (the credentials were refused|400, )")


@pytest.mark.parametrize(
    ("library", "coding"),
    [("obstore", "plain"), ("fsspec", "zstd"), ("obstore", "shards"), ("fsspec", "two codecs")],
    indirect=["library"],
)
def test_a_prefix_that_is_deleted_meanwhile_is_no_fill_value_and_the_run_can_be_resumed(
    s3: S3, library: str, coding: str
) -> None:
    source, target = make(s3, s3.url("moved"), **CODINGS[coding]), s3.url(f"of-moved-{library}-{coding}")
    job = plan(s3, source, target)
    objects = {key: s3.client.get_object(Bucket=BUCKET, Key=key)["Body"].read() for key in s3.keys("moved/")}
    with (
        Meanwhile(lambda: remove(s3, BUCKET, "moved/")),
        pytest.raises(ooc.errors.RunError, match="cubes/moved is missing"),
    ):
        job.run()
    assert unfinished_run(store_at(target, s3.direct)) == job.run_id
    for key, data in objects.items():
        s3.client.put_object(Bucket=BUCKET, Key=key, Body=data)
    again = ooc.resume(target, storage_options=s3.options)
    np.testing.assert_array_equal(again.run()[...], DATA)


def test_credentials_that_are_revoked_meanwhile_leave_a_run_that_can_be_resumed(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("expired")), s3.url(f"of-expired-{library}")
    job = plan(s3, source, target)
    revoked = Meanwhile(lambda: s3.tell(fault="403", times=10**6, match="/(of-)?expired"))
    with revoked, pytest.raises(ooc.errors.RunError, match="s3://cubes/expired: the credentials were refused"):
        job.run()
    s3.tell()
    again = ooc.resume(target, storage_options=s3.options)
    np.testing.assert_array_equal(again.run()[...], DATA)


def test_chunks_that_are_deleted_and_metadata_that_stays_are_no_fill_value(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("hollow")), s3.url(f"of-hollow-{library}")
    early, late = (plan(s3, source, f"{target}-{number}") for number in range(2))
    with (
        Meanwhile(lambda: remove(s3, BUCKET, "hollow/c/")),
        pytest.raises(ooc.errors.RunError, match="hollow changed while it was read: 12 chunks"),
    ):
        early.run()
    with pytest.raises(ooc.errors.RunError, match="hollow is empty: it had chunks"):
        late.run()
    assert unfinished_run(store_at(f"{target}-0", s3.direct)) == early.run_id
    assert s3.keys(f"of-hollow-{library}-1") == []


def test_of_an_array_of_which_nothing_was_ever_stored_all_is_the_fill_value(s3: S3) -> None:
    source = make(s3, s3.url("bare"), np.zeros((96, 80), "i4"))
    assert s3.keys("bare/c/") == []
    assert not plan(s3, source, s3.url("of-bare"), overwrite=True).run()[...].any()


def test_another_array_in_the_same_place_is_no_fill_value(s3: S3) -> None:
    source, target = make(s3, s3.url("replaced")), s3.url("of-replaced")
    job = plan(s3, source, target, overwrite=True)
    make(s3, source, DATA[:, :40], chunks=(48, 40))
    with pytest.raises(ooc.errors.RunError, match="s3://cubes/replaced"):
        job.run()


def test_arrays_of_a_group_are_not_copied_from_where_they_are_no_more(s3: S3) -> None:
    source, target = s3.url("group"), s3.url("of-group")
    write(store_at(source, s3.direct), nested=False)
    job = plan(s3, source, target, chunks={"air": (24, 6, 5)}, overwrite=True)
    remove(s3, BUCKET, "group/rain/")
    with pytest.raises(ooc.errors.RunError, match="group/rain"):
        job.run()


# ---------------------------------------------------------------------- stores of a user's own


def test_what_is_missing_of_references_is_the_fill_value_and_what_they_do_not_reach_is_none(tmp_path: Path) -> None:
    held = zarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 80), compressors=None, zarr_format=2)
    files = {f"a/{row}.0": [f"file://{tmp_path}/a/{row}.0", 0, held.nbytes // 12] for row in range(12) if row != 5}
    metadata = {".zgroup": '{"zarr_format": 2}', "a/.zarray": (tmp_path / "a" / ".zarray").read_text()}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": {**metadata, **files}}))
    options = {"fo": f"{tmp_path}/refs.json", "remote_protocol": "file", "asynchronous": True}
    expected = DATA.copy()
    expected[40:48] = 0
    own = FsspecStore.from_url("reference://a", storage_options=options)
    how: Any = {"memory": "64MiB", "storage_options": options, "overwrite": True}
    ways: list[Callable[[], Any]] = [
        lambda: ooc.open_array(own)[...],
        lambda: ooc.open_array("reference://a", storage_options=options)[...],
        lambda: flat(ooc.rechunk, "reference://a", tmp_path / "b", chunks=(96, 10), **how).run()[...],
        lambda: flat(ooc.rechunk, "reference://", tmp_path / "g", chunks={"a": (96, 10)}, **how).run()["a"][...],
    ]
    for read in ways:
        np.testing.assert_array_equal(read(), expected)
    (tmp_path / "a" / "3.0").unlink()
    for read in ways:
        with pytest.raises(ooc.errors.StoreFailure, match=r'3\.0 of .*Reference "a/3\.0" failed to fetch'):
            read()


def test_a_store_in_memory_that_was_emptied_is_no_fill_value() -> None:
    held: dict[str, Any] = {}
    zarr.create_array(MemoryStore(held), data=DATA, chunks=(8, 80))
    a = ooc.open_array(MemoryStore(held))
    held.clear()
    with pytest.raises(ooc.errors.RunError, match="is missing"):
        a[...]


def test_a_zip_file_that_was_spoilt_is_one_line(tmp_path: Path) -> None:
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, data=DATA, chunks=(8, 80))
    a = ooc.open_array(ZipStore(tmp_path / "a.zip", mode="r"))
    with open(tmp_path / "a.zip", "r+b") as file:
        file.write(bytes((tmp_path / "a.zip").stat().st_size // 2))
    with pytest.raises(ooc.errors.StoreFailure, match=r"cannot read c/.* of zip://"):
        a[...]


def test_a_zip_file_travels_with_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ZipStore("a.zip", mode="w") as store:
        zarr.create_array(store, data=DATA, chunks=(8, 80))
    a = ooc.open_array(ZipStore("a.zip", mode="r"))
    (tmp_path / "else").mkdir()
    monkeypatch.chdir(tmp_path / "else")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(a))[...], DATA)


@pytest.mark.filterwarnings("ignore")
def test_a_wrapped_store_may_refuse_in_words_of_its_own(s3: S3) -> None:
    make(s3, s3.url("wrapped"))
    a = ooc.open_array(LoggingStore(store_at(s3.url("wrapped"), s3.options)._store, log_level="CRITICAL"))
    s3.tell(fault="403", times=10**6, match="/wrapped/c/")
    with pytest.raises(ooc.errors.StoreFailure, match=r"cannot read c/0/0 .*credentials were refused"):
        a[...]


def test_a_folder_of_a_group_that_was_removed_is_not_copied_as_empty(tmp_path: Path) -> None:
    job = ooc.rechunk(write(tmp_path / "a", nested=False), tmp_path / "b", chunks={"air": (24, 6, 5)}, memory="256MiB")
    shutil.rmtree(tmp_path / "a" / "rain")
    with pytest.raises(ooc.errors.RunError, match="a/rain"):
        job.run()


def test_what_is_refused_in_the_middle_of_a_part_is_not_recorded_as_written(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("whole")), s3.url(f"of-refused-{library}")
    job = plan(s3, source, target)
    s3.tell(fault="403", times=10**6, match="c/0/4")
    with pytest.raises(ooc.errors.StoreFailure, match=r"cannot write c/0/4"):
        job.run()
    s3.tell()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # chunks that are not as they were
        again = ooc.resume(target, storage_options=s3.options)
    there = len([key for key in s3.keys(f"of-refused-{library}/") if "/c/" in key])
    assert 0 < again.left < 1
    np.testing.assert_array_equal(again.run()[...], DATA)
    assert again.meter.write_requests == again.plan.target.grid.count - there > 0
