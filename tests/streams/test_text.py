"""Text of streams beside C: what printf writes, and what fscanf reads, returns and leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError
from tests.streams import c_formats

pytestmark = pytest.mark.usefixtures("quick")


@pytest.fixture(scope="module")
def from_c() -> dict[str, Any]:
    """Return the output of a C program, made now or when the table was."""
    return c_formats.table()


def test_the_table_is_what_c_prints(from_c: dict[str, Any]) -> None:
    assert json.dumps(json.loads(c_formats.TABLE.read_text())) == json.dumps(from_c)


def test_printf_writes_as_c_does(place: Path, from_c: dict[str, Any]) -> None:
    cases = from_c["printed"]
    with ooc.streams.open_streams(place, "w", shape=len(cases), dtype="u1") as s:
        s.each(lambda cell: cell.printf(cases[cell.number][0], *cases[cell.number][1]))
    shown = [each.tobytes().decode("latin-1") for each in ooc.streams.open_streams(place).to_ragged()]
    assert [(case, text) for case, text in zip(cases, shown, strict=True) if case[2] != text] == []


def _as_c(values: list[np.ndarray], count: int, cell: int) -> list[str]:
    """Show the values of one cell as the program does."""
    shown = []
    for number, value in enumerate(values):
        if number >= count:
            shown.append("")
        elif value.dtype.kind == "U":
            shown.append(str(value[cell]).encode("utf-8", "surrogateescape").hex())
        else:
            shown.append(f"{np.float32(value[cell]):.9g}" if value.dtype.kind == "f" else str(value[cell]))
    return shown


def test_scanf_reads_as_c_does(place: Path, from_c: dict[str, Any]) -> None:
    cases, found = from_c["scanned"], []
    texts = [text.encode() for _, text, *_ in cases]
    ooc.streams.streams_from_ragged(place, list(map(len, texts)), np.frombuffer(b"".join(texts), np.uint8))
    with ooc.streams.open_streams(place) as s:
        for cell, (format, *_) in enumerate(cases):
            s.seek(0)
            counts, values = s.scanf(format)
            found.append([int(counts[cell]), int(s.tell()[cell]), _as_c(values, int(counts[cell]), cell)])
    assert [(case, each) for case, each in zip(cases, found, strict=True) if case[2:] != each] == []


@pytest.mark.parametrize("name", ["%a", "%A", "%n", "%p", "%r", "%ls", "%lc", "%1$d", "%'d", "%m", "%y", "%(x)d"])
def test_other_conversions_are_refused_by_name(place: Path, name: str) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="u1") as s:
        with pytest.raises(InputError, match="is not supported") as printing:
            s.printf(f"%d {name}", 1, 2)
        with pytest.raises(InputError, match=r"conversion at 3, .* is not supported") as scanning:
            s.scanf(f"%d {name}")
        for error in (printing, scanning):
            assert name[:2] in str(error.value)
        assert not s.lengths.any()


@pytest.mark.parametrize(
    ("format", "value"), [("%d", 1.5), ("%x", "a"), ("%f", "1"), ("%c", "ab"), ("%*d", 1), ("%c", 2.5)]
)
def test_values_of_another_kind_are_refused(place: Path, format: str, value: Any) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="u1") as s:
        with pytest.raises(InputError, match="does not fit 1 value"):
            s.printf(format, value)
        assert not s.lengths.any()


def test_text_is_utf_8_and_long_text_is_read_to_its_end(place: Path) -> None:
    words = np.array(["gr\u00fcn" * 200, "\u20ac", ""])
    with ooc.streams.open_streams(place, "w", shape=3, dtype="u1") as s:
        s.printf("%s;%ld\n", words, [2**40, -(2**40), 2**63 - 1])
    with ooc.streams.open_streams(place) as s:
        counts, (text, numbers) = s.scanf("%[^;];%ld")
        assert counts.tolist() == [2, 2, 0]
        assert text.tolist() == words.tolist()
        assert numbers.tolist() == [2**40, -(2**40), 0]
        counts, (numbers,) = s.scanf(";%ld")
        assert counts.tolist() == [0, 0, 1]
        assert numbers.dtype == np.int64
        assert numbers.tolist() == [0, 0, 2**63 - 1]
        assert s.scanf(" %c")[0].tolist() == [-1, -1, -1]
        assert s.eof().all()
