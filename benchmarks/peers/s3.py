"""The main job on an object store, each request some distance away: the server, ours, and Dask."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from case import Case, Job

SERVER = Path(__file__).parents[2] / "tests" / "stores" / "objects.py"
BUCKET = "bench"
KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


class Server:
    """An object store in a process of its own."""

    def __init__(self, latency: float) -> None:
        self.process = subprocess.Popen([sys.executable, str(SERVER)], stdout=subprocess.PIPE, text=True)
        self.port, self.latency = int(self.process.stdout.readline()), latency
        self.placed_before: dict[str, str] = {}
        self.targets = 0
        self.told("PUT", f"/{BUCKET}")

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def told(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """Return the answer to one request."""
        with urllib.request.urlopen(urllib.request.Request(self.endpoint + path, body, method=method)) as answer:
            return answer.read()

    def placed(self, job: Job) -> Job:
        """Return the job with source and target on the server; a source is uploaded at no distance, once."""
        if job.source not in self.placed_before:
            name = self.placed_before[job.source] = f"source-{len(self.placed_before)}"
            connection = http.client.HTTPConnection("127.0.0.1", self.port)
            for folder, _, names in os.walk(job.source):
                for each in names:
                    path = os.path.join(folder, each)
                    key = f"/{BUCKET}/{name}/{os.path.relpath(path, job.source)}"
                    connection.request("PUT", key, Path(path).read_bytes())
                    connection.getresponse().read()
            connection.close()
        self.targets += 1
        url = f"s3://{BUCKET}"
        params = {**job.params, "endpoint": self.endpoint}
        source, target = f"{url}/{self.placed_before[job.source]}", f"{url}/target-{self.targets}"
        return replace(job, source=source, target=target, params=params)

    def begin(self) -> None:
        """Be as far away as the case says, and count."""
        self.told("POST", "/-/set", json.dumps({"latency": self.latency}).encode())

    def end(self) -> str:
        """Be near again; says what was asked meanwhile."""
        counts = json.loads(self.told("POST", "/-/set", b'{"latency": 0}'))
        return f"{sum(n for name, n in counts.items() if name.isupper())} requests, {counts['most']} at one time"


@contextmanager
def served(case: Case, options: Any) -> Iterator[Server]:
    """A server, known to runs by their environment."""
    server = Server(case.params["latency"])
    os.environ |= {**KEYS, "AWS_ENDPOINT_URL": server.endpoint}
    try:
        yield server
    finally:
        del os.environ["AWS_ENDPOINT_URL"]
        server.process.kill()
        server.process.wait()


def opened(url: str, job: Job) -> Any:
    """Return the same kind of Zarr store for every peer: obstore's."""
    from obstore.store import S3Store
    from zarr.storage import ObjectStore

    config = {"endpoint": job.endpoint, "access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    return ObjectStore(S3Store.from_url(url, config=config, client_options={"allow_http": True}))


def check(job: Job) -> str:
    """Compare a target with the field."""
    from data import rechunked

    return rechunked(job, opened(job.target, job))


def ours(job: Job) -> dict:
    """`rechunk` by URLs."""
    import oocarrays as ooc
    from peers.ours import told

    work = ooc.rechunk(job.source, job.target, chunks=job.target_chunks, memory=job.budget)
    work.run()
    return told(work)


def dask(job: Job) -> dict:
    """`from_zarr` → `rechunk` → `to_zarr` by threads of this process, as many as `threads` says, or Dask's default.

    Each thread waits for its own request; many of them are the one setting that hides a distance.
    """
    import dask
    import dask.array as da
    import zarr
    from data import target

    settings = {"num_workers": job.threads} if "threads" in job.params else {}
    made = target(job, opened(job.target, job))
    with dask.config.set(scheduler="threads", **settings):
        array = da.from_zarr(zarr.open_array(opened(job.source, job), mode="r"))
        da.to_zarr(array.rechunk(job.target_chunks), made)
    return {}
