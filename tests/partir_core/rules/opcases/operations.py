"""The operations that a function performs, each with the values it performs them on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core

Core: Any = jax.extend.core


@dataclass(frozen=True)
class Operation:
    """One equation of a program, and its operands' values."""

    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[Any, ...]

    @property
    def name(self) -> str:
        return self.primitive.name

    @property
    def in_avals(self) -> list[Any]:
        return [jax.typeof(operand) for operand in self.operands]

    @property
    def out_avals(self) -> list[Any]:
        return [jax.typeof(result) for result in self.run()]

    def run(self, operands: Sequence[Any] | None = None) -> list[Any]:
        """The results of the whole operation, by JAX itself."""
        params = self.primitive.get_bind_params(dict(self.params))
        results = self.primitive.bind(*(self.operands if operands is None else operands), **params)
        return list(results) if self.primitive.multiple_results else [results]


@dataclass(frozen=True)
class Shaped:
    """An equation of a program, without values."""

    name: str
    params: Mapping[str, Any]
    in_avals: list[Any]
    out_avals: list[Any]


CALLS = frozenset({"jit", "closed_call", "remat2", "custom_jvp_call", "custom_vjp_call"})


def inner_of(equation: Any) -> Any:
    """The program that a call calls."""
    inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def shapes_in(function: Callable[..., Any], *args: Any) -> Iterator[Shaped]:
    """The operations of the function and of the functions it calls, by their shapes."""
    waiting = [jax.make_jaxpr(function)(*args).jaxpr]
    while waiting:
        for equation in waiting.pop().eqns:
            if equation.primitive.name in CALLS:
                waiting.append(inner_of(equation)[0])
            else:
                ins, outs = ([v.aval for v in some] for some in (equation.invars, equation.outvars))
                yield Shaped(equation.primitive.name, equation.params, ins, outs)


def operations_of(function: Callable[..., Any], *args: Any) -> Iterator[Operation]:
    """Every operation of the function and of the functions it calls."""
    closed = jax.make_jaxpr(function)(*args)
    yield from _walk(closed.jaxpr, closed.consts, jax.tree.leaves(args))


def _walk(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> Iterator[Operation]:
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))
    for equation in jaxpr.eqns:
        operands = tuple(
            jax.numpy.asarray(v.val, v.aval.dtype) if isinstance(v, Core.Literal) else known[v] for v in equation.invars
        )
        operation = Operation(equation.primitive, equation.params, operands)
        if equation.primitive.name in CALLS:
            yield from _walk(*inner_of(equation), operands)
        else:
            yield operation
        known |= zip(equation.outvars, operation.run(), strict=True)
