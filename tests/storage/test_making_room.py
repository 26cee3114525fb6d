"""An array goes and another comes: at every moment there is one, and it carries the mark."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.sync import sync
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import UnfinishedError
from oocarrays.storage.files import making_room
from oocarrays.storage.files.documents import is_finished
from oocarrays.storage.local import fs
from oocarrays.storage.local.fs import MARK

pytestmark = pytest.mark.long

OLD, NEW = np.arange(24.0).reshape(4, 6), np.arange(100.0, 124.0).reshape(4, 6)


class Killed(BaseException):
    """What nothing of ours catches."""


def kill_at(monkeypatch: pytest.MonkeyPatch, moment: int) -> None:
    """Die before the ``moment``-th change of the disk."""
    moments = count()

    def dying(function):
        def change(*args, **options):
            if next(moments) == moment:
                raise Killed
            return function(*args, **options)

        return change

    monkeypatch.setattr(making_room.os, "unlink", dying(os.unlink))
    monkeypatch.setattr(fs.os, "replace", dying(os.replace))
    monkeypatch.setattr(fs.shutil, "rmtree", dying(fs.shutil.rmtree))


async def others() -> None:
    """Let Zarr end what it was writing beside what died: in a process that is killed nothing goes on."""
    if tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(tasks, timeout=10)


@pytest.mark.filterwarnings("ignore:Both zarr.json:zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("old", [2, 3])
@pytest.mark.parametrize("new", [2, 3])
def test_killed_at_any_moment_there_is_an_array_that_may_be_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int, new: int
) -> None:
    zarr.create_array(tmp_path / "s", data=NEW, chunks=(1, 6))
    for moment in count():
        target = tmp_path / f"t{moment}"
        zarr.create_array(target, data=OLD, chunks=(2, 2), zarr_format=old, attributes={"a": 1})
        job = ooc.rechunk(
            tmp_path / "s", ooc.Target(target, zarr_format=new), chunks=(4, 1), overwrite=True, memory="64MiB"
        )
        with monkeypatch.context() as patch:
            kill_at(patch, moment)
            try:
                job.run()
                break
            except Killed:
                sync(others())
        if is_finished(target):  # nothing of it had gone, or all of the other is there
            assert zarr.open_array(target, mode="r")[0, 0] in (OLD[0, 0], NEW[0, 0])
            np.testing.assert_array_equal(np.diff(zarr.open_array(target, mode="r")[...].reshape(-1)), 1)
        else:
            with pytest.raises(UnfinishedError):
                ooc.open_array(target)
        again = ooc.rechunk(
            tmp_path / "s", ooc.Target(target, zarr_format=new), chunks=(4, 1), overwrite=True, memory="64MiB"
        )
        np.testing.assert_array_equal(again.run()[...], NEW)
        assert MARK not in zarr.open_array(target, mode="r").attrs
    assert moment > 5


class Dying(MemoryStore):
    """A store that dies before one of its removals, and removes nothing more."""

    left: int | None = None

    async def delete(self, key: str) -> None:
        if self.left == 0:
            raise Killed
        self.left = None if self.left is None else self.left - 1
        await super().delete(key)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_arrays_of_a_group_in_a_store_are_whole_or_gone(tmp_path: Path, zarr_format: int) -> None:
    """Also those named like chunks, as the levels of an image are, and those of inner groups."""
    zarr.create_group(tmp_path / "s").create_array("a", data=NEW, chunks=(1, 6))
    names, seen = ("0", "c", "deep/er/1"), set()
    for moment in count():
        store = Dying()
        old = zarr.create_group(store, zarr_format=zarr_format)
        for name in names:
            old.create_array(name, data=OLD, chunks=(2, 2))
        store.left = moment
        try:
            ooc.rechunk(tmp_path / "s", store, chunks={"a": (4, 1)}, overwrite=True, scheduler="threads").run()
            break
        except Killed:
            store.left = None
        for name in names:
            try:
                array = zarr.open_array(store, path=name, mode="r")
            except FileNotFoundError:
                seen.add(name)
            else:
                np.testing.assert_array_equal(array[...], OLD)
    assert seen == set(names)
