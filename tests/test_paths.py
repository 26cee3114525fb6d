"""Paths as users type them: ``~`` is the home directory, and the parent folder of a target must exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import InputError, NotFoundError, TargetError
from tests.flat import flat

FIELD = np.arange(120, dtype="i4").reshape(12, 10)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a home directory with an array, and another folder to work in."""
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "work")
    zarr.create_array(tmp_path / "home/a.zarr", data=FIELD, chunks=(4, 5))
    return tmp_path / "home"


def test_a_tilde_is_the_home_directory_of_sources_targets_and_scratch(home: Path) -> None:
    how: dict[str, Any] = {"scheduler": "threads"}
    np.testing.assert_array_equal(ooc.open_array("~/a.zarr")[...], FIELD)
    np.testing.assert_array_equal(ooc.open_array(Path("~/a.zarr"))[...], FIELD)
    flat(
        ooc.rechunk,
        "~/a.zarr",
        "~/b.zarr",
        chunks=(12, 2),
        method="staged",
        resources=ooc.Resources(scratch="~/scratch"),
        **how,
    ).run()
    np.testing.assert_array_equal(zarr.open_array(home / "b.zarr")[...], FIELD)
    flat(ooc.rechunk, da.from_array(FIELD, chunks=5), "~/c.zarr", **how).run()
    ooc.store(da.ones((12, 10), chunks=4, dtype="i4"), "~/d.zarr", **how)
    assert ooc.compare("~/a.zarr", "~/c.zarr")
    np.save(home / "a.npy", FIELD)
    assert ooc.open_array("~/a.npy").shape == ooc.open_array(ooc.open_files("~/a.npy")).shape == FIELD.shape
    assert ooc.clean("~") == []
    with ooc.streams.open_streams("~/s.zarr", "w", shape=2, dtype="i4") as streams:
        streams.write([1, 2])
    assert {"b.zarr", "c.zarr", "d.zarr", "s.zarr"} <= {path.name for path in home.iterdir()}
    assert not list(Path().iterdir())


TILDES: dict[str, Any] = {
    "update": lambda: ooc.update("~/u.zarr", source="~/a.zarr", chunks=(12, 2)).run(),
    "map_slabs": lambda: ooc.map_slabs(np.negative, "~/a.zarr", ooc.Target("~/m.zarr"), scheduler="threads").run(),
    "iterate": lambda: ooc.iterate(
        lambda b: b, "~/a.zarr", "~/i.zarr", sweeps=2, scheduler="threads", resources=ooc.Resources(scratch="~", fuse=1)
    ).run(),
    "reduce": lambda: ooc.reduce("~/a.zarr", "sum", 0, target="~/r.zarr", scheduler="threads").run(),
    "pyramid": lambda: ooc.pyramid("~/a.zarr", "~/p.zarr", levels=2, scheduler="threads").run(),
    "compare": lambda: ooc.compare("~/a.zarr", "~/a.zarr", resources=ooc.Resources(scratch="~")),
    "create_array": lambda: ooc.create_array("~/n.zarr", shape=(4,), dtype="i4"),
    "open_group": lambda: ooc.open_group("~/g.zarr"),
    "to_dask": lambda: ooc.open_array("~/a.zarr").to_dask({0: 5}, scratch="~").compute(),
    "lazy": lambda: ooc.rechunk(
        da.ones((8, 8), chunks=2), chunks=(8, 1), resources=ooc.Resources(scratch="~")
    ).compute(),
    "read_sections": lambda: ooc.ranks.read_sections("~/a.zarr", "(block, *)", ranks=2, scheduler="threads").compute(),
    "write_sections": lambda: ooc.ranks.write_sections(
        "~/b.zarr", "(block, *)", ooc.ranks.read_sections("~/a.zarr", "(block, *)", ranks=2, scheduler="threads"),
        scheduler="threads",
    ).run(),
    "files": lambda: ooc.ranks.gather_files(
        ooc.ranks.scatter_files("~/a.zarr", "(block, *)", "~/l.zarr", ranks=2, scheduler="threads").run(),
        "~/w.zarr", scheduler="threads",
    ).run(),
    "open_files": lambda: ooc.open_array(ooc.open_files(["~/a.npy", "~/b.npy"], concat_dim=0))[...],
    "plan": lambda: (
        ooc.ranks.plan_redistribution(
            ooc.Layout.of((8,), "block", ranks=2), ooc.Layout.of((8,), "cyclic", ranks=2)
        ).save("~/plan.json"),
        ooc.ranks.load_plan("~/plan.json"),
    ),
    "disks": lambda: ooc.disks.plan_striping(["~/d0", "~/d1"], blocks=["64KiB"], seconds=0.02, trial=False),
    "striped": lambda: ooc.rechunk("~/a.zarr", "striped://~/d0,~/d1!s.zarr", chunks=(12, 2), scheduler="threads").run(),
    "xarray": lambda: __import__("oocarrays.xarray").xarray.open_dataset("~/g.zarr", {"y": 4}).v.values,
    "slow disk": lambda: ooc.testing.SlowDisk("~/slow"),
    "clean": lambda: ooc.clean("~"),
}  # fmt: skip


