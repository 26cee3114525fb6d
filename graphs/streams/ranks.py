"""Ranks of streams on workers: each keeps its buffers on its worker, and all agree on the mode of each call.

    blocks ──► look (each rank, on its worker) ──► agree (one reduction) ──► do (each rank)

A rank's buffers stay on its worker between calls, as each node has its own buffers in the paper. If a worker is lost,
its unflushed data are lost too, and the streams raise an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from oocarrays.errors import RunError
from oocarrays.graphs.cluster.placement import workers_of

if TYPE_CHECKING:
    from distributed import Client, Future

_HELD: dict[tuple[str, int], Any] = {}
"""Ranks in this process, by the name of their streams and their number."""


def rank_addresses(client: Client, ranks: int) -> list[str]:
    """Return the worker of each rank, in contiguous runs of ranks."""
    workers = [worker.address for worker in workers_of(client)]
    return [workers[rank * len(workers) // ranks] for rank in range(ranks)]


def held(name: str, rank: int) -> Any:
    found = _HELD.get((name, rank))
    if found is None:
        raise RunError(
            f"rank {rank} of the streams was lost with its worker: flushed data is kept; open the streams again"
        )
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
    """Ranks of one file of streams."""

    def __init__(self, client: Client, name: str, addresses: Sequence[str]) -> None:
        self.client = client
        self.name = name
        self.addresses = list(addresses)

    def begin(self, make: Callable[[int], Any]) -> None:
        """Create every rank on its worker."""
        self.client.gather(self._on_each(_begin, [(make,)] * len(self.addresses)))

    def start(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Future]:
        """Start a call on every rank with its own arguments, without waiting."""
        each = [()] * len(self.addresses) if given is None else given
        return self._on_each(_act, [(act, *one) for one in each])

    def each(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call every rank and return the results; raise an error only after all ranks have stopped."""
        from distributed import wait

        started = self.start(act, given)
        wait(started)
        answers: list[Any] = self.client.gather(started)
        return answers

    def end(self, act: Callable[[Any], Any]) -> None:
        """End and remove every rank."""
        self.client.gather(self._on_each(_end, [(act,)] * len(self.addresses)), errors="skip")

    def _on_each(self, call: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> list[Future]:
        return [
            self.client.submit(call, self.name, rank, *one, workers=[address], pure=False, retries=0)
            for rank, (address, one) in enumerate(zip(self.addresses, given, strict=True))
        ]

    def blocks(self, blocks: Sequence[Any]) -> list[Any]:
        """Compute the block of each rank on the worker of that rank."""
        return [
            self.client.compute(block, workers=[address]) if hasattr(block, "dask") else block
            for block, address in zip(blocks, self.addresses, strict=True)
        ]
