"""A source on S3 that changes while it is read is an error: each response says which version of an object it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

import oocarrays as ooc
from oocarrays.errors import RunError
from tests.changing import VERBS, Gate, changes
from tests.entries import THREADS
from tests.flat import flat
from tests.seams import store_at
from tests.small import DATA
from tests.stores.servers import BUCKET, S3
from tests.stores.test_s3 import LIBRARIES, make, plan

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]

STORED: dict[str, dict[str, Any]] = {
    "plain": {},
    "format 2": {"zarr_format": 2},
    "sharded": {"chunks": (8, 40), "shards": (16, 80), "compressors": ZstdCodec()},
    "through zarr": {"compressors": Crc32cCodec()},
}
KINDS = [("plain", verb) for verb in VERBS] + [(stored, "reduce") for stored in STORED]
SEVERAL = [(LIBRARIES[number % 2], *kind) for number, kind in enumerate(KINDS)]
"""Each verb, and each kind of chunk, by the libraries in turn."""


def chunks_of(s3: S3, prefix: str) -> list[str]:
    return [key for key in s3.keys(f"{prefix}/") if key.rpartition("/")[2][0].isdigit()]


def rewritten(s3: S3, prefix: str, asked: set[str]) -> None:
    """Put other bytes of the same length under all keys, in an event loop of nobody's."""
    for key in chunks_of(s3, prefix):
        body = s3.client.get_object(Bucket=BUCKET, Key=f"{prefix}-other{key.removeprefix(prefix)}")["Body"].read()
        s3.client.put_object(Bucket=BUCKET, Key=key, Body=body)


def without_a_chunk(s3: S3, prefix: str, asked: set[str]) -> None:
    names = [name.partition(f"{BUCKET}/")[2] for name in asked]
    s3.client.delete_object(Bucket=BUCKET, Key=max(key for key in chunks_of(s3, prefix) if key not in names))


@pytest.mark.sampled
@pytest.mark.parametrize("change", [rewritten, without_a_chunk])
@pytest.mark.parametrize(("library", "stored", "verb"), SEVERAL, indirect=["library"])
def test_a_source_that_changes_is_noticed(
    s3: S3, library: str, stored: str, verb: str, change: Callable[..., None]
) -> None:
    if verb == "partitions" and change is without_a_chunk:
        pytest.skip("each partition is planned when the loop comes to it")
    prefix = f"changing-{library}-{stored.replace(' ', '-')}"
    url = make(s3, s3.url(prefix), **STORED[stored])
    make(s3, s3.url(f"{prefix}-other"), DATA + 1, **STORED[stored])

    def place(named: str) -> Any:
        return ooc.open_array(named, storage_options=s3.direct)

    gate = Gate(f"{url}/", 2, lambda asked: change(s3, prefix, asked))
    with changes(gate), pytest.raises(RunError, match="changed while it was read") as failed:
        VERBS[verb](url, place, THREADS)
    assert gate.reached
    assert "\n" not in str(failed.value)
    now = np.asarray(zarr.open_array(store_at(url, s3.direct), mode="r")[...])
    np.testing.assert_array_equal(VERBS[verb](url, place, THREADS), now)


def test_no_request_more_is_made_for_each_chunk(s3: S3, library: str) -> None:
    url = make(s3, s3.url("counted-reads"))
    a = ooc.open_array(url, storage_options=s3.options)
    s3.tell()
    np.testing.assert_allclose(ooc.reduce(a, "max"), DATA.max())
    counts = s3.counts()
    documents_and_listings = 6
    assert 12 <= counts["GET"] <= 12 + documents_and_listings
    assert counts.get("HEAD", 0) <= 1  # s3fs asks whether what it lists is an object


def test_a_bucket_that_lists_nothing_is_read(s3: S3, library: str) -> None:
    url = make(s3, s3.url("unlisted"))
    a = ooc.open_array(url, storage_options=s3.options)
    s3.tell(fault="403", times=10**6, match="GET .*list-type")
    np.testing.assert_allclose(ooc.reduce(a, "max"), DATA.max())
    parts = flat(ooc.ranks.read_sections, a, "(block, *)", ranks=2, **THREADS)
    np.testing.assert_array_equal(parts.compute(), DATA)


JOBS: dict[str, Callable[..., Any]] = {
    "rechunk": lambda s3, a, target: plan(s3, a, target, overwrite=True),
    "map_slabs": lambda s3, a, target: flat(
        ooc.map_slabs,
        np.negative,
        a,
        target,
        memory="128MiB",
        overwrite=True,
        resources=ooc.Resources(storage_options=s3.options),
        **THREADS,
    ),
    "reduce": lambda s3, a, target: flat(
        ooc.reduce,
        a,
        "sum",
        axis=0,
        target=target,
        memory="128MiB",
        overwrite=True,
        resources=ooc.Resources(storage_options=s3.options),
        **THREADS,
    ),
}


@pytest.mark.parametrize("change", [rewritten, without_a_chunk])
@pytest.mark.parametrize("job", JOBS)
def test_a_job_with_a_target_is_not_finished(s3: S3, job: str, change: Callable[..., None]) -> None:
    prefix = f"changing-under-{job}"
    url, target = make(s3, s3.url(prefix)), s3.url(f"{prefix}-target")
    make(s3, s3.url(f"{prefix}-other"), DATA + 1)
    planned = JOBS[job](s3, ooc.open_array(url, storage_options=s3.options), target)
    gate = Gate(f"{url}/", 2, lambda asked: change(s3, prefix, asked))
    with (
        changes(gate),
        pytest.raises(RunError, match=r"while it was read: .*; run the job again"),
    ):
        planned.run()
    assert gate.reached
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array(target, storage_options=s3.options)


@pytest.mark.parametrize("job", JOBS)
def test_a_chunk_that_was_acknowledged_and_not_kept(s3: S3, library: str, job: str) -> None:
    prefix = f"forgotten-{job}"
    url, target = make(s3, s3.url(prefix)), s3.url(f"{prefix}-{library}-target")
    planned = JOBS[job](s3, ooc.open_array(url, storage_options=s3.options), target)
    s3.tell(fault="forget", times=1, match=f"PUT .*{prefix}-{library}-target/c/")
    with pytest.raises(RunError, match="acknowledged 1 chunk that it does not have now"):
        planned.run()
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array(target, storage_options=s3.options)
    how: Any = {"kernel": np.negative} if job == "map_slabs" else {}
    with pytest.warns(RuntimeWarning, match=r"1 of .* chunks that had been written are not as they were"):
        again = flat(ooc.resume, target, storage_options=s3.options, **how, **THREADS)
    right = {"rechunk": DATA, "map_slabs": -DATA, "reduce": DATA.sum(axis=0, dtype="f8")}[job]
    np.testing.assert_allclose(again.run()[...], right)


def test_a_listed_chunk_that_answers_not_found_is_no_fill_value(s3: S3, library: str) -> None:
    url, target = make(s3, s3.url("vanishing")), s3.url(f"vanishing-{library}-target")
    planned = plan(s3, url, target, overwrite=True)
    s3.tell(fault="404 NoSuchKey", times=10**6, match="GET .*/vanishing/c/5")
    with pytest.raises(RunError):
        planned.run()
    a = ooc.open_array(url, storage_options=s3.options)
    with pytest.raises(RunError, match="changed while it was read"):
        ooc.reduce(a, "sum")
