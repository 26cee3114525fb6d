"""Resumes that are refused: a journal or a source of something else, a target that was written anew."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import JournalError, NotFoundError, RunError, TargetError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.seams import (
    JOURNAL_FOLDER,
    UNFINISHED_MARK,
    Journal,
    contents,
    find_leftovers,
    is_finished,
    journal_digest,
    plan_to_json,
    unfinished_run,
)
from tests.unfinished import check_finished, check_unfinished, make_field, options_of

pytestmark = pytest.mark.long


def plan(source: Any, target: Any, method: str, **options: Any) -> ooc.Job:
    return flat(ooc.rechunk, source, target, **(options_of(method) | options))


# ---------------------------------------------------------------------- another source, another journal


def rewrite(field: Path) -> Any:
    shutil.rmtree(field)
    make_field(field.parent, chunks=(32, 1024))


def tell_more(field: Path) -> Any:
    zarr.open_array(field, mode="r+").attrs["units"] = "K"


def give_another(field: Path) -> Any:
    return make_field(field.parent, "another.zarr", chunks=(128, 1024))


def give_a_copy(field: Path) -> Any:
    return make_field(field.parent, "another.zarr")


SOURCES = {"other chunks": rewrite, "other attributes": tell_more, "another": give_another}


@pytest.mark.parametrize("change", SOURCES.values(), ids=SOURCES)
def test_another_source_is_refused(field: Path, target: Path, runs: Server, change: Callable) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("independent"))
    given = change(field)
    with pytest.raises(JournalError, match=r"does not belong to .* as it is now") as caught:
        ooc.resume(target, source=given)
    assert "\n" not in str(caught.value)
    check_unfinished(target)


def test_a_source_that_was_written_anew_elsewhere_is_refused(field: Path, target: Path, runs: Server) -> None:
    """That it holds the same nobody can tell without reading it."""
    runs.run("rechunk", field, target, at="entry", **options_of("independent"))
    with pytest.raises(JournalError, match=r"100 % of the chunks of .*another\.zarr have changed since") as caught:
        ooc.resume(target, source=give_a_copy(field))
    assert "\n" not in str(caught.value)
    check_unfinished(target)


def test_a_source_that_has_gone_is_missed(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("independent"))
    shutil.rmtree(field)
    with pytest.raises(NotFoundError, match=r"no such store: .*source\.zarr"):
        ooc.resume(target)


def sealed(run: str, content: dict[str, Any]) -> str:
    """A journal's plan with the digest that belongs to it."""
    return json.dumps({"run": run, "content": content, "digest": journal_digest(run, content)})


def of_other_chunks(target: Path, run: str, content: dict[str, Any]) -> str:
    other = plan(target.parent / "source.zarr", target.parent / "other.zarr", "independent", chunks=(1024, 32))
    return sealed(run, content | {"plan": plan_to_json(other.plan)})


def of_another_source(target: Path, run: str, content: dict[str, Any]) -> str:
    other = plan(give_another(target.parent / "source.zarr"), target.parent / "other.zarr", "independent")
    return sealed(run, content | {"plan": plan_to_json(other.plan)})


JOURNALS: dict[str, tuple[Callable[[Path, str, dict[str, Any]], str], str]] = {
    "other target chunks": (of_other_chunks, r"plans for chunks \(1024, 32\)"),
    "other source chunks": (of_another_source, r"plans for chunks"),
    "of another run": (
        lambda _, run, content: sealed("c0ffeec0ffee", content),
        "is of run c0ffeec0ffee, the array of run",
    ),
    "a plan of nothing": (lambda _, run, content: sealed(run, content | {"plan": {}}), "plan lacks"),
    "no source": (lambda _, run, content: sealed(run, {"plan": content["plan"]}), "lacks scratch, source"),
    "changed": (
        lambda _, run, content: sealed(run, content).replace("two-phase", "assembled"),
        "digest is wrong",
    ),
    "truncated": (lambda _, run, content: sealed(run, content)[:-20], "truncated"),
    "nothing": (lambda *_: "", "truncated"),
}


@pytest.mark.parametrize(("spoil", "says"), JOURNALS.values(), ids=JOURNALS)
def test_a_journal_that_does_not_belong_there_is_refused(
    field: Path, target: Path, runs: Server, spoil: Callable, says: str
) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("two-phase"))
    (target / JOURNAL_FOLDER / "plan.json").write_text(spoil(target, *Journal(target).read()))
    with pytest.raises(JournalError, match=says) as caught:
        ooc.resume(target)
    assert "\n" not in str(caught.value)
    check_unfinished(target)


@pytest.mark.parametrize("name", ["0.99.0", "1.0.0", "0.0.2", "0.0", "-", "7"])
def test_a_part_that_the_plan_has_not_is_refused(field: Path, target: Path, runs: Server, name: str) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("two-phase"))
    digest = json.loads((target / JOURNAL_FOLDER / "plan.json").read_text())["digest"]
    (target / JOURNAL_FOLDER / "done" / name).write_text(digest)
    with pytest.raises(JournalError, match=r"has part \(.*\), which is not in its plan"):
        ooc.resume(target)


def test_a_part_of_another_plan_is_refused(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("two-phase"))
    (target / JOURNAL_FOLDER / "done" / "0.0.0").write_text("0" * 64)
    with pytest.raises(JournalError, match="was finished by a run with another plan"):
        ooc.resume(target)


def test_a_target_that_was_written_anew_is_not_gone_on_with(field: Path, target: Path, runs: Server) -> None:
    runs.run("rechunk", field, target, at="entry", **options_of("staged"))
    job = ooc.resume(target)
    plan(field, target, "independent", overwrite=True).run()
    with pytest.raises(RunError, match="has changed since run"):
        job.run()
    assert find_leftovers(target.parent) == [], "the run that replaces another removes its scratch"
    check_finished(target)


# ---------------------------------------------------------------------- marks that no run of ours has made


@pytest.mark.parametrize("mark", [None, "", 0, [1]], ids=repr)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_mark_counts_whatever_its_value_is(field: Path, target: Path, mark: Any, zarr_format: Any) -> None:
    zarr.create_array(
        target, shape=(4,), chunks=(2,), dtype="i4", attributes={UNFINISHED_MARK: mark}, zarr_format=zarr_format
    )
    assert unfinished_run(target) is not None
    assert not is_finished(target)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    assert [left.kind for left in find_leftovers(target.parent)] == ["unfinished"]
    assert contents(zarr.open_array(target)).unfinished is not None
    with pytest.raises(NotFoundError, match="no journal"):
        ooc.resume(target)
    Journal(target).begin("c0ffeec0ffee", {})
    with pytest.raises(JournalError, match="of run c0ffeec0ffee"):
        ooc.resume(target)
    with pytest.raises(TargetError, match="exists"):
        plan(field, target, "independent")
    plan(field, target, "independent", overwrite=True).run()
    assert contents(zarr.open_array(target)).unfinished is None
