"""Arrays that evolve together: every sweep takes a block of each and gives one of each, as numpy does of whole ones."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError, InputError, JournalError, KernelError, RunError, TargetError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.profiles import examples
from tests.seams import Journal
from tests.sweeping import Stencil, cases, gray_scott, held, together

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
RANDOM = np.random.default_rng(7)
U, V = 1 - RANDOM.random((42, 40)) / 4, RANDOM.random((42, 40)) / 2
SWEPT = {"sweeps": 6, "fuse": 2, "height": 16, "ranks": 1, **HERE}
"""Three slabs in each of three passes; the last is lower."""


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    zarr.create_array(tmp_path / "u", data=U, chunks=(8, 40), compressors=None)
    zarr.create_array(tmp_path / "v", data=V, chunks=(16, 20), compressors=None)
    return [tmp_path / "u", tmp_path / "v"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def check(made: Sequence[ooc.OutOfCoreArray], wanted: Sequence[np.ndarray]) -> None:
    assert len(made) == len(wanted)
    for each, other in zip(made, wanted, strict=True):
        assert each.dtype == other.dtype.newbyteorder("=")
        np.testing.assert_array_equal(each[...], other)


class Coupled:
    """A kernel of several fields: each a stencil of itself and a share of the others, or with two of them exchanged."""

    def __init__(self, stencil: Stencil, fields: int, how: str) -> None:
        self.stencil, self.fields, self.how = stencil, fields, how

    def __call__(self, *blocks: np.ndarray) -> tuple[np.ndarray, ...]:
        swept = blocks[: self.fields]
        if self.how == "moved on":  # each is what the next one was
            return (*swept[1:], self._made(swept[0], blocks))
        made = [self._made(each, blocks) for each in swept]
        if self.how == "in place":
            for each, values in zip(swept, made, strict=True):
                each[...] = values
            return swept
        return tuple(reversed(made)) if self.how == "exchanged" else tuple(made)

    def _made(self, block: np.ndarray, blocks: Sequence[np.ndarray]) -> np.ndarray:
        shares = (np.clip(np.nan_to_num(each.real), -99, 99) for each in blocks if each is not block)
        others = sum((share.astype(block.dtype) for share in shares), np.zeros_like(block))
        return np.asarray(Stencil(self.stencil.depth)(block) + others, block.dtype)


@examples(30)
@given(cases(most=500), st.data())
def test_passes_of_several_fields_are_plain_sweeps(case: dict[str, Any], data: st.DataObject) -> None:
    array, sweeps, fields = case["array"], case["sweeps"], data.draw(st.integers(1, 3))
    how = data.draw(st.sampled_from(["new", "in place", "exchanged", "moved on"]))
    types = st.just(array.dtype.str) if how in ("exchanged", "moved on") else st.sampled_from(["f8", "f4", "i2", ">i4"])
    dtypes = data.draw(st.lists(types, min_size=fields - 1, max_size=fields - 1))
    dtypes += data.draw(st.lists(st.sampled_from(["i2", "f4"]), max_size=1))
    seeds = data.draw(st.lists(st.integers(0, 9), min_size=len(dtypes), max_size=len(dtypes)))
    others = [
        np.random.default_rng(seed).integers(0, 9, array.shape).astype(dtype)
        for seed, dtype in zip(seeds, dtypes, strict=True)
    ]
    arrays, boundary = [array, *others], held(case["boundary"], array.dtype, *dtypes)
    kernel = Coupled(case["kernel"], fields, how)
    stored = [
        zarr.create_array({}, data=each, chunks=tuple(data.draw(st.integers(1, n + 1)) for n in array.shape))
        for each in arrays
    ]
    options = {
        "fuse": data.draw(st.sampled_from([*range(1, max(sweeps, 1) + 1), "auto"])),
        "ranks": data.draw(st.integers(1, 3)),
        "prefetch": data.draw(st.integers(0, 2)),
        "window": data.draw(st.none() | st.tuples(*[st.none() | st.integers(1, 9)] * array.ndim)),
        "until": data.draw(st.none() | st.just(0.0)),
    }
    asked = partial(
        flat, ooc.iterate, kernel, stored, [MemoryStore() for _ in range(fields)], sweeps=sweeps, depth=case["depth"],
        boundary=boundary, scheduler="threads", **options,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        with pytest.raises(BudgetError) as refused:
            asked(memory=1)
        job = asked(memory=data.draw(st.sampled_from([refused.value.least, "64MiB"])))
        wanted = together(kernel, arrays, fields, case["depth"], boundary, sweeps)
        made = job.run()
    check(made, wanted)
    assert [each.chunks for each in made] == [each.chunks for each in stored[:fields]]


def test_each_field_is_read_and_written_once_a_pass_and_the_plan_says_so(sources: list[Path], tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "land", data=U < 0.8, chunks=(14, 40), compressors=None)

    def kernel(u: np.ndarray, v: np.ndarray, land: np.ndarray) -> list[np.ndarray]:
        return [np.where(land, 0, each) for each in gray_scott(u, v)]

    job = flat(ooc.iterate, kernel, [*sources, tmp_path / "land"], [tmp_path / "a", tmp_path / "b"], **SWEPT)
    assert "2 of 42 × 40" in str(job.explain())
    assert "1 beside them are read in each pass" in str(job.explain())
    assert job.plan.scratch_bytes == 2 * (U.nbytes + V.nbytes)
    check(job.run(), together(kernel, [U, V, U < 0.8], 2, (1, 1), "none", 6))
    planned, counted = job.plan.traffic, job.meter
    assert counted.read_bytes == planned.read_bytes == 3 * (U.nbytes + V.nbytes + U.size)
    assert counted.written_bytes == planned.written_bytes >= 3 * (U.nbytes + V.nbytes)
    assert (counted.read_requests, counted.write_requests) == (planned.read_requests, planned.write_requests)
    assert names(tmp_path) == ["a", "b", "land", "u", "v"], "scratch is gone"


def test_dask_computes_them(sources: list[Path], tmp_path: Path) -> None:
    (made,) = dask.compute(flat(ooc.iterate, gray_scott, sources, [tmp_path / "a", tmp_path / "b"], **SWEPT))
    check(made, together(gray_scott, [U, V], 2, (1, 1), "none", 6))


def test_a_list_of_one_target_gives_a_list(sources: list[Path], tmp_path: Path) -> None:
    def kernel(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray]:
        return (gray_scott(u, v)[0],)

    wanted = together(kernel, [U, V], 1, (1, 1), "none", 6)
    check(flat(ooc.iterate, kernel, sources, [tmp_path / "a"], **SWEPT).run(), wanted)
    made = flat(ooc.iterate, lambda u, v: kernel(u, v)[0], sources, tmp_path / "b", **SWEPT).run()
    np.testing.assert_array_equal(made[...], wanted[0])


# ---------------------------------------------------------------------- residuals


def test_the_field_that_changes_most_decides(sources: list[Path], tmp_path: Path) -> None:
    states = [together(gray_scott, [U, V], 2, (1, 1), "none", count) for count in range(9)]
    changes = [max(np.abs(b - a).max() for a, b in zip(states[n - 1], states[n], strict=True)) for n in (2, 4, 6, 8)]
    how = SWEPT | {"sweeps": 20, "until": changes[2]}
    job = flat(ooc.iterate, gray_scott, sources, [tmp_path / "a", tmp_path / "b"], **how)
    made = job.run()
    over = next(n for n, each in enumerate(changes) if each <= changes[2])
    assert job.residuals == changes[: over + 1]
    check(made, states[2 * (over + 1)])


def test_a_residual_of_ones_own_takes_tuples(sources: list[Path], tmp_path: Path) -> None:
    def only_v(before: tuple[np.ndarray, ...], after: tuple[np.ndarray, ...]) -> float:
        assert len(before) == len(after) == 2
        return float(np.abs(after[1] - before[1]).max())

    job = flat(ooc.iterate, gray_scott, sources, [tmp_path / "a", tmp_path / "b"], until=(None, only_v), **SWEPT)
    job.run()
    states = [together(gray_scott, [U, V], 2, (1, 1), "none", count)[1] for count in range(7)]
    assert job.residuals == [np.abs(states[n] - states[n - 1]).max() for n in (2, 4, 6)]


# ---------------------------------------------------------------------- runs that stop


class Failing:
    """A kernel that fails at one call, once."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.left -= 1
        if self.left == 0:
            raise ValueError("not yet")
        return gray_scott(u, v)


