"""The main job on S3, each request a given distance away: ours beside Dask's rechunk → to_zarr, in turn.

    python benchmarks/s3.py small --rounds 3
    python benchmarks/s3.py small large --latency 0.02 --peers oocarrays,dask,dask:64

The server is `objects.py`, or with `--server moto` moto's behind `proxy.py`, which takes 3 ms a request by itself.
Every peer has the same kind of Zarr store (obstore's) and a fresh process; `dask:64` gives Dask 64 threads. Beside each
table stands what the server and a client take for a request at no distance: no peer can be faster than that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import machine
import report
import rounds
from cases import Case, Job, job_for
from data import blocks, create, values
from measure import HERE, Run, measure
from peers import Entry
from peers.s3_stores import open_store

CASES = {
    case.name: case
    for case in (
        Case(name="small", shape=(4096, 4096), source_chunks=(16, 4096), target_chunks=(4096, 16)),
        Case(name="short", shape=(4096, 4096), source_chunks=(4, 4096), target_chunks=(4096, 4)),
        Case(name="many", shape=(8192, 8192), source_chunks=(16, 8192), target_chunks=(8192, 16)),
        Case(name="large", shape=(8192, 8192), source_chunks=(32, 8192), target_chunks=(8192, 32)),
    )
}
PEERS = {"oocarrays": "peers.oocarrays_s3", "dask": "peers.dask_s3"}
DEFAULT = "oocarrays,dask,dask:64"
BUCKET = "bench"
PROBES = 200
"""Requests that the server's own time is measured by."""


class Server:
    """The object store: `objects.py`, or moto's server with the proxy before it."""

    def __init__(self, folder: str, moto: bool) -> None:
        self.processes: list[subprocess.Popen] = []
        arguments = [os.path.join(HERE, "..", "..", "tests", "stores", "objects.py")]
        if moto:
            arguments = [os.path.join(HERE, "..", "..", "tests", "stores", "proxy.py"), str(self._moto(folder))]
        process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE, text=True)
        self.processes.append(process)
        self.endpoint = f"http://127.0.0.1:{int(process.stdout.readline())}"
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")).close()

    def _moto(self, folder: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        with open(os.path.join(folder, "moto.log"), "w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/").close()
                break
            except OSError:
                time.sleep(0.1)
        return port

    def tell(self, latency: float, **more: float) -> None:
        """How far away the server is from now on, in seconds a request, and what else `objects.py` is told."""
        told = json.dumps({"latency": latency, **more}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/-/set", told, method="POST")).close()

    def counts(self) -> dict:
        """Requests since the last time, by method, and the most at one time."""
        with urllib.request.urlopen(f"{self.endpoint}/-/counts") as answer:
            return json.loads(answer.read())

    def end(self) -> None:
        """End it."""
        for process in self.processes:
            process.kill()
            process.wait()


@contextmanager
def served(folder: str, moto: bool) -> Iterator[Server]:
    """A server, known to this process and those that it starts by their environment."""
    server = Server(folder, moto)
    try:
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": server.endpoint,
        }
        yield server
    finally:
        server.end()


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = rounds.parser(__doc__, cache=("–",), timeout=300)
    parser.add_argument("cases", nargs="+", choices=CASES, metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--peers", type=rounds.entries(PEERS), default=rounds.entries(PEERS)(DEFAULT))
    parser.add_argument("--latency", type=float, default=0.02, help="seconds a request (default: %(default)s)")
    parser.add_argument("--server", choices=("objects", "moto"), default="objects", help="(default: %(default)s)")
    options = parser.parse_args()
    facts = machine.facts(None)
    with rounds.working_folder(options):
        os.makedirs(options.workdir, exist_ok=True)
        print(facts, flush=True)
        with served(options.workdir, options.server == "moto") as server:
            found = [_case(CASES[name].scaled(options.scale), server, options) for name in options.cases]
    rounds.save(options, {"machine": facts, "results": found})


def _case(case: Case, server: Server, options: argparse.Namespace) -> dict:
    server.tell(0.0)
    job = replace(job_for(case, "", ""), source=f"s3://{BUCKET}/{case.name}")
    make(job)
    own = server_seconds(job)
    played: report.Rounds = []
    for number in range(options.rounds):
        first = number % len(options.peers)
        played.append(
            {peer.label: _run(case, peer, server, options) for peer in (*options.peers[first:], *options.peers[:first])}
        )
    print("", report.table(case, f"none, {options.latency * 1e3:.0f} ms a request", played, "oocarrays"), sep="\n")
    print(
        f"\nThe server itself: {own * 1e3:.2f} ms for a chunk, many asked for together, at no distance.\n", flush=True
    )
    return rounds.plain(case, "none", played) | {"latency": options.latency, "server_seconds": own}


def make(job: Job) -> None:
    """Write the source at no distance."""
    array = create(open_store(job.source), job, job.source_chunks)
    with ThreadPoolExecutor(2) as pool:
        list(
            pool.map(lambda section: array.__setitem__(section, values(section)), blocks(job.shape, job.source_chunks))
        )


def server_seconds(job: Job) -> float:
    """Seconds a chunk when many are asked for together: what the server, the proxy and the client take."""
    import asyncio

    import obstore

    store = open_store(job.source).store
    keys = [f"c/{number % (job.shape[0] // job.source_chunks[0])}/0" for number in range(PROBES)]

    async def all_of_them() -> float:
        gate = asyncio.Semaphore(32)

        async def one(key: str) -> None:
            async with gate:
                await (await obstore.get_async(store, key)).bytes_async()

        start = time.perf_counter()
        await asyncio.gather(*map(one, keys))
        return (time.perf_counter() - start) / PROBES

    return asyncio.run(all_of_them())


def _run(case: Case, peer: Entry, server: Server, options: argparse.Namespace) -> Run:
    """One run of one peer, its output checked at no distance."""
    server.tell(0.0)
    folder = rounds.clean(os.path.join(options.workdir, "run"), options.pause)
    label = peer.label.replace(":", "-")
    job = replace(
        job_for(case, "", folder, peer.factor, peer.variant),
        source=f"s3://{BUCKET}/{case.name}",
        target=f"s3://{BUCKET}/{case.name}-{label}-{time.time_ns()}",
    )
    tiny = replace(
        job_for(case.tiny(), "", os.path.join(folder, "tiny"), peer.factor, peer.variant),
        source=f"s3://{BUCKET}/tiny-{time.time_ns()}",
        target=f"s3://{BUCKET}/tiny-target-{time.time_ns()}",
    )
    make(tiny)
    server.tell(options.latency)
    run = measure(sys.executable, peer, job, tiny, options.timeout)
    counts = server.counts()
    server.tell(0.0)
    made = f"{sum(n for name, n in counts.items() if name != 'most')} requests, {counts['most']} at one time"
    run.told["note"] = "; ".join(filter(None, [run.told.get("note"), made]))
    if run.verdict == "ok":
        run.verdict = rounds.data("check", job.target, job)
    print(f"{case.name} {peer.label}: {run.seconds:.2f} s, {run.verdict}, {made}", file=sys.stderr)
    shutil.rmtree(folder)
    return run


if __name__ == "__main__":
    main()
