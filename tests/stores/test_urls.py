"""Places as a person may name them, and what is said of those that cannot be."""

from __future__ import annotations

import uuid

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

import oocarrays as ooc
from oocarrays.mapping.grid import ChunkGrid, boxes
from oocarrays.mapping.overlap import axis_overlap, span_elements
from oocarrays.storage.stores.remote import is_refused
from oocarrays.storage.stores.urls import Ways, store_of
from tests.small import DATA
from tests.strategies import chunks_for, shapes

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
        ("nope://bucket/a", r"no store is known by nope://; there are s3, gs"),
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


def test_options_that_only_fsspec_knows_choose_it() -> None:
    assert "ObjectStore" in repr(store_of("s3://b/a", {"anon": True}))
    assert "FsspecStore" in repr(store_of("s3://b/a", {"anon": True, "requester_pays": True}))
    with pytest.raises(ooc.errors.InputError, match="requester_pays"):
        store_of("s3://b/a", {"requester_pays": True}, Ways(library="obstore"))


class Answer(Exception):
    """As aiohttp's: it has a status."""

    def __init__(self, status: int) -> None:
        self.status = status


@pytest.mark.parametrize("status", [400, 401, 403, 408, 429, 500])
def test_which_answers_are_refusals(status: int) -> None:
    assert is_refused(Answer(status)) == (status in (401, 403))


@given(st.data())
def test_what_is_sieved_is_what_lies_between_first_and_last(data: st.DataObject) -> None:
    shape = data.draw(shapes(3, most=500).filter(lambda shape: 0 not in shape))
    chunks, region = data.draw(chunks_for(shape)), data.draw(chunks_for(shape))
    axes = [axis_overlap(n, c, r, c) for n, c, r in zip(shape, chunks, region, strict=True)]
    source, target = ChunkGrid.of(shape, chunks), ChunkGrid.of(shape, region)
    total = 0
    for first, last in boxes(range(target.count), target.counts):
        for index in np.ndindex(*(b - a for a, b in zip(first, last, strict=True))):
            section = target.section(tuple(a + i for a, i in zip(first, index, strict=True)))
            for chunk in source.indices(section):
                whole = source.section(chunk)
                piece = section.intersection(whole)
                assert piece is not None
                here = piece.relative_to(whole.lower)
                corner = np.array([u - 1 for u in here.upper])
                strides = np.cumprod((1, *chunks[:0:-1]))[::-1] if chunks else np.array([], int)
                total += int(((corner - np.array(here.lower, int)) * strides).sum()) + 1
    assert total == span_elements(axes, chunks)
