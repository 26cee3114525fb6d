"""Other workers, waited for as long as the scheduler has them: Dask dials the dead till its own patience ends.

asks ─► answers                                       as a rule
asks ─► silent for a moment ─► scheduler: it is there ─► waits on
                               it is gone             ─► "not yet": what it had will be elsewhere
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from distributed import Worker

T = TypeVar("T")
DIAL_SECONDS = 3
"""Seconds to wait for a worker that does not answer, before it is asked again where its ranks are."""
LOOK_SECONDS = 0.25
"""Seconds between two looks at whether something is still there, or wanted."""


class NotYet(Exception):
    """Answer that what was asked for is not there, or not any more where it was."""


class Peers:
    """Other workers, as one of them knows them: all of it in its event loop."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._gone: dict[str, float] = {}

    async def answer(self, home: str, asked: Coroutine[Any, Any, T]) -> T:
        """Wait for what another worker answers."""
        if home in self._gone and not await self._is_there(home):
            asked.close()
            raise NotYet
        clock = asyncio.get_running_loop().time
        answer, end = asyncio.ensure_future(asked), clock() + DIAL_SECONDS
        try:
            while not answer.done() and clock() < end:
                await asyncio.wait({answer}, timeout=LOOK_SECONDS)
                if not answer.done() and not await self._is_there(home):
                    raise NotYet
            if not answer.done():
                raise NotYet
            return answer.result()
        except OSError as error:
            await self._is_there(home)
            raise NotYet from error
        finally:
            answer.cancel()

    async def _is_there(self, home: str) -> bool:
        """Whether the scheduler has a worker: of one that is gone it is asked now and then."""
        now = asyncio.get_running_loop().time()
        if now < self._gone.get(home, now):
            return False
        if await self._worker.scheduler.ncores(workers=[home]):
            self._gone.pop(home, None)
            return True
        self._gone[home] = now + LOOK_SECONDS
        return False
