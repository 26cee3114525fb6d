"""Passes whose results are of another shape: what a kernel gives on the whole array, tried before a target is made."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import example, given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, JournalError, KernelError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.graphs.clusters import cluster
from tests.profiles import examples
from tests.seams import Coarsening
from tests.unfinished import left_behind
from tests.whole import around, boundaries, padded

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
MAPS = np.random.default_rng(7).random((40, 30, 20), dtype="f4")
NAMES = ("time", "y", "x")


def stored(data: np.ndarray = MAPS, chunks: tuple[int, ...] = (7, 8, 9), **options: Any) -> zarr.Array:
    return zarr.create_array({}, data=data, chunks=chunks, **({"dimension_names": NAMES[: data.ndim]} | options))


def names(made: ooc.OutOfCoreArray) -> Any:
    return made.zarr.metadata.dimension_names


def gradients(block: np.ndarray) -> np.ndarray:
    return np.stack([np.gradient(block, axis=1), np.gradient(block, axis=2)])


def spectra(block: np.ndarray) -> np.ndarray:
    return np.abs(np.fft.rfft(block, axis=0))


def grey(block: np.ndarray) -> np.ndarray:
    return block @ np.array([0.3, 0.6, 0.1], block.dtype)


# ---------------------------------------------------------------------- what a pass gives


@pytest.mark.parametrize(
    ("kernel", "how", "chunks", "dims"),
    [
        (lambda block: block.argmax(0), {"drop_axis": 0}, (8, 9), ("y", "x")),
        (lambda block: block.argmax(0), {"drop_axis": "time", "dtype": "i4"}, (8, 9), ("y", "x")),
        (lambda block: block.max((0, 2)), {"drop_axis": ["x", 0]}, (8,), ("y",)),
        (lambda block: block.max((0, 1, 2))[None], {"drop_axis": [0, 1, 2], "new_axis": 0}, (1,), (None,)),
        (gradients, {"new_axis": 0, "shape": 2, "window": (None, -1, -1)}, (2, 7, 8, 9), (None, *NAMES)),
        (gradients, {"new_axis": 0, "chunks": ((2,), (40,), 15, 20), "axis": 0}, (2, 40, 15, 20), (None, *NAMES)),
        (spectra, {"drop_axis": 0, "new_axis": 0, "shape": (21, ...)}, (21, 8, 9), (None, "y", "x")),
        (spectra, {"shape": (21, None, None)}, (7, 8, 9), NAMES),
        (spectra, {"shape": {"time": 21}, "dtype": "f8"}, (7, 8, 9), NAMES),
        (lambda block: np.moveaxis(spectra(block), 0, -1), {"drop_axis": 0, "new_axis": -1, "shape": {-1: 21}},
         (8, 9, 21), ("y", "x", None)),
        (lambda block: block[..., None], {"new_axis": [3]}, (7, 8, 9, 1), (*NAMES, None)),
        (lambda block: block.reshape(-1, 4, *block.shape[1:]).mean(1).max(2), {"factor": {0: 4}, "drop_axis": 2},
         (7, 8), ("time", "y")),
    ],
)  # fmt: skip
def test_results_of_another_shape(
    kernel: Any, how: dict[str, Any], chunks: tuple[int, ...], dims: tuple[str | None, ...]
) -> None:
    job = flat(ooc.map_slabs, kernel, stored(), MemoryStore(), **HERE | how)
    want = kernel(MAPS)
    made = job.run()
    np.testing.assert_allclose(made[...], want, rtol=1e-5)
    assert made.dtype == how.get("dtype", want.dtype)
    assert (made.zarr.chunks, names(made)) == (chunks, dims)
    assert job.meter.write_requests == job.plan.traffic.write_requests
    assert "targets" in str(job.explain())


def test_there_and_back(tmp_path: Path) -> None:
    """An image to grey, and to three colours again."""
    image = np.random.default_rng(0).random((50, 40, 3), dtype="f4")
    source = stored(image, (16, 16, 3), dimension_names=("y", "x", "c"), attributes={"of": "cells"})
    ooc.map_slabs(grey, source, tmp_path / "grey", results=ooc.Results(drop_axis="c"), **HERE).run()
    how = {"new_axis": 2, "shape": (50, 40, 3)}
    back = flat(
        ooc.map_slabs, lambda b: np.stack([b] * 3, -1), tmp_path / "grey", tmp_path / "back", **how, **HERE
    ).run()
    np.testing.assert_allclose(back[...], np.repeat(grey(image)[..., None], 3, -1), rtol=1e-6)
    assert back.attrs["of"] == "cells"


@st.composite
def passes(draw: st.DrawFn) -> tuple[Any, ...]:
    """Arrays of any rank, of which some axes go and others come; there are halos along those that stay."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    dropped = draw(st.sets(st.sampled_from(range(len(shape)))))
    new = {}
    for _ in range(draw(st.integers(0 if len(dropped) < len(shape) else 1, 2))):
        new[len(new)] = draw(st.integers(1, 5))
    ndim = len(shape) - len(dropped) + len(new)
    places = sorted(draw(st.permutations(range(ndim)))[: len(new)])
    depth = tuple(0 if axis in dropped else draw(st.integers(0, 2)) for axis in range(len(shape)))
    heights = st.sampled_from([None, 1, 2, 4]), st.none()
    how = {
        "boundary": draw(boundaries(len(shape), ["none", "reflect", "nearest", "periodic", 3.0])),
        "ranks": draw(st.integers(1, 3)),
        "reuse": draw(st.booleans()),
        "prefetch": draw(st.integers(0, 2)),
        "verify": draw(st.booleans()) and len(dropped) < len(shape),
        "window": draw(st.none() | st.tuples(*(heights[axis in dropped] for axis in range(len(shape))))),
    }
    chunks = tuple(draw(st.integers(1, n)) for n in shape)
    return shape, chunks, tuple(sorted(dropped)), dict(zip(places, new.values(), strict=True)), depth, how


