"""Remote stores with a name, retries, and clear errors.

    get ──► fails transiently (503, 429, a dropped connection, a timeout) ──► obstore or botocore retries it
        ──► is refused (403, a 404 of the bucket, any other 4xx)           ──► StoreFailure: operation, store, reason

The library that makes a request classifies transient failures; one setting limits its retries.
"""

from __future__ import annotations

import asyncio
import atexit
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pkgutil import resolve_name
from typing import Any, TypeVar

from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype

from oocarrays.errors import OocError, StoreFailure
from oocarrays.storage.local.fs import FULL, failure
from oocarrays.storage.stores.joined import Joined, Wrapped, innermost, span
from oocarrays.storage.stores.responses import active_checks, version_of, versioned

T = TypeVar("T")
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds before the first retry, and maximum seconds before later ones."""
MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, KeyError)
"""Exceptions of libraries for a missing key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Retry and timeout limits of a store."""

    retries: int = 6
    """Retries after the first transient failure."""
    timeout: float = 60.0
    """Maximum seconds of one attempt."""

    @property
    def limit(self) -> float:
        """Maximum seconds of all attempts together, with the waits between them."""
        return (self.retries + 1) * self.timeout + self.retries * LONGEST_WAIT


Details = list[tuple[str, int, str]]
"""Keys, sizes in bytes and versions of objects."""


class RemoteStore(Wrapped[Store]):
    """A Zarr store reached by network requests, by any library; it can be pickled if the wrapped store can."""

    def __init__(self, store: Store, name: str, patience: Patience, prefix: str = "") -> None:
        super().__init__(store)
        self.name = shown(name)
        self.patience = patience
        self.prefix = prefix

    def _with_store(self, store: Store) -> RemoteStore:
        return RemoteStore(store, self.name, self.patience, self.prefix)

    def below(self, folder: str) -> RemoteStore:
        if isinstance(self._store, Joined):
            there = self._store.below(f"{self.prefix}{folder}")
            return RemoteStore(there, there.url, self.patience)
        return RemoteStore(self._store, f"{self.name}/{folder}", self.patience, f"{self.prefix}{folder}/")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        rows = self._summary()
        if not rows:
            return f"RemoteStore({self.name!r}, {type(self._store).__name__})"
        width = max(len(label) for label, _ in rows)
        return "\n".join(f"{label:{width}}  {text}" for label, text in rows)

    def _repr_html_(self) -> str | None:
        if not (rows := self._summary()):
            return None
        html: str = resolve_name("oocarrays.show.notebook:rows_html")(rows, title="oocarrays.open_files")  # above
        return html

    def _summary(self) -> list[tuple[str, str]]:
        return self._store.summary() if isinstance(self._store, Joined) else []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and (self.name, self.read_only) == (other.name, other.read_only)

    __hash__ = None  # type: ignore[assignment]

    async def _tried(self, verb: str, key: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``call``, which the library retries; retry codes that obstore does not."""
        left = self.patience.retries
        while True:
            try:
                with _under_way:
                    async with asyncio.timeout(self.patience.limit):
                        return await call()
            except OocError:
                raise
            except Exception as error:
                if isinstance(error, MISSING) and not _says(error, ("NoSuchBucket",)):
                    raise
                if isinstance(error, OSError) and error.errno in FULL:
                    raise failure("write", f"{key} of {self}", error) from error
                if not left or not _says(error, ("RequestTimeout",)):  # of status 400, which obstore does not retry
                    raise StoreFailure(f"cannot {verb} {key or 'anything'} of {self}: {reason(error)}") from error
            left -= 1
            await asyncio.sleep(FIRST_WAIT)

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        span(byte_range, 0)  # an invalid range is an error of the caller, not of the store
        checks = active_checks()
        if not checks or not tells_versions(self):
            return await self._tried("read", key, lambda: self._store.get(self.prefix + key, prototype, byte_range))
        get = partial(versioned, innermost(self), self.prefix + key, prototype, byte_range)
        found, version = await self._tried("read", key, get)
        for check in checks:
            check.saw(f"{self.name}/{key}", version)
        return found

    async def exists(self, key: str) -> bool:
        return await self._tried("read", key, lambda: self._store.exists(self.prefix + key))

    async def set(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._written(key, lambda: self._store.set(self.prefix + key, value))

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        self._check_writable()
        await self._written(key, lambda: self._store.set_if_not_exists(self.prefix + key, value))

    async def _written(self, key: str, call: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._tried("write", key, call)
        except MISSING as error:
            raise StoreFailure(f"cannot write {key} of {self}: {reason(error)}") from error

    async def delete(self, key: str) -> None:
        self._check_writable()
        await self._tried("remove", key, lambda: self._store.delete(self.prefix + key))

    async def delete_dir(self, prefix: str) -> None:
        await self._tried("remove", prefix, lambda: self._store.delete_dir((self.prefix + prefix).rstrip("/")))

    async def is_empty(self, prefix: str) -> bool:
        try:
            return await self._tried("list", prefix, lambda: self._store.is_empty(self.prefix + prefix))
        except MISSING:
            return True

    def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        return self._listed(prefix, lambda: self._store.list_prefix(self.prefix + prefix), self.prefix)

    def list_dir(self, prefix: str) -> AsyncIterator[str]:
        return self._listed(prefix, lambda: self._store.list_dir(self.prefix + prefix))

    async def details(self, prefix: str) -> Details | None:
        """Return all objects with a key prefix; None if the store offers no such listing."""
        if isinstance(self._store, Joined):
            return await self._store.details(self.prefix + prefix)
        inner = innermost(self)
        if type(inner).__name__ not in ("ObjectStore", "FsspecStore") or self.name.startswith("http"):
            return None
        found = await self._tried("list", prefix, lambda: _details(inner, self.prefix + prefix))
        return [(key.removeprefix(self.prefix), size, version) for key, size, version in found]

    async def detail(self, key: str) -> tuple[int, str] | None:
        """Return the size and version of one object; None if it does not exist."""
        inner = innermost(self)
        try:
            if type(inner).__name__ not in ("ObjectStore", "FsspecStore"):
                return await self._tried("read", key, lambda: self._store.getsize(self.prefix + key)), ""
            return await self._tried("read", key, lambda: _detail(inner, self.prefix + key))
        except MISSING:
            return None

    async def _listed(self, prefix: str, names: Callable[[], AsyncIterator[str]], less: str = "") -> AsyncIterator[str]:
        async def collected() -> list[str]:  # type: ignore[valid-type]
            return [name.removeprefix(less) async for name in names()]

        found: Any = ()
        with suppress(*MISSING):
            found = await self._tried("list", prefix, collected)
        for name in found:
            yield name


async def _details(store: Any, prefix: str) -> Details:
    """List keys, sizes and versions from obstore or fsspec."""
    if type(store).__name__ == "ObjectStore":
        return [(obj["path"], obj["size"], version_of(obj)) async for obj in store._list(prefix)]
    root = f"{store.path}/"
    found = await store.fs._find(f"{root}{prefix}", detail=True, withdirs=False)
    return [(name.removeprefix(root), info["size"] or 0, version_of(info)) for name, info in found.items()]


async def _detail(store: Any, key: str) -> tuple[int, str]:
    is_object = type(store).__name__ == "ObjectStore"
    info = await (store.store.head_async(key) if is_object else store.fs._info(f"{store.path}/{key}"))
    return info["size"] or 0, version_of(info)


class _UnderWay:
    """Counter of requests in progress; all are made in Zarr's event loop, one thread."""

    now = 0
    ever = 0

    def __enter__(self) -> None:
        self.now, self.ever = self.now + 1, self.ever + 1

    def __exit__(self, *error: object) -> None:
        self.now -= 1


_under_way = _UnderWay()


@atexit.register
def _let_finish() -> None:
    """Wait for the libraries at the exit of a process that has made requests.

    An obstore thread that calls into a finalized interpreter aborts the process: one in thirty processes that ended
    right after an error was aborted so.
    """
    deadline = time.monotonic() + 2
    while _under_way.now and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05 if _under_way.ever else 0)  # for the libraries' own cleanup


def tells_versions(store: Any) -> bool:
    """Return whether a store's responses carry the same object versions as its listings."""
    inner = innermost(store)
    known = type(inner).__name__ == "ObjectStore" or hasattr(getattr(inner, "fs", None), "_call_s3")
    return isinstance(store, RemoteStore) and known and not store.name.startswith("http")


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status in an error of botocore or aiohttp; obstore gives it only as text."""
    for each in _chain(error):
        response = getattr(each, "response", None)
        told = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
        told = told or getattr(each, "status", None)
        if isinstance(told, int):
            return told
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen, each = set[int](), error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _says(error: BaseException, words: Iterable[str]) -> bool:
    """Return whether the type or text of an error or its causes contains one of the words."""
    return any(word in f"{type(each).__name__} {each}" for each in _chain(error) for word in words)


def reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(cleaned(error)).splitlines() if line.strip()]
    words = shown(lines[0]) if lines else type(error).__name__
    words = words if len(words) <= 300 else f"{words[:299]}…"
    types = ("NoCredentialsError", "PartialCredentialsError", "PermissionDeniedError", "UnauthenticatedError")
    codes = ("TokenRetrievalError", "ExpiredToken", "InvalidToken")  # by name: botocore and obstore are optional
    if _says(error, ("169.254.169.254",)):  # where a cloud's machine is asked for credentials, after everything else
        return (
            "no credentials were found: pass storage_options, or set them as environment variables; a public bucket "
            f"needs {{'anon': True}} ({words})"
        )
    if isinstance(error, PermissionError) or status_of(error) in (401, 403) or _says(error, (*types, *codes)):
        return f"the credentials were refused, or there are none ({words})"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if _says(error, ("NoSuchBucket",)):
        return f"there is no such bucket ({words})"
    status = status_of(error)
    return words if status is None or str(status) in words else f"{status}, {words}"


PARAMETER = re.compile(
    r"((?:X-(?:Amz|Goog)-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature|sig|(?:access_|api_)?token)=)"
    r"[^\s&'\")>]+",
    re.IGNORECASE,
)
NAMED = re.compile(
    r"(\b(?:user(?:name)?|[a-z_]*password|[a-z_]*secret[a-z_]*|[a-z_]*token|access_key(?:_id)?)['\"]?\s*[:=]\s*"
    r"(?:Some\(\s*)?['\"])[^'\"]+",
    re.IGNORECASE,
)
"""Pattern of named values in the messages of libraries."""


def shown(text: object) -> str:
    """Return a location, or a text with locations, without users, passwords and signatures."""
    text = re.sub(r"([A-Za-z][A-Za-z0-9+.:-]*)://([^/\s?#'\"]*)@", _without_user, str(text))
    text = re.sub(r"(\bhttps?://[^\s?'\"]*)\?[^\s'\")>]+", r"\1?…", text)
    return NAMED.sub(r"\1…", PARAMETER.sub(r"\1…", text))


def _without_user(found: re.Match[str]) -> str:
    scheme, user = found.groups()
    is_container = scheme in ("az", "abfs", "abfss", "wasb", "wasbs") and ":" not in user
    return found.group() if is_container else f"{scheme}://"


def cleaned(error: BaseException) -> BaseException:
    """Redact credentials in the messages of an error and its causes, and return it."""
    for each in _chain(error):
        each.args = tuple(shown(word) if isinstance(word, str) else word for word in each.args)
    return error
