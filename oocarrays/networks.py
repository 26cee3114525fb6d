"""Models of networks, and clusters that exist as a plan only."""

from oocarrays.options.networks import planned_cluster as planned_cluster
from oocarrays.plan.exchange.network import Dragonfly as Dragonfly
from oocarrays.plan.exchange.network import FatTree as FatTree
from oocarrays.plan.exchange.network import FlatCluster as FlatCluster
from oocarrays.plan.exchange.network import Hypercube as Hypercube
from oocarrays.plan.exchange.network import Mesh as Mesh
from oocarrays.plan.exchange.network import Torus as Torus
