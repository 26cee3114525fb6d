"""Ranks of streams on workers: each keeps its buffers where it is, and all agree on the mode of each call.

    blocks ──► look (each rank, where it lives) ──► agree (one reduction) ──► do (each rank)

What a rank holds stays on its worker between calls, as in the paper each node has its own buffers: a worker that is
lost takes with it what had not been flushed, and the streams say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.placement import workers_of

if TYPE_CHECKING:
    from distributed import Client, Future

_HELD: dict[tuple[str, int], Any] = {}
"""Ranks that live in this process, by the name of their streams and their number."""


def rank_addresses(client: Client, ranks: int) -> list[str]:
    """Return the worker of each rank: workers in turn."""
    workers = [worker.address for worker in workers_of(client)]
    return [workers[rank * len(workers) // ranks] for rank in range(ranks)]


def held(name: str, rank: int) -> Any:
    found = _HELD.get((name, rank))
    if found is None:
        raise RunError(f"rank {rank} of the streams is gone with its worker: what was flushed is there, open it again")
    return found


def _begin(name: str, rank: int, make: Callable[[int], Any]) -> None:
    _HELD[name, rank] = make(rank)


def _act(name: str, rank: int, act: Callable[..., Any], *given: Any) -> Any:
    return act(held(name, rank), *given)


def _end(name: str, rank: int, act: Callable[[Any], Any]) -> None:
    found = _HELD.pop((name, rank), None)
    if found is not None:
        act(found)


class Ranks:
    """The ranks of one file of streams."""

    def __init__(self, client: Client, name: str, addresses: Sequence[str]) -> None:
        self.client = client
        self.name = name
        self.addresses = list(addresses)

    def begin(self, make: Callable[[int], Any]) -> None:
        """Make every rank where it is to live."""
        self.client.gather(self._on_each(_begin, [(make,)] * len(self.addresses)))

    def start(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Future]:
        """Have every rank do something with what it is given, and do not wait."""
        each = [()] * len(self.addresses) if given is None else given
        return self._on_each(_act, [(act, *one) for one in each])

    def each(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Have every rank do something: what they answer. An error is raised once no rank is at work any more."""
        from distributed import wait

        started = self.start(act, given)
        wait(started)
        answers: list[Any] = self.client.gather(started)
        return answers

    def end(self, act: Callable[[Any], Any]) -> None:
        """Let every rank go."""
        self.client.gather(self._on_each(_end, [(act,)] * len(self.addresses)), errors="skip")

    def _on_each(self, call: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> list[Future]:
        return [
            self.client.submit(call, self.name, rank, *one, workers=[address], pure=False, retries=0)
            for rank, (address, one) in enumerate(zip(self.addresses, given, strict=True))
        ]

    def blocks(self, blocks: Sequence[Any]) -> list[Any]:
        """Have the block of each rank computed where the rank lives."""
        return [
            self.client.compute(block, workers=[address]) if hasattr(block, "dask") else block
            for block, address in zip(blocks, self.addresses, strict=True)
        ]
