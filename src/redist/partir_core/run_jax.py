"""SPMD programs on JAX: one `shard_map` over all axes, in which every device runs its part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.jax.modules import jax, jnp
from redist.collectives.backends.jax.steps import run_steps
from redist.partir_core.loops import Axes
from redist.partir_core.machine import Env, Machine
from redist.partir_core.mesh_jax import Devices
from redist.partir_core.program import Literal
from redist.partir_core.spmd import Redistribute, SpmdProgram

__all__ = ["spmd_function"]


def spmd_function(program: SpmdProgram, devices: Devices, user: Devices) -> Callable[..., list[Any]]:
    """The program as a traceable function from its inputs, global arrays, to its outputs.

    It closes over the program's constants. `devices` is the mesh to run on, `user` the same without split
    axes.
    """
    values = program.values
    inputs = program.block.inputs
    outputs = program.block.outputs
    constants = list(program.constants)
    replicated: Axes = ()

    def local(*blocks: Any) -> list[Any]:
        frame = Frame(devices.names, devices.ids, may_widen=True)
        env: Env = dict(zip((*inputs, *constants), blocks, strict=True))

        def moved(op: Redistribute, x: Any) -> Any:
            return _redistributed(op, x, frame)

        machine = Machine(program, {n: env[n] for n in constants}, devices.coordinate, moved)
        return machine.run(program.block, env)

    mapped = jax.shard_map(
        local,
        mesh=devices.mesh,
        in_specs=tuple(devices.spec(values[x].axes) for x in (*inputs, *constants)),
        out_specs=[devices.spec(replicated if isinstance(x, Literal) else values[x].axes) for x in outputs],
        check_vma=False,
    )

    def run(*arrays: Any) -> list[Any]:
        given = [*arrays, *program.constants.values()]
        with jax.sharding.use_abstract_mesh(devices.mesh.abstract_mesh):
            if devices.explicit:  # where types carry shardings, nothing is resharded on the way in unless told
                places = (devices.sharding(values[x].axes) for x in (*inputs, *constants))
                given = [jax.reshard(x, place) for x, place in zip(given, places, strict=True)]
            made = mapped(*given)
        return [_of_user(y, x) for x, y in zip(outputs, made, strict=True)] if devices.explicit else made

    def _of_user(y: Any, x: int | Literal) -> Any:
        """A result under the user's own mesh, wherever that has the axes."""
        axes = replicated if isinstance(x, Literal) else values[x].axes
        if devices.mesh == user.mesh or any(axis.size is not None for names in axes for axis in names):
            return y
        with jax.sharding.use_abstract_mesh(user.mesh.abstract_mesh):
            return jax.reshard(y, user.sharding(axes))

    return run


def _redistributed(op: Redistribute, x: Any, frame: Frame) -> Any:
    plan = op.plan
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return run_steps(plan.steps, plan.source, frame, x)
    moved = run_steps(plan.steps, plan.source, frame, jax.random.key_data(x))
    return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(x))
