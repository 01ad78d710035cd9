"""A PartIR-style partitioner: an ordered schedule of tactics shards a whole JAX program.

    from redist import partir_core as partir

    step = partir.jit(train_step, mesh, schedule=[partir.ManualPartition(inputs={"batch": 0}, axis="B")])
    print(step.lower(*shapes).report)     # collectives, bytes, flops, memory: before anything is compiled
    params, loss = step(params, batch)    # as jax.jit

Source: PartIR, arXiv 2401.11202.
"""

from redist.partir_core.api import Partitioned, jit
from redist.partir_core.conflicts import Blocked, Conflict
from redist.partir_core.distributed import DistributedArray
from redist.partir_core.lowered import Compiled, Lowered
from redist.partir_core.report import Move, Report
from redist.partir_core.tactics import FIRST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, ManualPartition
from redist.partir_core.tag import tag

__all__ = [
    "FIRST_DIVISIBLE_DIM",
    "REPLICATED",
    "UNKNOWN",
    "Blocked",
    "Compiled",
    "Conflict",
    "DistributedArray",
    "Lowered",
    "ManualPartition",
    "Move",
    "Partitioned",
    "Report",
    "jit",
    "tag",
]
