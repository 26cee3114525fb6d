"""The default budget heeds what batch systems and containers leave a process."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from oocarrays.storage.meter import control_group_left

MIB = 2**20
STAT = "anon 1\ninactive_file {idle}\ntotal_inactive_file {idle}\n"
NAMES = {
    "cgroup2": ("0::{path}", "cgroup2 cgroup2 rw", ("memory.max", "memory.current")),
    "cgroup": ("4:memory:{path}", "cgroup cgroup rw,memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
}


def tree(folder: Path, version: str, path: str, root: str, groups: dict[str, tuple[object, int, int]]) -> str:
    """What a kernel would show of a process in a group: limit, usage and idle file pages of each group."""
    entry, kind, (limit, usage) = NAMES[version]
    proc, mount = folder / "proc", folder / "mount"
    proc.mkdir()
    (proc / "cgroup").write_text(f"9:name=systemd:/\n3:cpuset:/\n{entry.format(path=path)}\n")
    (proc / "mountinfo").write_text(f"20 1 8:1 / / rw - ext4 /dev/vda rw\n35 31 0:32 {root} {mount} rw - {kind}\n")
    for name, (bound, used, idle) in groups.items():
        (mount / name).mkdir(parents=True, exist_ok=True)
        (mount / name / limit).write_text(f"{bound}\n")
        (mount / name / usage).write_text(f"{used}\n")
        (mount / name / "memory.stat").write_text(STAT.format(idle=idle))
    return str(proc)


@pytest.mark.parametrize("version", NAMES)
@pytest.mark.parametrize(
    ("path", "root", "groups", "left"),
    [
        ("/", "/", {".": ("max", 5, 0)}, None),
        ("/job", "/", {".": ("max", 5, 0), "job": (100, 30, 0)}, 70),
        ("/job/step", "/", {"job": (100, 30, 0), "job/step": ("max", 30, 0)}, 70),
        ("/job/step", "/", {"job": (100, 30, 0), "job/step": (60, 30, 0)}, 30),
        ("/job", "/", {"job": (100, 90, 50)}, 60),
        ("/job", "/", {"job": (100, 130, 0)}, 0),
        ("/docker/1", "/docker/1", {".": (100, 30, 0)}, 70),
        ("/../other", "/docker/1", {".": (100, 30, 0)}, 70),
        ("/job", "/", {"job": (2**63 - 4096, 30, 0)}, None),
        ("/gone", "/", {}, None),
    ],
)
def test_the_least_that_any_group_leaves(
    tmp_path: Path, version: str, path: str, root: str, groups: dict[str, tuple[object, int, int]], left: int | None
) -> None:
    assert control_group_left(tree(tmp_path, version, path, root, groups)) == left


def test_where_the_system_tells_nothing(tmp_path: Path) -> None:
    assert control_group_left(str(tmp_path)) is None


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of this machine, bound to 224 MiB; skips where we may not make one."""
    entries = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    mine = next((path for _, names, path in entries if "memory" in names.split(",")), None)
    made = Path(f"/sys/fs/cgroup/memory{mine}") / f"oocarrays-{uuid.uuid4().hex[:8]}"
    try:
        made.mkdir()
    except OSError:
        pytest.skip("control groups of version 1 cannot be made here")
    (made / "memory.limit_in_bytes").write_text(str(224 * MIB))
    yield made
    made.rmdir()


@pytest.mark.long
def test_a_run_in_a_bounded_group_is_not_killed(group: Path, tmp_path: Path) -> None:
    """The plain default: no budget is given, the array is larger than what the group may hold."""
    script = f"""
import os
open({str(group / "cgroup.procs")!r}, "w").write(str(os.getpid()))
import numpy as np, zarr, oocarrays as ooc
a = zarr.create_array("s.zarr", shape=(6144, 8192), chunks=(256, 8192), dtype="f4", compressors=None)
for i in range(24):
    a[i * 256 : (i + 1) * 256] = i
job = ooc.rechunk("s.zarr", "t.zarr", chunks=(6144, 64), scheduler="threads")
assert job.plan.peak_bytes < 224 * 2**20, job.plan.peak_bytes
b = job.run()
assert (b[::256, 5] == np.arange(24)).all()
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=os.environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
