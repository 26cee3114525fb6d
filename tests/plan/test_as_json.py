from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, JournalError
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.documents import read_as, written
from oocarrays.plan.machine import Costs
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.ranks import Schedule
from tests.profiles import examples
from tests.seams import JOURNAL_FOLDER, JOURNAL_PLAN, RECHUNK_METHODS, Journal, begin, journal_digest
from tests.strategies import MIB, apart, chunks_for, shapes, stored, taking

pytestmark = pytest.mark.once


def plan(shape=(2048, 2048), source=(32, 2048), target=(2048, 32), *, coded=False, **options) -> RechunkPlan:
    resources, how = apart({"budget": 64 * MIB, "costs": Costs(cores=2)} | options)
    grids = ChunkGrid.of(shape, source), ChunkGrid.of(shape, target)
    return plan_rechunk(*(stored(grid, coded=coded) for grid in grids), resources, **how)


def through_text(plan: RechunkPlan) -> RechunkPlan:
    return read_as(RechunkPlan, json.loads(json.dumps(written(plan), allow_nan=False)), "plan")


@pytest.mark.parametrize(("ranks", "name"), [(4, "PEX"), (3, "GEN")])
def test_a_journal_of_before_there_were_schedules_goes_on_as_it_began(ranks: int, name: str) -> None:
    """By the schedule of then; whole rounds came later, and were told."""
    data = written(plan(method="two-phase", ranks=ranks, workers=ranks))
    (was,) = data["passes"]
    assert was.pop("exchange")["name"] == name
    del was["scheduler_seconds"]
    for of_then in ({}, {"whole": False}, {"whole": True}):
        (step,) = read_as(RechunkPlan, {**data, "passes": [was | of_then]}, "plan").passes
        assert step.schedule == Schedule.of(name, ranks)


@examples(60)
@given(data=st.data(), method=st.sampled_from(["auto", *RECHUNK_METHODS]), workers=st.sampled_from([None, 4]))
def test_any_plan_comes_back(data: st.DataObject, method: str, workers: int | None) -> None:
    """Whatever its method, its schedule and its seconds: infinite ones are no JSON."""
    shape, order = data.draw(shapes(3)), data.draw(st.sampled_from(["auto", *map(str.lower, taking(4))]))
    where = {} if workers is None else {"ranks": 4, "workers": 4, "schedule": order}
    chunks = [data.draw(chunks_for(shape)) for _ in range(2)]
    try:
        made = plan(shape, *chunks, coded=data.draw(st.booleans()), method=method, budget=256 * MIB, **where)
    except BudgetError:
        return
    seconds = data.draw(st.sampled_from([math.inf, -math.inf, 0, 1, 1e300, 0.1]))
    passes = tuple(dataclasses.replace(step, seconds=seconds) for step in made.passes)
    considered = tuple(dataclasses.replace(way, seconds=None) for way in made.alternatives)
    for each in (made, dataclasses.replace(made, passes=passes, alternatives=considered)):
        again = through_text(each)
        assert again == each
        assert [step.schedule for step in again.passes] == [step.schedule for step in each.passes]


WRONG: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "no field": (lambda d: d.pop("budget"), "plan lacks budget"),
    "no field that has a default": (lambda d: d["source"].pop("codec"), r"plan\.source lacks codec"),
    "a field too many": (lambda d: d.update(colour="red"), "plan has colour, unknown in a RechunkPlan"),
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


def resume_by(target: Path, plan: Any) -> None:
    """Resume a run whose journal has another plan."""
    path = target / JOURNAL_FOLDER / JOURNAL_PLAN
    run, content = Journal(target).read()
    content = content | {"plan": plan}
    path.write_text(json.dumps({"run": run, "content": content, "digest": journal_digest(run, content)}))
    ooc.resume(target)


@pytest.fixture
def begun(source: Path, target: Path) -> Path:
    begin(ooc.rechunk(source, target, chunks=(96, 10), scheduler="threads"))
    return target


@pytest.mark.parametrize(("change", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_plan_is_refused(begun: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    data = json.loads((begun / JOURNAL_FOLDER / JOURNAL_PLAN).read_text())["content"]["plan"]
    change(data)
    with pytest.raises(JournalError, match=message):
        resume_by(begun, data)


@pytest.mark.parametrize("data", [None, 3, "plan", [], [1], {}], ids=repr)
def test_what_is_no_plan_is_refused(begun: Path, data: Any) -> None:
    with pytest.raises(JournalError, match=r"^plan "):
        resume_by(begun, data)
