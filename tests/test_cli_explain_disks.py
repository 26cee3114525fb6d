"""``oocarrays stripe --explain``: what is measured, advised and tried, in words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oocarrays.cli.main import main


def test_disks_are_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    disks = [tmp_path / "a", tmp_path / "b"]
    for disk in disks:
        disk.mkdir()
    assert main(["stripe", "--explain", "--block", "1MiB", *map(str, disks)]) == 0
    text = capsys.readouterr().out
    for mode in ("read", "write"):
        assert f"{mode} on 2 disks: {disks[0]}, {disks[1]}" in text
    assert text.count("advised: --block 1MiB, ") == text.count("sure within ") == text.count("a run of ") == 2
    assert [os.listdir(disk) for disk in disks] == [[], []]


def test_a_disk_that_is_none_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stripe", "--explain", str(tmp_path / "none")]) == 2
    assert "no such disk" in capsys.readouterr().err
