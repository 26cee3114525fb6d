"""Descriptors of array files: readable JSON under one attribute of the Zarr array, or of the group.

    "oocarrays": {                                            rows of the OCAD (Thakur 1995, Figure 5.5)
      "version": 1, "placement": "local",
      "shape": [8, 6],                                        5   global size
      "rank": 1, "local_shape": [4, 6],                       6   local size, in the file of a rank
      "ranks": [2, 1],                                        7   processors along each axis
      "orientation": [1, 0],                                  8   storage order: axes from the slowest to the fastest
      "distribution": ["block", "*"],                         9
      "block": [4, 6],                                        10  block size
      "depth": [1, 0]}                                        the width of the overlap area

Rows 1 to 4, the bounds of the part in memory, follow from a budget: `oocarrays.plan.files.partitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import zarr

from oocarrays.errors import DescriptorError, LayoutError
from oocarrays.mapping.grid import runs_along
from oocarrays.mapping.layouts.distribution import Collapsed, GenBlock, parse_distributions
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import Depth, LocalPart, check_depth, depths
from oocarrays.mapping.section import axis_order
from oocarrays.plan.documents import Document
from oocarrays.storage.local.fs import DESCRIPTOR

VERSION = 1
"""Version of written descriptors; no other version is read."""
Placement = Literal["global", "local"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """Descriptor of an array file (OCAD)."""

    placement: Placement
    """One file for the whole array, or one for each rank."""
    shape: tuple[int, ...]
    """Global size: extent of each axis, in elements."""
    layout: Layout | None = None
    """Ranks along each axis, distribution and block size; optional for a global file."""
    orientation: tuple[int, ...] | None = None
    """The axes from the slowest to the fastest along a chunk; None if chunks follow no single order."""
    depth: Depth = ()
    """Width of the halo along each axis, in elements, on either side."""
    rank: int | None = None
    """Rank of the file; None for a global file, and for the group of local ones."""
    folders: str | None = None
    """Location of each rank's file, containing ``{rank}``, if it is on its worker's own disk and not in the group."""
    workers: tuple[str, ...] = ()
    """Name of each rank's worker, if files are on workers' own disks."""

    def of_rank(self, rank: int) -> Descriptor:
        return replace(self, placement="local", rank=rank, folders=None, workers=())

    def part(self, rank: int) -> LocalPart:
        assert self.layout is not None, "local array files have a layout"
        return LocalPart.of(self.layout, rank, self.depth)

    def as_json(self) -> Document:
        written: Document = {"version": VERSION, "placement": self.placement, "shape": list(self.shape)}
        if self.rank is not None and self.layout is not None:
            written |= {"rank": self.rank, "local_shape": list(self.layout.local_shape(self.rank))}
        if self.layout is not None:
            written |= {
                "ranks": list(self.layout.grid),
                "distribution": list(map(str, self.layout.distributions)),
                "block": _blocks(self.layout),
            }
        if self.orientation is not None:
            written["orientation"] = list(self.orientation)
        written["depth"] = list(self.depth)
        return written | ({"folders": self.folders, "workers": list(self.workers)} if self.folders else {})


def _blocks(layout: Layout) -> list[Any]:
    """Return the block size along each axis; for blocks of arbitrary lengths, all lengths."""
    dealt: Any = zip(layout.distributions, layout.axes, strict=True)
    return [
        list(d.sizes) if isinstance(d, GenBlock) else int(axis.extent if isinstance(d, Collapsed) else axis.block)
        for d, axis in dealt
    ]


def descriptor_of(attributes: Mapping[str, Any], name: str) -> Descriptor | None:
    """Parse the descriptor of an array file; return None if it has none."""
    if DESCRIPTOR not in attributes:
        return None
    try:
        return _read(attributes[DESCRIPTOR])
    except (LayoutError, KeyError, TypeError, ValueError) as error:
        told = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DescriptorError(f"the descriptor of {name} is invalid: {told}") from None


def _read(said: Any) -> Descriptor:
    if not isinstance(said, Mapping):
        raise ValueError(f"{said!r} is not a mapping")
    if said["version"] != VERSION:
        raise ValueError(f"version {said['version']!r} is not supported; this version reads {VERSION}")
    placement, shape = said["placement"], _whole(said, "shape")
    if placement not in get_args(Placement):
        raise ValueError(f"placement {placement!r} is not 'global' or 'local'")
    found = Descriptor(
        placement=placement,
        shape=shape,
        layout=_layout(said, shape) if placement == "local" or "distribution" in said else None,
        orientation=axis_order(_whole(said, "orientation"), len(shape)) if "orientation" in said else None,
        depth=depths(_whole(said, "depth"), len(shape)),
        rank=said.get("rank"),
        folders=said.get("folders"),
        workers=tuple(map(str, said.get("workers", ()))),
    )
    _check(found, said)
    return found


def _whole(said: Mapping[str, Any], name: str) -> tuple[int, ...]:
    numbers = said[name]
    if not isinstance(numbers, Sequence) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(f"{name} {numbers!r} must be whole numbers of at least 0")
    return tuple(numbers)


def _layout(said: Mapping[str, Any], shape: tuple[int, ...]) -> Layout:
    words = said["distribution"]
    if isinstance(words, str) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"distribution {words!r} must be one word per axis")
    dealt = tuple(each for word in words for each in parse_distributions(word))
    return Layout.of(shape, dealt, grid=_whole(said, "ranks"))


def _check(found: Descriptor, said: Mapping[str, Any]) -> None:
    """Raise if a descriptor contradicts itself: written again, it must have the same rows."""
    layout, rank, folders = found.layout, found.rank, found.folders
    if layout is not None:
        check_depth(layout, found.depth)
    if rank is not None and (layout is None or type(rank) is not int):
        raise ValueError(f"rank {rank!r} without a layout")
    if folders is not None and "{rank}" not in folders:
        raise ValueError(f"folders {folders!r} does not contain {{rank}}")
    ranks = layout.ranks if folders and layout else 0
    if len(found.workers) != ranks:
        raise ValueError(f"{len(found.workers)} workers are named; there must be {ranks}")
    due = found.as_json()
    for name in {**due, **said}:
        if name not in due:
            raise ValueError(f"{name!r} is not a part of it")
        if said[name] != due[name] and name != "distribution":  # the same in other words is accepted
            raise ValueError(f"{name} {said[name]!r} contradicts the rest, which requires {due[name]}")


def check_array(said: Descriptor, array: zarr.Array, name: str) -> None:
    if said.placement == "local" and said.rank is None:
        raise DescriptorError(f"the descriptor of {name} belongs to a group of local array files, not to an array")
    due = said.shape if said.rank is None else said.part(said.rank).shape
    if tuple(array.shape) != due:
        halo = f" with its halo of depth {said.depth}" if any(said.depth) and said.rank is not None else ""
        raise DescriptorError(f"the descriptor of {name} has shape {due}{halo}; the array has {tuple(array.shape)}")
    if said.orientation is not None and not runs_along(said.orientation, due, array.chunks):
        raise DescriptorError(
            f"the descriptor of {name} has orientation {said.orientation}; "
            f"chunks {tuple(array.chunks)} of shape {due} are not oriented that way"
        )


def check_same(said: Descriptor, of_rank: Descriptor | None, rank: int, name: str) -> None:
    """Raise if the descriptor of a rank's file differs from its group's."""
    due = said.of_rank(rank)
    if of_rank is None:
        raise DescriptorError(f"{name} has no descriptor, so it is not the file of rank {rank}")
    different: Callable[[str], bool] = lambda field: getattr(of_rank, field) != getattr(due, field)  # noqa: E731
    wrong = next(filter(different, ("placement", "rank", "shape", "layout", "orientation", "depth")), None)
    if wrong:
        raise DescriptorError(
            f"the descriptor of {name} has {wrong} {getattr(of_rank, wrong)}; its group has {getattr(due, wrong)}"
        )
