"""Where blocks and chunks lie, against tables made one by one."""

from __future__ import annotations

from collections import Counter
from itertools import product

from hypothesis import given, strategies as st

from oocarrays.storage.striped.layout import joined_by, left_by, length_of, part_bytes, runs, turn_of

SMALL = st.integers(1, 5)


@given(length=st.integers(0, 60), block=SMALL, disks=SMALL)
def test_bytes_are_where_a_table_has_them(length: int, block: int, disks: int) -> None:
    parts = [[byte for byte in range(length) if byte // block % disks == number] for number in range(disks)]
    sizes = [part_bytes(length, block, disks, number) for number in range(disks)]
    assert sizes == list(map(len, parts))
    assert length_of(sizes, block) == length


@given(offset=st.integers(0, 30), nbytes=st.integers(0, 40), block=SMALL, disks=SMALL, most=SMALL)
def test_requests_of_all_disks_are_the_range(offset: int, nbytes: int, block: int, disks: int, most: int) -> None:
    whole = [[byte for byte in range(100) if byte // block % disks == number] for number in range(disks)]
    found: dict[int, int] = {}
    for number in range(disks):
        for begin, cuts in runs(offset, nbytes, block, disks, number, most):
            places = [place for low, high in cuts for place in range(low, high)]
            assert len(places) <= block * most
            for at, place in enumerate(places, begin):
                assert place not in found
                found[place] = whole[number][at]
    assert found == {place: offset + place for place in range(nbytes)}


@given(first=SMALL, steps=st.lists(st.booleans(), max_size=6))
def test_a_disk_that_joins_or_leaves_moves_nothing_else(first: int, steps: list[bool]) -> None:
    cycle, number = tuple(range(first)), first
    for joins in steps:
        members = sorted(set(cycle))
        if not joins and len(members) == 1:
            continue
        after = joined_by(cycle, number) if joins else left_by(cycle, members[0])
        before = cycle * (len(after) // len(cycle))
        changed = {(b, a) for b, a in zip(before, after, strict=True) if b != a}
        assert {a for _, a in changed} == {number} if joins else {b for b, _ in changed} == {members[0]}
        counts = Counter(after)
        assert max(counts.values()) <= 1.1 * len(after) / len(counts) + 1
        cycle, number = after, number + joins


def test_neighbours_are_on_different_disks() -> None:
    for disks, (i, j, k) in product(range(2, 6), product(range(4), repeat=3)):
        here = (turn_of(f"a/c/{i}/{j}/{k}") or 0) % disks
        for there in ((i + 1, j, k), (i, j + 1, k), (i, j, k + 1)):
            assert (turn_of("a/c/" + "/".join(map(str, there))) or 0) % disks != here


def test_what_is_no_chunk_has_no_turn() -> None:
    names = ("zarr.json", "a/.zarray", ".oocarrays/done/3-4", "group/zarr.json", ".oocarrays/plan.json")
    assert [turn_of(name) for name in names][:2] == [None, None]
    assert turn_of("group/zarr.json") is None
    assert (turn_of("7"), turn_of("3.4"), turn_of("a/3/4"), turn_of("a/c.3.4")) == (7, 7, 7, 7)
