"""Where a run writes, and how that is made: of arrays, groups and local array files the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from zarr.codecs import BytesCodec
from zarr.dtype import parse_dtype

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.grid import Stored
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_target
from oocarrays.storage.files.places import StoreLike, local_folder, name_of, store_path
from oocarrays.storage.stores.remote import Patience, RemoteStore
from oocarrays.storage.stores.uneven import check_known
from oocarrays.storage.stores.uneven_target import UnevenTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Where a run writes, and how what is there is made."""

    store: StoreLike
    """Path or store of the target."""
    settings: Settings = field(default_factory=dict)
    """Arguments of ``zarr.create_array``; of local array files without what each rank's part gives; of a group none."""
    overwrite: bool = False
    """Whether what is there may be replaced."""
    resumed: bool = False
    """Whether it is there, left by the run that is resumed: it is not made."""
    said: tuple[str, ...] = ()
    """What is not made as it was asked for, a line each."""

    @property
    def made(self) -> Settings:
        """Return all arguments of ``zarr.create_array``; of local array files those of the largest."""
        return self.settings

    @property
    def count(self) -> int:
        """Count the chunks, or shards, that are written."""
        return self.preview().grid.count

    def preview(self) -> Stored:
        """Describe the array that it would be, as `array_file.preview` does."""
        return array_file.preview(self.settings, self.store)

    def create(self, run: str, *, durable: bool) -> ArrayFile:
        """Make the array, marked unfinished, as `creating.create_target` does."""
        return create_target(self.store, self.settings, run, overwrite=self.overwrite, durable=durable)


def written_file(store: Any, mode: Literal["r", "r+"] = "r") -> ArrayFile:
    """Open an unfinished array, and describe it as it is written."""
    return array_file.describe(array_file.open_array(store, mode=mode, unfinished=True), written=True)


def uneven_target(
    target: StoreLike, settings: Settings, lengths: tuple[tuple[int, ...], ...] | None, *, durable: bool
) -> tuple[StoreLike, Settings]:
    """Return the place and the arguments of ``zarr.create_array`` by which a run makes an array of such chunks."""
    if lengths is None:
        return target, settings
    name = name_of(target)
    check_known(name)
    if settings.get("shards") is not None or settings["zarr_format"] == 2:
        raise UnsupportedError("chunks of unequal lengths are of format 3, and not in shards")
    made = {key: value for key, value in settings.items() if key != "shards"} | {"chunks": list(map(list, lengths))}
    path, folder = store_path(target), local_folder(target)
    place = RemoteStore(path.store, name, Patience(), f"{path.path}/" if path.path else "")
    wide = parse_dtype(settings["dtype"], zarr_format=3).to_native_dtype().itemsize > 1
    plain = BytesCodec(endian="little" if wide else None)
    seen = {**made, "chunks": settings["chunks"], "compressors": None, "filters": None, "serializer": plain}
    store = RemoteStore(UnevenTarget(place, made, folder if durable else None), name, Patience())
    return store, seen
