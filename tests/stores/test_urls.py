"""Places as a person may name them, and what is said of those that cannot be."""

from __future__ import annotations

import uuid

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from tests.small import DATA

pytestmark = pytest.mark.long


def test_memory_is_a_store_too() -> None:
    url = f"memory://{uuid.uuid4().hex}"
    zarr.create_array(f"{url}/a", data=DATA, chunks=(8, 80))
    target = ooc.rechunk(f"{url}/a", f"{url}/b", chunks=(96, 10), memory="64MiB").run()
    np.testing.assert_array_equal(target[...], DATA)
    assert target.store == f"{url}/b"


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nope://bucket/a", r"unknown scheme nope://; supported are s3, gs"),
        ("gcs://bucket/a", r"pip install 'oocarrays\[gcs\]'"),
        ("abfs://container/a", r"pip install 'oocarrays\[azure\]' or 'oocarrays\[obstore\]'"),
    ],
)
def test_an_unknown_scheme_or_a_missing_package_is_one_line(url: str, says: str) -> None:
    with dask.config.set({"oocarrays.store-library": "fsspec"}), pytest.raises(ooc.errors.UnsupportedError) as no:
        ooc.open_array(url)
    assert no.match(says)
    assert "\n" not in str(no.value)


def test_settings_that_cannot_be_are_refused() -> None:
    for name, value in (("store-library", "boto"), ("requests", 0), ("retries", -1)):
        with dask.config.set({f"oocarrays.{name}": value}), pytest.raises(ooc.errors.InputError, match=repr(value)):
            ooc.open_array("memory://a")