@pytest.mark.parametrize("verb", TILDES)
def test_a_tilde_is_the_home_directory_in_every_verb(verb: str, home: Path) -> None:
    zarr.create_array(home / "b.zarr", data=FIELD, chunks=(4, 5))
    group = zarr.create_group(home / "g.zarr")
    group.create_array("v", data=FIELD, chunks=(4, 5), dimension_names=("y", "x"))
    for name in ("a", "b"):
        np.save(home / f"{name}.npy", FIELD)
    for name in ("d0", "d1", "slow"):
        (home / name).mkdir()
    assert TILDES[verb]() is not None
    assert not list(Path().iterdir())


def test_a_tilde_is_the_home_directory_of_documents_and_disks(home: Path) -> None:
    trace = ooc.advise.trace(da.from_zarr(zarr.open_array(home / "a.zarr")).sum())
    trace.save("~/trace.json")
    assert ooc.advise.Trace.load("~/trace.json") == trace
    (home / "disk").mkdir()
    with ooc.disks.open_striped("field", "w", disks=["~/disk"], block=4096) as file:
        file.write(b"abc")
    assert (home / "disk/field").exists()
    assert not list(Path().iterdir())


@pytest.mark.long
def test_a_tilde_is_the_home_directory_on_the_command_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rechunk", "~/a.zarr", "~/b.zarr", "--chunks", "12,2", "--draw=~/plan.svg", "--quiet"]) == 0
    assert main(["read", "~/a.zarr", "0:2", "--out=~/out.npy"]) == 0
    (home / "labels.txt").write_text("\n".join("ab" * 6))
    (home / "disk").mkdir()
    for words in (
        ["map", "~/a.zarr", "~/m.zarr", "--kernel=numpy:negative"], ["info", "~/m.zarr"],
        ["compare", "~/a.zarr", "~/b.zarr"],
        ["reduce", "~/a.zarr", "~/r.zarr", "--how=sum", "--axis=0", "--by=~/labels.txt"], ["update", "~/b.zarr"],
        ["pyramid", "~/a.zarr", "~/p.zarr", "--levels=2"], ["stripe", "~/a.zarr", "~/disk", "--name=s.zarr"],
        ["schedule", "lex", "--ranks=4", "--draw=~/s.svg"], ["clean", "~"],
        ["demo", "--size=1MiB", "--memory=64MiB", "--folder=~/disk"],
    ):  # fmt: skip
        assert main([*words, "--quiet"]) == 0, capsys.readouterr().err
    np.testing.assert_array_equal(np.load(home / "out.npy"), FIELD[:2])
    assert (home / "plan.svg").exists()
    assert not list(Path().iterdir())


def _dataset() -> Any:
    import xarray as xr

    return xr.Dataset({"v": (("x", "y"), FIELD)}).chunk({"x": 4})


def _streams(target: Any) -> Any:
    return ooc.streams.open_streams(target, "w", shape=2, dtype="i4")


def _local(target: Any) -> Any:
    return ooc.create_array(target, shape=(4, 4), dtype="i4", layout="(block, *)", ranks=2, placement="local")


