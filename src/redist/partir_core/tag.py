"""`partir.tag`: names an intermediate value, so that tactics can speak of it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from redist.errors import TracingError
from redist.partir_core.program import TAG

__all__ = ["tag"]


def tag(x: Any, name: str) -> Any:
    """`x` itself. In a function that `partir.jit` partitions, tactics can name the value `name`.

    Works on arrays of any shape, under every JAX transformation; the name stays with the value and does not
    go to its tangents. In a loop's body, or where one name is used several times, it stands for all of them.
    Raises TracingError for a name that is empty or not a string.
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TracingError(f"a tag's name is a non-empty string, got {name!r}")
    return _primitive().bind(x, name=name)


@lru_cache(maxsize=1)
def _primitive() -> Any:
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir

    primitive: Any = Primitive(TAG)

    def same(x: Any, *, name: str) -> Any:
        return x

    def tangent(dx: Any, x: Any, *, name: str) -> Any:
        return dx

    def batched(args: Any, dims: Any, *, name: str) -> Any:
        return primitive.bind(args[0], name=name), dims[0]

    def lowered(_: Any, x: Any, *, name: str) -> Any:
        return [x]

    rules: Any = (ad, batching, mlir)
    primitive.def_impl(same)
    primitive.def_abstract_eval(same)
    rules[0].defjvp(primitive, tangent)
    rules[1].primitive_batchers[primitive] = batched
    rules[2].register_lowering(primitive, lowered)
    return primitive
