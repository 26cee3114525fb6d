"""Packing and unpacking: every element of ``arange`` lands where dealing elements out one by one puts it."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays import Block, Collapsed, Cyclic, GenBlock, Layout
from oocarrays.errors import LayoutError, UnsupportedError
from oocarrays.mapping.layouts.distribution import Distribution
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.storage.sections import packing
from oocarrays.storage.sections.packing import move, pack, unpack
from tests.profiles import examples

pytestmark = pytest.mark.once


def dealt(distribution: Distribution, extent: int, ranks: int) -> list[list[int]]:
    """The elements of each rank, by dealing them out one after the other."""
    match distribution:
        case GenBlock(sizes):
            lengths = list(sizes)
        case Collapsed():
            lengths = [extent]
        case Block(length):
            lengths = [length or max(-(-extent // ranks), 1)] * ranks
        case Cyclic(length):
            lengths = [length] * ranks
    hands: list[list[int]] = [[] for _ in range(ranks)]
    elements = iter(range(extent))
    while sum(map(len, hands)) < extent:
        for rank in range(ranks):
            hands[rank] += [element for _, element in zip(range(lengths[rank]), elements, strict=False)]
    return hands


def held(whole: np.ndarray, layout: Layout, rank: int) -> np.ndarray:
    """What ``rank`` is to hold, picked element by element."""
    along = zip(layout.distributions, layout.shape, layout.grid, layout.coordinates(rank), strict=True)
    return whole[np.ix_(*(dealt(d, n, p)[c] for d, n, p, c in along))] if layout.shape else whole


@st.composite
def distributions(draw: st.DrawFn, extent: int) -> tuple[Distribution, int]:
    """A distribution of an axis, and ranks."""
    ranks = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(["block", "cyclic", "gen_block", "*"]))
    if kind == "gen_block":
        cuts = sorted(draw(st.lists(st.integers(0, extent), min_size=ranks - 1, max_size=ranks - 1)))
        return GenBlock(tuple(np.diff([0, *cuts, extent]).tolist())), ranks
    if kind == "*":
        return Collapsed(), 1
    return (Block() if kind == "block" else Cyclic(draw(st.integers(1, 12)))), ranks


@st.composite
def transfers(draw: st.DrawFn, max_axes: int = 3) -> Transfer:
    shape = tuple(draw(st.lists(st.integers(0, 24), min_size=0, max_size=max_axes)))
    sides = [[draw(distributions(extent)) for extent in shape] for _ in range(2)]
    return Transfer(*(Layout(shape, tuple(d for d, _ in side), tuple(n for _, n in side)) for side in sides))


DTYPES = [
    np.dtype(kind) for kind in ("u1", "f4", "f8", "c16", "S3", "M8[s]", "V7", [("a", "<i2"), ("b", "f8")], "(3,)f4")
]


def filled(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array of bytes by chance, of any type."""
    count = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(random.Random(count).randbytes(count), np.uint8).view(dtype).reshape(shape)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def by_messages(parts: list[np.ndarray], transfer: Transfer, made: list[np.ndarray]) -> None:
    """Asynchronous: one message after the other, the last sender's first."""
    for target, local in enumerate(made):
        for source in reversed(range(len(parts))):
            message = pack(parts[source], transfer, source, target)
            assert message.shape == (transfer.size(source, target),)
            assert message.flags.c_contiguous
            unpack({source: message}, transfer, target, local)


def by_scans(parts: list[np.ndarray], transfer: Transfer, made: list[np.ndarray]) -> None:
    """Synchronous: all messages of a rank, and all that it gets in one scan."""
    messages = [[pack(part, transfer, n, target) for target in range(len(made))] for n, part in enumerate(parts)]
    assert [[len(message) for message in row] for row in messages] == transfer.sizes().tolist()
    for target, local in enumerate(made):
        unpack({source: row[target] for source, row in enumerate(messages)}, transfer, target, local)


def by_moves(parts: list[np.ndarray], transfer: Transfer, made: list[np.ndarray]) -> None:
    for target, local in enumerate(made):
        for source, part in enumerate(parts):
            move(part, transfer, source, target, local)


Way = Callable[[list[np.ndarray], Transfer, list[np.ndarray]], None]
WAYS: list[Way] = [by_messages, by_scans, by_moves]


def redistributed(parts: list[np.ndarray], transfer: Transfer, way: Way) -> list[np.ndarray]:
    made = [np.empty(transfer.target.local_shape(rank), parts[0].dtype) for rank in range(transfer.target.ranks)]
    way(parts, transfer, made)
    return made


def parts_of(whole: np.ndarray, layout: Layout) -> list[np.ndarray]:
    return [np.asarray(held(whole, layout, rank), order="C") for rank in range(layout.ranks)]


