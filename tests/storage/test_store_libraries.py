"""Libraries of stores: options that choose one, and answers that are refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

import oocarrays as ooc
from oocarrays.errors import InputError
from oocarrays.storage.stores.remote import reason
from oocarrays.storage.stores.urls import Ways, store_of

pytestmark = pytest.mark.once


def test_options_that_only_fsspec_knows_choose_it() -> None:
    assert "ObjectStore" in repr(store_of("s3://b/a", {"anon": True}))
    assert "FsspecStore" in repr(store_of("s3://b/a", {"anon": True, "requester_pays": True}))
    with pytest.raises(ooc.errors.InputError, match="requester_pays"):
        store_of("s3://b/a", {"requester_pays": True}, Ways(library="obstore"))


def test_a_url_is_no_folder_whatever_the_working_folder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s3:" / "b" / "a").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "ObjectStore" in repr(store_of("s3://b/a", {"anon": True}))


class Answer(Exception):
    """As aiohttp's: it has a status."""

    def __init__(self, status: int) -> None:
        self.status = status


@pytest.mark.parametrize("status", [400, 401, 403, 408, 429, 500])
def test_which_answers_are_refusals(status: int) -> None:
    assert ("credentials were refused" in reason(Answer(status))) == (status in (401, 403))


def test_a_machine_without_credentials_is_said_to_have_none() -> None:
    asked = "Error performing PUT http://169.254.169.254/latest/api/token in 1.5s: error sending request"
    assert "no credentials were found: pass storage_options" in reason(OSError(asked))


@pytest.mark.parametrize("library", ["auto", "obstore", "fsspec"])
@pytest.mark.parametrize("address", ["", "127.0.0.1:9000", "http:/host"])
def test_the_address_of_a_server_is_a_url(library: str, address: str) -> None:
    with pytest.raises(InputError, match=r"endpoint_url='.*' is not a URL: pass one such as https://host"):
        store_of("s3://b/a", {"endpoint_url": address}, Ways(library=library))
