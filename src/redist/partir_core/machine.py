"""Tracing blocks of an SPMD program on one device's arrays: every operation on its tile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np

from redist.collectives.backends.jax.modules import jnp, lax
from redist.partir_core.graph import BARRIER
from redist.partir_core.loops import Nest
from redist.partir_core.program import TAG, Literal
from redist.partir_core.rules import Tile, run_tile
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram
from redist.types.mesh import SubAxis

__all__ = ["Env", "Machine", "literal"]

Env = dict[int, Any]
"""Arrays by the number of the value."""


def literal(x: Literal) -> Any:
    """A literal as an array."""
    return jnp.asarray(np.asarray(x.value, dtype=x.type.dtype))


@dataclass(slots=True)
class Machine:
    """Runs blocks under a trace. `coordinate` is this device's index over axes, major to minor; `redistribute`
    moves values; `order` says which redistributions are made at once, and when."""

    program: SpmdProgram
    constants: Mapping[int, Any]
    coordinate: Callable[[Sequence[SubAxis]], Any]
    redistribute: Callable[[Sequence[Redistribute], Sequence[Any]], Sequence[Any]]
    order: Callable[[SpmdBlock], Iterable[SpmdOp | tuple[Redistribute, ...]]] = attrgetter("ops")
    _tiles: dict[Nest, dict[int, Tile]] = field(default_factory=dict[Nest, "dict[int, Tile]"])

    def run(self, block: SpmdBlock, env: Env) -> list[Any]:
        """The block's outputs; `env` holds its inputs and the constants."""
        self._tiles = {}  # an index that was traced in one body cannot be used in another
        for op in self.order(block):
            if not isinstance(op, Compute):
                bundle = op if isinstance(op, tuple) else (op,)
                moved = self.redistribute(bundle, [env[one.operand] for one in bundle])
                env.update(zip((one.result for one in bundle), moved, strict=True))
                continue
            operands = [self.read(x, env) for x in op.operands]
            env.update(zip(op.results, self.computed(op, operands), strict=True))
        return [self.read(x, env) for x in block.outputs]

    def read(self, x: int | Literal, env: Env) -> Any:
        return literal(x) if isinstance(x, Literal) else env[x]

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
            self._tiles[nest] = {f: Tile(mesh.count(axes), self.coordinate(axes)) for f, axes in by_factor.items()}
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
