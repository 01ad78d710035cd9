"""Slices at positions known when the program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.indices import clamped, vector
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import Rule

__all__ = ["ENTRIES"]

_Params = Mapping[str, Any]


def _dynamic_slice(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.results[0]):
        if build.operands[0][d] == n:
            build.parallel(n, [(0, d)], [(0, d)])
    return build.rule()


def _run_dynamic_slice(local: Local) -> tuple[Any, ...]:
    return local.bind(*local.operands, slice_sizes=local.result_shape(0))


def _dynamic_update_slice(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.results[0]):
        build.parallel(n, [(0, d), *((1, d) for _ in [0] if build.operands[1][d] == n)], [(0, d)])
    return build.rule()


def _run_dynamic_update_slice(local: Local) -> tuple[Any, ...]:
    """In a cut dimension, a tile takes from the whole update what falls upon it, and keeps its own elsewhere."""
    from redist.collectives.backends.jax.modules import jnp, lax

    operand, update, *starts = local.operands
    dims, whole = local.rule.operands[0], local.whole_operand_shape(0)
    sizes = local.whole_operand_shape(1)
    cut = [d for d in range(operand.ndim) if local.cut(dims[d]) and sizes[d] != whole[d]]
    if not cut:
        return local.bind(*local.operands)
    begin = [clamped(jnp.asarray(start)[None], [n - k])[0] for start, n, k in zip(starts, whole, sizes, strict=True)]
    begin = list(vector(begin, max((b.dtype for b in begin), key=lambda t: t.itemsize)))
    hit: Any = True
    for d in cut:
        here = local.start(dims[d]) + jnp.arange(operand.shape[d], dtype=begin[d].dtype) - begin[d]
        update = jnp.take(update, jnp.clip(here, 0, sizes[d] - 1), axis=d)
        inside = lax.expand_dims((here >= 0) & (here < sizes[d]), [e for e in range(operand.ndim) if e != d])
        hit = inside if hit is True else hit & inside
        begin[d] = jnp.zeros_like(begin[d])
    kept = lax.dynamic_slice(operand, begin, update.shape)
    return local.bind(operand, jnp.where(hit, update, kept), *begin)


def _maybe_set(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    """Equinox's `xs.at[i].set(x)`, if the predicate holds: one index, into the first dimension."""
    build = Builder(operands, results)
    if len(operands) != 4 or build.operands[3] or build.operands[1][1:] != build.operands[2]:
        return None
    for d, n in enumerate(build.operands[2]):
        build.parallel(n, [(1, d + 1), (2, d)], [(0, d + 1)])
    return build.rule()


ENTRIES: dict[str, Entry] = {
    "dynamic_slice": Entry(
        "dynamic slice",
        "dimensions taken whole parallel; sliced ones whole",
        _dynamic_slice,
        _run_dynamic_slice,
        (frozenset({0}),),
        "sliced dimensions",
    ),
    "dynamic_update_slice": Entry(
        "dynamic slice",
        "every dimension parallel; in those updated in part the update is whole, and each tile takes its share",
        _dynamic_update_slice,
        _run_dynamic_update_slice,
        (frozenset({0, 1}),),
    ),
    "maybe_set": Entry(
        "dynamic slice",
        "dimensions set as a whole parallel; the indexed one whole",
        _maybe_set,
        missing="the indexed dimension; several indices",
    ),
}
