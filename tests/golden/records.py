"""Golden files: results that a change of the code must not change unnoticed, one JSON object a line, sorted by name.

found ──► compare with tests/golden/NAME.json ──► equal, or a list of changed fields and the command to accept them
      └─► --golden=write: replace the lines in the file
"""

from __future__ import annotations

import difflib
import fcntl
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent
SHOWN = 20
"""Changed entries that a failure lists in full."""


def rounded(number: Any, digits: int = 6) -> float | None:
    """Round to significant digits, because sums of floats differ in the last ones between versions of Python.

    >>> rounded(0.090881818181818), rounded(1234567.8), rounded(math.inf), rounded(None)
    (0.0908818, 1234570.0, None, None)
    """
    return float(f"{number:.{digits}g}") if number is not None and math.isfinite(number) else None


@dataclass(frozen=True, slots=True)
class Golden:
    """One golden file."""

    name: str
    """File name without its suffix."""
    write: bool = False
    """Whether results replace the stored ones instead of being compared with them."""

    @property
    def path(self) -> Path:
        """Path of the file."""
        return FOLDER / f"{self.name}.json"

    def load(self) -> dict[str, Any]:
        """Return the stored results by name."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}

    def check(self, found: Mapping[str, Any], covers: Callable[[str], bool] = lambda name: True) -> None:
        """Compare results with the stored ones that ``covers`` selects, or replace those.

        A failure lists the fields that changed and the command that accepts them.
        """
        plain = json.loads(json.dumps(found))
        if self.write:
            self._replace(plain, covers)
        kept = {name: entry for name, entry in self.load().items() if covers(name)}
        changed = list(differences(kept, plain))
        if changed:
            pytest.fail("\n".join(self._report(changed, len(kept))), pytrace=False)

    def _replace(self, found: Mapping[str, Any], covers: Callable[[str], bool]) -> None:
        with open(FOLDER / "conftest.py") as locked:  # processes of pytest-xdist write in turn
            fcntl.flock(locked, fcntl.LOCK_EX)
            others = {name: entry for name, entry in self.load().items() if not covers(name)}
            self.path.write_text(text_of(others | found), encoding="utf-8")

    def _report(self, changed: list[tuple[str, list[str]]], kept: int) -> Iterator[str]:
        yield f"{len(changed)} entries differ from the {kept} in tests/golden/{self.name}.json:"
        for name, fields in changed[:SHOWN]:
            yield f"  {name}"
            yield from (f"      {line}" for line in fields)
        yield from (f"  {name}" for name, _ in changed[SHOWN:])
        yield f"To accept them: pytest tests/golden/test_{self.name}.py --golden=write; explain the diff in the commit"


def text_of(entries: Mapping[str, Any]) -> str:
    """Return the text of a golden file.

    >>> print(text_of({"b": {"seconds": 1.5}, "a": [1, 2]}), end="")
    {
    "a": [1, 2],
    "b": {"seconds": 1.5}
    }
    """
    lines = (
        f"{json.dumps(n, ensure_ascii=False)}: {json.dumps(entries[n], ensure_ascii=False)}" for n in sorted(entries)
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each entry that differs, and a line for each of its fields that does.

    >>> list(differences({"a": {"n": 1, "of": {"x": 2}}, "b": 1}, {"a": {"n": 1, "of": {"x": 3}}, "c": 1}))
    [('a', ['of.x: 2 → 3']), ('b', ['is gone']), ('c', ['is new'])]
    """
    for name in sorted({*old, *new}):
        if name not in new:
            yield name, ["is gone"]
        elif name not in old:
            yield name, ["is new"]
        elif old[name] != new[name]:
            yield name, list(_fields(old[name], new[name], ""))


def _fields(old: Any, new: Any, at: str) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from _fields(old.get(key), new.get(key), f"{at}.{key}" if at else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _fields(before, after, f"{at}[{number}]")
    elif isinstance(old, list) and isinstance(new, list) and all(isinstance(line, str) for line in old + new):
        yield from (line for line in difflib.ndiff(old, new) if line[0] in "+-")
    elif old != new:
        yield f"{at or 'value'}: {json.dumps(old, ensure_ascii=False)} → {json.dumps(new, ensure_ascii=False)}"
