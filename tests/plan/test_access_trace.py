"""A trace is data: said in words, saved, read again, added, printed; what cannot be is refused in one line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from oocarrays import Layout, Section
from oocarrays.advise import Trace
from oocarrays.errors import ChunksError, InputError, LayoutError, NotFoundError, SelectionError

pytestmark = pytest.mark.once

MADE: dict[str, Any] = {"shape": (12, 8), "dtype": "f4", "chunks": (4, 8)}


def small() -> Trace:
    made = Trace().writes("made", "(block, *)", **MADE, ranks=3, block="make")
    return made.reads("made", "(*, cyclic(2))", ranks=2, block="sum", weight=2.5)


def test_words_are_the_parts_of_ranks() -> None:
    write, read = small().accesses
    assert list(write.sections()) == [Section((i, 0), (i + 4, 8)) for i in (0, 4, 8)]
    assert sorted(read.sections(), key=lambda s: s.lower) == [Section((0, j), (12, j + 2)) for j in (0, 2, 4, 6)]
    assert (write.ranks, read.ranks, write.writes, read.weight, read.tasks) == (3, 2, True, 2.5, 4)


def test_layouts_and_sections_are_taken_too() -> None:
    layout = Layout.of((12, 8), "(block, block)", grid=(2, 2))
    one = Trace().reads("made", layout, **MADE).reads("made", [Section((0, 0), (3, 8))] * 2, block="again")
    assert one.blocks == ("block 1", "again")
    assert [access.tasks for access in one.accesses] == [4, 2]
    assert one.accesses[0].ranks == 4
    assert one.accesses[1].ranks is None


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    small().save(file)
    assert Trace.load(file) == small()
    assert str(Trace.load(file)) == str(small())


def test_weights_are_added_where_all_else_is_the_same() -> None:
    both = small() + small() + small().reads("made", "(block, block)", ranks=4, block="sum")
    assert [(access.block, access.weight) for access in both.accesses] == [("make", 3), ("sum", 7.5), ("sum", 1)]
    assert both.datasets == small().datasets
    assert both.blocks == ("make", "sum")
    assert Trace() + small() == small()


@pytest.mark.parametrize("weight", [-1, math.nan, math.inf, "often", None])
def test_a_weight_that_is_none_is_refused(weight: Any) -> None:
    with pytest.raises(InputError, match=r"weight of 'block 1' is .*: it must be a finite number, at least 0"):
        Trace().reads("made", "(block, *)", **MADE, ranks=2, weight=weight)


def test_an_array_of_another_shape_is_refused() -> None:
    other = Trace().reads("made", "(block)", ranks=2, shape=(7,), dtype="f4")
    with pytest.raises(InputError, match=r"made is <f4 of shape \(12, 8\) in one trace and <f4 of shape \(7,\)"):
        small() + other


@pytest.mark.parametrize(
    ("given", "error", "line"),
    [
        ({"array": "made", "sections": "(block)", "ranks": 2, **MADE}, LayoutError, "1 axis; the array has 2"),
        ({"array": "made", "sections": "(block, *)", "ranks": 0, **MADE}, InputError, "ranks=0"),
        ({"array": "made", "sections": [Section((0, 0), (13, 8))], **MADE}, InputError, "takes .* of made, which has"),
        ({"array": "made", "sections": [Section((0,), (3,))], **MADE}, SelectionError, "has 1 axis; the array"),
        ({"array": "made", "sections": "(block, *)", "ranks": 2, **MADE, "chunks": (4,)}, ChunksError, "1 axis"),
        ({"array": "made", "sections": "(block, *)", "ranks": 2, **MADE, "by": "me"}, InputError, "by='me' is not"),
    ],
)
def test_words_that_fit_no_array_are_refused(given: dict[str, Any], error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line):
        Trace().reads(**given)


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("", "is not a trace: Expecting value"),
        ("[]", "is not a trace: it lacks 'format'"),
        ('{"format": "oocarrays trace", "version": 9}', "version 9 is not supported"),
        ('{"format": "oocarrays trace", "version": 1, "datasets": []}', "trace lacks accesses"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, content: str, line: str) -> None:
    file = tmp_path / "trace.json"
    file.write_text(content)
    with pytest.raises(InputError, match=line):
        Trace.load(file)


def test_a_file_that_has_been_changed_is_refused(tmp_path: Path) -> None:
    data = small().as_json()
    data["accesses"][1]["weight"] = -3
    (tmp_path / "trace.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="weight of 'sum' is -3"):
        Trace.load(tmp_path / "trace.json")
    with pytest.raises(NotFoundError, match="none cannot be read"):
        Trace.load(tmp_path / "none")


def test_an_array_is_asked_for_by_its_name() -> None:
    (made,) = small().datasets
    assert small().dataset("made") == made
    assert (made.name, made.shape) == ("made", (12, 8))
    with pytest.raises(NotFoundError, match="'other' is not an array of this trace; its arrays are: made"):
        small().dataset("other")


def test_a_trace_that_cannot_be_written_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cannot write the trace to .*/no/t\.json: No such file or directory$"):
        small().save(tmp_path / "no" / "t.json")
