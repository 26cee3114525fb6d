"""An object store in memory that speaks as much of S3 as Zarr stores ask for, as far away as it is told to be.

    python tests/stores/objects.py [--latency SECONDS]      prints its port

Told ``disks``, ``service`` and ``rate``, it is a file system of so many I/O nodes with a disk each: objects go to them
in turn, and a node serves one read at a time, in ``service`` seconds and at ``rate`` bytes a second. What an array is
(its ``zarr.json``) they know without their disks. ``busiest`` among the counts is the seconds of the busiest disk.

It takes a fraction of a millisecond a request, where moto's server takes 3: what is measured against it is the
distance. It is told what to do, and tells what it counted, as `proxy.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter
from email.utils import formatdate
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from proxy import Proxy, response

FOUND, MADE, PART, GONE, MISSING, THERE = 200, 200, 206, 204, 404, 412
DATE = formatdate(usegmt=True)


class Objects(Proxy):
    """Objects under keys ``bucket/…``."""

    def __init__(self, latency: float) -> None:
        super().__init__(0, latency)
        self.objects: dict[str, bytes] = {}
        self.free: dict[int, float] = {}
        self.told |= {"disks": 0, "service": 0.0, "rate": float("inf")}

    def reset(self) -> None:
        """Begin to count anew."""
        super().reset()
        self.busy = Counter[int]()

    def tell(self) -> dict[str, float]:
        """Return what was counted, of disks, too."""
        return super().tell() | {"busiest": max(self.busy.values(), default=0.0)}

    async def asked(self, head: list[str], body: bytes) -> tuple[bytes, bytes]:
        """Return the answer to a request, and its body."""
        method, target, *_ = head[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        place = urlsplit(target)
        key = unquote(place.path).strip("/")
        query = parse_qs(place.query, keep_blank_values=True)
        if method == "GET" and "/" not in key:
            return self._answer(FOUND, self._listed(key, query))
        if method == "PUT":
            return self._put(key, headers, body)
        if method == "DELETE":
            self.objects.pop(key, None)
            return self._answer(GONE)
        if method == "POST":
            names = re.findall(rb"<Key>(.*?)</Key>", body)
            for name in names:
                self.objects.pop(f"{key}/{name.decode()}", None)
            gone = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % name for name in names)
            return self._answer(FOUND, b"<DeleteResult>%b</DeleteResult>" % gone)
        head, body = self._got(key, headers, bare=method == "HEAD")
        await self._turn(key, len(body))
        return head, body

    async def _turn(self, key: str, nbytes: int) -> None:
        """Wait until the disk that has an object has read so much of it."""
        if not self.told["disks"] or key not in self.objects or key.endswith("zarr.json"):
            return
        disk, now = list(self.objects).index(key) % self.told["disks"], asyncio.get_running_loop().time()
        seconds = self.told["service"] + nbytes / self.told["rate"]
        self.busy[disk] += seconds
        self.free[disk] = max(self.free.get(disk, 0.0), now) + seconds
        await asyncio.sleep(self.free[disk] - now)

    def _put(self, key: str, headers: dict[str, str], body: bytes) -> tuple[bytes, bytes]:
        if headers.get("if-none-match") == "*" and key in self.objects:
            return self._answer(THERE)
        self.objects[key] = body
        return self._answer(MADE)

    def _got(self, key: str, headers: dict[str, str], bare: bool) -> tuple[bytes, bytes]:
        data = self.objects.get(key)
        if data is None:
            return self._answer(MISSING, b"" if bare else b"<Error><Code>NoSuchKey</Code></Error>")
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("range", ""))
        if not found:
            return self._answer(FOUND, data, bare=bare)
        start, stop = int(found[1]), min(int(found[2] or len(data)) + 1, len(data))
        return self._answer(PART, data[start:stop], f"Content-Range: bytes {start}-{stop - 1}/{len(data)}\r\n", bare)

    def _listed(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        names = sorted(key[len(bucket) + 1 :] for key in self.objects if key.startswith(f"{bucket}/{prefix}"))
        folders: dict[str, None] = {}
        files = []
        for name in names:
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folders[prefix + rest.split(delimiter)[0] + delimiter] = None
            else:
                files.append(name)
        entries = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"0"</ETag><Size>{len(self.objects[f"{bucket}/{name}"])}</Size></Contents>'
            for name in files
        ) + "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in folders)
        return (
            f"<?xml version='1.0'?><ListBucketResult><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<KeyCount>{len(files)}</KeyCount><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
        ).encode()

    def _answer(self, status: int, body: bytes = b"", more: str = "", bare: bool = False) -> tuple[bytes, bytes]:
        head = f'{more}ETag: "0"\r\nLast-Modified: {DATE}\r\n'
        whole = response(status, body, head)
        return whole[: len(whole) - len(body)] if bare else whole, body


async def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.0)
    await Objects(parser.parse_args().latency).run()


if __name__ == "__main__":
    asyncio.run(main())