FAILURES = {2: ["iterate"], 5: ["resume", "anew"], 10: ["iterate", "resume", "anew"], 17: ["iterate", "anew"]}
"""At the first slab of all, in the first pass, in the second, in the third, of 6 calls each; and how it goes on."""


@pytest.mark.parametrize(("at", "again"), [(at, again) for at, ways in FAILURES.items() for again in ways])
def test_a_run_that_failed_goes_on(sources: list[Path], tmp_path: Path, at: int, again: str) -> None:
    kernel, targets = Failing(at), [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, kernel, sources, targets, **SWEPT).run()
    begun = [target for target in targets if target.exists()]  # where nothing had been written, there is nothing left
    assert begun == targets or (at < 10 and not begun)
    for target in begun:
        with pytest.raises(UnfinishedError):
            ooc.open_array(target)
    if again == "iterate" or not begun:
        job = flat(ooc.iterate, kernel, sources, targets, resume=True, **SWEPT)
    else:
        more = {"memory": "32MiB", "ranks": 2} if again == "anew" else {}
        job = flat(ooc.resume, targets[0], kernel=kernel, kind="iterate", **more)
    check(job.run(), together(gray_scott, [U, V], 2, (1, 1), "none", 6))
    assert names(tmp_path) == ["a", "b", "u", "v"]


