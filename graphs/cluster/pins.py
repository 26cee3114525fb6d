"""Scheduler plugin for placement: it pins every task of a graph to the worker of the rank at the end of its key.

Tasks are pinned as they arrive, before any is scheduled, so graph optimisation cannot lose a pin as it loses
annotations.

    rank 0, 1 ─► worker a        a is lost:  0, 1 ─► a worker without ranks, now or if one comes soon,
    rank 2, 3 ─► worker b                    or all together ─► the worker with the fewest ranks

A worker that returns at the same address counts as a new worker. The completion of the last task is reported, and kept
as long as the graph: a worker may die at any time afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import dask.config
from dask.utils import parse_timedelta
from distributed import Scheduler, SchedulerPlugin
from distributed.core import Status
from distributed.protocol.pickle import dumps

from oocarrays.errors import PlacementError
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.dashboard.page import SeenRun, Told, keep
from oocarrays.graphs.events import Move, deliver

if TYPE_CHECKING:
    from distributed import Client


def pin(client: Client, suffix: str, addresses: Sequence[str], topic: str, told: Told | None = None) -> None:
    """Pin the tasks of a graph about to be submitted to a cluster, and let its workers copy each other's messages."""
    from oocarrays.graphs.cluster.nearby import introduce

    introduce(client)
    patience = parse_timedelta(dask.config.get("oocarrays.patience"))
    pins = Pins(suffix, addresses, topic, patience, told)
    try:
        client.register_plugin(pins, name=pins.name)
    except (ValueError, RuntimeError) as error:
        raise PlacementError(f"ranks cannot be pinned: the scheduler takes no plugins ({error})") from error


TOLD_RUNS = 100
"""Number of runs for which a scheduler keeps events; Dask keeps as many computations."""
EXCHANGES = "oocarrays-exchanges"
"""Name of the exchanges among the extensions of a worker."""


def homes_name(suffix: str) -> str:
    """Return the metadata name for the new workers of a graph's moved ranks."""
    return f"oocarrays-homes-{suffix}"


def lost(suffix: str, homes: Sequence[tuple[int, str]], dask_worker: Any) -> None:
    """Tell the exchanges of a worker that ranks have moved; a worker without any asks when it sets them up."""
    if EXCHANGES in dask_worker.extensions:
        dask_worker.extensions[EXCHANGES].lost(suffix, homes)


def ended_name(suffix: str) -> str:
    """Return the metadata name for the completion of a graph's last task."""
    return f"oocarrays-ended-{suffix}"


