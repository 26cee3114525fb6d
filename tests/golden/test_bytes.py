"""Files that about 60 jobs write are the stored ones: their names, and SHA-256 of what is in them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from tests.golden.jobs import KINDS
from tests.golden.records import Golden

pytestmark = pytest.mark.long

METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
OURS = (".oocarrays", ".striped")
"""In the names of files that hold random ids, paths, times and inodes: only their names are compared."""
SETTLED = ("bytes", "sharding_indexed", "crc32c", "transpose")
"""Codecs that make the same bytes in every version of their library."""


def sha(data: bytes) -> str:
    """Return the first 16 digits of SHA-256."""
    return hashlib.sha256(data).hexdigest()[:16]


def digests(folder: Path) -> dict[str, str]:
    """Return a digest of each file below a folder, and of the data of each array whose chunks are compressed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    coded = [path.parent for path in files if path.name in METADATA[:2] and is_coded(path)]
    found = {str(path.relative_to(folder)): digest(path, coded) for path in files}
    arrays = {str(path.relative_to(folder)): zarr.open_array(path, mode="r")[...] for path in coded}
    return found | {f"data of {name}": sha(np.ascontiguousarray(data).tobytes()) for name, data in arrays.items()}


def is_coded(path: Path) -> bool:
    """Return whether an array's chunks are compressed."""
    document = json.loads(path.read_text())
    if path.name == ".zarray":
        return document["compressor"] is not None
    return any(name not in SETTLED for name in codec_names(document.get("codecs", ())))


def codec_names(codecs: Any) -> list[str]:
    """Return the names of codecs, those within shards among them."""
    return [
        name
        for codec in codecs
        for name in (codec["name"], *codec_names(codec.get("configuration", {}).get("codecs", ())))
    ]


def digest(path: Path, coded: list[Path]) -> str:
    """Return a digest of a file; of metadata one that does not depend on the order of keys and white space."""
    if path.name in METADATA:
        return sha(json.dumps(json.loads(path.read_text()), sort_keys=True).encode())
    if any(word in path.name for word in OURS):
        return "ours"
    return "coded" if any(folder in path.parents for folder in coded) else sha(path.read_bytes())


@pytest.mark.parametrize("kind", KINDS)
def test_jobs_write_the_stored_bytes(tmp_path: Path, golden: Golden, kind: str) -> None:
    new = {}
    for number, (name, run) in enumerate(KINDS[kind]()):
        folder = tmp_path / str(number)
        folder.mkdir()
        run(folder)
        new[f"{kind}: {name}"] = digests(folder)
    golden.check(new, lambda name: name.startswith(f"{kind}: "))
