from __future__ import annotations

from collections.abc import Iterator

import dask
import pytest

from tests.stores.servers import S3


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    s3 = S3(tmp_path_factory.mktemp("s3"))
    yield s3
    s3.close()


@pytest.fixture
def s3(servers: S3) -> Iterator[S3]:
    """The servers, at no distance and without a fault."""
    servers.tell()
    yield servers
    servers.tell()


@pytest.fixture(params=["obstore", "fsspec"])
def library(request: pytest.FixtureRequest) -> Iterator[str]:
    """What makes the requests."""
    with dask.config.set({"oocarrays.store-library": request.param, "oocarrays.retries": 4}):
        yield request.param
