"""The package as a newcomer meets it: Python started in the source folder, and types in an editor."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from inspect import Parameter, signature
from pathlib import Path

import pytest

import oocarrays as ooc
from tests.seams import KEYWORDS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]
USER = """
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.graphs.cluster.placement import Cluster  # pyright: ignore[reportUnusedImport]

a = ooc.rechunk("rows.zarr", "columns.zarr", chunks=(8, 4), memory="1GiB").run()
part: np.ndarray = a[10:20, ::3]
again: ooc.OutOfCoreArray = ooc.rechunk(a, "again.zarr", chunks={0: -1}).run()
named: ooc.OutOfCoreArray = ooc.rechunk(a, "named.zarr", chunks={"time": -1}).run()
row: ooc.OutOfCoreArray = ooc.rechunk("rows.zarr", ooc.Target("column.zarr", orientation="column")).run()
stored = zarr.open_array("rows.zarr")  # pyright: ignore[reportUnknownMemberType]  of Zarr itself
of_zarr: ooc.Job = ooc.rechunk(stored, "of_zarr.zarr", chunks="128MiB")
group: ooc.OutOfCoreGroup = ooc.rechunk("group.zarr", "other.zarr", chunks={"air": (8, 4)}).run()
whole_group = zarr.open_group("group.zarr")  # pyright: ignore[reportUnknownMemberType]
of_group: ooc.Job = ooc.rechunk(whole_group, "more.zarr", chunks={"air": 8})
air = group["air"][0]
made: ooc.OutOfCoreArray = ooc.map_slabs(np.sqrt, "rows.zarr", "roots.zarr").run()
roots = made[10:20, ::3]
two: list[ooc.OutOfCoreArray] = ooc.map_slabs(np.divmod, ["a.zarr", "b.zarr"], ["q.zarr", "r.zarr"]).run()
opened = [ooc.open_array("a.zarr"), ooc.open_array("b.zarr")]
job: ooc.Job = ooc.map_slabs(np.add, opened, "sum.zarr")
parts: ooc.ranks.LocalArrays = ooc.ranks.scatter_files("rows.zarr", "block", "parts", ranks=2).run()
whole: ooc.OutOfCoreArray = ooc.ranks.gather_files(parts, "whole.zarr").run()
left = ooc.resume("rows.zarr")
left.run()
share: float = left.left
swept: ooc.OutOfCoreArray = ooc.resume("rows.zarr", kind="iterate", kernel=np.sqrt).run()
passed: ooc.Job = ooc.resume("rows.zarr", kind="map_slabs", kernel="filters:smooth")
scattered: ooc.ranks.LocalArrays = ooc.resume("parts", kind="scatter_files", memory="1GiB").run()
gathered: ooc.OutOfCoreArray = ooc.resume("whole.zarr", kind="gather_files").run()
rechunked: ooc.Job = ooc.resume("columns.zarr", kind="rechunk", source=a)
grown: ooc.OutOfCoreArray = ooc.update("columns.zarr").run()
updated: ooc.Job = ooc.resume("columns.zarr", kind="update")
with ooc.advise.metered() as meter:
    a[0]
requests: int = meter.read_requests
target = ooc.Target("t.zarr", chunks={"time": 24}, orientation=("x", "time"), attributes={"units": "K"}, fill_value=0)
with ooc.Resources(memory="1GiB", scheduler="threads") as means:
    days: ooc.OutOfCoreArray = ooc.map_slabs(
        np.negative, "rows.zarr", target, depth={"time": 1}, boundary={"time": "reflect"}, window={"time": "auto"},
        results=ooc.Results(factor={"time": 24}), resources=means,
    ).run()
