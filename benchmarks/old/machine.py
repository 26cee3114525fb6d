"""The machine: what it is, and its page cache."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import metadata

from cases import GIB, cores

DROP = "/proc/sys/vm/drop_caches"
PACKAGES = ("oocarrays", "numpy", "zarr", "dask", "distributed", "tensorstore", "cubed", "zarrs")


def facts(rechunker_python: str | None) -> str:
    """One line: cores, memory, kernel, versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    parts = [f"{cores()} cores", f"{memory:.0f} GiB", f"{platform.system()} {platform.release()}"]
    parts += [f"Python {platform.python_version()}", *_versions(sys.executable, PACKAGES)]
    if rechunker_python:
        parts += [f"{found} (its own environment)" for found in _versions(rechunker_python, ("rechunker",))]
    return ", ".join(parts)


def _versions(python: str, names: tuple[str, ...]) -> list[str]:
    """`name version` of each package that `python` has."""
    if python != sys.executable:
        ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
        asked = {name: subprocess.run([python, "-c", ask, name], capture_output=True, text=True) for name in names}
        return [f"{name} {done.stdout.strip()}" for name, done in asked.items() if done.returncode == 0]
    return [f"{name} {version}" for name in names if (version := _version(name))]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def busy_seconds() -> float:
    """CPU seconds that all processes together have used since the machine started."""
    with open("/proc/stat") as file:
        user, nice, system = map(int, file.readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def wait_for_rest(most: float = 60) -> None:
    """Wait, at most `most` seconds, until other processes leave nearly all cores' time free."""
    for _ in range(int(most)):
        before = busy_seconds()
        time.sleep(1)
        if busy_seconds() - before < 0.1 * cores():
            return


def make_cold(store: str) -> str:
    """Put the files of `store` out of the page cache; says how it was done."""
    os.sync()
    try:
        with open(DROP, "w") as file:
            file.write("3")
        return "drop_caches"
    except OSError:
        for file in _opened(store):
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        return "posix_fadvise(DONTNEED)"


def make_warm(store: str) -> str:
    """Bring the files of `store` into the page cache by reading them."""
    for file in _opened(store):
        while os.read(file, 2**23):
            pass
    return "reading it once before"


def _opened(store: str) -> Iterator[int]:
    for folder, _, names in os.walk(store):
        for name in names:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            yield file
            os.close(file)
