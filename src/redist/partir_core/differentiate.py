"""Derivatives of partitioned functions.

The function's own derivative is traced and partitioned by the same schedule, so that custom derivatives
inside it count. Differentiating the partitioned program instead would miss them: it holds none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redist.partir_core.calls import Call

__all__ = ["differentiable", "jvp_of"]


def differentiable(
    run: Callable[[Sequence[Any]], list[Any]], call: Call, tangents: Callable[[Call, Sequence[int]], Callable[..., Any]]
) -> Callable[..., list[Any]]:
    """`run` as a function of leaves with a derivative: `tangents(call, inexact)` makes the function from
    (leaves, tangents of those at positions `inexact`) to (results, tangents of inexact results)."""
    from redist.collectives.backends.jax.modules import jax

    def plain(*leaves: Any) -> list[Any]:
        return run(leaves)

    function: Any = jax.custom_jvp(plain)
    inexact = [n for n, leaf in enumerate(call.leaves) if _inexact(leaf)]

    def rule(primals: Sequence[Any], given: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "tactic .* changes nothing")
            made, changed = tangents(call, inexact)(list(primals), [given[n] for n in inexact])
        rest = iter(changed)
        return made, [next(rest) if _inexact(y) else np.zeros(y.shape, jax.dtypes.float0) for y in made]

    function.defjvp(rule)
    return function


def jvp_of(fn: Callable[..., Any], call: Call, inexact: Sequence[int]) -> Callable[..., Any]:
    """The function from (leaves, tangents of those at positions `inexact`) to (result leaves, tangents of the
    inexact ones)."""
    from redist.collectives.backends.jax.modules import jax

    def jvp(primals: list[Any], given: list[Any]) -> tuple[list[Any], list[Any]]:
        def moved(*values: Any) -> tuple[list[Any], list[Any]]:
            leaves = list(primals)
            for n, value in zip(inexact, values, strict=True):
                leaves[n] = value
            args, kwargs = call.arguments(leaves)
            made = jax.tree.leaves(fn(*args, **kwargs))
            return [y for y in made if _inexact(y)], made

        _, changed, made = jax.jvp(moved, [primals[n] for n in inexact], given, has_aux=True)
        return made, changed

    return jvp


def _inexact(leaf: Any) -> bool:
    from redist.collectives.backends.jax.modules import jax

    return jax.numpy.issubdtype(jax.typeof(leaf).dtype, np.inexact)
