"""Views in notebooks: well-formed, escaped, legible on any ground, and short whatever is shown."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import dask.array as da
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from tests.flat import flat
from tests.small import DATA, each_method, make, plan

ARRAYS: dict[str, dict[str, Any]] = {
    "no axes": {"shape": (), "chunks": ()},
    "one axis": {"shape": (10,), "chunks": (3,)},
    "no elements": {"shape": (0, 5), "chunks": (1, 5)},
    "three axes": {"shape": (30, 20, 10), "chunks": (1, 20, 10)},
    "six axes": {"shape": (20,) * 6, "chunks": (1,) * 6},
    "a million chunks": {"shape": (1000, 1000), "chunks": (1, 1)},
    "a million chunks in a row": {"shape": (1_000_000,), "chunks": (1,)},
    "shards": {"shape": (64, 64), "chunks": (8, 8), "shards": (32, 64)},
    "format 2": {"shape": (64, 64), "chunks": (8, 8), "zarr_format": 2},
    "many attributes": {"shape": (4,), "chunks": (4,), "attributes": {f"name {i}": "x" * 500 for i in range(500)}},
}


def page_of(shown: Any) -> tuple[str, ElementTree.Element]:
    """What a notebook is given, and the same parsed: strictly, as XML."""
    page = shown._repr_html_()
    return page, ElementTree.fromstring(page)


def cells(page: ElementTree.Element) -> list[str]:
    return [element.text or "" for tag in ("td", "th") for element in page.iter(tag)]


@pytest.mark.parametrize("options", ARRAYS.values(), ids=ARRAYS)
def test_any_array_is_shown_in_a_short_well_formed_page(options: dict[str, Any]) -> None:
    array = ooc.open_array(zarr.create_array({}, dtype="f4", **options))
    page, parsed = page_of(array)
    assert len(page) < 12_000
    assert len(list(parsed.iter("svg"))) == (options["shape"] != () and 0 not in options["shape"])
    for word in ("Bytes", "Shape", "Array", "Chunk", "Data type", "float32"):
        assert word in cells(parsed), word
    assert ("Shard" in cells(parsed)) == ("shards" in options)


def test_it_tells_bytes_shapes_codecs_names_and_attributes() -> None:
    z = make({}, dimension_names=("y", "x"), attributes={"units": "K"}, compressors=zarr.codecs.ZstdCodec())
    _, parsed = page_of(ooc.open_array(z))
    for word in ("96 × 80", "8 × 80", "30.00 kiB", "2.50 kiB", "12", "y, x", "bytes, zstd", "units", "'K'"):
        assert word in cells(parsed), word


@pytest.mark.parametrize("kind", ["array", "job", "plan"])
def test_nothing_is_black_on_white(tmp_path: Path, kind: str) -> None:
    job = plan(make({}), tmp_path / "target.zarr")
    page, _ = page_of({"array": ooc.open_array(make({})), "job": job, "plan": job.plan}[kind])
    assert "currentColor" in page
    colours = set(re.findall(r"(?:fill|stroke|color|background)[:=]\"?([^;\"]+)", page))
    assert colours <= {"currentColor", "none"} | {c for c in colours if c.startswith(("#ECB172", "#8B4903"))}


def test_what_a_user_wrote_is_escaped() -> None:
    evil = "</td><script>alert(1)</script>&\"'"
    z = zarr.create_array({}, shape=(4,), dtype="f4", dimension_names=(evil,), attributes={evil: [evil]})
    page, parsed = page_of(ooc.open_array(z))
    assert "<script" not in page
    assert {evil, repr([evil])} <= set(cells(parsed))


@each_method
def test_a_job_shows_source_beside_target_and_after_a_run_what_was_measured(tmp_path: Path, method: str) -> None:
    make(tmp_path / "source.zarr", DATA)
    job = plan(tmp_path / "source.zarr", tmp_path / "target.zarr", method)
    before, parsed = page_of(job)
    assert len(before) < 16_000
    assert [svg.get("aria-label") for svg in parsed.iter("svg")] == [
        "96 × 80 in chunks of 8 × 80",
        "96 × 80 in chunks of 96 × 10",
    ]
    assert "measured" not in cells(parsed)
    assert {considered.reason for considered in job.plan.alternatives} <= set(cells(parsed))
    job.run()
    assert {"planned", "measured"} <= set(cells(page_of(job)[1]))
    assert "ran in" in repr(job)


def test_an_empty_job_is_shown(tmp_path: Path) -> None:
    z = zarr.create_array({}, shape=(0, 4), chunks=(1, 4), dtype="f4")
    job = plan(z, tmp_path / "target.zarr", chunks=(1, 2))
    assert "nothing to move" in cells(page_of(job)[1])


def test_a_job_shows_shards_of_its_target(tmp_path: Path) -> None:
    _, parsed = page_of(plan(make({}), tmp_path / "target.zarr", chunks=(24, 10), shards=(96, 20)))
    assert {"Shard", "24 × 10", "96 × 20"} <= set(cells(parsed))
    assert [svg.get("aria-label") for svg in parsed.iter("svg")][1] == "96 × 80 in chunks of 24 × 10"


@pytest.mark.parametrize("rows", [(1, 3, 2, 90), (1,) * 96, (96,)], ids=["unequal", "many", "one"])
def test_a_lazy_array_shows_its_blocks_beside_the_target(tmp_path: Path, rows: tuple[int, ...]) -> None:
    x = da.from_array(DATA, chunks=(rows, 80))
    job = ooc.rechunk(x, tmp_path / "target.zarr", chunks=(96, 10), memory="128MiB")
    page, parsed = page_of(job)
    assert len(page) < 12_000
    assert len(list(parsed.iter("svg"))) == 2
    assert {"Longest block", f"{max(rows)} × 80", "96 × 10", str(len(rows))} <= set(cells(parsed))


@pytest.mark.parametrize("count", [0, 2, 30, 70])
def test_a_group_shows_its_arrays_to_be_unfolded(tmp_path: Path, count: int) -> None:
    group = zarr.create_group(tmp_path / "group.zarr")
    for number in range(count):
        group.create_array(f"a<{number}", data=DATA, chunks=(8, 80))
    page, parsed = page_of(ooc.open_group(tmp_path / "group.zarr"))
    assert len(list(parsed.iter("svg"))) == min(count, 12)
    assert ("…" in page) == (count == 70)
    shown = [line.text for line in parsed.iter("span") if line.text and line.text.startswith("a<")]
    assert shown == [f"a<{number}" for number in sorted(range(count), key=str)][:60]
    if count:
        job = ooc.rechunk(tmp_path / "group.zarr", tmp_path / "t.zarr", chunks={"a<1": (96, 10)}, memory="64MiB")
        _, parsed = page_of(job)
        assert "a<1" in [summary.text for summary in parsed.iter("summary")]
        assert len(list(parsed.iter("svg"))) == 2


def test_a_group_shows_its_dimensions_and_attributes_as_xarray_does(tmp_path: Path) -> None:
    axes = {"time": range(4), "lat": range(3)}
    data = xr.Dataset({"air": (("time", "lat"), DATA[:4, :3])}, axes, attrs={"title": "<weather>"})
    data.to_zarr(tmp_path / "group.zarr", consolidated=False)
    _, parsed = page_of(ooc.open_group(tmp_path / "group.zarr"))
    text = "".join(parsed.itertext())
    assert "Dimensions: time: 4, lat: 3" in text or "Dimensions: lat: 3, time: 4" in text
    assert {"air", "(time, lat)", "4 × 3 in chunks of 4 × 3"} <= {line.text for line in parsed.iter("span")}
    assert "Attributes (1)" in [summary.text for summary in parsed.iter("summary")]
    assert {"title", "'<weather>'"} <= set(cells(parsed))


@pytest.mark.parametrize("kind", ["group", "lazy", "slabs"])
def test_after_a_run_every_job_shows_what_was_planned_and_measured(tmp_path: Path, kind: str) -> None:
    zarr.create_group(tmp_path / "group.zarr").create_array("a", data=DATA, chunks=(8, 80))
    options = {"memory": "128MiB", "scheduler": "threads"}
    jobs = {
        "group": lambda: flat(ooc.rechunk, tmp_path / "group.zarr", tmp_path / "t", chunks={"a": (96, 10)}, **options),
        "lazy": lambda: ooc.rechunk(da.from_array(DATA, chunks=(8, 80)), tmp_path / "t", memory="128MiB"),
        "slabs": lambda: flat(ooc.map_slabs, lambda x: x + 1, tmp_path / "group.zarr" / "a", tmp_path / "t", **options),
    }
    job = jobs[kind]()
    assert "measured" not in cells(page_of(job)[1])
    job.run()
    _, parsed = page_of(job)
    assert {"planned", "measured", "read requests"} <= set(cells(parsed))
    assert "Last run" in [word.text for word in parsed.iter("strong")]


def test_reprs_are_lines(source: Path, tmp_path: Path) -> None:
    job = plan(source, tmp_path / "target.zarr")
    assert re.fullmatch(
        r"<oocarrays\.RechunkPlan \w+, \(96, 80\) in chunks \(8, 80\) → \(96, 10\), .*MiB>", repr(job.plan)
    )
    assert re.fullmatch(r"\(<Pass \w+, .* units of .* chunks, ranks \d+>,\)", repr(job.plan.passes))
    lazy = ooc.rechunk(da.from_array(DATA, chunks=(1, 80)), tmp_path / "lazy.zarr", memory="128MiB")
    assert re.fullmatch(
        r"<oocarrays\.BlocksPlan \(96, 80\) in 96 blocks → \(1, 80\), straight, peak .* MiB>", repr(lazy.plan)
    )
    z = zarr.create_array({}, shape=(6, 4), chunks=(1, 4), shards=(2, 4), dtype="f4", dimension_names=("y", "x"))
    assert repr(ooc.open_array(z)).startswith(
        "<oocarrays.OutOfCoreArray 6 × 4 (y, x) float32, chunks 1 × 4, shards 2 × 4, 96 B, memory://"
    )


NOTEBOOKS: dict[str, Callable[[Path], Any]] = {
    "a layout of blocks": lambda folder: ooc.Layout.of((24, 20), "(block, *)", ranks=5),
    "a layout of no blocks": lambda folder: ooc.Layout.of((24, 20), "(cyclic, block)", grid=(2, 2)),
    "a layout of an empty array": lambda folder: ooc.Layout.of((0, 20), "(block, *)", ranks=5),
    "a layout of many ranks": lambda folder: ooc.Layout.of((10**6, 10**6), "(block, block)", ranks=2**14),
    "a schedule": lambda folder: ooc.ranks.Schedule.of("bex", 8),
    "a schedule of many steps": lambda folder: ooc.ranks.Schedule.of("gen", 1000),
    "a schedule of one rank": lambda folder: ooc.ranks.Schedule.of("gen", 1),
    "files": lambda folder: ooc.open_files(_days(folder), concat_dim="time"),
    "a redistribution": lambda folder: ooc.ranks.plan_redistribution(*_layouts(), "float32"),
    "a plan of slabs": lambda folder: ooc.map_slabs(abs, make({}), folder / "t", memory="64MiB").plan,
    "a plan of a reduction": lambda folder: ooc.reduce(make({}), "mean", target=folder / "t", memory="64MiB").plan,
    "a plan of sections": lambda folder: ooc.ranks.read_sections(make({}), "(block, *)", ranks=2).plan,
    "a plan of messages": lambda folder: ooc.ranks.shift(ooc.ranks.distribute(DATA, "(block, *)", ranks=2), 1).plan,
    "a meter": lambda folder: ooc.advise.metered().__enter__(),
}


def _layouts() -> list[ooc.Layout]:
    return [ooc.Layout.of((24, 20), layout, ranks=4) for layout in ("(block, *)", "(*, block)")]


def _days(folder: Path) -> str:
    for day in range(2):
        data = xr.Dataset({"air": (("time", "x"), DATA[day : day + 1])}, {"time": [day]})
        data.to_netcdf(folder / f"day{day}.nc", engine="h5netcdf")
    return f"{folder}/day*.nc"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_is_public_is_shown_in_a_short_well_formed_page(name: str, tmp_path: Path) -> None:
    shown = NOTEBOOKS[name](tmp_path)
    page, parsed = page_of(shown)
    assert len(page) < 20_000
    assert "oocarrays." in "".join(next(parsed.iter("strong")).itertext())
    assert bool(list(parsed.iter("tr"))) == (name != "a schedule of one rank")


def test_pages_of_layouts_schedules_and_files_tell_what_is_in_them(tmp_path: Path) -> None:
    _, layout = page_of(ooc.Layout.of((24, 20), "(block, *)", ranks=5))
    assert {"(block, *) on 5 × 1", "24 × 20", "5, on a grid of 5 × 1", "80 to 100"} <= set(cells(layout))
    assert [svg.get("aria-label") for svg in layout.iter("svg")] == ["24 × 20 in chunks of 5 × 20"]
    _, schedule = page_of(ooc.ranks.Schedule.of("pex", 4))
    assert cells(schedule) == ["Step 1", "0 ↔ 1  2 ↔ 3", "Step 2", "0 ↔ 2  1 ↔ 3", "Step 3", "0 ↔ 3  1 ↔ 2"]
    files = ooc.open_files(_days(tmp_path), concat_dim="time")
    ooc.open_group(files)
    assert {"2 files", "joined along", "time", "air", "(2, 80)  float32"} <= set(cells(page_of(files)[1]))
    assert "2 files" in repr(files)
