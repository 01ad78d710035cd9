"""SPMD programs on JAX: one `shard_map` over all axes, in which every device runs its part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from redist.collectives.backends.jax.bundle import Bundled, run_bundle
from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.jax.modules import jax, jnp
from redist.collectives.backends.jax.steps import run_steps
from redist.partir_core.bundles import bundled
from redist.partir_core.loops import Axes
from redist.partir_core.machine import Env, Machine
from redist.partir_core.mesh_jax import Devices
from redist.partir_core.program import Literal
from redist.partir_core.spmd import Redistribute, SpmdProgram

__all__ = ["spmd_function"]


def spmd_function(
    program: SpmdProgram, devices: Devices, user: Devices, *, bundles: bool = False
) -> Callable[..., list[Any]]:
    """The program as a traceable function from its inputs, global arrays, to its outputs.

    It closes over the program's constants. `devices` is the mesh to run on, `user` the same without split
    axes. With `bundles`, small collectives of one kind are made at once.
    """
    values = program.values
    inputs = program.block.inputs
    outputs = program.block.outputs
    constants = list(program.constants)
    replicated: Axes = ()

    def local(*blocks: Any) -> list[Any]:
        frame = Frame(devices.names, devices.ids, may_widen=True)
        env: Env = dict(zip((*inputs, *constants), blocks, strict=True))

        def moved(ops: Sequence[Redistribute], arrays: Sequence[Any]) -> list[Any]:
            return _redistributed(ops, arrays, frame)

        machine = Machine(program, {n: env[n] for n in constants}, devices.coordinate, moved)
        if bundles:
            machine.order = partial(bundled, program)
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


def _redistributed(ops: Sequence[Redistribute], arrays: Sequence[Any], frame: Frame) -> list[Any]:
    stored = [jax.random.key_data(x) if _is_key(x) else x for x in arrays]
    if len(ops) == 1:
        plan = ops[0].plan
        moved = [run_steps(plan.steps, plan.source, frame, stored[0])]
    else:
        steps = [(step, op.plan.source) for op in ops for step in op.plan.steps if isinstance(step, Bundled)]
        moved = run_bundle(steps, frame, stored)
    return [
        jax.random.wrap_key_data(y, impl=jax.random.key_impl(x)) if _is_key(x) else y
        for x, y in zip(arrays, moved, strict=True)
    ]


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
