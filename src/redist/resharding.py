"""`reshard`: a drop-in for `jax.device_put` and `jax.lax.with_sharding_constraint` that runs planned collectives."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redist.synth.planner import synthesize

if TYPE_CHECKING:
    from redist.collectives.plan import Plan
    from redist.collectives.topology import Topology
    from redist.types.layout import Layout

__all__ = ["explain", "planned", "reshard"]


def reshard(
    x: Any,
    sharding: Any,
    source: Any = None,
    memory_limit: int | None = None,
    donate: bool = False,
    topology: Topology | None = None,
) -> Any:
    """The array, or every array of a pytree, under another sharding: same values, same dtype.

    `sharding` is a NamedSharding, a SingleDeviceSharding, or a PartitionSpec over the mesh set by
    `jax.set_mesh`; for a pytree, one for all leaves or a prefix tree of them. The result's `.sharding` is
    the one asked for. Works on concrete arrays and inside jit, grad, jvp, vmap and scan; the gradient is
    the resharding back.

    `source` is where the array is, in the same forms. It is known of concrete arrays and on Explicit
    meshes; inside jit on Auto meshes, where it is not part of the type, stating it makes the plan part of
    the traced program, and otherwise the plan is made when XLA has partitioned the program around it.

    `memory_limit` bounds the live peak of the whole call in bytes per device: all sources that are still
    needed, all results so far, and the step under way with its input, its output and what it needs beside.
    The leaves of a tree then move one after another, in the order that needs least. Inside jit, where the
    compiler orders them, it bounds the move of each leaf. Too small a limit raises InfeasibleError stating
    the smallest. `donate` gives up a concrete source's memory, which must not be
    used afterwards. Outside jit, source and target may be on different devices.

    `topology` says what bytes cost on which axis of the source's mesh; by default all axes are alike, and
    devices that one process emulates on CPU share its memory.

    Raises LayoutError and BackendError naming every dimension that does not divide, devices that differ
    inside jit, ranks that do not match, and arguments that are no shardings; for a pytree, one error for
    all leaves.
    """
    from redist.collectives.backends.jax.calls import Terms, reshard_tree

    return reshard_tree(x, sharding, source, Terms(memory_limit, donate, _planner(topology)))


def explain(x: Any, sharding: Any, source: Any = None, topology: Topology | None = None) -> str:
    """What `reshard(x, sharding)` would do: which devices hold which blocks before and after, and the plan as
    a table (see `Plan.explain`) with its bytes, projected peak and seconds.

    `x` is an array or a `jax.ShapeDtypeStruct`; `source` is needed where it has no sharding.
    """
    from redist.collectives.picture import beside, picture

    plan = planned(x, sharding, source, topology=topology)
    drawn = beside(picture(plan.source), picture(plan.target), width=120)
    return "\n".join([*drawn, plan.explain()])


def planned(
    x: Any,
    sharding: Any,
    source: Any = None,
    memory_limit: int | None = None,
    donate: bool = False,
    topology: Topology | None = None,
) -> Plan:
    """The plan that `reshard` would run for one array, or the shape and dtype of one. Raises as it would."""
    from redist.collectives.backends.jax.calls import Terms, plan_for

    return plan_for(x, sharding, source, Terms(memory_limit, donate, _planner(topology)))


@lru_cache(maxsize=64)
def _planner(topology: Topology | None) -> Callable[[Layout, Layout, int | None, bool], Plan]:
    """One function per topology, so that what is cached by it is found again."""

    def plan(source: Layout, target: Layout, memory_limit: int | None, donate: bool) -> Plan:
        from redist.collectives.backends.jax.machine import default_topology

        known = topology or default_topology(source.mesh)
        return synthesize(source, target, memory_limit, known, backend="jax", donate=donate)

    return plan
