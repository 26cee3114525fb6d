from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oocarrays import Schedule
from oocarrays.errors import BudgetError, JournalError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.machine import Costs
from oocarrays.plan.rechunk.as_json import from_json, read_as, to_json
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from tests.profiles import examples
from tests.seams import RECHUNK_METHODS
from tests.strategies import MIB, apart, chunks_for, shapes, stored, taking

pytestmark = pytest.mark.once


def plan(shape=(2048, 2048), source=(32, 2048), target=(2048, 32), *, coded=False, **options) -> RechunkPlan:
    resources, how = apart({"budget": 64 * MIB, "costs": Costs(cores=2)} | options)
    grids = ChunkGrid.of(shape, source), ChunkGrid.of(shape, target)
    return plan_rechunk(*(stored(grid, coded=coded) for grid in grids), resources, **how)


def through_text(plan: RechunkPlan) -> RechunkPlan:
    return from_json(json.loads(json.dumps(to_json(plan), allow_nan=False)))


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("method", ["auto", *RECHUNK_METHODS])
def test_a_plan_comes_back(method: str, coded: bool) -> None:
    made = plan(method=method, coded=coded)
    assert made.passes
    again = through_text(made)
    assert again == made
    assert [step.unit for step in again.passes] == [step.unit for step in made.passes]


@pytest.mark.parametrize("name", taking(4))
def test_a_schedule_comes_back(name: str) -> None:
    made = plan(method="two-phase", ranks=4, workers=4, budget=256 * MIB, schedule=name.lower())
    (step,) = through_text(made).passes
    assert step.schedule == Schedule.of(name, 4)
    assert f"schedule {name.lower()}" in repr(step)


@pytest.mark.parametrize(("ranks", "name"), [(4, "PEX"), (3, "GEN")])
def test_a_journal_of_before_there_were_schedules_goes_on_as_it_began(ranks: int, name: str) -> None:
    data = to_json(plan(method="two-phase", ranks=ranks))
    assert data["passes"][0].pop("exchange")["name"] == name
    assert from_json(data).passes[0].schedule == Schedule.of(name, ranks)


@examples(60)
@given(data=st.data())
def test_any_plan_comes_back(data: st.DataObject) -> None:
    shape = data.draw(shapes(3))
    chunks = [data.draw(chunks_for(shape)) for _ in range(2)]
    try:
        made = plan(
            shape,
            *chunks,
            coded=data.draw(st.booleans()),
            method=data.draw(st.sampled_from(["auto", *RECHUNK_METHODS])),
        )
    except BudgetError:
        return
    assert through_text(made) == made


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, 0, 1, 1e300, 0.1])
def test_seconds_that_json_does_not_know(seconds: float) -> None:
    made = plan()
    passes = (dataclasses.replace(made.passes[0], seconds=seconds),)
    considered = tuple(dataclasses.replace(way, seconds=None) for way in made.considered)
    changed = dataclasses.replace(made, passes=passes, considered=considered)
    assert through_text(changed) == changed


def test_a_field_that_is_not_a_number_stays_so() -> None:
    step = dataclasses.replace(plan().passes[0], seconds=math.nan)
    assert math.isnan(through_text(dataclasses.replace(plan(), passes=(step,))).passes[0].seconds)


