"""gather: windows out of an array, at indices known when the program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.indices import clamped, signed, vector
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import FactorKind, Rule

__all__ = ["ENTRIES"]

_Params = Mapping[str, Any]


def _batch_dims(params: _Params, rank: int) -> list[int]:
    """The result's dimensions that stand for the indices', in order."""
    return [d for d in range(rank) if d not in params["dimension_numbers"].offset_dims]


def _gather(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    """Whole windows and index dimensions pass; a dimension of which each index picks one element is a sum.

    The sum's tiles contribute zeros where the index lies in another tile.
    """
    from redist.collectives.backends.jax.modules import jax, lax

    if params["mode"] == lax.GatherScatterMode.ONE_HOT:
        return None
    build = Builder(operands, results)
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    operand, indices = build.operands
    batched = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    for i, d in enumerate(_batch_dims(params, len(build.results[0]))):
        build.parallel(indices[i], [(1, i), *((0, batched[i]) for _ in [0] if i in batched)], [(0, d)])
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    windows = [d for d in range(len(operand)) if d not in gone]
    for d, e in zip(windows, numbers.offset_dims, strict=True):
        if sizes[d] == operand[d]:
            build.parallel(operand[d], [(0, d)], [(0, e)])
    kind = FactorKind.SUM if jax.dtypes.issubdtype(operands[0].dtype, np.number) else FactorKind.WHOLE
    for d in _picked(params, operand):
        build.tie(kind, operand[d], [(0, d)])
    return build.rule()


def _picked(params: _Params, operand: Sequence[int]) -> list[int]:
    """Operand dimensions of which an index picks one element out of several."""
    picked = params["dimension_numbers"].start_index_map
    return [d for d in picked if params["slice_sizes"][d] == 1 and operand[d] != 1]


def _run_gather(local: Local) -> tuple[Any, ...]:
    from redist.collectives.backends.jax.modules import jnp, lax

    params, dims = local.params, local.rule.operands[0]
    operand, indices = local.operands
    whole = local.whole_operand_shape(0)
    cut = [d for d in _picked(params, whole) if local.cut(dims[d])]
    # A window is as wide as its dimension, or of the given size in a dimension that stays whole.
    sizes = tuple(local.size(dims[d]) if n == whole[d] and n > 1 else n for d, n in enumerate(params["slice_sizes"]))
    sizes = tuple(1 if d in params["dimension_numbers"].operand_batching_dims else n for d, n in enumerate(sizes))
    if not cut:
        return local.bind(operand, indices, slice_sizes=sizes)
    order: tuple[int, ...] = params["dimension_numbers"].start_index_map
    limits = [whole[d] - params["slice_sizes"][d] for d in order]
    here = clamped(indices, limits)
    here = here - vector([local.start(dims[d]) if d in cut else 0 for d in order], here.dtype)
    top = vector([local.size(dims[d]) - 1 if d in cut else limits[i] for i, d in enumerate(order)], here.dtype)
    inside = jnp.all((here >= 0) & (here <= top), axis=-1)
    (found,) = local.bind(
        operand,
        jnp.clip(here, 0, top),
        slice_sizes=sizes,
        mode=lax.GatherScatterMode.CLIP,
        fill_value=None,
        indices_are_sorted=False,
        unique_indices=False,
    )

    def spread(mask: Any) -> Any:
        return lax.broadcast_in_dim(mask, found.shape, _batch_dims(params, found.ndim))

    zero = jnp.zeros_like(found)
    found = jnp.where(spread(inside), found, zero)
    if params["mode"] == lax.GatherScatterMode.FILL_OR_DROP:
        asked = signed(indices)
        valid = jnp.all((asked >= 0) & (asked <= vector(limits, asked.dtype)), axis=-1)
        # The filling is contributed once.
        filling = jnp.where(local.is_first([f for d in cut for f in dims[d]]), params["fill_value"], zero)
        found = jnp.where(spread(valid), found, filling.astype(found.dtype))
    return (found,)


def _linear(params: _Params) -> tuple[frozenset[int], ...]:
    from redist.collectives.backends.jax.modules import lax

    fills = params["mode"] == lax.GatherScatterMode.FILL_OR_DROP and params["fill_value"] != 0
    return () if fills else (frozenset({0}),)


ENTRIES: dict[str, Entry] = {
    "gather": Entry(
        "gather",
        "index, batching and whole-window dimensions parallel; a dimension picked from by single elements a sum, its "
        "tiles contributing zeros for what lies elsewhere",
        _gather,
        _run_gather,
        _linear,
        "dimensions with partial windows; picking from cut booleans and keys; mode one_hot",
    )
}
