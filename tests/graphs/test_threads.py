"""The threads of a run: none of its tasks begins, or goes on, when it has been given up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from oocarrays.graphs.run import execution
from oocarrays.graphs.run.execution import Threads


def test_what_waits_is_left_and_what_has_begun_is_waited_for() -> None:
    threads, begun, go_on, done = Threads(1), threading.Event(), threading.Event(), []

    def first() -> None:
        begun.set()
        go_on.wait(10)
        done.append("first")

    threads.submit(first)
    others = [threads.submit(done.append, "others") for _ in range(5)]
    assert begun.wait(10)
    threading.Timer(0.05, go_on.set).start()
    threads.give_up()
    assert done == ["first"]
    assert all(other.cancelled() for other in others)


def test_what_never_ends_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "SETTLE_SECONDS", 0.05)
    threads, end = Threads(1), threading.Event()
    begun: Any = threads.submit(end.wait, 10)
    threads.give_up()
    assert not begun.done()
    end.set()
