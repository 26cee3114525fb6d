"""Redistributions: every method ends where it is to end, costs what brute force counts, and goes back for nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays import Layout
from oocarrays.errors import LayoutError
from oocarrays.plan.layouts import runs as communication, transfer
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.ranks import Redistribution
from tests.profiles import examples

pytestmark = pytest.mark.once


def layouts(shape: tuple[int, ...], source: str, target: str, **options: int) -> tuple[Layout, Layout]:
    return Layout.of(shape, source, **options), Layout.of(shape, target, **options)


def local_bytes(plan: Redistribution, rank: int) -> tuple[int, ...]:
    """Bytes that a rank holds at first, and after each transfer; nothing where a layout has no such rank."""
    layouts = (plan.source, *(transfer.target for transfer in plan.transfers))
    return tuple(layout.local_size(rank) * plan.itemsize if rank < layout.ranks else 0 for layout in layouts)


def owners(layout: Layout) -> np.ndarray:
    """The owner of each element, asked one by one."""
    found = np.zeros(layout.shape, int)
    for index in np.ndindex(layout.shape):
        found[index] = layout.owner(index)
    return found


def counted(source: Layout, target: Layout) -> np.ndarray:
    """Elements that each rank sends to each, counted one by one."""
    sizes = np.zeros((source.ranks, target.ranks), int)
    for pair in zip(owners(source).ravel(), owners(target).ravel(), strict=True):
        sizes[pair] += 1
    return sizes


CASES = [
    ((26,), "block", "cyclic", 4, ["block-to-cyclic"]),
    ((26,), "cyclic", "block(7)", 4, ["cyclic-to-block"]),
    ((50,), "cyclic(4)", "cyclic(2)", 4, ["ky-to-y"]),
    ((50,), "cyclic(2)", "cyclic(6)", 4, ["x-to-kx"]),
    ((100,), "cyclic(11)", "cyclic(3)", 4, ["gcd", "lcm"]),
    ((100,), "cyclic(15)", "cyclic(10)", 3, ["gcd", "lcm"]),
    ((9, 30), "(*, cyclic(3))", "(*, cyclic(2))", 3, ["gcd", "lcm"]),
    ((12, 10), "(block, block)", "(cyclic, cyclic)", 4, ["indirect", "direct"]),
    ((7, 6, 5), "(block, cyclic, block)", "(cyclic(2), block, cyclic(3))", 8, ["indirect", "direct"]),
    ((12, 10), "(block, *)", "(*, cyclic(3))", 4, ["direct"]),
    ((12, 10), "(cyclic, *)", "(block, cyclic)", 4, ["direct"]),
]


@pytest.mark.parametrize(("shape", "source", "target", "ranks", "methods"), CASES)
def test_every_method_that_applies_is_offered_and_moves_what_it_says(
    shape: tuple[int, ...], source: str, target: str, ranks: int, methods: list[str]
) -> None:
    both = layouts(shape, source, target, ranks=ranks)
    offered = [offer.method for offer in ooc.ranks.plan_redistribution(*both, "f4").offers]
    one_axis = "direct" not in methods
    assert sorted(offered) == sorted([*methods, *(["general"] if one_axis else [])])
    for method in offered:
        plan = ooc.ranks.plan_redistribution(*both, "f4", method=method)
        assert (plan.source, plan.target) == (plan.transfers[0].source, plan.transfers[-1].target) == both
        assert all(one.target == other.source for one, other in zip(plan.transfers, plan.transfers[1:], strict=False))
        expected = [counted(step.source, step.target) for step in plan.transfers]
        assert [sizes.tolist() for sizes in plan.sizes()] == [sizes.tolist() for sizes in expected]
        others = [sizes * (1 - np.eye(*sizes.shape, dtype=int)) for sizes in expected]
        assert plan.price.messages == sum(int((sizes > 0).sum()) for sizes in others)
        assert plan.price.moved_bytes == 4 * sum(int(sizes.sum()) for sizes in others)
        assert plan.price.copied_elements == 2 * sum(int(sizes.sum()) for sizes in expected)
        busiest = [max((sizes > 0).sum(0).max(), (sizes > 0).sum(1).max()) for sizes in others]
        assert plan.price.steps == sum(busiest)
        assert [offer.seconds for offer in plan.offers] == sorted(offer.seconds for offer in plan.offers)


def test_gcd_and_lcm_go_by_way_of_the_block_that_divides_both_or_that_both_divide() -> None:
    both = layouts((960,), "cyclic(15)", "cyclic(10)", ranks=4)
    for method, between in (("gcd", "(cyclic(5)) on 4"), ("lcm", "(cyclic(30)) on 4")):
        plan = ooc.ranks.plan_redistribution(*both, "f4", method=method)
        assert [str(step.target) for step in plan.transfers] == [between, "(cyclic(10)) on 4"]
        assert between in plan.explain()


@pytest.mark.parametrize("ranks", [16, 32, 64])
def test_more_ranks_afterwards_than_before(ranks: int) -> None:
    """The 1993 paper's Table 12: from 16 ranks by row blocks to 16, 32 and 64, in any distribution."""
    source = Layout.of((64, 64), "(block, *)", ranks=16)
    for target in ("(block, *)", "(*, block)", "(*, cyclic)", "(block, block)"):
        plan = ooc.ranks.plan_redistribution(source, Layout.of((64, 64), target, ranks=ranks), "u1")
        for sizes in plan.sizes():
            assert sizes.tolist() == counted(source, plan.target).tolist()
            assert sizes.sum() == 64 * 64


