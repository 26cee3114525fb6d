"""A real S3 server, moto's, in a process of its own, and a proxy before it that is slow and fails as it is told."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

PROXY = Path(__file__).parent / "proxy.py"
BUCKET = "cubes"
START_SECONDS = 60


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


class S3:
    """The server and the proxy; ``options`` opens URLs by way of the proxy, ``direct`` past it."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with open(folder / "moto.log", "w") as log:
            self.moto = subprocess.Popen(command, stdout=log, stderr=log)
        _wait_for(port)
        self.proxy = subprocess.Popen([sys.executable, str(PROXY), str(port)], stdout=subprocess.PIPE, text=True)
        assert self.proxy.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self.proxy.stdout.readline())}"
        self.direct = _options(f"http://127.0.0.1:{port}")
        self.options = _options(self.endpoint)
        import boto3

        self.client = boto3.client(
            "s3",
            endpoint_url=self.direct["endpoint_url"],
            aws_access_key_id="k",
            aws_secret_access_key="s",
            region_name="us-east-1",
        )
        self.client.create_bucket(Bucket=BUCKET)

    def url(self, path: str) -> str:
        return f"s3://{BUCKET}/{path}"

    def tell(self, **how: Any) -> None:
        """How the proxy is from now on; what it counted is forgotten."""
        wanted = {"latency": 0.0, "fault": "", "times": 0, "match": ""} | how
        request = urllib.request.Request(f"{self.endpoint}/-/set", json.dumps(wanted).encode(), method="POST")
        urllib.request.urlopen(request).read()

    def counts(self) -> dict[str, int]:
        """Requests by method since the last time, ``most`` of them at one time, and ``faults``."""
        counts: dict[str, int] = json.loads(urllib.request.urlopen(f"{self.endpoint}/-/counts").read())
        return counts

    def keys(self, prefix: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [each["Key"] for page in pages for each in page.get("Contents", [])]

    def close(self) -> None:
        for process in (self.proxy, self.moto):
            process.kill()
            process.wait()
        assert self.proxy.stdout is not None
        self.proxy.stdout.close()


def _options(endpoint: str) -> dict[str, Any]:
    return {"endpoint_url": endpoint, "key": "k", "secret": "s", "client_kwargs": {"region_name": "us-east-1"}}


def _wait_for(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"moto's server did not start in {START_SECONDS} s")
