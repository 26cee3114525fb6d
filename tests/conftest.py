from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import multiprocessing
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dask
import distributed.utils
import pytest
from distributed import Client

from tests import profiles  # noqa: F401 (registered before the tests are read)
from tests.dying import Server
from tests.small import make
from tests.unfinished import make_field

dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"})
dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"})
"""Nobody looks at profiles or delays of event loops here: idle clusters then take a tenth of the time."""
multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.preloaded"])
distributed.utils._forkserver_preload_set = True
"""Workers are forked from a process that has imported everything: to start one takes a tenth of the time."""

LONG = {
    "once": """
        test_benchmarks test_benchmark_collective test_benchmark_schedules test_benchmark_slabs
        tests/test_memory test_failures test_worker_memory test_killed_tasks test_lost_workers
        test_collective_on_workers test_files_on_workers test_blocks_on_workers test_slab_memory
        test_resume_refused test_run_again test_cli_resume test_chunk_locks test_clean fuzz test_picture
        test_picture_exchange test_power_loss_of_groups test_planning_huge test_resume_kinds
        test_resume_in_place test_groups_resume test_picture_schedule test_access test_advice_cut_by_chunks
        test_source_folder test_tour test_lazy_rechunk test_update test_groups test_reduce_on_workers
    """,
    "newest": """
        stores test_schedules_on_workers test_redistribution_on_workers test_groups_on_workers
        test_lazy_on_workers test_collective_writes_on_workers test_calibrate_workers test_prediction
        test_network test_job test_examples test_resume_failed test_making_room test_slabs_on_workers
        test_resume_trust test_power_loss test_resume_otherwise test_full test_past_cache test_exchanges
        test_overwritten_on_workers test_presence_on_workers test_whole_rounds test_striping_measured
        test_arrivals test_kept_disks test_journal test_package test_presence test_reduce_jobs test_pyramid
        test_streams_on_workers
    """,
}
"""Modules, with or without their folder, or folders that take long and are the same on any Python: benchmarks, memory,
deaths, files, models. A person who names none of them leaves them to CI, which runs what stands under ``once`` on the
oldest Python only, the rest on the newest only; the two take about as long."""
SAME = {
    "once": """
        graphs/test_iterate_local_on_workers test_resume test_iterate_together plan/test_windows streams/test_streams
        tests/test_windows test_array_files storage/test_sections test_assembled test_soak test_reduce test_compare
        graphs/test_edges plan/test_messages test_slab_verify storage/test_cached_scratch storage/test_packing
        plan/test_schedule test_style storage/test_section_writes
    """,
    "newest": """
        test_iterate_local graphs/test_ended striped/test_arrays plan/test_rechunk test_dask_ragged test_slab_shapes
        graphs/test_stopped_workers tests/test_iterate graphs/test_iterate_on_workers test_iterate_beside
        storage/test_turned test_shift_files test_local_slabs test_points plan/test_advice_choice
        storage/test_group_file test_clocks plan/test_slabs
    """,
}
"""The same of what a person runs, too."""


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run what is a coroutine, as Zarr's own tests of stores are."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(test(**arguments))
    return True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes long and what CI runs on one Python only, and leave what is long to CI where nobody names a
    file, a mark or a word."""
    listed = [{mark: set(names.split()) for mark, names in each.items()} for each in (LONG, SAME)]
    for item in items:
        module, folder = item.path.stem, item.path.parent.name
        names = {module, folder, f"{folder}/{module}"}
        long, same = ([mark for mark, among in each.items() if names & among] for each in listed)
        if long:
            item.add_marker("long")
        where = [*long, *same] or ["once"] * bool(item.get_closest_marker("long"))
        assert len(where) < 2, f"{item.path} stands twice, and would run on neither"
        for mark in where:
            item.add_marker(mark)
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    if not (named or config.option.markexpr or config.option.keyword):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("long")])
        items[:] = [item for item in items if not item.get_closest_marker("long")]


def pytest_collection_finish() -> None:
    """Let garbage be looked for among what tests make: to go through all that stays takes a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let the cluster of a test be the one that it computes on: in one process others may be there at the same time."""
    with ExitStack() as stack:
        for given in getattr(item, "funcargs", {}).values():
            if isinstance(given, Client):
                stack.enter_context(given.as_current())
        return (yield)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make(tmp_path / "source.zarr")
    return tmp_path / "source.zarr"


@pytest.fixture
def field(tmp_path: Path) -> Path:
    """An array that is rewritten in many parts."""
    return make_field(tmp_path)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where it is to be."""
    return tmp_path / "target.zarr"


@pytest.fixture
def settings_of_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder of the test's own for Dask's configuration; what it sets is gone after it."""
    old = copy.deepcopy(dask.config.config)
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))
    yield
    dask.config.config.clear()
    dask.config.config.update(old)


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs in processes of their own, which die where they are told to."""
    server = Server(tmp_path_factory.mktemp("runs"))
    yield server
    server.close()
