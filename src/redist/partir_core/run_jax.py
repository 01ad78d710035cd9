"""SPMD programs on JAX: one `shard_map` over all axes, in which every device runs its part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.jax.modules import jax, jnp, lax
from redist.collectives.backends.jax.steps import run_steps
from redist.partir_core.graph import BARRIER
from redist.partir_core.loops import Axes, Nest
from redist.partir_core.mesh_jax import Devices
from redist.partir_core.program import TAG, Literal
from redist.partir_core.rules import Tile, run_tile
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdProgram

__all__ = ["spmd_function"]

Env = dict[int, Any]


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
        frame = Frame(devices.names, devices.ids)
        env: Env = dict(zip((*inputs, *constants), blocks, strict=True))
        machine = _Machine(program, devices, frame, {n: env[n] for n in constants})
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


@dataclass(slots=True)
class _Machine:
    """Runs blocks of the program on one device's arrays, inside the `shard_map`."""

    program: SpmdProgram
    devices: Devices
    frame: Frame
    constants: Mapping[int, Any]
    _tiles: dict[Nest, dict[int, Tile]] = field(default_factory=dict[Nest, "dict[int, Tile]"])

    def run(self, block: SpmdBlock, env: Env) -> list[Any]:
        """The block's outputs; `env` holds its inputs and the constants."""
        self._tiles = {}  # an index that was traced in one body cannot be used in another
        for op in block.ops:
            if isinstance(op, Redistribute):
                env[op.result] = self.redistributed(op, env[op.operand])
                continue
            operands = [self.read(x, env) for x in op.operands]
            env.update(zip(op.results, self.computed(op, operands), strict=True))
        return [self.read(x, env) for x in block.outputs]

    def read(self, x: int | Literal, env: Env) -> Any:
        if isinstance(x, Literal):
            return jnp.asarray(np.asarray(x.value, dtype=x.type.dtype))
        return env[x]

    def redistributed(self, op: Redistribute, x: Any) -> Any:
        plan = op.plan
        if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return run_steps(plan.steps, plan.source, self.frame, x)
        moved = run_steps(plan.steps, plan.source, self.frame, jax.random.key_data(x))
        return jax.random.wrap_key_data(moved, impl=jax.random.key_impl(x))

    def computed(self, op: Compute, operands: Sequence[Any]) -> Sequence[Any]:
        match op.op.name:
            case "scan":
                return self.scanned(op, operands)
            case "while":
                return self.looped(op, operands)
            case "cond":
                return self.switched(op, operands)
            case name if name == TAG:
                return operands
            case name if name == BARRIER:
                return lax.optimization_barrier(tuple(operands))
            case _:
                return run_tile(op.op.primitive, op.op.params, operands, self.tiles(op.nest), op.rule)

    def tiles(self, nest: Nest) -> dict[int, Tile]:
        """What part of each factor is this device's: `nest` major to minor."""
        if nest not in self._tiles:
            by_factor: dict[int, list[Any]] = {}
            for axis, f in nest:
                by_factor.setdefault(f, []).append(axis)
            mesh = self.program.mesh
            self._tiles[nest] = {
                f: Tile(mesh.count(axes), self.devices.coordinate(axes)) for f, axes in by_factor.items()
            }
        return self._tiles[nest]

    def inside(self, block: SpmdBlock, inputs: Sequence[Any]) -> list[Any]:
        """A nested block, which sees its inputs and the constants only."""
        outer, self._tiles = self._tiles, {}
        made = self.run(block, {**self.constants, **dict(zip(block.inputs, inputs, strict=True))})
        self._tiles = outer
        return made

    def scanned(self, op: Compute, operands: Sequence[Any]) -> Sequence[Any]:
        params = op.op.params
        first, carries = params["num_consts"], params["num_carry"]
        consts, init, xs = operands[:first], operands[first : first + carries], operands[first + carries :]

        def body(carry: Any, x: Any) -> Any:
            made = self.inside(op.blocks[0], [*consts, *carry, *x])
            return made[:carries], made[carries:]

        extra = {key: params[key] for key in ("reverse", "unroll", "length") if key in params}
        final, ys = lax.scan(body, list(init), list(xs), **extra)
        return [*final, *ys]

    def looped(self, op: Compute, operands: Sequence[Any]) -> Sequence[Any]:
        first, second = op.op.params["cond_nconsts"], op.op.params["body_nconsts"]
        tested, used, init = operands[:first], operands[first : first + second], operands[first + second :]

        def condition(carry: Any) -> Any:
            return self.inside(op.blocks[0], [*tested, *carry])[0]

        def body(carry: Any) -> Any:
            return self.inside(op.blocks[1], [*used, *carry])

        return lax.while_loop(condition, body, list(init))

    def switched(self, op: Compute, operands: Sequence[Any]) -> Sequence[Any]:
        branches = [self.branch(block) for block in op.blocks]
        return lax.switch(operands[0], branches, *operands[1:])

    def branch(self, block: SpmdBlock) -> Callable[..., list[Any]]:
        return lambda *operands: self.inside(block, operands)