def reshaped(depth: tuple[int, ...], dropped: tuple[int, ...], new: dict[int, int]) -> Callable[..., Any]:
    """A kernel that is another function of each neighbour, sums axes that go, and fills those that come."""
    see = around(depth)

    def kernel(block: np.ndarray) -> np.ndarray:
        made = see(block).sum(dropped)
        for place, length in sorted(new.items()):
            ramp = np.arange(1.0, length + 1).reshape(-1, *[1] * (made.ndim - place))
            made = np.expand_dims(made, place) * ramp
        return made

    return kernel


@examples(30)
@given(passes(), st.sampled_from([{"compressors": None}, {"zarr_format": 2, "order": "F"}, {}]))
@example(((4, 4), (2, 2), (0,), {}, (0, 1), {"window": (None, 1), "verify": True}), {})
def test_a_pass_is_the_kernel_on_the_whole_array(case: tuple, storing: dict[str, Any]) -> None:
    shape, chunks, dropped, new, depth, how = case
    whole = np.random.default_rng(1).random(shape)
    storing = storing | ({"dimension_names": None} if storing.get("zarr_format") != 2 else {})
    source = zarr.create_array({}, data=whole, chunks=chunks, **storing)
    kernel, level = reshaped(depth, dropped, new), Coarsening((1,) * len(shape)).reshaped(dropped, new)
    full = kernel(padded(whole, depth, how.get("boundary", "none")))
    want = full[_inside(level, full.shape, shape)]
    job = flat(
        ooc.map_slabs,
        kernel,
        source,
        MemoryStore(),
        depth=depth,
        results=ooc.Results(drop_axis=dropped, new_axis=list(new), shape=new),
        **how,
        **HERE,
    )
    made = job.run()
    np.testing.assert_allclose(made[...], want, rtol=1e-10)
    assert job.meter.write_requests == job.plan.traffic.write_requests
    assert job.meter.write_requests == made.zarr.nchunks


