"""A folder of arrays, groups and wrecks of them, which every try gets fresh."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import oocarrays as ooc
from tests.unfinished import break_disk

WRECKS = ("[1,2]", "[" * 200_000, "{}", "null", "", "\udc80", '{"zarr_format": 3', "0" * 5000, '{"zarr_format": NaN}')
"""What stands in the place of a document."""
BENT = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    10**20,
    0.5,
    float("nan"),
    "",
    "x",
    "\x00",
    "../../evil",
    [],
    [1, [2]],
    {},
    [None],
)
"""What stands in the place of a value in a document."""


def build(folder: Path) -> None:
    """Make everything that a name can stand for, good and bad."""
    folder.mkdir(parents=True)
    _arrays(folder)
    _groups(folder)
    _wrecks(folder)


def _arrays(folder: Path) -> None:
    field = np.arange(120, dtype="i4").reshape(12, 10)
    zarr.create_array(folder / "a.zarr", data=field, chunks=(4, 5))
    zarr.create_array(folder / "plain.zarr", data=field, chunks=(3, 10), compressors=None)
    zarr.create_array(folder / "two.zarr", data=field, chunks=(5, 4), zarr_format=2)
    zarr.create_array(folder / "shards.zarr", data=field, chunks=(2, 5), shards=(6, 10))
    zarr.create_array(folder / "named.zarr", data=field / 7, chunks=(4, 5), dimension_names=("time", "lat"))
    zarr.create_array(folder / "line.zarr", data=np.arange(30.0), chunks=(7,))
    zarr.create_array(folder / "point.zarr", data=np.array(5.0))
    zarr.create_array(folder / "none.zarr", shape=(0, 5), chunks=(1, 5), dtype="i2")
    zarr.create_array(folder / "axes31.zarr", data=np.ones((1,) * 31, "u1"))
    zarr.create_array(folder / "axes33.zarr", shape=(1,) * 33, dtype="u1")
    zarr.create_array(folder / "huge.zarr", shape=(10**15,), chunks=(1000,), dtype="u1")
    zarr.create_array(folder / "square.zarr", shape=(2**31, 2**31), chunks=(2**15, 2**15), dtype="f8")


def _groups(folder: Path) -> None:
    group = zarr.create_group(folder / "group.zarr", attributes={"title": "x"})
    group.create_array("one", data=np.arange(20.0).reshape(4, 5), chunks=(2, 5))
    group.create_array("deep/two", data=np.arange(6), chunks=(4,))
    ooc.create_array(
        folder / "local.zarr", shape=(12, 10), dtype="f4", layout="(block, *)", ranks=2, placement="local", depth=1
    )
    evil = zarr.create_group(folder / "evil.zarr")
    evil.create_array("one", data=np.arange(6), chunks=(4,))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that format 3 has no word for it yet
        zarr.consolidate_metadata(folder / "evil.zarr")
    _rewrite(folder / "evil.zarr/zarr.json", '"one"', '"../../evil"')


def _wrecks(folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("no array")
    for number, wreck in enumerate(WRECKS):
        _wreck(folder / f"wreck{number}.zarr/zarr.json", wreck)
    _unfinished(folder, "unfinished.zarr")
    shutil.copytree(folder / "a.zarr", folder / "cut.zarr")
    (folder / "cut.zarr/c/0/0").write_bytes(b"\x00")
    shutil.copytree(folder / "a.zarr", folder / "denied.zarr")
    (folder / "denied.zarr").chmod(0o500)
    (folder / "loop.zarr").symlink_to("loop.zarr")


def _unfinished(folder: Path, name: str) -> None:
    """Let a run stop in the middle."""
    import pytest

    job = ooc.rechunk(folder / "a.zarr", folder / name, chunks=(12, 2), memory="64MiB", scheduler="threads")
    with pytest.MonkeyPatch.context() as patch:
        break_disk(patch, after=2)
        try:
            job.run()
        except ooc.OocError:
            return
    raise AssertionError("the run has not stopped")


def bend(folder: Path, rng: random.Random) -> None:
    """Bend one document of an array, a group or a journal: ``bent.zarr``."""
    whole = rng.choice(["a.zarr", "two.zarr", "shards.zarr", "unfinished.zarr", "group.zarr", "local.zarr"])
    shutil.copytree(folder / whole, folder / "bent.zarr")
    documents = [path for path in sorted(folder.glob("bent.zarr/**/*")) if _is_document(path)]
    document = rng.choice(documents)
    if rng.random() < 0.3:
        _wreck(document, rng.choice(WRECKS))
    else:
        _bend_value(document, rng)


def _is_document(path: Path) -> bool:
    return path.is_file() and (path.suffix == ".json" or path.name in (".zarray", ".zattrs") or "plan" in path.name)


def _bend_value(path: Path, rng: random.Random) -> None:
    document: Any = {}
    with suppress(ValueError):
        document = json.loads(path.read_bytes())
    places = list(_places(document)) or [({"": 0}, "")]
    holder, key = rng.choice(places)
    if rng.random() < 0.2 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = rng.choice(BENT)
    path.write_text(json.dumps(document))


def _places(value: Any) -> Any:
    """Every place in a document at which a value stands: what holds it, and its key or number."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, held in items:
        yield value, key
        yield from _places(held)


def _rewrite(path: Path, old: str, new: str) -> None:
    path.write_text(path.read_text().replace(old, new))


def _wreck(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode(errors="surrogateescape"))