@pytest.mark.parametrize("way", WAYS)
@examples(60)
@given(transfer=transfers(), tile=st.sampled_from([1, 64, 2**19]), widest=st.sampled_from([4, 20, 2**20]))
def test_every_element_lands_where_dealing_puts_it(way: Way, transfer: Transfer, tile: int, widest: int) -> None:
    whole = np.arange(int(np.prod(transfer.source.shape)), dtype="i4").reshape(transfer.source.shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "TILE_BYTES", tile)
        patch.setattr(packing, "WIDEST_BYTES", widest)
        made = redistributed(parts_of(whole, transfer.source), transfer, way)
    for rank, local in enumerate(made):
        assert same(local, held(whole, transfer.target, rank))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", WAYS)
def test_elements_of_any_type_move_byte_for_byte(way: Way, dtype: np.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "TILE_BYTES", 256)
    if dtype.shape:
        dtype = np.dtype([("row", dtype.base, dtype.shape)])
    for shape, source, target in (((97,), "cyclic(11)", "cyclic(3)"), ((13, 11), "(block, *)", "(cyclic, cyclic(2))")):
        transfer = Transfer(Layout.of(shape, source, ranks=4), Layout.of(shape, target, ranks=4))
        whole = filled(shape, dtype)
        for rank, local in enumerate(redistributed(parts_of(whole, transfer.source), transfer, way)):
            assert same(local, held(whole, transfer.target, rank))


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [
        ((101,), "cyclic(15)", "cyclic(10)"),
        ((101,), "block", "cyclic"),
        ((96,), "cyclic(4)", "cyclic(2)"),
        ((17, 23), "(block, block)", "(cyclic, cyclic)"),
        ((9, 10, 11), "(cyclic(2), block, block)", "(block, cyclic(3), cyclic)"),
        ((17, 23), "(cyclic, *)", "(*, cyclic(3))"),
    ],
)
def test_every_method_places_every_element(shape: tuple[int, ...], source: str, target: str) -> None:
    layouts = Layout.of(shape, source, ranks=4), Layout.of(shape, target, ranks=4)
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    for offer in ooc.ranks.plan_redistribution(*layouts, "f8").offers:
        plan = ooc.ranks.plan_redistribution(*layouts, "f8", method=offer.method)
        parts = parts_of(whole, plan.source)
        for step in plan.transfers:
            parts = redistributed(parts, step, by_scans)
        assert all(same(part, held(whole, plan.target, rank)) for rank, part in enumerate(parts))
        for step in plan.reversed().transfers:
            parts = redistributed(parts, step, by_messages)
        assert all(same(part, held(whole, plan.source, rank)) for rank, part in enumerate(parts))


def test_a_message_is_its_own_and_reads_any_order_of_memory() -> None:
    transfer = Transfer(Layout.of((6, 8), "(block, *)", ranks=2), Layout.of((6, 8), "(*, cyclic)", ranks=2))
    local = np.arange(24).reshape(3, 8)
    message = pack(np.asfortranarray(local), transfer, 0, 1)
    assert message.tolist() == local[:, 1::2].ravel().tolist() == pack(local, transfer, 0, 1).tolist()
    assert not np.shares_memory(message, local)
    message.setflags(write=False)
    unpack({0: message}, transfer, 1, made := np.zeros((6, 4), int))
    assert made[:3].tolist() == local[:, 1::2].tolist()
    assert not made[3:].any()


def test_what_does_not_fit_is_one_line_before_anything_is_written() -> None:
    transfer = Transfer(Layout.of((12,), "block", ranks=2), Layout.of((12,), "cyclic", ranks=2))
    good, into = np.arange(6), np.full(6, -1)
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: pack(np.arange(7), transfer, 0, 1), r"rank 0 of \(block\) on 2 holds shape \(6,\), not \(7,\)"),
        (
            lambda: unpack({0: good}, transfer, 1, into),
            "a message of 6 elements of int64 was passed; expected 3 of int64",
        ),
        (lambda: unpack({0: np.zeros(3, "f4")}, transfer, 1, into), "a message of 3 elements of float32 .* 3 of int64"),
        (lambda: unpack({0: good[:3]}, transfer, 1, np.zeros(12, int)[::2]), "must be writeable and contiguous"),
        (lambda: move(good.astype("f4"), transfer, 0, 1, into), "elements of float32 cannot be stored in .* int64"),
    ]
    for call, message in wrong:
        with pytest.raises(LayoutError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)
    with pytest.raises(UnsupportedError, match="elements of object cannot be copied as bytes"):
        pack(good.astype(object), transfer, 0, 1)
    assert (into == -1).all()
