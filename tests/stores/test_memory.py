"""Memory is a contract over a network too: what is under way is in the plan."""

from __future__ import annotations

import pytest

from tests.dying import Server
from tests.stores.servers import S3
from tests.stores.test_s3 import make
from tests.test_memory import measured, part

pytestmark = pytest.mark.long

MEMORY = 96 * 2**20


@pytest.mark.parametrize("library", ["obstore", "fsspec"])
def test_a_run_over_a_network_holds_no_more_than_its_plan(s3: S3, library: str, runs: Server) -> None:
    source = make(s3, s3.url("held"), part(slice(0, 4096)), chunks=(64, 4096))
    s3.tell(latency=0.02)
    target = s3.url(f"held-{library}")
    options = {"chunks": (4096, 64), "memory": MEMORY, "storage_options": s3.direct}
    told = measured(runs, source=source, target=target, **options, settings={"oocarrays.store-library": library})
    assert told["samples"] > 10
    assert told["buffers"] / 2 < told["watched"] <= told["peak"] <= told["budget"] == MEMORY, told
