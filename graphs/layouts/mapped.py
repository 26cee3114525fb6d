"""What a function makes of the parts of each rank, where the rank is: no rank hears of another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Task, TaskRef

from oocarrays.errors import KernelError
from oocarrays.graphs.layouts.parts import Parts, layered
from oocarrays.graphs.run.builder import new_suffix
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.slicing import Slices, local_slices


def mapped(function: Callable[..., Any], several: Sequence[Parts], dtype: np.dtype, addresses: Sequence[str]) -> Parts:
    """Return what a function makes of the parts of arrays of one layout."""
    suffix, layout = new_suffix(), several[0].layout
    keys = [(f"mapped-{suffix}", rank) for rank in range(layout.ranks)]
    tasks = {
        key: Task(
            key, apply, function, layout.local_shape(key[-1]), dtype, *(TaskRef(p.keys[key[-1]]) for p in several)
        )
        for key in keys
    }
    name = f"parts-{suffix}"
    graph = HighLevelGraph.merge(*(parts.graph for parts in several))
    return Parts(
        layout=layout,
        dtype=dtype,
        graph=layered(graph, name, tasks, *(parts.name for parts in several)),
        name=name,
        keys=tuple(keys),
        homes={place: homes for parts in several for place, homes in parts.homes.items()}
        | ({suffix: addresses} if addresses else {}),
    )


def sliced(parts: Parts, taken: Slices, layout: Layout, addresses: Sequence[str]) -> Parts:
    """Return what each rank holds of a slice, in a layout of which that is its part."""
    suffix = new_suffix()
    keys = [(f"sliced-{suffix}", rank) for rank in range(layout.ranks)]
    places = {key: local_slices(parts.layout, taken, key[-1]) for key in keys}
    tasks = {key: Task(key, _copied, TaskRef(parts.keys[key[-1]]), place) for key, place in places.items()}
    return parts.followed_by(suffix, tasks, layout, keys, {suffix: addresses} if addresses else None)


def _copied(part: np.ndarray, places: tuple[slice, ...]) -> np.ndarray:
    return part[places].copy()


def apply(function: Callable[..., Any], shape: tuple[int, ...], dtype: np.dtype, *parts: np.ndarray) -> np.ndarray:
    """Call a function with parts, which it cannot change.

    >>> apply(np.add, (2,), np.dtype("f4"), np.arange(2), np.ones(2))
    array([1., 2.], dtype=float32)
    """
    shown = [part.view() for part in parts]
    for view in shown:
        view.flags.writeable = False
    try:
        made = on_host(function(*shown))
    except Exception as error:
        raise KernelError(f"the function of map_local failed: {type(error).__name__}: {error}") from error
    if made.shape != shape:
        raise KernelError(f"the function of map_local gave an array of shape {made.shape} for a part of {shape}")
    unfit = misfit(made, dtype)
    if unfit is not None:
        raise KernelError(f"the function of map_local gave {unfit}, which dtype {dtype} cannot hold: give dtype=")
    return np.asarray(made, dtype, order="C")
