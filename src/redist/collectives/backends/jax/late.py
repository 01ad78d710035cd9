"""Inside jit on Auto meshes a value's type has no sharding: the source is asked of XLA's partitioner.

`custom_partitioning` shows the sharding that propagation gave the operand; the plan is made then, and its
steps replace the call. The result's sharding is pinned by a constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.check import require_even
from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.jax.modules import jax
from redist.collectives.backends.jax.program import flat_sharding
from redist.collectives.backends.jax.steps import run_steps
from redist.errors import LayoutError
from redist.types.digits import align
from redist.types.layout import Dim, Layout
from redist.types.mesh import Mesh

if TYPE_CHECKING:
    from redist.collectives.plan import Plan

__all__ = ["late"]

Planner = Callable[[Layout, Layout], "Plan"]


def late(wanted: Any, planner: Planner, rank: int) -> Callable[[Any], Any]:
    """A traceable function to sharding `wanted` from whatever sharding its operand turns out to have.

    Dimensions that `wanted` leaves UNCONSTRAINED keep the operand's axes. Where the partitioner chose
    blocks of unequal size, the operand is replicated first.
    """
    from jax.experimental.custom_partitioning import custom_partitioning

    move: Any = custom_partitioning(_same)

    def partition(_mesh: Any, operands: Sequence[Any], _result: Any) -> Any:
        (operand,) = operands
        given = operand.sharding
        flat = flat_sharding([device.id for device in given._device_assignment]).mesh
        source = Layout.from_jax(operand.shape, operand.dtype, given)
        if not source.is_even():
            given = jax.sharding.NamedSharding(flat, jax.sharding.PartitionSpec())
            source = Layout.from_jax(operand.shape, operand.dtype, given)
        target = _target(wanted, source, Mesh.from_jax(flat).device_ids)
        plan = planner(source, target)
        require_even(plan)
        frame = Frame(tuple(flat.axis_names), tuple(Mesh.from_jax(flat).device_ids))

        def local(block: Any) -> Any:
            return run_steps(plan.steps, source, frame, block)

        return flat, local, target.to_jax(), (given,)

    free = _free(wanted)  # one factor on both sides: propagation carries the axes over
    left = " ".join(f"a{i}" for i in range(rank))
    right = " ".join(f"a{i}" if i in free else f"b{i}" for i in range(rank))
    move.def_partition(partition=partition, decode_shardings=False, sharding_rule=f"{left} -> {right}")

    def run(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(move(x), wanted)

    return run


def _same(x: Any) -> Any:
    return x


def _free(sharding: Any) -> list[int]:
    """Dimensions that a sharding leaves UNCONSTRAINED."""
    spec = sharding.spec
    return [i for i, part in enumerate(spec.partitions) if part is spec.UNCONSTRAINED]


def _target(wanted: Any, source: Layout, ids: Sequence[int]) -> Layout:
    """The layout that `wanted` asks for, over these devices; free dimensions as in the source."""
    spec = jax.sharding.PartitionSpec
    parts = list(wanted.spec.partitions) + [None] * (source.rank - len(wanted.spec.partitions))
    free = _free(wanted)
    fixed = jax.sharding.NamedSharding(
        wanted.mesh, spec(*(None if i in free else part for i, part in enumerate(parts)))
    )
    read = Layout.from_jax(source.shape, source.dtype, fixed)
    mesh = Mesh(read.mesh.axes, ids)
    target = Layout(mesh, source.shape, [dim.axes for dim in read.dims], source.dtype)
    for i in free:
        alignment = align((target, source))
        if alignment is None:
            continue
        dims = list(target.dims)
        dims[i] = Dim(dims[i].size, alignment.axes(alignment.forms[1].dims[i]))
        try:
            target = target.with_dims(dims)
        except LayoutError:  # the target shards another dimension over these axes
            continue
    return target