STOPS = [
    ("begun", 1),
    ("pieces", 5),
    ("unrecorded", 5),
    ("entry", 2),
    ("entry", 5),
    ("entry", 9),
    ("mark", 1),
    ("mark", 2),
]


@pytest.mark.parametrize(("at", "after"), STOPS)
def test_a_killed_run_goes_on_with_the_pass_it_was_in(
    sources: list[Path], tmp_path: Path, runs: Server, at: str, after: int
) -> None:
    targets = [tmp_path / "a", tmp_path / "b"]
    runs.run("iterate", "tests.sweeping:gray_scott", sources, targets, at=at, after=after, **SWEPT)
    written = [part for part in Journal(tmp_path / "a").parts() if len(part) == 3]
    job = flat(ooc.iterate, gray_scott, sources, targets, resume=True, **SWEPT)
    check(job.run(), together(gray_scott, [U, V], 2, (1, 1), "none", 6))
    assert job.meter.write_requests == 4 * (9 - len(written)), "slabs that were written are not written again"
    assert names(tmp_path) == ["a", "b", "u", "v"]


def test_a_second_target_that_was_replaced_is_told(sources: list[Path], tmp_path: Path) -> None:
    kernel, targets = Failing(10), [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, kernel, sources, targets, **SWEPT).run()
    with pytest.raises(JournalError, match="pass the same arguments to continue"):
        flat(ooc.iterate, kernel, sources, [targets[0], tmp_path / "c"], resume=True, **SWEPT)
    zarr.create_array(targets[1], data=V, chunks=(16, 20), overwrite=True)
    with pytest.raises(RunError, match=r"b has changed since run .* stopped"):
        flat(ooc.iterate, kernel, sources, targets, resume=True, **SWEPT).run()
    np.testing.assert_array_equal(ooc.open_array(targets[1])[...], V)


@pytest.mark.parametrize("changed", [0, 1])
def test_no_field_may_change_meanwhile(sources: list[Path], tmp_path: Path, changed: int) -> None:
    kernel, targets = Failing(10), [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(KernelError, match="not yet"):
        flat(ooc.iterate, kernel, sources, targets, **SWEPT).run()
    zarr.open_array(sources[changed], mode="r+")[3, 3] = 0.25
    with pytest.raises(JournalError, match="changed"):
        flat(ooc.iterate, kernel, sources, targets, resume=True, **SWEPT)


# ---------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("kernel", "targets", "error", "line"),
    [
        (gray_scott, ["a", "b", "c"], InputError, "3 targets for 2 sources: target i receives"),
        (gray_scott, [], InputError, "at least one target is required"),
        (gray_scott, ["a", "a"], TargetError, "a is named twice"),
        (gray_scott, ["a", "u"], TargetError, "u is the source itself"),
        (lambda u, v: u, ["a", "b"], InputError, "returned 1 array for the 2 that are swept: sweeps need a tuple"),
        (lambda u, v: np.stack([u, v]), ["a", "b"], InputError, "returned 1 array for the 2 that are swept"),
        (lambda u, v: (u, v, v), ["a", "b"], InputError, "returned 3 arrays for the 2 that are swept"),
        (lambda u, v: (u, v[1:]), ["a", "b"], InputError, r"shape \(6, 7\) for .* and shape \(7, 7\), number 2 of 2"),
        (lambda u, v: (u > 0, v), ["a", "b"], InputError, "the kernel returned bool of .* number 1 of 2: sweeps need"),
        (gray_scott, "a", InputError, r"the kernel returned float64 of shape \(2, 7, 7\) for a block of float64"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    sources: list[Path], tmp_path: Path, kernel: Any, targets: Any, error: type[Exception], line: str
) -> None:
    places: Any = tmp_path / targets if isinstance(targets, str) else [tmp_path / each for each in targets]
    with pytest.raises(error, match=line) as raised:
        flat(ooc.iterate, kernel, sources, places, **SWEPT)
    assert "\n" not in str(raised.value)
    assert names(tmp_path) == ["u", "v"]


def test_a_target_that_is_there_is_not_overwritten(sources: list[Path], tmp_path: Path) -> None:
    targets = [tmp_path / "a", tmp_path / "b"]
    zarr.create_array(targets[1], data=V)
    with pytest.raises(TargetError, match="b already exists; pass overwrite=True"):
        flat(ooc.iterate, gray_scott, sources, targets, **SWEPT)
    made = flat(ooc.iterate, gray_scott, sources, targets, overwrite=True, **SWEPT).run()
    check(made, together(gray_scott, [U, V], 2, (1, 1), "none", 6))
