"""Redistributions that are saved: read again they are the same plan, and arrays go by them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError, LayoutError, NotFoundError
from oocarrays.mapping.layouts.distribution import Axis
from oocarrays.plan.layouts import transfer
from oocarrays.plan.layouts.runs import Runs, runs_between

pytestmark = pytest.mark.once


@pytest.mark.parametrize(
    ("shape", "before", "after", "ranks", "method"),
    [
        ((100,), "cyclic(15)", "cyclic(10)", (4, 4), "lcm"),
        ((100,), "cyclic(15)", "cyclic(10)", (4, 3), "gcd"),
        ((30, 20), "(cyclic(6), cyclic(4))", "(cyclic(4), cyclic(6))", (4, 4), "indirect-lcm"),
        ((30, 20), "(cyclic(6), cyclic(4))", "(cyclic(4), cyclic(6))", (4, 4), "lcm"),
        ((30,), "gen_block(10,20)", "block", (2, 5), "general"),
        ((12,), "block", "block(3)", (4, 4), "general"),
    ],
)
def test_a_saved_plan_is_run(
    tmp_path: Path, shape: tuple[int, ...], before: str, after: str, ranks: tuple[int, int], method: str
) -> None:
    layouts = [ooc.Layout.of(shape, text, ranks=n) for text, n in zip((before, after), ranks, strict=True)]
    plan = ooc.ranks.plan_redistribution(*layouts, method=method)
    plan.save(tmp_path / "plan.json")
    again = ooc.ranks.load_plan(tmp_path / "plan.json")
    assert again == plan
    assert again.explain() == plan.explain()
    field = np.random.default_rng(0).random(shape)
    x = ooc.ranks.distribute(field, layouts[0], scheduler="threads")
    y = x.redistribute(again)
    assert (y.layout, y.plan.method) == (layouts[1], method)
    assert (y.compute() == field).all()
    back = y.redistribute(again.reversed())
    assert (back.compute() == field).all()


def test_a_plan_for_other_arrays_is_refused(tmp_path: Path) -> None:
    plan = ooc.ranks.plan_redistribution(*(ooc.Layout.of((100,), f"cyclic({m})", ranks=4) for m in (15, 10)))
    for wrong in (np.zeros(101), np.zeros(100, "f4")):
        with pytest.raises(LayoutError, match=r"for shape .*, \(cyclic\(15\)\) on 4, elements of 8 bytes; the array"):
            ooc.ranks.distribute(wrong, "cyclic(15)", ranks=4, scheduler="threads").redistribute(plan)


def test_files_that_hold_no_plan_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such plan"):
        ooc.ranks.load_plan(tmp_path / "none.json")
    file = tmp_path / "plan.json"
    for text in ("", "{}", "[]", '{"kind": "cake"}', '{"kind": "oocarrays redistribution", "shape": [3]}'):
        file.write_text(text)
        with pytest.raises(InputError, match=r"is not a plan of a redistribution|holds a plan of another kind"):
            ooc.ranks.load_plan(file)
    plan = ooc.ranks.plan_redistribution(*(ooc.Layout.of((100,), f"cyclic({m})", ranks=4) for m in (15, 10)))
    with pytest.raises(InputError, match="cannot write the plan"):
        plan.save(tmp_path / "nowhere" / "plan.json")


def test_a_plan_that_travels_brings_its_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is found again in another process, neither for the way back nor to run it."""
    plan = ooc.ranks.plan_redistribution(
        *(ooc.Layout.of((10**5,), f"cyclic({m})", ranks=8) for m in (11, 3)), method="lcm"
    )
    travels = pickle.dumps(plan)
    assert plan.stored_bytes < len(travels) < 2 * plan.stored_bytes
    assert len(pickle.dumps([transfer.bare() for transfer in plan.transfers])) < 1000
    for cached in (transfer._axes, transfer._runs, transfer._work):
        cached.cache_clear()

    def found_again(source: Axis, target: Axis) -> Runs:
        assert 1 in (source.ranks, target.ranks), "only what is cut out of a whole array, and joined to one"
        return runs_between(source, target)

    monkeypatch.setattr(transfer, "runs_between", found_again)
    again = pickle.loads(travels)
    assert again == plan
    assert [each.tolist() for each in again.sizes()] == [each.tolist() for each in plan.sizes()]
    back = again.reversed()
    assert (back.method, back.price.schedules) == (plan.method, plan.price.schedules[::-1])
    x = ooc.ranks.distribute(np.arange(10**5), plan.source, scheduler="threads").redistribute(again)
    np.testing.assert_array_equal(x.compute(), np.arange(10**5))
    np.testing.assert_array_equal(x.redistribute(back).compute(), np.arange(10**5))
