"""Exchanges as tasks of any builder: what each rank wants arrives, and what carries nothing is not there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import dask.threaded
import numpy as np
from dask.task_spec import Task, TaskRef
from hypothesis import given, strategies as st

from oocarrays.graphs.cluster.nearby import Message
from oocarrays.graphs.cluster.shared import Rooms
from oocarrays.graphs.exchange.messages import arrived_parts, carried_parts, sent_parts
from oocarrays.graphs.run.steps import ExchangeTasks, Key, messages_of
from oocarrays.ranks import Schedule
from tests.profiles import examples
from tests.strategies import orders


class Letters:
    """A small builder: each rank has a letter of its own for every rank that wants one."""

    def __init__(self, schedule: Schedule, wanted: np.ndarray, synchronous: bool) -> None:
        self.schedule, self.wanted, self.graph = schedule, wanted, {}
        exchange = ExchangeTasks(schedule, self.add, synchronous=synchronous)
        outboxes = [self.add("pack", 0, rank) for rank in range(schedule.ranks)]
        self.ends = exchange.build(
            0, outboxes=outboxes, regions=[None] * schedule.ranks, wants=lambda o, f: bool(wanted[o, f])
        )

    def add(self, verb: str, *args: Any, name: str = "", buffers: Iterable = (), after: Iterable = ()) -> Key:
        key = (name or verb, *args)
        taken = [None if key is None else TaskRef(key) for key in buffers]
        self.graph[key] = Task(key, self.task, verb, args, len(taken), *taken, *map(TaskRef, after))
        return key

    def task(self, verb: str, args: tuple, buffers: int, *inputs: Any) -> Any:
        return getattr(self, verb)(*args, *inputs[:buffers])

    def pack(self, turn: int, rank: int) -> list[np.ndarray | None]:
        return [letter(rank, final) if wants else None for final, wants in enumerate(self.wanted[rank])]

    def send(self, turn: int, stage: int, rank: int, own: list | None, carried: Any) -> Message:
        message = sent_parts(self.schedule, stage, rank, lambda final: own[final] if own else None, carried)
        assert message, "a message carries something"
        return message

    def carry(self, turn: int, stage: int, rank: int, carried: Any, *messages: Any) -> Any:
        return carried_parts(self.schedule, stage, rank, carried, messages, Rooms())

    def receive(self, turn: int, stage: int, rank: int, region: dict | None, *messages: Any) -> dict:
        came = arrived_parts(rank, messages)
        assert came, "who receives gets something"
        assert not came.keys() & (region or {}).keys(), "nothing comes twice"
        return (region or {}) | came

    def taken(self, turn: int, stage: int, rank: int) -> None:
        return None


def letter(origin: int, final: int) -> np.ndarray:
    return np.array([origin, final], dtype=np.uint8)


@st.composite
def exchanges(draw: st.DrawFn) -> tuple[Schedule, np.ndarray]:
    """A schedule, and who wants something of whom, from nobody to all."""
    ranks = draw(st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16)))
    wanted = np.random.default_rng(draw(st.integers(0, 9))).random((ranks, ranks)) < draw(st.sampled_from((0, 0.2, 1)))
    np.fill_diagonal(wanted, False)
    return draw(orders(ranks)), wanted


@given(asked=exchanges(), synchronous=st.booleans())
@examples(60)
def test_what_is_wanted_arrives_and_nothing_else_is_sent(asked: tuple[Schedule, np.ndarray], synchronous: bool) -> None:
    schedule, wanted = asked
    letters = Letters(schedule, wanted, synchronous)
    there = [end for end in letters.ends if end is not None]
    got = dict(zip(there, dask.threaded.get(letters.graph, there), strict=True))
    for rank, parts in enumerate(map(got.get, letters.ends)):
        assert set(parts or {}) == set(np.flatnonzero(wanted[:, rank]))
        for origin, part in (parts or {}).items():
            np.testing.assert_array_equal(part, letter(origin, rank))


@given(asked=exchanges())
@examples(60)
def test_a_direct_schedule_has_a_message_for_each_pair_that_wants_one(asked: tuple[Schedule, np.ndarray]) -> None:
    schedule, wanted = asked
    steps = list(messages_of(schedule, lambda origin, final: bool(wanted[origin, final])))
    sent = [(message.source, message.destination) for step in steps for message in step]
    if not schedule.forwards:
        assert sorted(sent) == list(zip(*(axis.tolist() for axis in np.nonzero(wanted)), strict=True))
    assert all(message.parts for step in steps for message in step)


@given(asked=exchanges())
@examples(60)
def test_a_rank_waits_for_its_last_step_also_past_those_in_which_it_is_idle(asked: tuple[Schedule, np.ndarray]) -> None:
    schedule, wanted = asked
    graph = Letters(schedule, wanted, True).graph
    waits = defaultdict(set, {key: task.dependencies for key, task in graph.items()})
    received: dict[int, Key] = {}
    sent: dict[int, Key] = {}
    for stage, messages in enumerate(messages_of(schedule, lambda origin, final: bool(wanted[origin, final])), 1):
        for message in messages:
            formers = {each[message.source] for each in (received, sent) if message.source in each}
            assert formers <= waits[f"send step {stage}", 0, stage, message.source]
        for message in messages:
            taken = (f"taken step {stage}", 0, stage, message.destination)
            received[message.destination] = sent[message.source] = taken
