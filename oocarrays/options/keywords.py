"""Keywords of public functions that have several signatures, for type checkers: each is listed once.

rechunk("a.zarr", "b.zarr", chunks=(8, 4))              -> RechunkJob
rechunk("a.zarr", "b.zarr", chunks={"air": (8, 4)})     -> GroupJob         **keywords of both
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict

from oocarrays.mapping.layouts.halo import BoundaryLike
from oocarrays.options.asked import FactorLike
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.shapes import DropLike, NewLike, ShapeLike
from oocarrays.plan.slabs.options import DepthLike, WindowLike

if TYPE_CHECKING:
    from distributed import Client


class RunKeywords(TypedDict, total=False):
    """Keywords of all functions that plan a run."""

    memory: int | float | str | None
    ranks: int | None
    missing: Literal["fill", "warn", "error"] | None
    storage_options: Mapping[str, Any] | None
    scheduler: Client | str | None
    workers: Sequence[str] | None


class WritingKeywords(RunKeywords, total=False):
    """Keywords of all functions that plan to write a target."""

    overwrite: bool
    resume: bool | Literal["verify", "as-is"]


class RechunkKeywords(WritingKeywords, total=False):
    """Keywords of `oocarrays.rechunk` beside source, target and chunks."""

    shards: ChunksLike | None
    orientation: Literal["row", "column"] | tuple[int, ...] | None
    method: Literal["auto", "independent", "two-phase", "assembled", "staged"]
    schedule: str | None
    compressors: Any
    filters: Any
    zarr_format: Literal[2, 3] | None
    scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


class PassKeywords(WritingKeywords, total=False):
    """Keywords of all functions that plan passes over slabs."""

    depth: DepthLike | None
    boundary: BoundaryLike
    prefetch: int
    workspace: float | str | None
    axis: int | str | None
    height: int | None
    window: WindowLike | None
    folders: str | None


class SlabKeywords(PassKeywords, total=False):
    """Keywords of `oocarrays.map_slabs` beside kernel, sources and targets."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    reuse: bool
    dtype: Any
    chunks: ChunksLike | None
    factor: FactorLike | Sequence[FactorLike] | None
    drop_axis: DropLike | Sequence[DropLike | None] | None
    new_axis: NewLike | Sequence[NewLike | None] | None
    shape: ShapeLike | Sequence[ShapeLike | None] | None
    verify: bool


class SweepKeywords(PassKeywords, total=False):
    """Keywords of `oocarrays.iterate` beside kernel, sources and targets."""

    sweeps: Required[int]
    fuse: int | Literal["auto"]
    until: float | None
    residual: Callable[[Any, Any], float] | None
    scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None


class ResumeKeywords(RunKeywords, total=False):
    """Keywords of `oocarrays.resume` beside target, source and kind."""

    kernel: Callable[..., Any] | str | Sequence[Callable[..., Any] | str] | None
    parts: Any
    again: bool
    as_is: bool
    verify: bool