@pytest.mark.parametrize("value", [np.int64(3), [1], {"a": 1}, b"", object()])
def test_what_has_no_json_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match="has no JSON"):
        to_json(dataclasses.replace(plan(), budget=value))


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    data = to_json(plan())
    change(data)
    return data


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no field": (lambda d: d.pop("budget"), "plan lacks budget"),
    "no field that has a default": (lambda d: d["source"].pop("codec"), r"plan\.source lacks codec"),
    "a field too many": (lambda d: d.update(colour="red"), "plan has colour, which no RechunkPlan has"),
    "a key that is not text": (lambda d: d.update({3: 4}), "plan has 3"),
    "deep inside": (lambda d: d["passes"][0].pop("ranks"), r"plan\.passes\[0\] lacks ranks"),
    "a text for a number": (lambda d: d.update(budget="1"), r"plan\.budget is '1', not int"),
    "a truth value for a number": (lambda d: d.update(budget=True), r"plan\.budget is True, not int"),
    "a number for a truth value": (lambda d: d["source"].update(local=1), r"plan\.source\.local is 1, not bool"),
    "a float for an int": (lambda d: d.update(budget=1.0), r"plan\.budget is 1\.0, not int"),
    "a truth value for seconds": (lambda d: d["passes"][0].update(seconds=True), "seconds is True, not float"),
    "a text for seconds": (lambda d: d["passes"][0].update(seconds="1"), "seconds is '1', not float"),
    "none for seconds": (lambda d: d["passes"][0].update(seconds=None), "seconds is None, not float"),
    "a number or none": (lambda d: d["considered"][0].update(seconds=[]), r"considered\[0\]\.seconds is \[\]"),
    "a text or none": (lambda d: d["source"].update(codec=3), r"plan\.source\.codec is 3, not str"),
    "no such strategy": (lambda d: d.update(strategy="best"), r"plan\.strategy is 'best', not 'independent' or"),
    "a strategy of another type": (lambda d: d.update(strategy=["staged"]), r"plan\.strategy is \['staged'\]"),
    "a number for a list": (lambda d: d.update(passes=3), r"plan\.passes is 3, not a list"),
    "a text for a list": (lambda d: d["source"]["grid"].update(shape="12"), r"grid\.shape is '12', not a list"),
    "a wrong item": (lambda d: d["source"]["grid"].update(shape=[1, "2"]), r"plan\.source\.grid\.shape\[1\] is '2'"),
    "a list for a pass": (lambda d: d.update(passes=[[]]), r"plan\.passes\[0\] is \[\], not the fields of a Pass"),
    "no such schedule": (
        lambda d: d["passes"][0].update(exchange={"name": "HEX", "ranks": 2, "columns": 1}),
        r"passes\[0\]\.exchange\.name is 'HEX', not 'LEX' or",
    ),
    "much": (lambda d: d.update(budget="x" * 1000), r"plan\.budget is 'x{56}\.\.\., not int"),
}


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_refused(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    with pytest.raises(JournalError, match=message):
        from_json(changed(change))


@pytest.mark.parametrize("data", [None, 3, "plan", [], [1], {}])
def test_what_is_no_plan_is_refused(data: Any) -> None:
    with pytest.raises(JournalError, match=r"^plan "):
        from_json(data)


@dataclasses.dataclass(frozen=True)
class Odd:
    pair: tuple[tuple[int, ...], tuple[str, float]]
    either: int | tuple[int, ...] | None
    nothing: None = None


@pytest.mark.parametrize("either", [None, 3, [1, 2]])
def test_kinds_of_fields_that_plans_may_come_to_have(either: Any) -> None:
    odd = read_as(Odd, {"pair": [[1, 2], ["a", 0.5]], "either": either, "nothing": None}, "odd")
    assert odd == Odd(((1, 2), ("a", 0.5)), tuple(either) if isinstance(either, list) else either)
    with pytest.raises(JournalError, match=r"odd\.pair has 1 items, not 2"):
        read_as(Odd, {"pair": [[1, 2]], "either": 1, "nothing": None}, "odd")
    with pytest.raises(JournalError, match=r"odd\.either\[0\] is 'a', not int"):
        read_as(Odd, {"pair": [[], ["a", 1]], "either": ["a"], "nothing": None}, "odd")


def test_a_field_of_a_kind_that_is_not_read_is_the_program_s_fault() -> None:
    with pytest.raises(TypeError, match="not read from JSON"):
        read_as(set[int], [1], "odd")


def test_what_was_renamed_keeps_its_name_in_journals() -> None:
    considered = to_json(plan(method="auto"))["considered"]
    assert set(considered[0]) == {"strategy", "ranks", "seconds", "peak_bytes", "reason"}
    assert [way["strategy"] for way in considered] == [way.name for way in plan(method="auto").considered]