VERBS = {
    "rechunk": lambda a, t: ooc.rechunk(a, t, chunks=(12, 2)),
    "rechunk, a group": lambda a, t: ooc.rechunk(a.parent / "g.zarr", t, chunks={"v": (12, 2)}),
    "rechunk, a dataset": lambda a, t: ooc.rechunk(_dataset(), t, chunks={"v": (12, 2)}),
    "update": lambda a, t: ooc.update(t, source=a, chunks=(12, 2)),
    "from_dask": lambda a, t: ooc.rechunk(da.ones(4, chunks=2), t),
    "store": lambda a, t: ooc.store(da.ones(4, chunks=2), str(t)),
    "map_slabs": lambda a, t: ooc.map_slabs(np.negative, a, t),
    "iterate": lambda a, t: ooc.iterate(np.negative, a, t, sweeps=2),
    "reduce": lambda a, t: ooc.reduce(a, "sum", axis=0, target=t),
    "pyramid": lambda a, t: ooc.pyramid(a, t),
    "scatter_files": lambda a, t: ooc.ranks.scatter_files(a, "(block, *)", t, ranks=2),
    "gather_files": lambda a, t: ooc.ranks.gather_files(a.parent / "l.zarr", t),
    "create_array": lambda a, t: ooc.create_array(t, shape=(4, 4), dtype="i4"),
    "create_array, local": lambda a, t: _local(t),
    "open_streams": lambda a, t: _streams(t),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_target_in_a_folder_that_does_not_exist_is_refused(verb: str, home: Path) -> None:
    zarr.create_group(home / "g.zarr").create_array("v", data=FIELD, chunks=(4, 5))
    _local(home / "l.zarr")
    with pytest.raises(TargetError, match=r"cannot be created: folder .*/no/such does not exist; create it first"):
        VERBS[verb](home / "a.zarr", home / "no/such/t.zarr")
    assert not (home / "no").exists()


@pytest.mark.parametrize("target", ["no/t.zip", "no/t.zip/a.zarr"])
def test_a_zip_file_in_a_folder_that_does_not_exist_is_refused(target: str, home: Path) -> None:
    with pytest.raises(TargetError, match=r"folder .*/no does not exist; create it first"):
        ooc.rechunk(home / "a.zarr", target, chunks=(12, 2))


def test_the_command_line_makes_no_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rechunk", str(home / "a.zarr"), "no/such/t.zarr", "--chunks", "12,2"]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_what_is_not_there_is_named_by_its_whole_path(home: Path) -> None:
    with pytest.raises(NotFoundError, match=f"no such store: {home}/x.zarr"):
        ooc.open_array("~/x.zarr")


@pytest.mark.parametrize(
    "call",
    [
        lambda a, **how: ooc.open_array(a, **how),
        lambda a, **how: ooc.open_array(f"file://{a}", **how),
        lambda a, **how: ooc.open_group(a, **how),
        lambda a, **how: flat(ooc.create_array, Path("b"), shape=(3,), dtype="f4", **how),
        lambda a, **how: flat(ooc.rechunk, a, "b", chunks=(12, 2), **how),
        lambda a, **how: flat(ooc.map_slabs, np.negative, [a, str(a)], ["b", "c"], **how),
        lambda a, **how: flat(ooc.compare, a, a, **how),
        lambda a, **how: flat(ooc.reduce, a, "mean", **how),
        lambda a, **how: ooc.open_files(a, **how),
    ],
)
def test_options_for_urls_are_refused_if_all_locations_are_local(call: Any, home: Path) -> None:
    with pytest.raises(InputError, match=r"storage_options \(anon\) are for URLs .*local path: .*(a.zarr|b)"):
        call(home / "a.zarr", storage_options={"anon": True})


def test_options_for_urls_go_with_one_url(home: Path) -> None:
    made = ooc.rechunk(home / "a.zarr", "memory://b", chunks=(12, 2), storage_options={"skip_instance_cache": False})
    np.testing.assert_array_equal(made.run()[...], FIELD)
    np.testing.assert_array_equal(ooc.open_array(home / "a.zarr", storage_options={})[...], FIELD)


def test_a_dict_is_a_store_in_memory_as_zarr_has_it() -> None:
    source: dict[str, Any] = {}
    target: dict[str, Any] = {}
    data = np.arange(64).reshape(8, 8)
    zarr.create_array(source, data=data, chunks=(2, 8))
    np.testing.assert_array_equal(ooc.open_array(source)[1:5, 2], data[1:5, 2])
    ooc.rechunk(source, target, chunks=(8, 2), memory="64MiB", scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(target)[...], data)
