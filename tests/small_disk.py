"""Calls on a disk that is full, each in a process of its own: of a mount that nobody else sees, where that is allowed.

Elsewhere what does not fit goes to the device that is always full.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.errors import OocError
from tests.flat import flat

NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000
"""Linux's CLONE_NEWNS and CLONE_NEWUSER: Python knows them from 3.12 on."""
CODINGS: dict[str, dict[str, Any]] = {
    "plain": {"chunks": (1, 32768), "compressors": None},
    "zstd": {"chunks": (1, 32768)},
    "shard": {"chunks": (1, 4096), "shards": (1, 32768), "compressors": None},
}


def mounted(small: Path, size: int) -> bool:
    """Whether a disk of so many bytes is at a folder now, for this process and those that it starts alone."""
    unshare = ctypes.CDLL(None, use_errno=True).unshare
    user, group = os.getuid(), os.getgid()
    if unshare(NEW_MOUNTS) != 0:  # it takes a superuser, or one who is that in a namespace of users
        if unshare(NEW_USERS | NEW_MOUNTS) != 0:
            return False
        with suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"0 {user} 1")
            Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    calls = ["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(small)]
    return all(subprocess.run(call, capture_output=True, check=False).returncode == 0 for call in calls)


def limited(write: Callable[..., int], small: Path, size: int) -> Callable[..., int]:
    """A call of the system that writes no more than so many bytes below a folder."""
    full, left = os.open("/dev/full", os.O_WRONLY), [size]

    def writing(file: int, data: Any, *at: int) -> int:
        left[0] -= len(data) if os.readlink(f"/proc/self/fd/{file}").startswith(str(small)) else 0
        return write(full if left[0] < 0 else file, data, *at)

    return writing


def rechunk(folder: str, size: int, method: str, codec: str, scratch: str) -> dict[str, Any]:
    """Rechunk to a small disk, and look at what is there then."""
    small, source = Path(folder, "small"), Path(folder, "source.zarr")
    told: dict[str, Any] = {"mounted": mounted(small, size)}
    if not told["mounted"]:
        os.write = limited(os.write, small, size)
    before = digests(source)
    compressors = () if codec == "none" else None
    options: dict[str, Any] = {"memory": "64MiB", "method": method, "ranks": 2, "compressors": compressors}
    try:
        flat(
            ooc.rechunk,
            source,
            small / "target.zarr",
            chunks=(1024, 64),
            resources=ooc.Resources(scratch=f"{folder}/{scratch}"),
            **options,
        ).run()
    except Exception as error:  # noqa: BLE001  whatever it is, it is told
        told |= {"error": type(error).__name__, "message": str(error)}
    try:
        ooc.open_array(small / "target.zarr")
    except OocError as error:
        told["target"] = type(error).__name__
    hidden = [str(p) for place in (small, Path(folder)) for p in place.iterdir() if p.name.startswith(".oocarrays")]
    return told | {"left": hidden + partial(small), "untouched": digests(source) == before}


def change(folder: str, coding: str) -> dict[str, Any]:
    """Write to an array on a disk that is full meanwhile, and look at what is there then."""
    small = Path(folder)
    data = np.random.default_rng(0).integers(1, 2**31, (2, 32768), dtype="i4")  # 128 KiB each, not to be compressed
    alone = mounted(small, 320 * 2**10)
    zarr.create_array(small / "a.zarr", data=data, **CODINGS[coding])
    if alone:
        (small / "other").write_bytes(bytes(40960))
    else:
        os.write, os.pwrite = limited(os.write, small, 0), limited(os.pwrite, small, 0)
    told: dict[str, Any] = {"mounted": alone}
    try:
        ooc.open_array(small / "a.zarr", mode="r+")[:, ::2] = 7
    except OocError as error:
        told |= {"error": type(error).__name__, "message": str(error)}
    same = bool((ooc.open_array(small / "a.zarr")[...] == data).all())
    return told | {"left": partial(small), "same": same}


def partial(folder: Path) -> list[str]:
    """Files below a folder that were not written to their end."""
    return [str(path) for path in folder.rglob("*.partial")]


def digests(folder: Path) -> list[str]:
    """What all files below a folder hold."""
    return [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()]