def test_nothing_moves_between_layouts_that_are_the_same() -> None:
    plan = ooc.ranks.plan_redistribution(
        Layout.of((12,), "block", ranks=4), Layout.of((12,), "block(3)", ranks=4), "f8"
    )
    assert plan.transfers == ()
    assert (plan.price.messages, plan.price.seconds, plan.stored_bytes) == (0, 0.0, 0)
    assert plan.peak_bytes() == 3 * 8
    assert plan.reversed().target == plan.source


# ---------------------------------------------------------------------- memory


def test_a_rank_holds_its_parts_and_its_messages() -> None:
    plan = ooc.ranks.plan_redistribution(*layouts((100,), "block", "cyclic", ranks=4), "f8")
    (sizes,) = plan.sizes()
    for rank in range(4):
        sent, received = sizes[rank].sum() - sizes[rank, rank], sizes[:, rank].sum() - sizes[rank, rank]
        assert local_bytes(plan, rank) == (200, 200)
        assert plan.peak_bytes(rank) == 400 + 8 * (sent + received)
    assert plan.peak_bytes() == max(map(plan.peak_bytes, range(4)))
    assert plan.peak_bytes(buffers=1000) == plan.peak_bytes() + 1000


def test_a_rank_that_is_not_there_before_holds_nothing_then() -> None:
    plan = ooc.ranks.plan_redistribution(Layout.of((12,), "block", ranks=2), Layout.of((12,), "block", ranks=4), "u1")
    assert [local_bytes(plan, rank) for rank in range(4)] == [(6, 3), (6, 3), (0, 3), (0, 3)]
    assert [plan.peak_bytes(rank) for rank in range(4)] == [12, 18, 6, 6]


# ---------------------------------------------------------------------- the way back


