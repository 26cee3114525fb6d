from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import multiprocessing
import re
import zlib
from collections.abc import Collection, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import dask
import distributed.utils
import pytest
from distributed import Client

from tests import profiles
from tests.dying import Server
from tests.graphs.clusters import cluster
from tests.pairs import is_table, sample
from tests.small import make
from tests.unfinished import make_field

dask.config.set({"distributed.worker.multiprocessing-method": "forkserver", "multiprocessing.context": "forkserver"})
dask.config.set({"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "500ms"})
"""Nobody looks at profiles or delays of event loops here: idle clusters then take a tenth of the time."""
multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.preloaded"])
distributed.utils._forkserver_preload_set = True
"""Workers are forked from a process that has imported everything: to start one takes a tenth of the time."""


gc.disable()  # until all tests are read: next to nothing of what is made meanwhile is garbage


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run what is a coroutine, as Zarr's own tests of stores are."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(test(**arguments))
    return True


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let CI leave out what has run on another Python, or before."""
    parser.addoption("--few", action="store_true", help="a few cases of tests that the oldest Python runs, too")
    parser.addoption("--rest", action="store_true", help="without the cases that `pytest` alone runs")


LONG = re.compile(r"^pytestmark = (\[[^]]*)?pytest\.mark\.long\b", re.MULTILINE)
"""The mark of a file whose tests are all left to CI."""


def is_plain(config: pytest.Config) -> bool:
    """Whether no file, mark or word is named: what is marked `long` is left to CI then."""
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    return not (named or config.option.markexpr or config.option.keyword)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import a file whose tests are all left to CI."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return (is_test and is_plain(config) and bool(LONG.search(collection_path.read_text(encoding="utf-8")))) or None


FEW = 2
"""Cases of a test with parameters that are not left to CI."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to CI what is marked `long` and most cases of tests with many, unless a file, a mark or a word is named.

    These few show each verb, strategy, format and fault. A file or test is marked `long` if it goes into the depth of
    what others show, and takes more than a second. CI runs that on the newest Python only, and of enumerations
    that are long, or run on the oldest Python, a part: each value of each parameter, in about a third of the cases.
    What is marked `once` runs once in CI: the few cases on the oldest Python, the others on the newest, and properties
    on both. The night's set has all.
    """
    for item in items:
        if item.get_closest_marker("long"):
            item.add_marker("once")
    if config.option.keyword or profiles.is_nightly():
        return
    short = [item for item in items if not (is_plain(config) and item.get_closest_marker("long"))]
    kept = {cases[which] for cases in cases_of_tests(short) for which in chosen(config, cases)}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in short if item in kept]


def chosen(config: pytest.Config, cases: list[pytest.Item]) -> Collection[int]:
    """Return the numbers of the cases of a test that are run by day."""
    values, once, is_long = [values_of(item) for item in cases], *map(cases[0].get_closest_marker, ("once", "long"))
    few = sample(values, FEW, most=FEW)
    if is_plain(config) or (config.option.few and not once):
        return few
    by_day: Collection[int] = range(len(cases))
    marker = cases[0].get_closest_marker("sampled")
    if marker or ((is_long or config.option.rest) and not is_table(values)):
        share = marker.args[0] if marker and marker.args else 3
        name = getattr(cases[0], "originalname", "")
        turn = zlib.crc32(name.encode()) % len(values) if is_table(values) else 0  # tests may share a table
        by_day = [
            (turn + number) % len(values) for number in sample(values[turn:] + values[:turn], -(-len(values) // share))
        ]
    ran = config.option.rest or (config.option.few and not draws_more(cases[0]))
    return set(by_day).difference(few) if ran and not is_long else by_day


def draws_more(item: pytest.Item) -> bool:
    """Return whether a test draws more examples on CI's newest Python than on its oldest, where profile `dev` runs."""
    return getattr(getattr(item, "obj", None), "is_hypothesis_test", False)


def cases_of_tests(items: list[pytest.Item]) -> Collection[list[pytest.Item]]:
    """Return the cases of each test, in their order."""
    tests: dict[tuple[Any, str], list[pytest.Item]] = {}
    for item in items:
        tests.setdefault((item.parent, getattr(item, "originalname", item.name)), []).append(item)
    return tests.values()


def values_of(item: pytest.Item) -> dict[str, Any]:
    """Return the values of the parameters of a case."""
    return item.callspec.params if hasattr(item, "callspec") else {}


def pytest_collection_finish() -> None:
    """Let garbage be looked for among what tests make: to go through all that stays takes a third of a second."""
    gc.collect()
    gc.freeze()
    gc.enable()


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
def own_config() -> Iterator[None]:
    """Dask's configuration, which is as it was before when the test has ended."""
    old = copy.deepcopy(dask.config.config)
    yield
    dask.config.config.clear()
    dask.config.config.update(old)


@pytest.fixture
def settings_of_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_config: None) -> None:
    """A folder of the test's own for Dask's configuration; what it sets is gone after it."""
    monkeypatch.setenv("DASK_CONFIG", str(tmp_path))


@pytest.fixture(scope="module")
def two() -> Iterator[Client]:
    """Two workers of one thread each."""
    with cluster(2) as client:
        yield client


@pytest.fixture(scope="module")
def three() -> Iterator[Client]:
    """Three workers of one thread each."""
    with cluster(3) as client:
        yield client


@pytest.fixture(scope="module")
def spare() -> Iterator[Client]:
    """Three workers of one thread each for ranks, and one that takes over at once where one of them dies."""
    with cluster(4) as client:
        yield client


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs in processes of their own, which die where they are told to."""
    server = Server(tmp_path_factory.mktemp("runs"))
    yield server
    server.close()
