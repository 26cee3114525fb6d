"""The package as it is built and installed elsewhere, and what there is on other systems."""

from __future__ import annotations

import email
import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import zarr

from tests.small import DATA

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


def run(folder: Path, *command: object, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=os.environ | env, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution of what is committed or changed, and the wheel that is made of it."""
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("dist")
    runpy.run_path(str(ROOT / ".ci" / "release"))["build"](out)
    return out


@pytest.mark.long
def test_what_is_installed_from_the_source_distribution_runs_its_demo_elsewhere(built: Path, tmp_path: Path) -> None:
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("*.whl")
    with tarfile.open(sdist) as packed:
        inside = {name.partition("/")[2] for name in packed.getnames()}
    needed = (
        "oocarrays/graphs/run/run.py",
        "conftest.py",
        "tests/small.py",
        "tests/data/left_0_6_0.tar.xz",
        ".ci/style",
    )
    assert inside >= {*needed, "examples/data/elevation.npz", "examples/guide/start.md", "benchmarks/claims.json"}
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as packed:
        (about,) = (name for name in packed.namelist() if name.endswith("/METADATA"))
        facts = email.message_from_bytes(packed.read(about))
        assert not [name for name in packed.namelist() if name.split("/")[0] in ("tests", "graphs", "benchmarks")]
    assert facts["Author"] == "the oocarrays developers"
    assert "](examples" not in facts.get_payload()
    assert facts.get_payload().startswith("# oocarrays")
    said = {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)}
    assert said <= set(facts.get_all("Classifier"))
    run(tmp_path, *pip, "install", "--no-deps", "--target", site, wheel).check_returncode()
    where = run(elsewhere, sys.executable, "-c", "import oocarrays; print(oocarrays.__file__)", PYTHONPATH=str(site))
    assert Path(where.stdout.strip()).parent == site / "oocarrays", where.stderr
    demo = ("-m", "oocarrays", "demo", "--size", "16MiB", "--memory", "32MiB", "--folder", tmp_path)
    done = run(elsewhere, sys.executable, *demo, PYTHONPATH=str(site))
    assert done.stdout.endswith("checked: every element is right\n"), done.stderr


ELSEWHERE = (sys.executable, ROOT / "tests" / "elsewhere.py")


def test_without_what_only_linux_has_the_demo_is_right_and_names_no_memory(tmp_path: Path) -> None:
    done = run(tmp_path, *ELSEWHERE, "darwin", "demo", "--size", "16MiB", "--memory", "32MiB", "--folder", tmp_path)
    assert done.stdout.endswith("checked: every element is right\n"), done.stderr
    assert "held at most" not in done.stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["independent", "two-phase", "assembled", "staged"])
def test_without_what_only_linux_has_each_method_is_right(tmp_path: Path, method: str) -> None:
    zarr.create_array(tmp_path / "rows.zarr", data=DATA, chunks=(8, 80), compressors=zarr.codecs.ZstdCodec())
    typed = ("rechunk", "rows.zarr", "columns.zarr", "--chunks", "96,10", "--memory", "64MiB", "--method", method)
    done = run(tmp_path, *ELSEWHERE, "darwin", *typed)
    assert done.returncode == 0, done.stderr
    assert (zarr.open_array(tmp_path / "columns.zarr", mode="r")[...] == DATA).all()


def test_on_windows_one_line_says_that_it_does_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, *ELSEWHERE, "nt", "--help")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("ImportError: oocarrays runs on Linux, not on Windows:")
