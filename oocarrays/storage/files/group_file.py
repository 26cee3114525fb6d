"""Group files: opening, inspecting, creating and finishing Zarr groups, as xarray and Zarr write them.

    group/  zarr.json            attributes; the consolidated metadata of all nodes below, if requested
            air/  lat/  lon/     arrays
            deep/  temp/         a group with an array of its own: its path is "deep/temp"

A target is a draft until it is complete, like an unfinished array; so are the groups in it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import zarr
from zarr.errors import ContainsArrayError, NodeTypeValidationError
from zarr.storage import StorePath

from oocarrays.errors import NotFoundError, OocError, SkippedArraysWarning, TargetError, UnfinishedError
from oocarrays.mapping.given import Policy
from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.files.documents import (
    WRECKED,
    check_documents,
    document_or_draft,
    document_store,
    documents,
    holds_group,
    said,
    unfinished_error,
)
from oocarrays.storage.files.making_room import (
    check_apart,
    check_replaceable,
    new_documents,
    publish_drafts,
    put_documents,
    put_target,
    take_mark_away,
    without_mark,
)
from oocarrays.storage.files.places import StoreLike, local_folder, location, member_store, store_path
from oocarrays.storage.files.presence import Presence, presence_of
from oocarrays.storage.local.fs import ABSENT, GROUP_2, MARK, METADATA, translated
from oocarrays.storage.stores.joined import foreign_at, keeps_drafts, with_drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFile:
    """A Zarr group and its contents."""

    arrays: dict[str, zarr.Array]
    """All arrays in it and in its subgroups, by path."""
    groups: dict[str, Document]
    """Attributes of its subgroups, by path, outer groups first."""
    consolidated: tuple[str, ...]
    """Paths of the groups with consolidated metadata, inner groups first; "" for the group itself."""
    zarr: zarr.Group
    """The group."""
    presences: dict[str, Presence]
    """Record of each array that detects whether it still exists, by path."""
    zarr_format: Any
    """Zarr format of copies of it, 2 or 3: its own, unless another is requested."""

    @property
    def changes_format(self) -> bool:
        return bool(self.zarr_format != self.zarr.metadata.zarr_format)

    @property
    def consolidated_copy(self) -> tuple[str, ...]:
        """Paths of the groups with consolidated metadata in a copy; for a foreign file only the group, as in xarray."""
        return ("",) if foreign_at(self.zarr.store_path) else self.consolidated

    def in_format(self, zarr_format: int | None) -> GroupFile:
        """Return the group file with a format for its copies; None for its own."""
        return self if zarr_format is None else replace(self, zarr_format=zarr_format)

    def with_policy(self, missing: Policy) -> GroupFile:
        """Return the group file with the policy ``missing`` for missing chunks of its arrays during a copy."""
        asked = {name: replace(presence, missing=missing) for name, presence in self.presences.items()}
        return replace(self, presences=asked)

    @property
    def missing(self) -> Policy | None:
        """Policy for missing chunks of its arrays during a copy; None if unset."""
        return next((presence.missing for presence in self.presences.values()), None)

    @property
    def name(self) -> str:
        return location(self.zarr)

    @property
    def folder(self) -> str | None:
        """The local directory that holds it, or None."""
        return local_folder(self.zarr.store_path)


def open_group(store: StoreLike | zarr.Group, *, unfinished: bool = False) -> zarr.Group:
    """Open a Zarr group from its own documents, without its consolidated metadata."""
    place = store.store_path if isinstance(store, zarr.Group) else store
    if (folder := local_folder(place)) is not None:
        check_documents(folder)
        if not os.path.exists(folder):  # Zarr creates the folder of a store that it opens for writing
            raise NotFoundError(f"no Zarr group in {store}")
    try:
        with translated("open", store, but=ABSENT, full=True):
            group = document_or_draft(partial(zarr.open_group, mode="r", use_consolidated=False), place)
    except (ContainsArrayError, KeyError, NodeTypeValidationError, *ABSENT):
        raise NotFoundError(f"no Zarr group in {store}") from None
    except WRECKED as error:
        raise NotFoundError(f"{store} cannot be opened as a Zarr group: {said(error)}") from error
    if MARK in group.attrs and not unfinished:
        raise unfinished_error(group, "group")
    return group


def describe_group(group: zarr.Group) -> GroupFile:
    try:
        with translated("look into", location(group), full=True):
            return _described(group)
    except OocError:
        raise
    except WRECKED as error:
        raise NotFoundError(
            f"{location(group)} contains something other than Zarr arrays and groups: {said(error)}"
        ) from error


def skipped_in(group: zarr.Group) -> dict[str, str]:
    """Return the reasons for skipping arrays of a file that is not Zarr, by path."""
    found = foreign_at(group.store_path)
    return found[0].skipped(found[1]) if found else {}


def _described(group: zarr.Group) -> GroupFile:
    skipped = skipped_in(group)
    if skipped:
        listed = "; ".join(f"{name} {why}" for name, why in skipped.items())
        text = f"{location(group)}: {len(skipped)} left out, which Zarr cannot hold: {listed}"
        warnings.warn(text, SkippedArraysWarning, stacklevel=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # names that are not part of the group
        found = sorted(group.members(max_depth=None, use_consolidated_for_children=False))
    arrays = {name: node for name, node in found if isinstance(node, zarr.Array)}
    groups = {name: node for name, node in found if isinstance(node, zarr.Group)}
    for name, array in arrays.items():
        if MARK in array.attrs:
            raise UnfinishedError(f"{name} in {location(group)} is unfinished: resume its run, or delete it")
    keeping = [name for name, node in {"": group, **groups}.items() if is_consolidated(node)]
    return GroupFile(
        zarr=group,
        arrays=arrays,
        groups={name: dict(node.attrs.asdict()) for name, node in groups.items()},
        consolidated=tuple(sorted(keeping, key=lambda name: (-len(name.split("/")), name == ""))),
        presences={name: presence_of(array, location(array), read=True) for name, array in arrays.items()},
        zarr_format=group.metadata.zarr_format,
    )


def is_consolidated(group: zarr.Group) -> bool:
    """Return whether a group has consolidated metadata, which is never read here."""
    in_format_3, in_format_2 = documents(group.store_path, (METADATA, ".zmetadata"))
    if group.metadata.zarr_format == 2:
        return in_format_2 is not None
    return (in_format_3 or {}).get("consolidated_metadata") is not None


def refresh_consolidated(store: StoreLike, *, durable: bool = True) -> None:
    """Write the consolidated metadata of the groups above an array anew, inner groups first, where they have any."""
    folder, place = local_folder(store), store_path(store)
    while True:
        if folder is not None:
            above: StoreLike = os.path.dirname(folder)
            folder = str(above)
        elif place.path:
            above = place = StorePath(place.store, place.path.rpartition("/")[0])
        else:
            return
        in_format_3, in_format_2, group_2 = documents(above, (METADATA, ".zmetadata", GROUP_2))
        if (in_format_3 or {}).get("node_type") != "group" and group_2 is None:
            return
        if in_format_2 is not None or (in_format_3 or {}).get("consolidated_metadata") is not None:
            with translated("write", above):
                _consolidate(store_path(document_store(above, durable=durable)), ("",))


def _consolidate(place: StorePath, paths: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", zarr.errors.ZarrUserWarning)  # consolidated metadata; the journal
        for path in paths:
            zarr.consolidate_metadata(place, path=path or None)


def check_group_target(source: zarr.Group | zarr.Array, store: StoreLike, *, overwrite: bool) -> None:
    """Raise if the target would overwrite the source or other data."""
    check_apart(source, store)
    check_group_place(store, overwrite=overwrite)


def check_group_place(store: StoreLike, *, overwrite: bool) -> None:
    """Raise if a group cannot be created at a location, as `check_group_target` does, for any source."""
    check_replaceable(store, "not a Zarr group", holds_group, overwrite=overwrite)


def make_group(
    store: StoreLike,
    settings: Settings,
    run: str,
    *,
    groups: Mapping[str, Document] = MappingProxyType({}),
    overwrite: bool,
    durable: bool = True,
) -> None:
    """Create a group, marked unfinished, and its subgroups; ``groups`` holds their attributes by path."""

    draft = keeps_drafts(store_path(store))
    try:
        with translated("write", store):
            put_target(store, zarr.create_group, settings, run, overwrite=overwrite, durable=durable)
            for name, attributes in groups.items():
                below = new_documents(zarr.create_group, settings | {"attributes": attributes})
                put_documents(member_store(store, name), below, durable=durable, draft=draft)
    except TargetError:
        raise
    except ValueError as error:
        raise TargetError(f"cannot create a group at {store}: {error}") from error


def finish_group(
    store: StoreLike,
    consolidated: tuple[str, ...] = (),
    *,
    nodes: Iterable[str] = (),
    attributes: Mapping[str, Any] = MappingProxyType({}),
    durable: bool = True,
) -> str:
    """Write the documents of a finished group, with consolidated metadata for the given paths; return its location."""
    with translated("write", store):
        place = store_path(document_store(store, durable=durable))
        if not any(found is not None for found in documents(store, (METADATA, GROUP_2))):
            place = with_drafts(place)
        _consolidate(place, consolidated)
        for node in nodes:
            publish_drafts(member_store(store, node), durable=durable)
        group = zarr.open_group(place, mode="r+", use_consolidated="" in consolidated)
        take_mark_away(store, without_mark(group, attributes), durable=durable)
    return location(open_group(store))
