"""Groups are looked through, copied and finished as they are stored, whatever their format."""

from __future__ import annotations

from pathlib import Path

import pytest
import zarr
from zarr.storage import LocalStore, MemoryStore

from oocarrays.errors import NotFoundError, TargetError, UnfinishedError
from oocarrays.storage.chunks.copies import copy_documents, copy_part
from oocarrays.storage.files.documents import is_finished, unfinished_run
from oocarrays.storage.files.group_file import (
    check_group_target,
    create_group,
    describe_group,
    finish_group,
    holds_group,
    member_store,
    open_group,
)
from oocarrays.storage.journal.journal import Journal
from oocarrays.storage.local.names import MARK
from oocarrays.storage.meter import Meter
from tests.groups import check_same, objects, opened, write
from tests.small import make

pytestmark = pytest.mark.long

PARTIAL = f"0.{'0123456789abcdef' * 2}.partial"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("files", [True, False], ids=["files", "memory"])
def test_a_copy_is_the_same_to_xarray(tmp_path: Path, zarr_format: int, consolidated: bool, files: bool) -> None:
    source = write(tmp_path / "a", zarr_format=zarr_format, consolidated=consolidated)
    target = tmp_path / "b" if files else MemoryStore()
    file, meter = describe_group(open_group(source)), Meter()
    create_group(target, file, "c0ffee", overwrite=False)
    Journal(target).begin("c0ffee", {})
    for name, array in file.arrays.items():
        for part in range(3):
            copy_part(array, member_store(target, name), (part, 3), at_once=4, meter=meter)
    assert unfinished_run(target) == "c0ffee"
    with pytest.raises(UnfinishedError):
        open_group(target)
    for name, array in file.arrays.items():
        copy_documents(array, member_store(target, name), meter=meter, durable=True)
    finish_group(target, file.consolidated, nodes=file.groups)
    Journal(target).remove()
    assert unfinished_run(target) is None
    check_same(source, target)
    check_same(source, target, group="deep/er")
    of_arrays = {key: data for key, data in objects(source).items() if key.rpartition("/")[0].split("/")[-1] in "air"}
    assert meter.copied_bytes >= sum(map(len, of_arrays.values())) > 0
    if files:
        assert objects(source).keys() == objects(tmp_path / "b").keys()
    if consolidated:
        assert MARK not in str(opened(target, consolidated=True).attrs)


def test_what_runs_left_in_an_array_is_no_part_of_it(tmp_path: Path) -> None:
    array = make(tmp_path / "a")
    Journal(tmp_path / "a").begin("c0ffee", {})
    (tmp_path / "a" / "c" / PARTIAL).write_bytes(b"half of")
    there, meter = MemoryStore(), Meter()
    for target in (tmp_path / "b", there):
        copy_part(array, target, (0, 1), at_once=2, meter=meter)
        copy_documents(array, target, meter=meter, durable=True)
    expected = {
        k: v for k, v in objects(tmp_path / "a").items() if not k.startswith(".oocarrays") and "partial" not in k
    }
    assert objects(tmp_path / "b") == expected
    assert {key: data.to_bytes() for key, data in there._store_dict.items()} == expected


def test_a_store_holds_a_group_an_array_or_nothing(tmp_path: Path) -> None:
    zarr.create_group(tmp_path / "group")
    make(tmp_path / "array")
    assert holds_group(tmp_path / "group")
    assert not holds_group(tmp_path / "array")
    assert is_finished(tmp_path / "group")
    for nothing in ("array", "none"):
        with pytest.raises(NotFoundError, match="no Zarr group in"):
            open_group(tmp_path / nothing)
    assert not (tmp_path / "none").exists()


def test_a_target_that_would_cost_data_is_refused(tmp_path: Path) -> None:
    source = zarr.create_group(tmp_path / "a")
    zarr.create_group(tmp_path / "b")
    make(tmp_path / "array")
    wrong = {
        "read-only": LocalStore(tmp_path / "c", read_only=True),
        "itself": LocalStore(tmp_path / "a"),
        "inside": tmp_path / "a" / "b",
        "exists": tmp_path / "b",
    }
    for words, target in wrong.items():
        with pytest.raises(TargetError, match=words):
            check_group_target(source, target, overwrite=False)
    with pytest.raises(TargetError, match="is not a Zarr group"):
        check_group_target(source, tmp_path / "array", overwrite=True)
    check_group_target(source, tmp_path / "b", overwrite=True)
    check_group_target(source, tmp_path / "ab", overwrite=False)
