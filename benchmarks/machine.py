"""The machine: what it is, what others do on it, and its page cache."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Iterator
from importlib import metadata

from case import GIB, cores

DROP = "/proc/sys/vm/drop_caches"
PACKAGES = (
    "oocarrays", "numpy", "zarr", "dask", "distributed", "tensorstore", "cubed", "zarrs", "h5py", "xarray", "flox",
    "numba", "dask-image", "opencv-python-headless", "ngff-zarr", "virtualizarr", "obstore", "tifffile",
)  # fmt: skip


def facts() -> str:
    """Cores, model, memory and kernel, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    with open("/proc/cpuinfo") as file:
        model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    return f"{cores()} cores of {model}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


def versions(pythons: dict[str, str]) -> dict[str, str]:
    """Return the versions of Python and of all packages that runs may use."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    ask = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))"
    for name, python in pythons.items():
        done = subprocess.run([python, "-c", ask, name], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found[name] = done.stdout.strip()
    return found


def busy_seconds() -> float:
    """CPU seconds that all processes together have used since the machine started."""
    with open("/proc/stat") as file:
        user, nice, system = map(int, file.readline().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def wait_for_rest(most: float = 30) -> None:
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
    return "read once before"


def _opened(store: str) -> Iterator[int]:
    names = (os.path.join(folder, name) for folder, _, names in os.walk(store) for name in names)
    for name in [store] if os.path.isfile(store) else names:
        file = os.open(name, os.O_RDONLY)
        yield file
        os.close(file)
