"""A JAX function as a `Program`: calls are inlined, control flow becomes nested blocks, dead code goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from redist.errors import TracingError
from redist.partir_core.program import TAG, Block, Literal, Op, Operand, Program, Source, ValueType

__all__ = ["program_of"]

_CALLS: Mapping[str, str] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
"""Primitives that are calls, and the parameter that holds what they call."""

_HINTS = frozenset({"sharding_constraint", "reshard", "mesh_cast", "layout_constraint"})
"""What a user says of shardings inside the function; the schedule decides instead."""

_REMATERIALISED = frozenset({"remat", "remat2", "checkpoint"})
_PER_USE = frozenset({"iota", "broadcast_in_dim"})


def program_of(
    jaxpr: Any, name: str, input_names: Sequence[str], output_names: Sequence[str], captured: Sequence[Any] = ()
) -> Program:
    """The program of a closed jaxpr, whose inputs and outputs have these names. The jaxpr's first inputs stand
    for values that the function captures; they become constants."""
    builder = _Builder()
    outer = [builder.constant(x) for x in captured]
    block = builder.block(_without_dead_code(jaxpr), builder.constants_of(jaxpr), outer)
    block = _per_use(_live(block), builder.types)
    tags: dict[str, tuple[int, ...]] = {}
    for op in block.walk():
        if op.name == TAG:
            tags[op.params["name"]] = (*tags.get(op.params["name"], ()), op.results[0])
    return Program(
        name, tuple(builder.types), block, tuple(input_names), tuple(output_names), dict(builder.constants), tags
    )


def _without_dead_code(closed: Any) -> Any:
    """The jaxpr without what no result needs, inside loops as well; every input stays."""
    from jax.interpreters import partial_eval

    dce: Any = partial_eval.dce_jaxpr
    return dce(closed.jaxpr, [True] * len(closed.jaxpr.outvars), instantiate=True)[0]


class _Builder:
    """Values and constants made so far."""

    def __init__(self) -> None:
        self.types: list[ValueType] = []
        self.constants: dict[int, Any] = {}
        self._known: dict[int, int] = {}

    def value(self, aval: Any) -> int:
        self.types.append(_type_of(aval))
        return len(self.types) - 1

    def constant(self, array: Any) -> Operand:
        """A closed-over array; scalars are literals. The same array is one constant."""
        kind = _type_of(array)
        if not kind.shape and kind.key_shape is None and not _traced(array):
            return Literal(np.asarray(array)[()], kind)
        if id(array) not in self._known:
            self.types.append(kind)
            self._known[id(array)] = len(self.types) - 1
            self.constants[len(self.types) - 1] = array
        return self._known[id(array)]

    def constants_of(self, closed: Any) -> list[Operand]:
        return [self.constant(const) for const in closed.consts]

    def block(self, jaxpr: Any, constants: Sequence[Operand], captured: Sequence[Operand] = ()) -> Block:
        """`captured` stand for the jaxpr's first inputs."""
        inputs = tuple(self.value(var.aval) for var in jaxpr.invars[len(captured) :])
        ops: list[Op] = []
        outputs = self.inlined(jaxpr, constants, [*captured, *inputs], ops)
        return Block(inputs, tuple(ops), tuple(outputs))

    def inlined(
        self, jaxpr: Any, constants: Sequence[Operand], inputs: Sequence[Operand], ops: list[Op]
    ) -> list[Operand]:
        """Append the operations of a jaxpr; returns its outputs."""
        env: dict[Any, Operand] = dict(zip(jaxpr.constvars, constants, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))

        def read(atom: Any) -> Operand:
            if hasattr(atom, "val"):
                if np.ndim(atom.val):
                    return self.constant(atom.val)
                return Literal(atom.val, _type_of(atom.aval))
            return env[atom]

        for eqn in jaxpr.eqns:
            operands = tuple(map(read, eqn.invars))
            env.update(zip(eqn.outvars, self.results_of(eqn, operands, ops), strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def results_of(self, eqn: Any, operands: tuple[Operand, ...], ops: list[Op]) -> Sequence[Operand]:
        name: str = eqn.primitive.name
        if name in _CALLS and _CALLS[name] in eqn.params:
            inner, constants = _opened(eqn.params[_CALLS[name]])
            if name in _REMATERIALISED and eqn.params.get("differentiated") and eqn.params.get("prevent_cse"):
                operands = self.barrier(operands, eqn, ops)
            return self.inlined(inner, [self.constant(c) for c in constants], operands, ops)
        if name in _HINTS:
            return operands
        if name == "shard_map":
            raise TracingError(
                f"the function calls shard_map at {Source(eqn.source_info)}, which is partitioned by hand already; "
                "call what is inside it instead, and let the schedule shard that"
            )
        results = tuple(self.value(var.aval) for var in eqn.outvars)
        blocks = tuple(self.block(inner, [self.constant(c) for c in constants]) for inner, constants in _bodies(eqn))
        params = {key: value for key, value in eqn.params.items() if key not in _BODIES.get(name, ())}
        ops.append(
            Op(name, eqn.primitive, params, operands, results, Source(eqn.source_info), blocks, bool(eqn.effects))
        )
        return results

    def barrier(self, operands: tuple[Operand, ...], eqn: Any, ops: list[Op]) -> tuple[Operand, ...]:
        """What a rematerialised function is given, held back so that it is not merged with the first pass."""
        from jax._src.lax.lax import optimization_barrier_p  # pyright: ignore[reportPrivateUsage]

        primitive: Any = optimization_barrier_p
        held = [x for x in operands if isinstance(x, int)]
        made = {x: self._like(x) for x in held}
        if made:
            ops.append(Op(primitive.name, primitive, {}, tuple(made), tuple(made.values()), Source(eqn.source_info)))
        return tuple(made[x] if isinstance(x, int) else x for x in operands)

    def _like(self, x: int) -> int:
        self.types.append(self.types[x])
        return len(self.types) - 1


_BODIES: Mapping[str, tuple[str, ...]] = {
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
}


def _bodies(eqn: Any) -> list[tuple[Any, list[Any]]]:
    name = eqn.primitive.name
    if name == "cond":
        return [_opened(branch) for branch in eqn.params["branches"]]
    return [_opened(eqn.params[key]) for key in _BODIES.get(name, ())]


def _opened(jaxpr: Any) -> tuple[Any, list[Any]]:
    """A jaxpr and its constants, closed or not."""
    return (jaxpr.jaxpr, list(jaxpr.consts)) if hasattr(jaxpr, "consts") and hasattr(jaxpr, "jaxpr") else (jaxpr, [])


def _traced(array: Any) -> bool:
    from redist.collectives.backends.jax.modules import jax

    return isinstance(array, jax.core.Tracer)


def _type_of(aval: Any) -> ValueType:
    from redist.collectives.backends.jax.modules import jax

    shape = tuple(aval.shape) if hasattr(aval, "shape") else np.shape(aval)
    wrong = [size for size in shape if not isinstance(size, (int, np.integer))]
    if wrong:
        raise TracingError(f"a value has shape {shape}, with symbolic sizes {wrong}; trace with concrete shapes")
    dtype: Any = aval.dtype if hasattr(aval, "dtype") else np.asarray(aval).dtype
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        if not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
            raise TracingError(f"a value has the extended dtype {dtype}, which redist cannot lay out")
        return ValueType(tuple(map(int, shape)), dtype, _key_shape(dtype))
    return ValueType(tuple(map(int, shape)), np.dtype(dtype))


@lru_cache(maxsize=64)
def _key_shape(dtype: Any) -> tuple[int, ...]:
    """Shape of the words of one PRNG key."""
    from redist.collectives.backends.jax.modules import jax

    return tuple(jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype)).shape)


