"""User-given locations, resolved to paths or Zarr stores: paths, URLs, store objects.

    /data/a.zarr    file:///data/a.zarr       ──► a path, for fast local access
    s3://bucket/a   gs://…  https://…         ──► a RemoteStore on obstore, or on fsspec
    memory://a      any other scheme          ──► a RemoteStore on fsspec
    striped:///a,/b                           ──► a RemoteStore on a store over several of these
    FsspecStore     ObjectStore               ──► a RemoteStore on that store

obstore moves small chunks at several times the rate of s3fs, because its requests are made outside the interpreter. It
reads the same environment variables, but no profile files: if those hold the credentials, fsspec is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit
from zipfile import BadZipFile

import zarr
from fsspec.registry import get_filesystem_class
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore, StorePath, WrapperStore, ZipStore

from oocarrays.errors import InputError, NotFoundError, StoreFailure, TargetError, UnsupportedError
from oocarrays.mapping.given import named
from oocarrays.plan.documents import Settings
from oocarrays.storage.local.fs import ABSENT, failure
from oocarrays.storage.stores.joined import OPENERS, PLACES, SHORTER, Joined, at_place, have_all_entered
from oocarrays.storage.stores.remote import FIRST_WAIT, LONGEST_WAIT, Patience, RemoteStore, cleaned, reason, shown

Library = Literal["obstore", "fsspec"]
SPECIAL = re.compile(r"[*?\[]|:/|\.zip", re.IGNORECASE)
"""Part of a name that may be a pattern of files, a URL, a path in a file, or an archive."""
EXTRAS = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http"}
EXTRAS |= {"gs": "gcs", "gcs": "gcs", "az": "azure", "abfs": "azure"}
"""Our extra with a scheme's fsspec package, by scheme."""
BY_OBSTORE = ("s3", "s3a", "gs", "az", "abfs", "http", "https")
"""Schemes supported by obstore."""
OBSTORE_NAMES = {
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "session_token",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "anon": "skip_signature",
}
"""obstore's names of s3fs options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """Settings for access to remote stores."""

    library: Library | None = None
    """Library for requests; None for obstore if it is installed and supports all options, else fsspec."""
    requests: int = 64
    """Maximum requests of a process in flight."""
    patience: Patience = field(default_factory=Patience)
    """Retry and timeout limits."""


def store_of(place: Any, options: Mapping[str, Any] | None = None, ways: Ways = Ways()) -> Any:
    """Return a path or a usable store for a user-given location; return other objects unchanged."""
    if isinstance(place, FsspecStore | ObjectStore | Joined):
        return _remote(place, _name_of(place), ways)
    if isinstance(place, zarr.Array) and isinstance(place.store_path.store, FsspecStore | ObjectStore | Joined):
        return StorePath(store_of(place.store_path.store, options, ways), place.store_path.path)
    if isinstance(place, dict):
        return MemoryStore(place)  # as Zarr does
    if isinstance(place, str | os.PathLike):
        place = check_path(place)
    if place is None or _is_local(place):
        return absolute(place)
    have_all_entered()
    for known in PLACES:
        if (found := known(place, options, ways)) is not None:
            return found
    if not isinstance(place, str) or "://" not in place:
        return absolute(place)
    scheme = place.partition("://")[0].lower()
    if scheme in ("file", "local"):
        return unquote(urlsplit(place).path)
    if scheme in OPENERS:
        joined = OPENERS[scheme](place, options, ways)
        return RemoteStore(joined, _name_of(joined), ways.patience) if isinstance(joined, Joined) else joined
    mine = options_of(scheme, options)
    _check_endpoint(mine)
    store = _by_obstore(place, scheme, mine, ways) or _by_fsspec(place, scheme, mine, ways)
    return _remote(store, place.rstrip("/"), ways)


def _is_local(place: Any) -> bool:
    """Return whether a location is in a local folder, or a new name in one: no file, part of a file, or pattern."""
    if not isinstance(place, str | os.PathLike):
        return isinstance(getattr(place, "store", place), LocalStore)
    if "://" in os.fspath(place):
        return False
    if os.path.isdir(place):
        return True
    is_new = SPECIAL.search(os.fspath(place)) is None and not os.path.lexists(place)
    return is_new and os.path.isdir(os.path.dirname(os.path.abspath(place)))


def _remote(store: Store, name: str, ways: Ways) -> RemoteStore:
    """Return a store as a remote one, or through a shortcut to its contents if one is registered."""
    have_all_entered()
    found = next((made for known in SHORTER if (made := known(store, name)) is not None), store)
    return RemoteStore(found, name, ways.patience)


def absolute(place: Any) -> Any:
    """Return the location independent of the working folder; other objects unchanged."""
    if isinstance(place, str | os.PathLike):
        return place if "://" in str(place) else os.path.abspath(os.path.expanduser(place))
    if isinstance(place, LocalStore):
        return place if place.root.is_absolute() else twin(place, root=place.root.absolute())
    if isinstance(place, ZipStore):
        if not place.path.is_absolute():
            if place.read_only:
                return opened(ZipStore(place.path.absolute(), mode="r"))
            place.path = place.path.absolute()  # a zip file being written is not opened twice
        return opened(place) if place.read_only or (place._zmode == "a" and place.path.exists()) else place
    if isinstance(place, WrapperStore):
        inner = absolute(place._store)
        return place if inner is place._store else twin(place, _store=inner)
    if isinstance(place, StorePath):
        store = absolute(place.store)
        return place if store is place.store else StorePath(store, place.path)
    if isinstance(place, zarr.Array | zarr.Group):
        there = absolute(place.store_path)
        return place if there is place.store_path else at_place(place, there)
    return place


def opened(store: Any) -> Any:
    """Return the store, opened; zip stores are otherwise open only once Zarr has opened an array in them."""
    if isinstance(store, ZipStore) and not store._is_open:
        try:
            store._sync_open()
        except ABSENT:
            raise NotFoundError(f"no such store: {store}") from None
        except (BadZipFile, ValueError) as error:
            raise NotFoundError(
                f"{store} cannot be opened as a zip file: {error}; a killed run does not leave a readable zip file"
            ) from None
        except OSError as error:
            raise failure("open", store, error) from error
    return store


def check_replaces(store: Any, *, new: bool = False) -> None:
    inner = store.store if isinstance(store, StorePath) else store
    once = not new and getattr(inner, "once", False)
    if isinstance(inner, Store) and (once or not inner.supports_deletes):
        raise TargetError(
            f"the target {inner} is a store in which nothing can be replaced or removed, such as a zip file that is "
            "there: write to a new one, or to a folder"
        )


def twin(store: Any, **changed: Any) -> Any:
    """Return a store with other attributes that shares its open files; `copy` would open a zip file once more."""
    made = object.__new__(type(store))
    vars(made).update(vars(store), **changed)
    return made


def check_path(path: Any, name: str = "the path") -> str:
    """Return a path with ``~`` replaced; raise if it is not valid on any machine, or is ambiguous."""
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise InputError(f"{name} is of type {type(path).__name__}: pass a path or a URL") from None
    if not text or "\0" in text:
        raise InputError(f"{name} {text!r} is {'not a path: it contains a zero byte' if text else 'empty'}")
    if "::" in text and "://" not in text:
        raise InputError(f"{name} {text!r} contains '::', which chains URLs and is not allowed in folder names here")
    return os.path.expanduser(text)


def scratch_place(place: Any) -> str | RemoteStore:
    """Return a scratch folder or store prefix for a result of `store_of`; stripe over several."""
    if isinstance(place, RemoteStore):
        return place
    if isinstance(place, list | tuple) and place:
        several = [scratch_place(each) for each in place]
        return several[0] if len(several) == 1 else store_of(joined_url(several))
    if not isinstance(place, str | os.PathLike):
        raise InputError(f"scratch={place!r} is neither a folder nor a URL")
    return os.path.abspath(check_path(place, "scratch"))


def joined_url(parts: Iterable[str | RemoteStore]) -> str:
    names = (part.name if isinstance(part, RemoteStore) else part for part in parts)
    return "striped://" + ",".join(quote(name, safe="/:=@+~ ") for name in names)


def options_of(scheme: str, options: Mapping[str, Any] | None) -> Settings:
    """Return the options of a scheme: those named by it, or all that are not named by another one."""
    given = {} if options is None else named(options, "storage_options")
    own = given.get(scheme)
    if isinstance(own, Mapping):
        return dict(own)
    return {name: value for name, value in given.items() if not (isinstance(value, Mapping) and name in EXTRAS)}


def check_options(options: Mapping[str, Any] | None, places: Iterable[Any]) -> None:
    """Raise if options for URLs are given with local paths only: each place is a location, or a list of them."""
    lists = (place if isinstance(place, list | tuple) else [place] for place in places)
    known = [place for places in lists for place in places if place is not None]
    texts = [os.fsdecode(place) if isinstance(place, str | os.PathLike) else "://" for place in known]  # open: no paths
    if options and known and all("://" not in text or text.startswith(("file://", "local://")) for text in texts):
        names = ", ".join(sorted(named(options, "storage_options")))
        raise InputError(
            f"storage_options ({names}) are for URLs such as s3://bucket/a.zarr, but this is a local path: "
            f"{', '.join(map(str, known))}"
        )


def _name_of(store: Any) -> str:
    if isinstance(store, Joined):
        return store.url
    if isinstance(store, ObjectStore):
        inner: Any = store.store
        config = getattr(inner, "config", None) or {}
        bucket, prefix = config.get("bucket", ""), getattr(inner, "prefix", None) or ""
        scheme = type(inner).__name__.removesuffix("Store").lower()
        return f"{scheme}://{bucket}/{prefix}".rstrip("/")
    protocol = store.fs.protocol
    scheme = protocol if isinstance(protocol, str) else protocol[0]
    return f"{scheme}://{store.path.lstrip('/')}".rstrip("/")


def _check_endpoint(options: Settings) -> None:
    """Raise if the address of a server is not a URL: libraries fail late, or end with a trace of their own."""
    given = {**options, **options.get("client_kwargs", {})}.get("endpoint_url", os.environ.get("AWS_ENDPOINT_URL"))
    if isinstance(given, str) and not urlsplit(given).netloc:
        raise InputError(f"endpoint_url={given!r} is not a URL: pass one such as https://host or http://host:9000")


def _by_obstore(url: str, scheme: str, options: Settings, ways: Ways) -> Store | None:
    if scheme not in BY_OBSTORE or ways.library == "fsspec":
        return None
    flat = {**options, **options.get("client_kwargs", {})}
    flat.pop("client_kwargs", None)
    known = OBSTORE_NAMES if scheme in ("s3", "s3a") else {}
    config = {known[name]: value for name, value in flat.items() if name in known and value is not None}
    strange = sorted(name for name in flat if name not in known)
    chosen = ways.library == "obstore"
    if not find_spec("obstore"):
        if chosen:
            raise UnsupportedError(f"{shown(url)} needs obstore: pip install 'oocarrays[obstore]'")
        return None
    if not chosen and (strange or _has_profile(scheme, options)) and _knows(scheme):
        return None
    if strange:
        names = ", ".join(strange)
        raise InputError(f"storage_options ({names}) are not supported by obstore: pip install 'oocarrays[s3]'")
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    opener: Any = from_url
    timeout, idle = f"{ways.patience.timeout:.0f}s", str(ways.requests)
    client = {"allow_http": True, "timeout": timeout, "pool_max_idle_per_host": idle}
    wait = {"init_backoff": timedelta(seconds=FIRST_WAIT), "max_backoff": timedelta(seconds=LONGEST_WAIT), "base": 2}
    limit = timedelta(seconds=ways.patience.limit)
    retries = {"max_retries": ways.patience.retries, "backoff": wait, "retry_timeout": limit}
    try:
        store = opener(url, config=config, client_options=client, retry_config=retries)
    except (BaseError, ValueError, TypeError) as error:
        raise InputError(f"{shown(url)} cannot be opened: {shown(str(error).splitlines()[0])}") from cleaned(error)
    return ObjectStore(store)


def _has_profile(scheme: str, options: Mapping[str, Any]) -> bool:
    """Return whether only a profile file holds credentials."""
    if scheme not in ("s3", "s3a") or options.keys() & {"key", "anon"} or "AWS_ACCESS_KEY_ID" in os.environ:
        return False
    files = os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), "~/.aws/config"
    return "AWS_PROFILE" in os.environ or any(os.path.exists(os.path.expanduser(file)) for file in files)


def _knows(scheme: str) -> bool:
    try:
        get_filesystem_class(scheme)
    except (ImportError, ValueError):
        return False
    return True


def _by_fsspec(url: str, scheme: str, options: Settings, ways: Ways) -> Store:
    try:
        get_filesystem_class(scheme)
    except ImportError:
        package = f"'oocarrays[{EXTRAS.get(scheme, scheme)}]'" + " or 'oocarrays[obstore]'" * (scheme in BY_OBSTORE)
        raise UnsupportedError(f"{shown(url)} needs a package that is not installed: pip install {package}") from None
    except ValueError:
        raise UnsupportedError(
            f"{shown(url)}: unknown scheme {scheme}://; supported are s3, gs, az, http(s), memory, file"
        ) from None
    try:
        return FsspecStore.from_url(url, storage_options=_fsspec_options(scheme, options, ways))
    except FileNotFoundError as error:
        raise NotFoundError(f"no such store: {shown(url)}") from cleaned(error)
    except OSError as error:
        raise StoreFailure(f"{shown(url)} cannot be reached: {shown(reason(error))}") from cleaned(error)
    except Exception as error:  # noqa: BLE001  libraries raise anything for wrong options
        raise InputError(f"{shown(url)} cannot be opened: {shown(reason(error))}") from cleaned(error)


def _fsspec_options(scheme: str, options: Settings, ways: Ways) -> Settings:
    """Return fsspec's options; botocore's mode "legacy" also retries a status of 429, unlike "standard"."""
    ours: Settings = {"use_listings_cache": False}
    if scheme in ("s3", "s3a"):
        ours["config_kwargs"] = {
            "max_pool_connections": ways.requests,
            "retries": {"max_attempts": ways.patience.retries, "mode": "legacy"},
            "connect_timeout": ways.patience.timeout,
            "read_timeout": ways.patience.timeout,
            **options.get("config_kwargs", {}),
        }
    return {**options, **ours}