def test_the_way_back_computes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 3.7: what the forward redistribution computed is used again."""
    both = layouts((977,), "cyclic(11)", "cyclic(3)", ranks=5)
    there = ooc.ranks.plan_redistribution(*both, "f4", method="lcm")
    stored = there.stored_bytes

    def computed(*_: object) -> None:
        raise AssertionError("runs were computed again")

    for module in (communication, transfer):
        monkeypatch.setattr(module, "runs_between", computed)
    back = there.reversed()
    assert back.stored_bytes == stored > 0
    for sizes, expected in zip(back.sizes(), reversed(there.sizes()), strict=True):
        assert sizes.tolist() == expected.T.tolist()
    assert (back.source, back.target) == both[::-1]
    with pytest.raises(AssertionError, match="computed again"):
        _ = Transfer(*layouts((979,), "cyclic(11)", "cyclic(3)", ranks=5)).axes


def test_what_is_kept_does_not_grow_with_the_array() -> None:
    """Section 3.7.3: the General Method kept two numbers for each element."""
    sizes = [
        ooc.ranks.plan_redistribution(*layouts((n,), "cyclic(11)", "cyclic(3)", ranks=64), "f4") for n in (10**6, 10**9)
    ]
    small, large = (plan.stored_bytes for plan in sizes)
    assert large < 1.2 * small
    assert large < 2**17


def test_the_way_back_has_the_other_name() -> None:
    names = {
        "block-to-cyclic": ("block", "cyclic"),
        "ky-to-y": ("cyclic(4)", "cyclic(2)"),
        "general": ("block", "block"),
    }
    others = {"block-to-cyclic": "cyclic-to-block", "ky-to-y": "x-to-kx", "general": "general"}
    for name, both in names.items():
        ranks = (4, 3) if name == "general" else (4, 4)
        pair = [Layout.of((64,), each, ranks=n) for each, n in zip(both, ranks, strict=True)]
        back = ooc.ranks.plan_redistribution(*pair, "f4", method=name).reversed()
        assert back.method == others[name] == back.price.method
        price = ooc.ranks.plan_redistribution(
            *reversed(pair), "f4", method=others[name]
        ).price  # by schedules of its own
        assert replace(price, seconds=0.0, schedules=()) == replace(back.price, seconds=0.0, schedules=())


# ---------------------------------------------------------------------- shown, and refused


def test_explain_says_every_offer_and_marks_the_chosen() -> None:
    plan = ooc.ranks.plan_redistribution(*layouts((960,), "cyclic(15)", "cyclic(10)", ranks=4), "f4")
    text = plan.explain()
    assert text.splitlines()[0] == "960 elements of 4 bytes: (cyclic(15)) on 4 → (cyclic(10)) on 4"
    assert [line.split()[:2] for line in text.splitlines()[3:6]] == [["general", "◄"], ["lcm", "2"], ["gcd", "2"]]
    assert "memory at most" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "general, 1 transfer, 12 messages" in repr(plan)


@pytest.mark.parametrize(
    ("source", "target", "method", "message"),
    [
        ("cyclic(4)", "cyclic(3)", "ky-to-y", r"'ky-to-y' does not apply .*: general, gcd, lcm do, or auto$"),
        ("block", "cyclic", "direct", r"'direct' does not apply to .*: block-to-cyclic, general do, or auto$"),
        ("block", "cyclic", "teleport", r"method='teleport' is unknown: block-to-cyclic, general do, or auto$"),
    ],
)
def test_a_method_that_does_not_apply_is_one_line_that_says_which_do(
    source: str, target: str, method: str, message: str
) -> None:
    with pytest.raises(LayoutError, match=message) as caught:
        ooc.ranks.plan_redistribution(*layouts((60,), source, target, ranks=4), "f4", method=method)
    assert "\n" not in str(caught.value)


def test_different_shapes_are_one_line() -> None:
    with pytest.raises(LayoutError, match=r"^an array of shape \(60,\) cannot be laid out as one of \(61,\)$"):
        ooc.ranks.plan_redistribution(Layout.of((60,), "block", ranks=4), Layout.of((61,), "block", ranks=4), "f4")


# ---------------------------------------------------------------------- work, beside brute force

WORDS = st.sampled_from(["block", "cyclic", "cyclic(2)", "cyclic(3)"])


@examples(60)
@given(
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.tuples(WORDS, WORDS, st.integers(1, 3), st.integers(1, 3)),
    st.tuples(WORDS, WORDS, st.integers(1, 3), st.integers(1, 3)),
)
def test_the_work_of_each_rank_is_what_counting_gives(shape: tuple[int, int], one: tuple, other: tuple) -> None:
    before, after = (Layout.of(shape, each[:2], grid=each[2:]) for each in (one, other))
    work = Transfer(before, after).work
    ranks = max(before.ranks, after.ranks)
    sizes = np.zeros((ranks, ranks), int)
    sizes[: before.ranks, : after.ranks] = counted(before, after)
    away = sizes * (1 - np.eye(ranks, dtype=int))
    assert work.held.tolist() == sizes.sum(1).tolist()
    assert work.due.tolist() == sizes.sum(0).tolist()
    assert work.kept.tolist() == sizes.diagonal().tolist()
    assert work.sends.tolist() == (away > 0).sum(1).tolist()
    assert work.receives.tolist() == (away > 0).sum(0).tolist()
    assert work.moved == away.sum()