def _live(block: Block) -> Block:
    """Without operations whose results nothing uses."""
    used = {x for x in block.outputs if isinstance(x, int)}
    kept: list[Op] = []
    for op in reversed(block.ops):
        if op.effects or any(result in used for result in op.results):
            kept.append(_with_blocks(op, _live) if op.blocks else op)
            used.update(x for x in op.operands if isinstance(x, int))
    return Block(block.inputs, tuple(reversed(kept)), block.outputs)


def _with_blocks(op: Op, change: Callable[[Block], Block], operands: tuple[Operand, ...] | None = None) -> Op:
    return Op(
        op.name,
        op.primitive,
        op.params,
        op.operands if operands is None else operands,
        op.results,
        op.source,
        tuple(map(change, op.blocks)),
        op.effects,
    )


def _per_use(block: Block, types: list[ValueType]) -> Block:
    """With cheap constants (iota, filled arrays) made once per use, so that they tie no uses together."""
    made: dict[int, Op] = {}
    taken: set[int] = set()
    ops: list[Op] = []

    def use(operands: Iterable[Operand]) -> tuple[Operand, ...]:
        return tuple(fresh(x) if isinstance(x, int) and x in made else x for x in operands)

    def fresh(x: int) -> int:
        op = made[x]
        result = x
        if x in taken:
            types.append(types[x])
            result = len(types) - 1
        taken.add(x)
        ops.append(Op(op.name, op.primitive, op.params, op.operands, (result,), op.source))
        return result

    for op in block.ops:
        if op.name in _PER_USE and not any(isinstance(x, int) for x in op.operands):
            made[op.results[0]] = op
            continue
        operands = use(op.operands)
        ops.append(_with_blocks(op, lambda inner: _per_use(inner, types), operands) if op.blocks or made else op)
    outputs = use(block.outputs)
    return Block(block.inputs, tuple(ops), outputs)