deviation: np.ndarray = ooc.reduce(a, ("std", {"ddof": 1}), "time")
blocks: list[np.ndarray] = [slab.data for slab in a.slabs(window=4, depth={"time": 1})]
ooc.store(np.zeros(4), ooc.Target("s.zarr", dimension_names=("x",)))
"""
FUNCTIONS = {
    "rechunk": ("RechunkKeywords", "chunks"),
    "map_slabs": ("SlabKeywords",),
}
WRONG = {
    'ooc.rechunk("rows.zarr", "columns.zarr", chunk=4)': "Unexpected keyword argument",
    'ooc.rechunk("rows.zarr", "columns.zarr", chunks=4).run().nothing': "has no attribute",
    'ooc.resume("rows.zarr", kind="redistribute")': "incompatible type",
    'ooc.resume("rows.zarr").nothing': "has no attribute",
    'ooc.rechunk("a.zarr", "b.zarr", chunks=4, resources=ooc.Resources(rank=2))': "Unexpected keyword argument",
    'ooc.rechunk("a.zarr", ooc.Target("b.zarr", shard=2), chunks=4)': "Unexpected keyword argument",
    'ooc.map_slabs(abs, "rows.zarr", "b.zarr").run().nothing': "has no attribute",
    'ooc.open_array("rows.zarr").slabs(axis=0)': "Unexpected keyword argument",
    'ooc.open_array("rows.zarr").partitions("block")': "has no attribute",
}
"""Lines of a script that are wrong, and what a checker says of them: it does not take all for anything."""


def started(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Python in a folder, with what is installed but for editable installs, which a plain one is not."""
    where = [sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("-packages"))]
    return subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(where)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_in_the_source_folder_it_is_found() -> None:
    ran = started(ROOT, "import oocarrays; oocarrays.Job; print(oocarrays.__file__)")
    assert Path(ran.stdout.strip()).parent == ROOT / "oocarrays", ran.stderr


def test_a_folder_without_its_graphs_says_so(tmp_path: Path) -> None:
    (tmp_path / "oocarrays").mkdir()
    for path in (ROOT / "oocarrays").iterdir():
        if path.name != "graphs":
            (tmp_path / "oocarrays" / path.name).symlink_to(path)
    ran = started(tmp_path, "import oocarrays")
    assert "circular" not in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("ModuleNotFoundError: oocarrays.graphs is not found: Python was")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_keywords_for_type_checkers_are_those_of_the_function(name: str) -> None:
    listed, *others = FUNCTIONS[name]
    found = signature(getattr(ooc, name)).parameters.values()
    taken = {each.name: each.annotation for each in found if each.kind is Parameter.KEYWORD_ONLY}
    said = KEYWORDS[listed].__annotations__
    assert {key: value.__forward_arg__ for key, value in said.items()} == {
        key: value for key, value in taken.items() if key not in others
    }


def checker() -> list[str]:
    """How mypy is called: of this environment, or of another, which looks at what is installed in this one."""
    if find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    if found := shutil.which("mypy"):
        return [found, "--python-executable", sys.executable]
    pytest.skip("mypy is not here: pip install -e '.[lint]'")


@pytest.mark.long
def test_types_of_a_users_script_are_seen_after_the_install_of_the_readme(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    script.write_text(USER + "\n".join(WRONG) + "\n")
    ran = subprocess.run(
        [*checker(), "--strict", "--no-error-summary", script.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines, first = ran.stdout.splitlines(), len(USER.splitlines()) + 1
    for number, said in enumerate(WRONG.values(), first):
        assert any(line.startswith(f"user.py:{number}: error: ") and said in line for line in lines), ran.stdout
    wrong = {line.split(":")[1] for line in lines if ": error: " in line}
    assert wrong == set(map(str, range(first, first + len(WRONG)))), ran.stdout


@pytest.mark.long
def test_another_checker_in_its_strict_mode_sees_the_same(tmp_path: Path) -> None:
    """Pyright, whose mode also refuses types that are known in part; it needs node, and so is no requirement."""
    found = shutil.which("pyright")
    if found is None:
        pytest.skip("pyright is not here: pip install pyright")
    (tmp_path / "user.py").write_text(USER + "\n".join(WRONG) + "\n")
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    ran = subprocess.run(
        [found, "--outputjson", "--pythonpath", sys.executable, "user.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(ran.stdout)["generalDiagnostics"]
    first = len(USER.splitlines())
    assert {each["range"]["start"]["line"] for each in said} == set(range(first, first + len(WRONG))), ran.stdout
