"""Runs the command line as if the system were not Linux: what only Linux has is taken away before we are imported.

    python tests/elsewhere.py darwin demo --size 32MiB

What is taken: /proc and /sys, calls of the C library, functions of `os`, advice for mapped memory, locks of open files.
"""

from __future__ import annotations

import builtins
import ctypes
import fcntl
import mmap
import multiprocessing
import os
import sys
from typing import Any

import dask.array  # noqa: F401  what looks at the platform when it is imported is imported before
import distributed  # noqa: F401
import psutil  # noqa: F401
import zarr  # noqa: F401

FUNCTIONS = (
    "posix_fadvise", "posix_fallocate", "copy_file_range", "sched_getaffinity", "O_DIRECT", "O_TMPFILE", "fdatasync",
    "RWF_NOWAIT", "memfd_create", "splice", "POSIX_FADV_WILLNEED", "POSIX_FADV_DONTNEED", "POSIX_FADV_RANDOM",
)  # fmt: skip
CALLS = {"fallocate", "sync_file_range", "statfs", "statx", "posix_fallocate", "preadv2", "cachestat", "syscall"}
ADVICE = {"MADV_NORMAL", "MADV_RANDOM", "MADV_SEQUENTIAL", "MADV_WILLNEED", "MADV_DONTNEED", "MADV_FREE"}


def take_away() -> None:
    """Take what other systems do not have."""
    advice = [name for name in dir(mmap) if name.startswith("MADV_") and name not in ADVICE]
    locks = [name for name in dir(fcntl) if name.startswith("F_OFD")]
    for module, names in ((os, FUNCTIONS), (mmap, [*advice, "MAP_POPULATE"]), (fcntl, locks)):
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    if hasattr(os, "process_cpu_count"):  # newer Pythons have made it of what was taken
        os.process_cpu_count = os.cpu_count  # type: ignore[attr-defined]
    builtins.open = _opened(builtins.open)  # type: ignore[assignment]
    ctypes.CDLL = _Library  # type: ignore[misc, assignment]


def _opened(really: Any) -> Any:
    def opened(path: Any, *args: Any, **how: Any) -> Any:
        if isinstance(path, (str, os.PathLike)) and str(path).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return really(path, *args, **how)

    return opened


class _Library:
    """The C library without what only Linux's has."""

    _opens = ctypes.CDLL

    def __init__(self, *args: Any, **how: Any) -> None:
        self._library = type(self)._opens(*args, **how)

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            raise AttributeError(name)
        return getattr(self._library, name)


if __name__ == "__main__":
    multiprocessing.get_context()
    if sys.argv[1] == "darwin":
        take_away()
        sys.platform = "darwin"
    else:
        os.name = sys.argv[1]
    from oocarrays.cli.main import main

    sys.exit(main(sys.argv[2:]))
