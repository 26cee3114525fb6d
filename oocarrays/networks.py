"""Models of networks, and clusters that exist as a plan only."""

from oocarrays.options.networks import planned_cluster as planned_cluster
from oocarrays.plan.exchange.network import (
    Dragonfly as Dragonfly,
    FatTree as FatTree,
    FlatCluster as FlatCluster,
    Hypercube as Hypercube,
    Mesh as Mesh,
    Torus as Torus,
)
