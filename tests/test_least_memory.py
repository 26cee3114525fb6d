"""The least memory that a refused budget states, of every verb: it is enough, and a byte less is refused with it."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import given, strategies as st
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import BudgetError
from oocarrays.xarray import open_dataset
from tests.flat import flat
from tests.profiles import examples

pytestmark = pytest.mark.long

HERE: dict[str, Any] = {"scheduler": "threads"}


class Case(NamedTuple):
    """A call of a verb, and the check of what it gives."""

    call: Callable[[int], Any]
    """Takes the memory."""
    check: Callable[[Any], None] | None = None
    """Takes what the call gives, and runs it."""


class Drawn:
    """Arrays and options that are drawn for one case."""

    def __init__(self, draw: Callable[[Any], Any], folder: Path) -> None:
        self.draw, self.folder, self._made = draw, folder, 0

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def chunks(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.draw(st.integers(1, n)) for n in shape)

    def place(self) -> Path:
        self._made += 1
        return self.folder / f"{self._made}.zarr"

    def data(self, *axes: int) -> np.ndarray:
        most = {1: 3000, 2: 60, 3: 16}
        ndim = self.one(*axes)
        shape = tuple(self.draw(st.integers(2, most[ndim])) for _ in range(ndim))
        dtype = self.one("u1", "f4", "f8")
        return (np.arange(math.prod(shape)) % 251).astype(dtype).reshape(shape)

    def stored(self, data: np.ndarray, place: Any = None) -> zarr.Array:
        codecs = self.one(None, "auto")
        store = {} if place is None else place
        return zarr.create_array(store, data=data, chunks=self.chunks(data.shape), compressors=codecs)

    def layout(self, ndim: int) -> str:
        return self.one("(block, *)", "(*, block)", "(block, block)") if ndim == 2 else "(block)"

    def local(self, data: np.ndarray, depth: int = 0) -> ooc.ranks.LocalArrays:
        how: dict[str, Any] = {"ranks": self.one(1, 2, 4), "depth": depth, "scheduler": "threads"}
        return flat(ooc.ranks.scatter_files, self.stored(data), self.layout(data.ndim), self.place(), **how).run()

    def slabs(self) -> dict[str, Any]:
        some = {
            "prefetch": st.sampled_from([0, 1, 2]), "reuse": st.booleans(),
            "workspace": st.sampled_from([0, 1.0, "10KiB"]),
        }  # fmt: skip
        return self.draw(st.fixed_dictionaries({}, optional=some))


def equals(data: np.ndarray) -> Callable[[Any], None]:
    def check(job: Any) -> None:
        np.testing.assert_array_equal(job.run()[...], data)

    return check


def same(block: np.ndarray) -> np.ndarray:
    return block


def rechunks(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    z, chunks = d.stored(data), d.chunks(data.shape)
    how = {"method": d.one("auto", "independent", "two-phase", "assembled", "staged"), "ranks": d.one(None, 1, 2)}
    return Case(
        lambda memory: flat(ooc.rechunk, z, d.place(), chunks=chunks, memory=memory, **how, **HERE), equals(data)
    )


def groups(d: Drawn) -> Case:
    group, arrays, chunks = zarr.open_group({}, mode="w"), {}, {}
    for number in range(d.one(2, 3, 5)):
        arrays[f"a{number}"] = data = d.data(2)
        group.create_array(f"a{number}", data=data, chunks=d.chunks(data.shape))
        if number == 0 or d.one(True, False):
            chunks[f"a{number}"] = d.chunks(data.shape)

    def check(job: Any) -> None:
        made = job.run()
        for name, data in arrays.items():
            np.testing.assert_array_equal(made[name][...], data)

    return Case(lambda memory: ooc.rechunk(group, MemoryStore(), chunks=chunks, memory=memory, **HERE), check)


def lazy(data: np.ndarray, d: Drawn) -> Any:
    return da.from_array(data, chunks=d.chunks(data.shape))


def lazy_sources(d: Drawn) -> Case:
    data = d.data(2)
    x, chunks = lazy(data, d), d.chunks(data.shape)
    return Case(lambda memory: ooc.rechunk(x, d.place(), chunks=chunks, memory=memory, **HERE), equals(data))


def lazy_rechunks(d: Drawn) -> Case:
    data = d.data(2)
    x, chunks = da.from_array(data, chunks=(1, data.shape[1])), (len(data), d.draw(st.integers(1, data.shape[1])))
    return Case(
        lambda memory: ooc.rechunk(x, chunks=chunks, memory=memory, resources=ooc.Resources(scratch=d.folder), **HERE),
        lambda made: np.testing.assert_array_equal(made.compute(scheduler="threads"), data),
    )


def dataset(d: Drawn) -> xr.Dataset:
    shape = (d.one(8, 20), d.one(10, 30))
    values = {name: np.arange(math.prod(shape), dtype=d.one("f4", "f8")) for name in ("a", "b", "c")[: d.one(2, 3)]}
    return xr.Dataset({name: (("t", "x"), each.reshape(shape)) for name, each in values.items()})


def lazy_datasets(d: Drawn) -> Case:
    ds = dataset(d).chunk(t=3)
    how = {"chunks": {"t": -1, "x": 4}, "scratch": d.folder, "scheduler": "threads"}
    if d.one(True, False):
        return Case(lambda memory: flat(ooc.rechunk, ds, memory=memory, **how))
    return Case(lambda memory: flat(ooc.rechunk, ds, d.place(), memory=memory, **how))


def opened_datasets(d: Drawn) -> Case:
    place, ds = d.place(), dataset(d)
    ds.to_zarr(place, consolidated=False, encoding={name: {"chunks": (2, 3)} for name in ds})
    return Case(lambda memory: open_dataset(place, {"t": -1}, memory=memory))


def updates(d: Drawn) -> Case:
    data, there, source = d.data(2), d.place(), d.place()
    z = d.stored(data, source)
    ooc.rechunk(source, there, chunks=d.chunks(data.shape), **HERE).run()
    z.append(data[: d.draw(st.integers(1, len(data)))])

    def call(memory: int) -> Any:
        return ooc.update(shutil.copytree(there, d.place()), memory=memory, **HERE)

    return Case(call, equals(z[...]))


def slabs(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    how = d.slabs() | {"depth": d.one(0, 1, 2), "ranks": d.one(None, 1, 2), "chunks": d.one(None, d.chunks(data.shape))}
    z = d.stored(data)
    return Case(lambda memory: flat(ooc.map_slabs, same, z, d.place(), memory=memory, **how, **HERE), equals(data))


def dropped(d: Drawn) -> Case:
    data, how = d.data(2, 3), d.slabs()
    axis, z, kernel = d.draw(st.integers(0, data.ndim - 1)), d.stored(data), d.one("argmax", "mean", "max")
    return Case(
        lambda memory: flat(
            ooc.map_slabs,
            lambda block: getattr(block, kernel)(axis),
            z,
            d.place(),
            memory=memory,
            results=ooc.Results(drop_axis=axis),
            **how,
            **HERE,
        ),
        lambda job: job.run(),
    )


def added(d: Drawn) -> Case:
    data, how, count = d.data(1, 2), d.slabs(), d.one(1, 2, 5)
    z, at = d.stored(data), d.one(0, data.ndim)
    return Case(
        lambda memory: flat(ooc.map_slabs,
            lambda block: np.stack([1.5 * block] * count, at), z, d.place(), memory=memory,
            results=ooc.Results(new_axis=at, shape=count), **how, **HERE,
        ),
        equals(np.stack([1.5 * data] * count, at)),
    )  # fmt: skip


def resized(d: Drawn) -> Case:
    data, how = d.data(2, 3), d.slabs()
    axis, z = d.draw(st.integers(0, data.ndim - 1)), d.stored(data)
    length = data.shape[axis] // 2 + 1

    def kernel(block: np.ndarray) -> np.ndarray:
        return np.take(block, range(length), axis) * 0.5

    return Case(
        lambda memory: flat(
            ooc.map_slabs, kernel, z, d.place(), memory=memory, results=ooc.Results(shape={axis: length}), **how, **HERE
        ),
        equals(kernel(data)),
    )


def coarser(d: Drawn) -> Case:
    data, how = d.data(1, 2, 3), d.slabs()
    factor = {axis: d.one(1, 2, 3) for axis in range(data.ndim)}
    every, z = tuple(slice(None, None, factor[axis]) for axis in range(data.ndim)), d.stored(data)
    return Case(
        lambda memory: flat(
            ooc.map_slabs,
            lambda block: block[every],
            z,
            d.place(),
            memory=memory,
            results=ooc.Results(factor=factor),
            **how,
            **HERE,
        ),
        equals(data[every]),
    )


def local_slabs(d: Drawn) -> Case:
    data = d.data(1, 2)
    a, how = d.local(data), d.slabs() | {"depth": d.one(0, 1)}
    return Case(lambda memory: flat(ooc.map_slabs, same, a, d.place(), memory=memory, **how, **HERE), equals(data))


def sweeping(d: Drawn) -> dict[str, Any]:
    some = {
        "prefetch": st.sampled_from([0, 1]), "workspace": st.sampled_from([0, 1.0, "10KiB"]),
        "fuse": st.sampled_from([1, 2, 3]), "depth": st.sampled_from([0, 1, 2]), "until": st.just(0.1),
    }  # fmt: skip
    boundary = d.one("none", "nearest", "periodic", "reflect")
    return d.draw(st.fixed_dictionaries({"sweeps": st.sampled_from([1, 2, 5])}, optional=some)) | {"boundary": boundary}


def iterations(d: Drawn) -> Case:
    data, how = d.data(1, 2), sweeping(d)
    z = d.stored(data)
    return Case(lambda memory: flat(ooc.iterate, same, z, d.place(), memory=memory, **how, **HERE), equals(data))


def local_iterations(d: Drawn) -> Case:
    data, how = d.data(1, 2), sweeping(d)
    several = [d.local(data)]
    layout, ranks = several[0].layout, several[0].layout.ranks
    if d.one(True, False):
        options: dict[str, Any] = {"dtype": "f4", "layout": layout, "placement": "local", "depth": d.one(0, 1)}
        several.append(flat(ooc.create_array, d.place(), shape=data.shape, **options))
    assert all(each.layout.ranks == ranks for each in several)
    return Case(
        lambda memory: flat(ooc.iterate, lambda block, *_: block, several, d.place(), memory=memory, **how, **HERE),
        equals(data),
    )


def pyramids(d: Drawn) -> Case:
    z = d.stored(np.arange(40 * 30, dtype="f4").reshape(40, 30))
    return Case(lambda memory: ooc.pyramid(z, d.place(), levels=2, memory=memory, **HERE), lambda job: job.run())


def reductions(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    z, how, axis = d.stored(data), d.one("sum", "mean", "max", "std"), d.one(None, 0, data.ndim - 1)
    target = {"target": d.place()} if d.one(True, False) else {}
    return Case(lambda memory: flat(ooc.reduce, z, how, axis=axis, memory=memory, overwrite=True, **target, **HERE))


def comparisons(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    a, b = d.stored(data), d.stored(data)

    def check(found: Any) -> None:
        assert found

    return Case(lambda memory: ooc.compare(a, b, memory=memory, resources=ooc.Resources(scratch=d.folder)), check)


def scattered(d: Drawn) -> Case:
    data = d.data(1, 2)
    z, layout, ranks, depth = d.stored(data), d.layout(data.ndim), d.one(1, 2, 4), d.one(0, 1)
    how = {"ranks": ranks, "depth": depth, "scheduler": "threads"}
    return Case(lambda memory: flat(ooc.ranks.scatter_files, z, layout, d.place(), memory=memory, **how), equals(data))


def gathered(d: Drawn) -> Case:
    data = d.data(1, 2)
    a, chunks = d.local(data), d.chunks(data.shape)
    return Case(
        lambda memory: ooc.ranks.gather_files(a, ooc.Target(d.place(), chunks=chunks), memory=memory, **HERE),
        equals(data),
    )


def shifts(d: Drawn) -> Case:
    data = d.data(1, 2)
    depth, place, boundary = d.one(1, 2), d.place(), d.one("none", "periodic", "reflect")
    how: dict[str, Any] = {"ranks": d.one(2, 4), "depth": depth, "scheduler": "threads"}
    flat(ooc.ranks.scatter_files, d.stored(data), d.layout(data.ndim), place, **how).run()
    a = ooc.open_array(place, mode="r+")
    return Case(lambda memory: ooc.ranks.shift(a, boundary=boundary, memory=memory, **HERE), equals(data))


def read(d: Drawn) -> Case:
    data, how = d.data(2), d.one({}, {"method": "two-phase"}, {"method": "independent"})
    z, layout, ranks = d.stored(data), d.layout(2), d.one(1, 2, 4)
    return Case(
        lambda memory: flat(ooc.ranks.read_sections, z, layout, ranks=ranks, memory=memory, **how, **HERE),
        lambda x: np.testing.assert_array_equal(x.compute(), data),
    )


def written(d: Drawn) -> Case:
    data, layout, ranks = d.data(2), d.layout(2), d.one(1, 2, 4)
    parts = ooc.ranks.distribute(data, layout, ranks=ranks, **HERE)
    chunks = d.chunks(data.shape)

    def call(memory: int) -> Any:
        place = d.place()
        ooc.create_array(place, shape=data.shape, dtype=data.dtype, chunks=chunks)
        return ooc.ranks.write_sections(place, layout, parts, memory=memory, **HERE)

    return Case(call, equals(data))


def partitions(d: Drawn) -> Case:
    z, ranks = d.stored(d.data(2)), d.one(1, 2)
    a = ooc.open_array(z)
    return Case(lambda memory: next(ooc.ranks.partitions(a, "(block, *)", ranks=ranks, memory=memory, **HERE)))


def loops(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    a, depth = ooc.open_array(d.stored(data)), d.one(0, 1)

    def check(found: Any) -> None:
        assert sum(slab.data[slab.inside].size for slab in found) == data.size

    return Case(lambda memory: a.slabs(depth=depth, memory=memory), check)


def local_loops(d: Drawn) -> Case:
    a = d.local(d.data(2), 1)
    return Case(lambda memory: a.slabs(0, memory=memory))


def lazy_reads(d: Drawn) -> Case:
    data = d.data(1, 2, 3)
    a, chunks = ooc.open_array(d.stored(data)), d.chunks(data.shape)
    return Case(
        lambda memory: a.to_dask(chunks=chunks, memory=memory),
        lambda x: np.testing.assert_array_equal(x.compute(scheduler="threads"), data),
    )


def assigned(d: Drawn) -> Case:
    data = d.data(1, 2)
    z = d.stored(data)

    def call(memory: int) -> ooc.OutOfCoreArray:
        a = ooc.open_array(z)
        a.write(np.s_[1:], data[1:], memory=memory)
        return a

    return Case(call, lambda a: np.testing.assert_array_equal(a[...], data))


def streams(d: Drawn) -> Case:
    cells, ranks = d.draw(st.integers(1, 200)), d.one(1, 2)

    def call(memory: int) -> None:
        ooc.streams.open_streams(d.place(), "w", shape=cells, dtype="f4", ranks=ranks, memory=memory).close()

    return Case(call)


VERBS: dict[str, Callable[[Drawn], Case]] = {
    made.__name__: made
    for made in (
        rechunks, groups, lazy_sources, lazy_rechunks, lazy_datasets, opened_datasets, updates, slabs, dropped, added,
        resized, coarser, local_slabs, iterations, local_iterations, pyramids, reductions, comparisons, scattered,
        gathered, shifts, read, written, partitions, loops, local_loops, lazy_reads, assigned, streams,
    )
}  # fmt: skip


def refused(call: Callable[[int], Any], memory: int) -> int:
    with pytest.raises(BudgetError) as caught:
        call(memory)
    return caught.value.least


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verb", VERBS)
@examples(5, derandomize=True)
@given(st.data())
def test_the_least_memory_is_enough_and_a_byte_less_is_refused(verb: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        call, check = VERBS[verb](Drawn(data.draw, Path(folder)))
        least = refused(call, 1)
        assert refused(call, data.draw(st.integers(1, least - 1), label="less")) == least
        assert refused(call, least - 1) == least
        made = call(least)
        plan = getattr(made, "plan", None)
        if hasattr(plan, "budget") and verb != "lazy_reads":  # whose tasks are Dask's to run
            assert plan.peak_bytes <= least
        if check is not None:
            check(made)
