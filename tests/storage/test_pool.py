"""Memory that is used again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from oocarrays.storage.local.pages import Pool, allocate, numpy_bytes, shaped


def test_memory_is_lent_again_only_when_the_last_view_of_it_is_gone() -> None:
    pool, shape, dtype = Pool(), (10, 50), np.dtype("f4")
    first = pool.lend(shape, dtype, elements=1000)
    address, part = first.ctypes.data, first[2:4, ::7]
    part[...] = 7
    del first
    other = pool.lend(shape, dtype, elements=1000)
    other[...] = 1
    assert other.ctypes.data != address
    assert (part == 7).all()
    del part
    assert pool.lend((20, 50), dtype, elements=1000).ctypes.data == address
    pool.forget()
    assert pool.lend((1001,), dtype, elements=1000).size == 1001, "what is larger is memory of its own"


def test_what_is_lent_when_a_pool_forgets_does_not_come_back() -> None:
    pool, dtype = Pool(), np.dtype("i2")
    lent = pool.lend((8,), dtype, elements=8)
    pool.forget()
    del lent
    assert sum(map(len, pool._free.values())) == 0


@pytest.mark.parametrize("make", [allocate, numpy_bytes])
def test_no_two_threads_have_the_same_memory(make: object) -> None:
    pool = Pool(make)  # type: ignore[arg-type]

    def use(mark: int) -> bool:
        buffer = pool.take(4096)
        array = shaped(buffer, (4, 128), np.dtype("i8"))
        array[...] = mark
        same = bool((array == mark).all())
        pool.give(buffer)
        return same

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(use, range(2000)))
    assert 1 <= sum(map(len, pool._free.values())) <= 4
