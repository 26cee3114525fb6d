"""Pinning the tasks of a graph that is about to be sent: each to the worker of its rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask.config
from dask.utils import parse_timedelta

from oocarrays.errors import PlacementError
from oocarrays.graphs.dashboard.course import Told

if TYPE_CHECKING:
    from distributed import Client


def pin(client: Client, suffix: str, addresses: Sequence[str], topic: str, told: Told | None = None) -> None:
    """Pin the tasks of a graph that is about to be sent to a cluster, whose workers may copy each other's messages."""
    from oocarrays.graphs.cluster.nearby import introduce  # both import Dask's cluster, which takes long
    from oocarrays.graphs.cluster.pins import Pins

    introduce(client)
    patience = parse_timedelta(dask.config.get("oocarrays.patience"))
    pins = Pins(suffix, addresses, topic, patience, told)
    try:
        client.register_plugin(pins, name=pins.name)
    except (ValueError, RuntimeError) as error:
        raise PlacementError(f"ranks cannot be pinned: the scheduler takes no plugins ({error})") from error
