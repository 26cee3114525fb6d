"""The names that ``import oocarrays`` gives, and the modules that it does not drag in."""

from __future__ import annotations

import importlib
import inspect
import json
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import oocarrays

PUBLIC = [
    "Block",
    "Collapsed",
    "Comparison",
    "Cyclic",
    "GenBlock",
    "Job",
    "Layout",
    "OocError",
    "OutOfCoreArray",
    "OutOfCoreGroup",
    "Resources",
    "Results",
    "Section",
    "Target",
    "advise",
    "clean",
    "compare",
    "create_array",
    "disks",
    "errors",
    "iterate",
    "kernels",
    "map_slabs",
    "networks",
    "open_array",
    "open_files",
    "open_group",
    "pyramid",
    "ranks",
    "rechunk",
    "reduce",
    "resume",
    "store",
    "streams",
    "testing",
    "update",
]
SPACES = {
    "advise": ["Advice", "Trace", "metered", "trace", "traced"],
    "disks": ["StripedFile", "StripedStore", "open_striped", "plan_striping"],
    "networks": ["Dragonfly", "FatTree", "FlatCluster", "Hypercube", "Mesh", "Torus", "planned_cluster"],
    "ranks": [
        "DistributedArray", "LocalArrays", "RankBlocks", "Redistribution", "Schedule", "SectionArrays",
        "count_requests", "distribute", "exchange", "gather_files", "load_plan", "multicast", "partitions",
        "plan_redistribution", "read_sections", "redistribute", "scatter_files", "shift", "write_sections",
    ],
    "streams": ["Ragged", "RankStreams", "Streams", "open_streams", "streams_from_ragged"],
}  # fmt: skip
NAMED = {name: getattr(oocarrays, name) for name in PUBLIC} | {
    f"{space}.{name}": getattr(getattr(oocarrays, space), name) for space, names in SPACES.items() for name in names
}
VERBS = {name: each for name, each in NAMED.items() if inspect.isfunction(each)}
LAST = ["memory", "overwrite", "resume", "scheduler", "resources", "storage_options"]
"""Parameters that verbs have in common, in their order, at the end."""
OTHERS = {"store", "disks.plan_striping", "networks.planned_cluster"}
"""Verbs of others' parameters: as Dask's, or of machines that are only planned."""


def test_all_is_pinned() -> None:
    assert oocarrays.__all__ == PUBLIC
    assert len(PUBLIC) <= 40


@pytest.mark.parametrize("space", SPACES)
def test_names_of_each_space_are_pinned(space: str) -> None:
    here = vars(getattr(oocarrays, space))
    assert [name for name in sorted(here) if not name.startswith("_")] == SPACES[space]


@pytest.mark.parametrize("name", VERBS)
def test_verbs_have_few_parameters_in_one_order(name: str) -> None:
    found = inspect.signature(VERBS[name]).parameters
    assert len(found) <= 12
    common = [each for each in found if each in LAST]
    assert common == [each for each in LAST if each in found]
    assert [*found][len(found) - len(common) :] == common or name in {
        "store",
        "disks.plan_striping",
        "networks.planned_cluster",
    }


@pytest.mark.parametrize("name", VERBS)
def test_each_parameter_is_documented(name: str) -> None:
    text = inspect.getdoc(VERBS[name]) or ""
    head = text.partition("Parameters\n----------\n")[2]
    named = {
        word for line in head.splitlines() if not line.startswith(" ") for word in line.partition(" :")[0].split(", ")
    }
    found = inspect.signature(VERBS[name]).parameters.values()
    missing = [
        each.name
        for each in found
        if each.name not in named and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
    ]
    assert not missing or "Parameters" not in text


def test_every_public_name_says_what_it_is() -> None:
    assert [name for name, each in NAMED.items() if not inspect.getdoc(each)] == []


def members(kind: type) -> list[tuple[type, str]]:
    return [(kind, name) for name in dir(kind) if not name.startswith("_") and hasattr(kind, name)]


MEMBERS = [
    *members(oocarrays.OutOfCoreArray),
    *members(oocarrays.OutOfCoreGroup),
    *members(oocarrays.ranks.DistributedArray),
    *members(oocarrays.ranks.LocalArrays),
    *members(oocarrays.ranks.SectionArrays),
    *members(oocarrays.ranks.RankBlocks),
    *members(oocarrays.Job),
    *members(oocarrays.Layout),
]