def _inside(level: Coarsening, full: tuple[int, ...], shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Where a result without its halo is in one that has it."""
    pairs = zip(full, level.shape(shape), strict=True)
    return tuple(slice((n - m) // 2, (n - m) // 2 + m) for n, m in pairs)


@examples(20)
@given(st.integers(18, 30), st.integers(1, 3), st.sampled_from([(4, 64, 64), (16, 16, 16), (1, 128, 128)]))
def test_within_any_budget(power: int, ranks: int, chunks: tuple[int, ...]) -> None:
    """What does not fit is refused before anything is made, and says what would."""
    data = np.random.default_rng(2).random((16, 128, 128), dtype="f4")
    source, target = stored(data, chunks), MemoryStore()
    how: dict[str, Any] = {"drop_axis": 0, "new_axis": 0, "shape": {0: 9}, "ranks": ranks, "scheduler": "threads"}
    how |= {"workspace": 6}
    try:
        job = flat(ooc.map_slabs, spectra, source, target, memory=2**power, **how)
    except BudgetError as error:
        assert not target._store_dict
        job = flat(ooc.map_slabs, spectra, source, target, memory=error.least, **how)
    assert job.plan.peak_bytes <= job.plan.budget
    np.testing.assert_allclose(job.run()[...], spectra(data), rtol=1e-4)


def test_a_target_whose_chunks_are_cut_and_that_has_no_room_is_said() -> None:
    rows = zarr.create_array({}, shape=(4096, 8192), chunks=(64, 8192), dtype="f4")
    how: dict[str, Any] = {"shape": {0: 2049}, "memory": "64MiB", "scheduler": "threads"}
    with pytest.raises(BudgetError, match=r"all of a target whose chunks it cuts \(give chunks=\), needs"):
        flat(ooc.map_slabs, spectra, rows, MemoryStore(), **how)
    assert (
        flat(ooc.map_slabs, spectra, rows, ooc.Target(MemoryStore(), chunks=(2049, 16)), **how).plan.peak_bytes <= 2**26
    )


def test_several_targets_each_of_its_own_shape() -> None:
    def kernel(block: np.ndarray, block_info: Any, *, scale: float) -> tuple[np.ndarray, ...]:
        assert block_info.section.shape == block.shape
        return scale * block.max(0), gradients(block), block

    source, targets = stored(), [MemoryStore() for _ in range(3)]
    how: dict[str, Any] = {"drop_axis": [0, None, None], "new_axis": [None, 0, None], "shape": [None, 2, None]}
    how |= {"chunks": [(10, 10), None, (20, 30, 20)], "dtype": [None, "f8", "f4"], "kwargs": {"scale": 2.0}, "axis": 1}
    how |= {"height": 30}
    job = flat(ooc.map_slabs, kernel, source, targets, **how, **HERE)
    wants = 2 * MAPS.max(0), gradients(MAPS), MAPS
    for made, want in zip(job.run(), wants, strict=True):
        np.testing.assert_allclose(made[...], want, rtol=1e-5)
    assert [ooc.open_array(each).dtype for each in targets] == ["f4", "f8", "f4"]
    assert [ooc.open_array(each).zarr.chunks for each in targets] == [(10, 10), (2, 7, 8, 9), (20, 30, 20)]


def test_several_sources_and_a_halo_where_axes_stay() -> None:
    other = MAPS[::-1].copy()

    def kernel(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a += b
        wide = np.pad(a, [(0, 0), (1, 1), (0, 0)], "edge")
        return np.max(wide[:, :-2] + wide[:, 2:], axis=0)

    for window, boundary in product([(40, 8, 9), (40, 30, 9), None], ["none", "nearest"]):
        made = ooc.map_slabs(
            kernel,
            [stored(), stored(other)],
            MemoryStore(),
            depth=(0, 2, 0),
            window=window,
            boundary=boundary,
            results=ooc.Results(drop_axis=0, verify=True),
            **HERE,
        )
        np.testing.assert_allclose(made.run()[...], kernel(MAPS.copy(), other), rtol=1e-5)


def test_a_target_whose_chunks_are_in_several_slabs_is_gathered() -> None:
    how: dict[str, Any] = {"drop_axis": 2, "depth": (1, 0, 0), "window": (5, 8, None), "chunks": (40, 30)}

    def kernel(block: np.ndarray) -> np.ndarray:
        return around((1, 0, 0))(block).sum(2)

    job = flat(ooc.map_slabs, kernel, stored(), MemoryStore(), **how, **HERE)
    np.testing.assert_allclose(job.run()[...], kernel(MAPS), rtol=1e-5)
    assert "kept in memory" in str(job.explain())


def test_depths_and_margins_of_axes_that_stay(tmp_path: Path) -> None:
    """A kernel that sees farther than its depth is found along an axis that stays."""

    def kernel(block: np.ndarray) -> np.ndarray:
        return around((0, 3, 0))(block).sum(0)

    how: dict[str, Any] = {"drop_axis": 0, "verify": True, "window": (None, 8, None)}
    with pytest.raises(KernelError, match="where it sees more neighbours"):
        flat(ooc.map_slabs, kernel, stored(), tmp_path / "b", depth=(0, 2, 0), **how, **HERE).run()
    assert not (tmp_path / "b").exists()


def test_fill_values_and_bytes_of_other_types() -> None:
    """NaN, for what is not written, is no whole number; single bytes have no byte order, what is made of them has."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        source = stored(fill_value=np.nan)
        made = ooc.map_slabs(
            lambda block: block.argmin(0), source, MemoryStore(), results=ooc.Results(drop_axis=0), **HERE
        ).run()
        assert made.zarr.fill_value == 0
        small = stored((255 * MAPS).astype("u1"))
        mean = ooc.map_slabs(
            lambda block: block.mean(0), small, MemoryStore(), results=ooc.Results(drop_axis=0), **HERE
        ).run()
    np.testing.assert_allclose(mean[...], (255 * MAPS).astype("u1").mean(0))
    wide = ooc.map_slabs(lambda block: block / 2, small, ooc.Target(MemoryStore(), dtype="f4"), **HERE).run()
    np.testing.assert_allclose(wide[...], (255 * MAPS).astype("u1") / 2)


def test_names_of_format_2() -> None:
    source = stored(zarr_format=2, order="F", dimension_names=None, attributes={"_ARRAY_DIMENSIONS": list(NAMES)})
    made = ooc.map_slabs(
        lambda block: block.max(1), source, MemoryStore(), results=ooc.Results(drop_axis="y"), **HERE
    ).run()
    assert made.attrs["_ARRAY_DIMENSIONS"] == ["time", "x"]
    more = ooc.map_slabs(
        lambda block: block[None], source, MemoryStore(), results=ooc.Results(new_axis=0), **HERE
    ).run()
    assert "_ARRAY_DIMENSIONS" not in more.attrs
    np.testing.assert_array_equal(more[...], MAPS[None])


def test_a_long_new_axis_is_cut() -> None:
    source = stored(MAPS, (20, 30, 20))
    made = ooc.map_slabs(
        lambda block: np.repeat(block[None], 500, 0),
        source,
        MemoryStore(),
        memory="512MiB",
        scheduler="threads",
        results=ooc.Results(new_axis=0, shape=500),
    ).run()
    assert made.zarr.chunks == (2**20 // (20 * 30 * 20), 20, 30, 20)
    np.testing.assert_array_equal(made[499], MAPS)


# ---------------------------------------------------------------------- the trial


def test_a_kernel_that_gives_another_shape_is_refused_before_a_target_is_made(tmp_path: Path) -> None:
    target = tmp_path / "b.zarr"
    for kernel, how, match in [
        (lambda block: block.max(0), {"drop_axis": 1}, r"returned shape \(30, 4\) .* zeros of shape .*has \(2, 4\)"),
        (np.negative, {"drop_axis": 0}, r"returned shape \(40, 3, 4\) .* there .*b.zarr has \(3, 4\)"),
        (gradients, {"new_axis": 0, "shape": 3}, r"returned shape \(2, .* has \(3, "),
        (lambda block: (block.max(0), block.min(0)), {"drop_axis": 0}, "returned 2 arrays for a trial block"),
        (lambda block: block.max(0).T, {"drop_axis": 0}, r"returned shape \(4, 3\)"),
        (lambda block: block.mean(0), {"drop_axis": 0, "dtype": "i4"}, "returned dtype float32 .* target has int32"),
        (lambda block: None, {"drop_axis": 0}, r"returned shape \(\)"),
        (lambda block: block[::2], {"factor": (3, 1, 1)}, "returned shape"),
        (lambda block: block.max(0).astype(object), {"drop_axis": 0}, "no fixed size"),
    ]:  # fmt: skip
        with pytest.raises((KernelError, InputError), match=match):
            flat(ooc.map_slabs, kernel, stored(), target, **HERE | how)
    assert not target.exists()


def test_a_kernel_that_cannot_be_called_with_zeros_shows_on_the_first_slab(tmp_path: Path) -> None:
    def picky(block: np.ndarray) -> np.ndarray:
        if not block.any():
            raise ValueError("all zeros")
        return block.max(0)

    made = ooc.map_slabs(picky, stored(), MemoryStore(), results=ooc.Results(drop_axis=0), **HERE).run()
    np.testing.assert_array_equal(made[...], MAPS.max(0))
    with pytest.raises(KernelError, match=r"slab .* there .*b has"):
        ooc.map_slabs(picky, stored(), tmp_path / "b", results=ooc.Results(drop_axis=1), **HERE).run()
    assert not (tmp_path / "b").exists()


def test_a_trial_is_small_reads_nothing_and_says_nothing() -> None:
    seen: list[tuple[int, ...]] = []

    def kernel(block: np.ndarray) -> np.ndarray:
        seen.append(block.shape)
        return np.log(block).mean(0) / block.min(0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job = ooc.map_slabs(kernel, stored(), MemoryStore(), depth=(0, 1, 0), results=ooc.Results(drop_axis=0), **HERE)
    assert seen == [(40, 4, 4)]
    assert job.meter.read_requests == 0
    long = zarr.create_array({}, shape=(10**6, 50, 50), chunks=(1000, 1, 1), dtype="f8")
    with pytest.raises(BudgetError):
        ooc.map_slabs(kernel, long, MemoryStore(), memory="4MiB", scheduler="threads", results=ooc.Results(drop_axis=0))
    ooc.map_slabs(kernel, long, MemoryStore(), memory="4GiB", scheduler="threads", results=ooc.Results(drop_axis=0))
    assert seen[1:] == [(10**6, 1, 1)]


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"drop_axis": 3}, "drop_axis=3 is not one of the 3 axes, 0 to 2, or 'time', 'y', 'x'"),
        ({"drop_axis": "z"}, "drop_axis='z' is not one of the 3 axes"), ({"drop_axis": [0, "time"]}, "an axis twice"),
        ({"drop_axis": 1.5}, "is not one of the 3 axes"), ({"drop_axis": True}, "is not one of the 3"),
        ({"drop_axis": [0, 1, 2]}, "leaves no axis"), ({"drop_axis": 0, "factor": {0: 2}}, "both name axis 0"),
        ({"new_axis": 5}, "new_axis=5 is not one of the 4 axes, 0 to 3"),
        ({"new_axis": [0, -5]}, "an axis twice"), ({"new_axis": "w"}, "new_axis='w' is not one"),
        ({"new_axis": 0, "shape": (2, 3)}, "has 2 axes, and the result has 4"),
        ({"new_axis": 0, "shape": 0}, "must be a whole number, at least 1"),
        ({"new_axis": [0, 1], "shape": 2}, "shape=2 is one length; the result has 5 axes"),
        ({"new_axis": 0, "shape": {4: 2}}, "4 is not one of the 4 axes"),
        ({"new_axis": 0, "shape": (2, 41, 30, 20)}, "axis 1 of the target should have 41 elements, but gets 40"),
        ({"shape": (40, 30)}, "has 2 axes, and the result has 3"), ({"shape": 7}, "is one length"),
        ({"shape": (..., 7, ...)}, "shape"), ({"shape": "big"}, "shape"),
        ({"shape": (10, 30, 20), "factor": {0: 2}}, "should have 10 elements, but gets 20"),
        ({"drop_axis": 0, "depth": 1}, "along axis 0 results have another length"),
        ({"drop_axis": 0, "window": (20, 8, 9)}, "slabs of 20 elements along axis 0 cut"),
        ({"drop_axis": 0, "axis": 0, "height": 20, "ranks": 2}, "slabs of 20 elements along axis 0 cut"),
        ({"drop_axis": [0, 1, 2], "new_axis": 0, "verify": True}, "verify=True"),
        ({"drop_axis": 0, "chunks": (1, 2, 3)}, "has 3 axes; the array has 2"),
        ({"drop_axis": 0, "chunks": ((3, 1, 26), 20)}, "chunks of equal length"),
        ({"drop_axis": 0, "dtype": ["f4", "f8"]}, "is no type"),
    ],
)  # fmt: skip
def test_shapes_that_cannot_be(tmp_path: Path, how: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        flat(ooc.map_slabs, lambda block: block.max(0), stored(), tmp_path / "b", **HERE | how)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"drop_axis": 0}, "drop_axis=0 has the wrong length for 2 targets"),
        ({"drop_axis": [0, 1, 2]}, "has the wrong length for 2 targets"), ({"shape": (1, None)}, "is one length"),
    ],
)  # fmt: skip
def test_shapes_of_several_targets_that_cannot_be(tmp_path: Path, how: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        flat(ooc.map_slabs, lambda block: (block, block), stored(), [tmp_path / "b", tmp_path / "c"], **HERE | how)


def test_arrays_of_no_elements_and_local_files(tmp_path: Path) -> None:
    empty = zarr.create_array({}, shape=(0, 4), chunks=(1, 2), dtype="f4")
    with pytest.raises(InputError, match="have no elements"):
        ooc.map_slabs(lambda block: block.sum(0), empty, tmp_path / "b", results=ooc.Results(drop_axis=0), **HERE)
    assert ooc.map_slabs(
        lambda block: block.sum(1), empty, tmp_path / "c", results=ooc.Results(drop_axis=1), **HERE
    ).run().shape == (0,)
    local = ooc.create_array(tmp_path / "l", shape=(8, 6), layout="(block, *)", placement="local", ranks=2, dtype="f4")
    with pytest.raises(InputError, match="drop_axis= and shape= needs arrays in one file each"):
        ooc.map_slabs(
            lambda block: block.sum(0),
            local,
            tmp_path / "d",
            scheduler="threads",
            results=ooc.Results(drop_axis=0, shape=6),
        )


# ---------------------------------------------------------------------- places


# ---------------------------------------------------------------------- clusters, and what was killed


def waves(block: np.ndarray) -> np.ndarray:
    """Of 16 times, 9 waves."""
    return np.abs(np.fft.rfft(around((0, 1, 0))(block), axis=0)).astype("f4")


WAVES: dict[str, Any] = {"drop_axis": 0, "new_axis": 0, "shape": (9, ...), "depth": (0, 1, 0)}


def test_on_workers(tmp_path: Path) -> None:
    data = np.random.default_rng(3).random((16, 128, 96), dtype="f4")
    zarr.create_array(tmp_path / "a", data=data, chunks=(4, 16, 96))
    with cluster(2) as client:
        job = flat(ooc.map_slabs, waves, tmp_path / "a", tmp_path / "b", scheduler=client, window={1: 16}, **WAVES)
        np.testing.assert_allclose(job.run()[...], waves(data), rtol=1e-3, atol=1e-4)
        assert job.plan.ranks == 2


BLOCKS: dict[str, Any] = {"ranks": 1, "window": (16, 16, 32), "memory": "32MiB", "scheduler": "threads", "drop_axis": 0}
BLOCKS |= {"depth": (0, 1, 0), "kwargs": {"axis": 0}}


@pytest.mark.parametrize(("chunks", "at", "after"), [(None, "entry", 6), ((128, 96), "entry", 6), (None, "chunk", 5)])
def test_a_killed_run_goes_on(tmp_path: Path, runs: Server, chunks: Any, at: str, after: int) -> None:
    """Also where all is gathered: what slabs that are done have given is made again, with their halos."""
    data, target = np.random.default_rng(3).random((16, 128, 96), dtype="f4"), tmp_path / "b"
    zarr.create_array(tmp_path / "a", data=data, chunks=(4, 16, 32))
    how = BLOCKS | {"chunks": chunks}
    runs.run("map_slabs", "numpy:argmax", tmp_path / "a", target, at=at, after=after, **how)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    other = {"drop_axis": None, "shape": (1, 128, 96), "kwargs": {"axis": 0, "keepdims": True}, "chunks": None}
    with pytest.raises(JournalError, match="was begun with"):
        flat(ooc.map_slabs, np.argmax, tmp_path / "a", target, resume=True, **how | other)
    job = ooc.resume(target, kernel=partial(np.argmax, axis=0))
    assert job.left < 1
    np.testing.assert_array_equal(job.run()[...], data.argmax(0))
    assert left_behind(tmp_path) == []


def test_several_targets_go_on(tmp_path: Path) -> None:
    """Each with its own axes and chunks, after a kernel that failed in the middle."""
    zarr.create_array(tmp_path / "a", data=MAPS, chunks=(7, 8, 9))
    failing = [True]

    def kernel(block: np.ndarray, block_info: Any) -> tuple[np.ndarray, ...]:
        if failing and block_info.section.lower[1] == 16 and block.any():
            raise ValueError("in the middle")
        return block.max(0), np.stack([block, -block], -1), spectra(block)

    how: dict[str, Any] = {"drop_axis": [0, None, None], "new_axis": [None, 3, None], "shape": [None, 2, {0: 21}]}
    how |= {"chunks": [(16, 20), None, (21, 8, 20)], "window": (None, 8, None), "ranks": 1}
    targets = [tmp_path / name for name in "bcd"]
    with pytest.raises(KernelError, match="in the middle"):
        flat(ooc.map_slabs, kernel, tmp_path / "a", targets, **how, **HERE).run()
    failing.clear()
    job = ooc.resume(targets[0], kernel=kernel, as_is=True)
    assert job.left < 1
    for made, want in zip(job.run(), (MAPS.max(0), np.stack([MAPS, -MAPS], -1), spectra(MAPS)), strict=True):
        np.testing.assert_allclose(made[...], want, rtol=1e-5)
    assert [ooc.open_array(each).zarr.chunks for each in targets] == [(16, 20), (7, 8, 9, 2), (21, 8, 20)]