class Wishes:
    """Scheduler handlers that recompute released results for ranks that still need them.

        rank 3     hold-3 is released: all received it     its worker is lost, with the data received for rank 5
        rank 5     runs again, and needs part of hold-3  ─► wants it: the scheduler recomputes it on rank 3's worker
                   has received it                       ─► releases it

    Tasks do not list other ranks' results as dependencies: that would add an edge between every two ranks.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers |= {"oocarrays_want": self.want, "oocarrays_release": self.release}

    def want(self, *, keys: Sequence[Any], by: str) -> bool:
        """Keep some results and recompute the released ones; return whether the scheduler knows all of them."""
        scheduler = self._scheduler
        known = [key for key in map(tuple, keys) if key in scheduler.tasks]
        scheduler.client_desires_keys(keys=known, client=by)
        gone: Any = {key: "waiting" for key in known if scheduler.tasks[key].state == "released"}
        scheduler.transitions(gone, stimulus_id=by)
        return len(known) == len(keys)

    def release(self, *, by: str) -> None:
        scheduler = self._scheduler
        if by in scheduler.clients:
            scheduler.client_releases_keys([task.key for task in scheduler.clients[by].wants_what], by)
            del scheduler.clients[by]

    def release_all(self, worker: str) -> None:
        for by in [name for name in self._scheduler.clients if name.startswith(f"oocarrays-{worker}-")]:
            self.release(by=by)


class Pins(SchedulerPlugin):
    """Plugin that pins the tasks of one graph, and moves all ranks of a lost worker together.

    It does nothing before the graph arrives, and removes itself when the last of its tasks is forgotten. If the graph
    is submitted again, possibly while the scheduler still forgets the earlier tasks, the new plugin takes over from the
    old one.
    """

    idempotent = False

    def __init__(
        self, suffix: str, addresses: Sequence[str], topic: str, patience: float, told: Told | None = None
    ) -> None:
        self.name = f"oocarrays-pins-{suffix}"
        self._suffix = f"-{suffix}"
        self._topic = topic
        self._patience = patience
        self._homes = dict(enumerate(addresses))
        self._homeless: dict[str, list[int]] = {}
        self._mine: set[Any] = set()
        self._awaited = True
        self._together = False
        self._moved: dict[int, str] = {}
        self._course = SeenRun(told=told or Told(title=suffix))

    def start(self, scheduler: Scheduler) -> None:  # type: ignore[override]
        """Start on a scheduler, and take over the state of an earlier plugin for the same tasks."""
        self._scheduler = scheduler
        self._wishes = Wishes(scheduler)
        former = scheduler.plugins.get(self.name)
        if isinstance(former, Pins):
            self._homes, self._homeless, self._mine = former._homes, former._homeless, former._mine
            scheduler.remove_plugin(self.name)
        self._course = keep(scheduler, self._suffix, self._course)
        self._course.homes = self._homes
        forget_old_runs(scheduler)
        scheduler.loop.call_later(600, self._give_up_graph)  # seconds: a graph that was only inspected never arrives

    def update_graph(self, scheduler: Scheduler, *, tasks: Collection[Any], **kwargs: Any) -> None:
        """Pin tasks that have arrived; treat a worker that has gone since planning as lost."""
        mine = [key for key in tasks if self._is_mine(key)]
        self._course.arrive((key for key in mine if key not in self._mine), self._suffix)
        self._mine.update(mine)
        self._awaited = self._awaited and not mine
        self._together = self._together or any(key[0].startswith(TOGETHER) for key in mine)
        for key in mine:
            self._pin(key)
        for gone in sorted(set(self._homes.values()) - set(scheduler.workers)) if mine else ():
            self.remove_worker(scheduler, gone)

    def _is_mine(self, key: Any) -> bool:
        """Return whether a key belongs to this graph; Dask may append to its name, as for arguments of `delayed`."""
        return isinstance(key, tuple) and isinstance(key[0], str) and self._suffix in key[0]

    def _pin(self, key: Any) -> None:
        self._scheduler.tasks[key].worker_restrictions = {self._homes.get(key[-1], self._homes[0])}
        self._scheduler.tasks[key].loose_restrictions = False

    def remove_worker(self, scheduler: Scheduler, worker: str, **kwargs: Any) -> None:
        """Wait for a replacement of a lost worker, or distribute its ranks."""
        self._wishes.release_all(worker)
        ranks = [rank for rank, home in self._homes.items() if home == worker]
        if not (ranks and self._mine) or worker in self._homeless:
            return
        self._homeless[worker] = ranks
        self._tell_workers(set(self._homes.values()))
        spare = [address for address in scheduler.workers if address not in self._homes.values()]
        if spare:
            self.add_worker(scheduler, spare[0])
        else:
            scheduler.loop.call_later(self._patience, self._give_up_waiting, worker)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Move the ranks of a lost worker to a new one."""
        for lost in list(self._homeless)[:1]:
            self._move(self._homeless.pop(lost), lost, worker)

    def _give_up_waiting(self, lost: str) -> None:
        """Move the ranks of a lost worker to the worker with the fewest ranks."""
        running = [w.address for w in self._scheduler.workers.values() if w.status == Status.running]
        if lost not in self._homeless:
            return
        if not running:
            self._scheduler.loop.call_later(self._patience, self._give_up_waiting, lost)
            return
        load = Counter(self._homes.values())
        self._move(self._homeless.pop(lost), lost, min(running, key=lambda address: load[address]))

    def _move(self, ranks: list[int], lost: str, worker: str) -> None:
        there = set(self._homes.values())
        self._homes.update(dict.fromkeys(ranks, worker))
        self._moved.update(dict.fromkeys(ranks, worker))
        self._tell_workers(there)
        scheduler = self._scheduler
        mine = [key for key in self._mine if self._homes.get(key[-1]) == worker]
        for key in mine:
            self._pin(key)
        scheduler.log_event(self._topic, {"moved": asdict(Move(ranks=tuple(ranks), lost=lost, worker=worker))})
        waiting = {key: "processing" for key in mine if scheduler.tasks[key].state == "no-worker"}
        scheduler.transitions(waiting, stimulus_id=f"{self.name}-moved")  # type: ignore[arg-type]

    def _tell_workers(self, workers: Collection[str]) -> None:
        """Report a lost worker and the moved ranks to workers; workers that arrive later ask for them."""
        if not self._together:
            return
        homes, suffix = list(self._moved.items()), self._suffix[1:]
        self._scheduler.set_metadata([homes_name(suffix)], value=homes)
        told = {"op": "run", "function": dumps(lost), "args": dumps((suffix, homes))}
        there = [worker for worker in workers if worker in self._scheduler.workers]
        self._scheduler.loop.add_callback(self._scheduler.broadcast, msg=told, workers=there, on_error="ignore")

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Report the completion of the last task; remove the plugin when all tasks are forgotten."""
        if key not in self._mine:
            return
        if finish == "memory":
            self._course.end(key, self._suffix)
        if key[0].startswith("finish"):  # the last task of a run
            self._end(finish)
        if finish == "forgotten":
            self._mine.remove(key)
            if not self._mine:
                self._scheduler.loop.add_callback(self._leave)

    def log_event(self, topic: str, msg: Any) -> None:
        if topic == self._topic:
            deliver(self._course, msg)

    def _end(self, state: str) -> None:
        """Record the completion of the last task until the scheduler forgets that task."""
        suffix = self._suffix[1:]
        if state == "memory":
            self._scheduler.set_metadata([ended_name(suffix)], value=True)
            self._scheduler.log_event(self._topic, {"ended": suffix})
        if state == "forgotten":
            self._scheduler.task_metadata.pop(ended_name(suffix), None)

    def _give_up_graph(self) -> None:
        self._awaited = False
        self._leave()

    def _leave(self) -> None:
        if not (self._mine or self._awaited) and self._scheduler.plugins.get(self.name) is self:
            self._scheduler.task_metadata.pop(homes_name(self._suffix[1:]), None)
            self._scheduler.remove_plugin(self.name)


def forget_old_runs(scheduler: Scheduler) -> None:
    """Delete the events of the oldest runs: a scheduler keeps every topic forever, and has no call to end one."""
    topics = getattr(getattr(scheduler, "_broker", None), "_topics", {})
    running = {plugin._topic for plugin in scheduler.plugins.values() if isinstance(plugin, Pins)}
    ended = [name for name in topics if name.startswith("oocarrays-") and name not in running]
    for name in ended[:-TOLD_RUNS]:
        del topics[name]