def test_every_public_member_says_what_it_does() -> None:
    assert [(kind, name) for kind, name in MEMBERS if not inspect.getdoc(getattr(kind, name))] == []


def test_every_error_is_in_the_tree_and_in_its_drawing() -> None:
    kinds = [kind for kind in vars(oocarrays.errors).values() if inspect.isclass(kind)]
    drawing = inspect.getdoc(oocarrays.errors) or ""
    assert len(kinds) > 10
    for kind in kinds:
        assert issubclass(kind, oocarrays.OocError | Warning)
        assert kind.__doc__
        assert kind.__name__ in drawing


def test_an_error_that_comes_from_another_process_says_the_same() -> None:
    error = oocarrays.errors.BudgetError(1, 2, "this slab")
    assert repr(pickle.loads(pickle.dumps(error))) == repr(error)
    assert "this slab" in repr(error)


def test_notebooks_show_the_line_that_was_typed_and_what_is_wrong(tmp_path: Path) -> None:
    """IPython asks an error how it is to be shown; else it shows all frames, in colours."""
    with pytest.raises(oocarrays.errors.NotFoundError) as caught:
        oocarrays.open_array(tmp_path / "none.zarr")
    shown = caught.value._render_traceback_()
    assert shown[-1] == f"NotFoundError: no such store: {tmp_path}/none.zarr"
    assert 'oocarrays.open_array(tmp_path / "none.zarr")' in "\n".join(shown)
    assert sum(line.startswith("  File ") for line in shown) == 1


def test_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert oocarrays.__version__ == version("oocarrays")


def test_every_module_can_be_imported() -> None:
    """Pytest imports only those that have doctests."""
    for module in pkgutil.walk_packages(oocarrays.__path__, "oocarrays."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


IMPORTED = """
import json, sys, threading
import oocarrays
import dask.threaded
names = ("distributed", "dask.array", "dask.dataframe", "pandas", "zarrs", "matplotlib")
heavy = [name for name in names if name in sys.modules]
pools = [dask.threaded.default_pool is not None, bool(dask.threaded.pools)]
print(json.dumps({"heavy": heavy, "threads": threading.active_count(), "pools": pools}))
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = Path(tmp_path_factory.mktemp("elsewhere"))
    done = subprocess.run([sys.executable, "-c", IMPORTED], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_import_drags_in_no_cluster_and_no_dask_array(fresh: dict) -> None:
    assert fresh["heavy"] == []


def test_import_starts_no_threads_and_no_pool(fresh: dict) -> None:
    assert fresh["threads"] == 1
    assert fresh["pools"] == [False, False]


STARTED = """
import json, sys
{what}
known = ("oocarrays", "numpy", "zarr", "distributed")
print(json.dumps([name for name in sys.modules if name.partition(".")[0] in known]))
"""
HELP = """
import contextlib, io
from oocarrays.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["--help"])
"""


@pytest.mark.parametrize(("what", "most"), [("import oocarrays", 8), (HELP, 12)], ids=["import", "help"])
def test_what_nobody_has_asked_for_is_not_imported(what: str, most: int, tmp_path: Path) -> None:
    """Python itself takes a hundredth of a second, Dask's configuration a sixth, all of this package most of one."""
    done = subprocess.run(
        [sys.executable, "-c", STARTED.format(what=what)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout)
    assert {name.partition(".")[0] for name in loaded} == {"oocarrays"}
    assert len(loaded) <= most, loaded


SLOW = """
import contextlib, io, json, sys
from oocarrays.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
    main(["rechunk", "--help"])
print(json.dumps([name for name in ("dask.array", "pandas", "xarray", "matplotlib") if name in sys.modules]))
"""


@pytest.mark.long
def test_a_command_starts_without_what_it_does_not_use(tmp_path: Path) -> None:
    """`dask.array` alone takes longer than everything else that a rechunk imports."""
    done = subprocess.run([sys.executable, "-c", SLOW], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.long
def test_whatever_is_asked_for_is_there_at_once(tmp_path: Path) -> None:
    """Each name in a process of its own, so that no other name has imported what it needs."""
    code = "import sys, oocarrays as ooc\nfor name in sys.argv[1:]: getattr(ooc, name)"
    subprocess.run([sys.executable, "-c", code, *PUBLIC], cwd=tmp_path, check=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = oocarrays.nothing
