"""``oocarrays info``: an array as a table, a group as a tree, both for machines; one line where there is neither."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

from oocarrays.cli.main import main
from oocarrays.errors import NotFoundError
from tests.seams import UNFINISHED_MARK, GroupFacts, Journal, contents

RUN = "0123456789ab"


def make_group(store: Any, zarr_format: Any) -> zarr.Group:
    """A group as xarray writes it, with a group in it that has one array that a run has left."""
    group = zarr.create_group(store, zarr_format=zarr_format, attributes={"title": "air <& sea>", "deep": {"a": [1]}})
    for name, shape in (("time", (30,)), ("air", (30, 20, 10))):
        names = ("time", "lat", "lon")[: len(shape)]
        two = {"attributes": {"_ARRAY_DIMENSIONS": names}}
        group.create_array(
            name,
            data=np.ones(shape, "f4"),
            chunks=(10, 20, 10)[: len(shape)],
            **(two if zarr_format == 2 else {"dimension_names": names}),
        )
    sea = group.create_group("sea", attributes={"depth": 3})
    shards = {} if zarr_format == 2 else {"shards": (8, 8)}
    sea.create_array(
        "salt", shape=(8, 8), chunks=(2, 8), dtype="i2", attributes={UNFINISHED_MARK: RUN}, compressors=None, **shards
    )
    return group


def shown(store: Path | str, capsys: pytest.CaptureFixture, *options: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["info", str(store), *options]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


class Shown(NamedTuple):
    """A group as it is shown."""

    store: Path
    zarr_format: int
    consolidated: bool
    lines: list[str]

    def line(self, part: str) -> str:
        return next(line for line in self.lines if part in line)


@pytest.fixture(params=[(2, False), (2, True), (3, False), (3, True)], ids=str)
def tree(tmp_path: Path, capsys: pytest.CaptureFixture, request: pytest.FixtureRequest) -> Shown:
    store, (zarr_format, consolidated) = tmp_path / "weather.zarr", request.param
    make_group(store, zarr_format)
    Journal(store / "sea" / "salt").begin(RUN, {})
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            zarr.consolidate_metadata(store)
    (store / ".oocarrays-0123456789ab").mkdir()
    return Shown(store, zarr_format, consolidated, shown(store, capsys).splitlines())


def test_a_group_is_a_tree(tree: Shown) -> None:
    word = ", consolidated" if tree.consolidated else ""
    assert tree.lines[0].startswith(f"{tree.store}  group of 3 arrays, format {tree.zarr_format}{word}, 23.68 kiB, ")
    branches = [line for line in tree.lines if "── " in line]
    assert [line.split("  ")[0] for line in branches] == ["├── air", "├── sea", "│", "└── time"]
    assert branches[1].split("  ", 1)[1].lstrip().startswith(f"group of 1 array, format {tree.zarr_format}")
    assert "│   │ depth: 3" in tree.lines
    assert "│ title: 'air <& sea>'" in tree.lines


def test_an_array_is_a_row_of_a_tree(tree: Shown) -> None:
    air, columns = tree.line("── air"), tree.line("dtype")
    for cell in ("30 × 20 × 10", "time, lat, lon", "float32", "10 × 20 × 10", "23.44 kiB"):
        assert f"  {cell}  " in air, cell
    assert air.endswith("  blosc" if tree.zarr_format == 2 else "  bytes, zstd")
    assert ("  8 × 8   128 B" in tree.line("── salt")) == (tree.zarr_format == 3)
    rows = [line for line in tree.lines if " × " in line]
    assert all(line[columns.index("dtype") :].startswith(("float32", "int16")) for line in rows)


def test_a_tree_says_what_a_run_has_left_and_how_to_go_on(tree: Shown) -> None:
    assert f"│         oocarrays resume {tree.store}/sea/salt" in tree.lines
    assert any(f"unfinished: run {RUN} did not write all of it" in line for line in tree.lines)


@pytest.fixture
def found(tmp_path: Path, capsys: pytest.CaptureFixture) -> dict[str, Any]:
    """A group as machines are told of it."""
    make_group(tmp_path / "g.zarr", 3).create_array(
        "odd", shape=(4,), dtype="f8", fill_value=float("nan"), attributes={"valid": [float("inf"), 1.5, None, True]}
    )
    told: dict[str, Any] = json.loads(shown(tmp_path / "g.zarr", capsys, "--json"), parse_constant=pytest.fail)
    return told


def test_json_of_a_group_has_its_members(found: dict[str, Any]) -> None:
    assert found["kind"] == "group"
    assert found["attributes"] == {"title": "air <& sea>", "deep": {"a": [1]}}
    assert list(found["members"]) == ["air", "odd", "sea", "time"]


def test_json_of_an_array(tmp_path: Path, found: dict[str, Any], capsys: pytest.CaptureFixture) -> None:
    air = found["members"]["air"]
    assert json.loads(shown(tmp_path / "g.zarr" / "air", capsys, "--json")) == air
    files = [file for file in (tmp_path / "g.zarr" / "air").rglob("*") if file.is_file()]
    sizes = {"nbytes": 24000, "stored_bytes": sum(file.stat().st_size for file in files)}
    cut = {"kind": "array", "shape": [30, 20, 10], "chunks": [10, 20, 10], "shards": None, "fill_value": 0.0}
    named = {"dimension_names": ["time", "lat", "lon"], "codecs": ["bytes", "zstd"]}
    assert {name: air[name] for name in (*cut, *named, *sizes)} == cut | named | sizes
    assert isinstance(air["fill_value"], float)


def test_json_says_what_is_unfinished_and_numbers_that_json_has_not(found: dict[str, Any]) -> None:
    salt, odd = found["members"]["sea"]["members"]["salt"], found["members"]["odd"]
    assert (salt["unfinished"], salt["shards"], salt["attributes"]) == (RUN, [8, 8], {})
    assert odd["attributes"] == {"valid": ["inf", 1.5, None, True]}
    assert odd["fill_value"] == "nan"


def test_a_group_that_a_run_has_left_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_group(tmp_path / "g.zarr", 3).attrs[UNFINISHED_MARK] = RUN
    Journal(tmp_path / "g.zarr").begin(RUN, {})
    lines = shown(tmp_path / "g.zarr", capsys).splitlines()
    assert lines[1:3] == [
        f"│   unfinished: run {RUN} did not write all of it; continue with:",
        f"│   oocarrays resume {tmp_path}/g.zarr",
    ]
    assert not any(UNFINISHED_MARK in line for line in lines)


def test_format_2_is_a_table(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    make_group(tmp_path / "g.zarr", 2)
    assert contents(tmp_path / "g.zarr" / "air").attributes == {}
    out = shown(tmp_path / "g.zarr" / "air", capsys)
    for row in (
        "format +2",
        "dimension names +time, lat, lon",
        "shards +none",
        "codecs +blosc",
    ):
        assert re.search(rf"^{row}$", out, re.MULTILINE), row


def test_groups_without_arrays_say_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    zarr.create_group(tmp_path / "g.zarr").create_group("sub")
    assert main(["info", str(tmp_path / "g.zarr")]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "└──",
        "sub",
        "group",
        "of",
        "0",
        "arrays,",
        "format",
        "3,",
        "0",
        "B",
    ]


def test_a_group_in_memory_is_looked_at_too() -> None:
    store = MemoryStore()
    make_group(store, 3)
    found = contents(store, stored=False)
    assert isinstance(found, GroupFacts)
    assert [array.shape for array in found.arrays] == [(30, 20, 10), (8, 8), (30,)]
    assert all(array.stored_bytes is None for array in found.arrays)


def test_a_group_behind_a_url_is_a_tree(capsys: pytest.CaptureFixture) -> None:
    url = "memory://contents/weather.zarr"
    make_group(zarr.storage.FsspecStore.from_url(url), 3)
    lines = shown(url, capsys).splitlines()
    assert lines[0].startswith(f"{url}  group of 3 arrays, format 3, 23.68 kiB, ")
    assert f"│         oocarrays resume {url}/sea/salt" in lines


def spoil_group(folder: Path) -> None:
    (folder / "zarr.json").write_text("{nonsense")


def spoil_member(folder: Path) -> None:
    (folder / "air" / "zarr.json").write_text("{nonsense")


@pytest.mark.parametrize("spoil", [spoil_group, spoil_member])
def test_what_cannot_be_read_is_one_line(tmp_path: Path, spoil: Any, capsys: pytest.CaptureFixture) -> None:
    make_group(tmp_path / "g.zarr", 3)
    spoil(tmp_path / "g.zarr")
    with pytest.raises(NotFoundError, match=r"g\.zarr"):
        contents(tmp_path / "g.zarr")
    assert main(["info", str(tmp_path / "g.zarr")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_unfinished_array_is_shown_with_what_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    zarr.create_array(tmp_path / "a", shape=(4, 6), chunks=(2, 6), dtype="f4", attributes={UNFINISHED_MARK: RUN})
    assert main(["info", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().out
    assert f"run {RUN} did not write all of it" in told
    assert "overwrite=True" in told, "there is no journal"
    assert main(["info", str(tmp_path / "a"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["unfinished"] == RUN
    assert told["run"]["done"] is None
    assert "journal" in told["run"]["why"], "there is none"
