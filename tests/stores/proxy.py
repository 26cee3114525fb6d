"""A proxy before an HTTP server that is as far away, and as unreliable, as it is told to be.

    python tests/stores/proxy.py BACKEND-PORT [--latency SECONDS]      prints its own port

Every request waits `latency` before it is passed on, however many others wait beside it. `GET /-/counts` tells what
passed since the last time, as JSON; `POST /-/set` takes a JSON object:

    latency    seconds that each request waits
    fault      a status such as "503", or with S3's code "400 RequestTimeout"; "drop": the connection ends in the middle
               of the answer; "hang": no answer; "forget": a PUT is acknowledged, and not kept; or ""
    times      how many requests the fault befalls
    match      a regular expression of "METHOD path" of the requests that it befalls
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections import Counter
from contextlib import suppress

REFUSAL = b"<?xml version='1.0'?><Error><Code>%b</Code><Message>told to refuse</Message></Error>"
CODES = {"400": "ExpiredToken", "403": "AccessDenied", "429": "TooManyRequests", "503": "SlowDown"}


class Proxy:
    """One proxy: its manner, and what it has counted."""

    def __init__(self, backend: int, latency: float) -> None:
        self.backend = backend
        self.told = {"latency": latency, "fault": "", "times": 0, "match": ""}
        self.idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.reset()

    def reset(self) -> None:
        """Begin to count anew."""
        self.counts: Counter[str] = Counter()
        self.now = self.most = 0

    async def run(self) -> None:
        """Serve at a port that is printed, until the process is ended."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0, limit=2**26)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, request after request."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await _head(reader):
                method, path, *_ = head[0].split(" ")
                if not await self._answered(reader, writer, head, method, path):
                    break
        writer.close()

    async def _answered(self, reader, writer, head: list[str], method: str, path: str) -> bool:
        if any(line.lower() == "expect: 100-continue" for line in head):
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _body(reader, head)
        if path.startswith("/-/"):
            writer.write(response(200, self._control(path, body)))
            await writer.drain()
            return True
        self.counts[method] += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(self.told["latency"])
            return await self._passed_on(writer, head, body, f"{method} {path}")
        finally:
            self.now -= 1

    def _control(self, path: str, body: bytes) -> bytes:
        if path == "/-/set":
            self.told |= json.loads(body)
        told = self.tell()
        self.reset()
        return json.dumps(told).encode()

    def tell(self) -> dict[str, float]:
        """Return what was counted."""
        return {**self.counts, "most": self.most}

    async def _passed_on(self, writer, head: list[str], body: bytes, request: str) -> bool:
        fault = self._fault(request)
        if fault == "hang":
            await asyncio.sleep(3600)
        status, _, code = fault.partition(" ")
        if status.isdigit():
            said = REFUSAL % (code or CODES.get(status, "Refused")).encode()
            writer.write(response(int(status), b"" if request.startswith("HEAD ") else said))
            await writer.drain()
            return True
        if fault == "forget":
            writer.write(response(200, b"", 'ETag: "forgotten"\r\n'))
            await writer.drain()
            return True
        answer, kept = await self.asked(head, body)
        if fault == "drop":
            writer.write(answer[: len(answer) - max(1, min(10, len(kept)))])
            await writer.drain()
            writer.transport.abort()
            return False
        writer.write(answer)
        await writer.drain()
        return True

    def _fault(self, request: str) -> str:
        if self.told["times"] > 0 and re.search(self.told["match"], request):
            self.told["times"] -= 1
            self.counts["faults"] += 1
            return str(self.told["fault"])
        return ""

    async def asked(self, head: list[str], body: bytes) -> tuple[bytes, bytes]:
        """Return the backend's whole answer, and its body."""
        lines = [
            line for line in head if not line.lower().startswith(("transfer-encoding", "content-length", "expect"))
        ]
        asked = "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode("latin-1") + body
        while True:
            fresh = not self.idle
            reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.backend)
            try:
                writer.write(asked)
                await writer.drain()
                answer = await _head(reader)
                if answer:
                    break
            except (ConnectionError, asyncio.IncompleteReadError):
                if fresh:
                    raise
            writer.close()
        bare = head[0].startswith("HEAD ") or re.match(r"HTTP/1.1 (204|304|1)", answer[0])
        kept = b"" if bare else await _body(reader, answer, to_end=True)
        if any(line.lower() == "connection: close" for line in answer) or not answer[0].startswith("HTTP/1.1"):
            writer.close()
        else:
            self.idle.append((reader, writer))
        lines = [line for line in answer if not line.lower().startswith(("transfer-encoding", "connection"))]
        if not bare and not any(line.lower().startswith("content-length") for line in lines):
            lines.append(f"Content-Length: {len(kept)}")
        lines[0] = lines[0].replace("HTTP/1.0", "HTTP/1.1")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + kept, kept


async def _head(reader: asyncio.StreamReader) -> list[str]:
    """First line and headers; nothing at the end."""
    try:
        text = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return []
    return text.decode("latin-1").rstrip("\r\n").split("\r\n")


async def _body(reader: asyncio.StreamReader, head: list[str], to_end: bool = False) -> bytes:
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    if "chunked" in headers.get("transfer-encoding", "").lower():
        parts = []
        while size := int((await reader.readline()).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readline()
        await reader.readline()
        return b"".join(parts)
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    return await reader.read() if to_end else b""


def response(status: int, body: bytes, more: str = "") -> bytes:
    """Return an answer of HTTP, with more headers in lines of their own."""
    head = f"HTTP/1.1 {status} Told\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


async def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backend", type=int)
    parser.add_argument("--latency", type=float, default=0.0)
    options = parser.parse_args()
    await Proxy(options.backend, options.latency).run()


if __name__ == "__main__":
    asyncio.run(main())
