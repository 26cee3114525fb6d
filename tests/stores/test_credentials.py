"""Credentials open a store, and are told to nobody: planted, and looked for wherever something is said or kept."""

from __future__ import annotations

import io
import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from tests.seams import shown_name, store_at
from tests.small import DATA
from tests.stores.servers import S3

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]

KEY, SECRET, TOKEN = "AKIAPLANTEDKEY", "planted/secret", "planted-session-token"
PLANTED = (KEY, SECRET, TOKEN, "hunter2", "planted-signature")
URLS = (
    "https://me:hunter2@127.0.0.1:9/a.zarr",
    "http://127.0.0.1:9/a.zarr?X-Amz-Credential=AKIAPLANTEDKEY&X-Amz-Signature=planted-signature",
    "ftp://me:hunter2@127.0.0.1:9/a.zarr",
    "nothing://me:hunter2@host/a.zarr",
    "simplecache::https://me:hunter2@127.0.0.1:9/a.zarr",
)


def options(s3: S3) -> dict[str, Any]:
    """The server takes whoever comes; obstore and s3fs are given a key, a secret and a token."""
    return s3.direct | {"key": KEY, "secret": SECRET, "token": TOKEN}


def check(text: object, what: str) -> None:
    for planted in PLANTED:
        assert planted not in str(text), f"{what} tells {planted}"


def check_all_of(thing: Any) -> None:
    """All that an object says of itself."""
    for verb in (repr, str, lambda each: each.explain(), lambda each: each._repr_html_()):
        with suppress(AttributeError):
            check(verb(thing), f"{verb} of {type(thing).__name__}")


def told(work: Callable[[], Any]) -> str:
    """All that is said of an error: its line, and what a program prints that does not expect it."""
    try:
        work()
    except Exception as error:  # noqa: BLE001
        return f"{error!r} {error} {''.join(traceback.format_exception(error))}"
    raise AssertionError("it was to fail")


@pytest.fixture(params=["obstore", "fsspec"])
def by(request: pytest.FixtureRequest) -> Iterator[str]:
    with dask.config.set({"oocarrays.store-library": request.param, "oocarrays.retries": 0}):
        yield str(request.param)


def test_objects_journals_attributes_and_keys_tell_nothing(s3: S3, by: str, caplog: Any, tmp_path: Path) -> None:
    source, target, mine = s3.url(f"{by}-cred.zarr"), s3.url(f"{by}-cred-out.zarr"), options(s3)
    with caplog.at_level(logging.DEBUG, "oocarrays"):
        zarr.create_array(store_at(source, mine), data=DATA, chunks=(8, DATA.shape[1]), overwrite=True)
        array = ooc.open_array(source, storage_options=mine)
        job = ooc.rechunk(source, target, chunks=(96, 10), memory="128MiB", storage_options=mine, overwrite=True)
        lazy = array.to_dask()
        program = job._run.program
        for thing in (array, job, job.plan, lazy, program.target.store, program.source, *lazy.dask.keys()):
            check_all_of(thing)
        for key in job.__dask_graph__():
            check(key, "a key")
        check(job._run.state.content, "the journal")
        np.testing.assert_array_equal(job.run()[...], DATA)
    check(caplog.text, "the log")
    for key in s3.keys(f"{by}-cred-out.zarr/"):
        body = s3.client.get_object(Bucket="cubes", Key=key)["Body"].read()
        assert not any(planted.encode() in body for planted in PLANTED), key


def test_errors_tell_nothing(s3: S3, by: str) -> None:
    mine = options(s3)
    for url in (s3.url("not there.zarr"), "s3://no-such-bucket/a.zarr"):
        check(told(lambda url=url: ooc.open_array(url, storage_options=mine)), url)
    unknown = mine | {"made_up": "hunter2", "password": SECRET}
    with suppress(AssertionError, TypeError):
        check(told(lambda: ooc.open_array(s3.url("a"), storage_options=unknown)), "unknown options")


@pytest.mark.parametrize("url", URLS)
def test_users_and_signatures_in_urls_are_not_shown(url: str, capfd: Any, tmp_path: Path) -> None:
    with dask.config.set({"oocarrays.retries": 0}):
        check(told(lambda: ooc.open_array(url)), url)
        check(told(lambda: ooc.rechunk(url, tmp_path / "o.zarr", chunks=(1,))), url)
        for words in (["info", url], ["rechunk", url, str(tmp_path / "o.zarr"), "--chunks", "1"], ["resume", url]):
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(out), suppress(SystemExit, OSError):
                main(words)
            check(out.getvalue(), f"oocarrays {words[0]}")
    printed = capfd.readouterr()
    check(printed.out + printed.err, "what is printed")


def test_a_name_is_shown_without_what_opens_it() -> None:
    store = store_at("https://me:hunter2@127.0.0.1:9/a.zarr?sig=planted-signature")
    check_all_of(store)
    check(store.name, "its name")
    check_all_of(store.below("c"))
    assert shown_name("file name with ? and me:x@y") == "file name with ? and me:x@y"
