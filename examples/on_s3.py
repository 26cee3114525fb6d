"""Rechunk an array on S3. Without arguments: from and to a server that moto starts here, with made-up data.

    python on_s3.py s3://bucket/maps.zarr s3://bucket/series.zarr

Who you are, and where the server is, is found as every AWS tool finds it (AWS_ACCESS_KEY_ID, AWS_ENDPOINT_URL, …).
"""

from __future__ import annotations

import logging
import os
import sys
import urllib.request

import numpy as np
import zarr

import oocarrays as ooc


def pretend() -> tuple[str, str]:
    """Return a server here, with one array: 64 maps of 128 × 128."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").disabled = True  # it would say every request
    server.start()
    _, port = server.get_host_and_port()
    os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")).close()
    maps = np.random.default_rng(0).random((64, 128, 128), dtype="f4")
    local = zarr.create_array(zarr.storage.MemoryStore(), data=maps, chunks=(1, 128, 128))
    ooc.rechunk(local, "s3://bucket/maps.zarr", chunks=(1, 128, 128)).run()
    return "s3://bucket/maps.zarr", "s3://bucket/series.zarr"


def main(source: str, target: str) -> None:
    """Write the array at ``source`` again at ``target``: whole along its first axis, short along the others."""
    job = ooc.rechunk(source, target, chunks=(-1, 16, 16), memory="256MiB")
    print(job.explain())  # requests, bytes, and how many requests are under way at one time
    series = job.run()
    print(series, "the first place:", series[:3, 0, 0], "…")


if __name__ == "__main__":
    main(*(sys.argv[1:] or pretend()))
