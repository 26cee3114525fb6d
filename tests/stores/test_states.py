"""Targets on an object store: nobody opens one that is unfinished, and a run that cannot begin leaves nothing."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import FsspecStore

import oocarrays as ooc
from oocarrays.errors import InputError, NotFoundError, OocError, TargetError, UnfinishedError
from tests.groups import write
from tests.small import DATA
from tests.stores.servers import BUCKET, S3
from tests.stores.test_s3 import make, plan
from tests.unfinished import fail

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]


@pytest.mark.parametrize("what", ["plan.json", "draft"])
def test_where_the_first_write_is_refused_nothing_is_left(s3: S3, library: str, what: str) -> None:
    source, target = make(s3, s3.url("states-source")), s3.url(f"states-refused-{library}-{what}")
    job = plan(s3, source, target)
    s3.tell(fault="403", times=1, match=f"PUT .*{what}")
    with pytest.raises(OocError) as caught:
        job.run()
    assert s3.counts()["faults"] == 1
    assert "\n" not in str(caught.value)
    s3.tell()
    assert s3.keys(target.removeprefix(f"s3://{BUCKET}/") + "/") == []
    np.testing.assert_array_equal(plan(s3, source, target).run()[...], DATA)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_nobody_opens_what_a_run_has_left(s3: S3, library: str, zarr_format: int) -> None:
    source, target = make(s3, s3.url("states-source")), s3.url(f"states-left-{library}-{zarr_format}")
    fail(plan(s3, source, target, zarr_format=zarr_format, compressors=()), 3)
    store = FsspecStore.from_url(target, storage_options={**s3.direct, "asynchronous": True})
    for read in (zarr.open_array, zarr.open, zarr.open_group, xr.open_zarr, da.from_zarr):
        with pytest.raises(Exception):  # noqa: B017,PT011  each has errors of its own
            read(store) if read is da.from_zarr else read(store, mode="r") if read is not xr.open_zarr else read(store)
    with pytest.raises(UnfinishedError, match="overwrite"):
        ooc.open_array(target, storage_options=s3.options)
    assert ooc.resume(target, storage_options=s3.options).left <= 1
    s3.client.put_object(Bucket=BUCKET, Key=f"{target.removeprefix(f's3://{BUCKET}/')}/.oocarrays/plan.json", Body=b"")
    with pytest.raises(InputError, match=r"start over: make the same call with overwrite=True"):
        ooc.resume(target, storage_options=s3.options)
    with pytest.raises(TargetError, match="overwrite"):
        plan(s3, source, target)
    made = plan(s3, source, target, zarr_format=zarr_format, compressors=(), overwrite=True).run()
    np.testing.assert_array_equal(made[...], DATA)
    np.testing.assert_array_equal(zarr.open_array(store, mode="r")[...], DATA)
    assert not [key for key in s3.keys(target.removeprefix(f"s3://{BUCKET}/")) if "/.oocarrays/" in key]


def test_a_killed_run_is_gone_on_with(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("states-source")), s3.url(f"states-on-{library}")
    fail(plan(s3, source, target), 4)
    np.testing.assert_array_equal(ooc.resume(target, storage_options=s3.options).run()[...], DATA)
    with pytest.raises(NotFoundError, match="nothing to resume"):
        ooc.resume(target, storage_options=s3.options)


def test_nor_a_group(s3: S3, library: str, tmp_path: Path) -> None:
    source = write(tmp_path / "g", zarr_format=3, consolidated=True)
    target = s3.url(f"states-group-{library}")
    job = ooc.rechunk(
        source, target, chunks={"time": -1}, memory="128MiB", storage_options=s3.options, scheduler="threads"
    )
    fail(job, 1)
    store = FsspecStore.from_url(target, storage_options={**s3.direct, "asynchronous": True})
    with pytest.raises(FileNotFoundError):
        xr.open_zarr(store)
    ooc.resume(target, storage_options=s3.options).run()
    xr.testing.assert_identical(xr.open_zarr(store).load(), xr.open_zarr(source).load())


def test_a_key_that_is_no_part_of_an_array_is_not_removed(s3: S3, library: str) -> None:
    source, target = make(s3, s3.url("states-source")), s3.url(f"states-thesis-{library}")
    plan(s3, source, target).run()
    key = f"{target.removeprefix(f's3://{BUCKET}/')}/thesis.tex"
    s3.client.put_object(Bucket=BUCKET, Key=key, Body=b"seven years")
    with pytest.raises(TargetError, match=r"thesis\.tex"):
        plan(s3, source, target, overwrite=True)
    s3.client.delete_object(Bucket=BUCKET, Key=key)
    np.testing.assert_array_equal(plan(s3, source, target, overwrite=True).run()[...], DATA)
