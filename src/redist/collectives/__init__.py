"""What can be done to a distributed array: typed steps as data, plans, their costs, and backends that run them."""

from redist.collectives.plan import Options, Plan
from redist.collectives.profile import BackendProfile
from redist.collectives.simulate import simulate
from redist.collectives.steps import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Permute,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.topology import Link, Topology

__all__ = [
    "AllGather",
    "AllReduce",
    "AllToAll",
    "BackendProfile",
    "Chunk",
    "Exchange",
    "Link",
    "Options",
    "Permute",
    "Plan",
    "ReduceScatter",
    "Slice",
    "Step",
    "Topology",
    "simulate",
]
