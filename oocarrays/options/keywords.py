"""Keywords of public functions that have several signatures, for type checkers: each is listed once.

rechunk("a.zarr", "b.zarr", chunks=(8, 4))              -> RechunkJob
rechunk("a.zarr", "b.zarr", chunks={"air": (8, 4)})     -> GroupJob         **keywords of both
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from oocarrays.mapping.layouts.halo import BoundaryLike
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.given import Resources, Target
from oocarrays.options.shapes import Results
from oocarrays.plan.slabs.options import DepthLike, WindowLike
from oocarrays.storage.files.places import StoreLike

if TYPE_CHECKING:
    from distributed import Client

OneTarget = Target | StoreLike
SeveralTargets = list[Any] | tuple[Any, ...]


class WritingKeywords(TypedDict, total=False):
    """Keywords of all functions that plan to write a target."""

    memory: int | float | str | None
    overwrite: bool
    resume: bool | Literal["verify", "as-is"]
    scheduler: Client | str | None
    resources: Resources | None


class RechunkKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.rechunk` beside source, target and chunks."""

    method: Literal["auto", "independent", "two-phase", "assembled", "staged"]
    storage_options: Mapping[str, Any] | None


class ChunkedKeywords(RechunkKeywords, total=False):
    """The same, and chunks of any form."""

    chunks: ChunksLike | None


class SlabKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.map_slabs` beside kernel, sources and targets."""

    depth: DepthLike | None
    boundary: BoundaryLike
    window: WindowLike | int | None
    results: Results | None


class SweepKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.iterate` beside kernel, sources and targets."""

    sweeps: Required[int]
    until: float | tuple[float | None, Callable[..., float]] | None
    depth: DepthLike | None
    boundary: BoundaryLike
