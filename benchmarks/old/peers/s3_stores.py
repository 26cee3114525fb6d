"""The same kind of Zarr store for every peer: obstore's, by the same environment."""

from __future__ import annotations

from obstore.store import S3Store
from zarr.storage import ObjectStore


def open_store(url: str) -> ObjectStore:
    """Return the store at `s3://bucket/path`; where the server is stands in the environment."""
    return ObjectStore(S3Store.from_url(url, client_options={"allow_http": True}))
