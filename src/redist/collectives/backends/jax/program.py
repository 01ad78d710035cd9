"""A run of steps over one set of devices as one traceable function of the global array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.jax.modules import jax
from redist.collectives.backends.jax.steps import run_steps
from redist.types.mesh import Mesh

if TYPE_CHECKING:
    from redist.collectives.steps import Step
    from redist.types.layout import Layout

__all__ = ["flat_sharding", "mesh_ids", "spmd", "stacked_shape", "under"]


def under(mesh: Any) -> AbstractContextManager[Any]:
    """A context in which arrays on this mesh can be used, whatever mesh the caller has set."""
    if jax.sharding.get_abstract_mesh().empty:
        return nullcontext()
    try:
        return jax.set_mesh(mesh)
    except ValueError:  # while a function is traced, where a constant is at hand
        return nullcontext()


def mesh_ids(mesh: Any) -> tuple[int, ...]:
    """Device ids of a JAX mesh in row-major order; those of an abstract one count from 0."""
    if isinstance(mesh, jax.sharding.Mesh):
        return tuple(device.id for device in mesh.devices.flat)
    return tuple(range(mesh.size))


def flat_sharding(ids: Sequence[int]) -> Any:
    """One block after another along dimension 0, in the order of these devices."""
    return _flat_sharding(tuple(ids))


@lru_cache(maxsize=1024)
def _flat_sharding(ids: tuple[int, ...]) -> Any:
    return jax.sharding.NamedSharding(Mesh([("device", len(ids))], ids).to_jax(), jax.sharding.PartitionSpec("device"))


def stacked_shape(layout: Layout) -> tuple[int, ...]:
    """The blocks of all devices one after another along dimension 0 (of rank 1 if the array has none)."""
    first, *others = layout.block_shape() or (1,)
    return (layout.mesh.size * first, *others)


def spmd(
    steps: Sequence[Step], source: Layout, given: Any | None, wanted: Any | None, target: Layout
) -> Callable[[Any], Any]:
    """The steps as a function of the global array with sharding `given`, whose result has sharding `wanted`.

    None stands for the blocks stacked along dimension 0, in the order of the source's devices. `given`
    and `wanted` may be over different meshes, but of the same devices in the same order.
    """
    spec = jax.sharding.PartitionSpec
    first = given if given is not None else flat_sharding(source.mesh.device_ids)
    mesh = first.mesh
    frame = Frame(
        tuple(mesh.axis_names), mesh_ids(mesh) if isinstance(mesh, jax.sharding.Mesh) else tuple(source.mesh.device_ids)
    )
    block_shape, target_shape = source.block_shape(), target.block_shape()

    def local(block: Any) -> Any:
        made = run_steps(steps, source, frame, block.reshape(block_shape))
        return made if same_mesh else made.reshape(target_shape or (1,))

    same_mesh = wanted is not None and wanted.mesh == mesh
    out = wanted.spec if wanted is not None and same_mesh else spec(frame.axes)
    inner = jax.shard_map(local, mesh=mesh, in_specs=first.spec, out_specs=out, check_vma=False)
    if same_mesh or wanted is None:
        return _in_context(inner, mesh)

    def relabel(block: Any) -> Any:
        return block.reshape(target_shape)

    outer = jax.shard_map(
        relabel, mesh=wanted.mesh, in_specs=spec(tuple(wanted.mesh.axis_names)), out_specs=wanted.spec, check_vma=False
    )
    first_part, second_part = _in_context(inner, mesh), _in_context(outer, wanted.mesh)
    return lambda x: second_part(first_part(x))


def _in_context(function: Callable[[Any], Any], mesh: Any) -> Callable[[Any], Any]:
    """The function traced under its own mesh, whatever mesh the caller has set."""

    def run(x: Any) -> Any:
        with jax.sharding.use_abstract_mesh(mesh.abstract_mesh):
            return function(x)

    return run
