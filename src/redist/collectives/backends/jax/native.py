"""Reductions across devices that XLA has and `jax.lax` does not expose: products, and the reduce-scatter of products,
maxima and minima. In StableHLO, both collectives take any reduction."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from redist.collectives.backends.jax.modules import core, jax, jnp

__all__ = ["all_reduce", "reduce_scatter"]

Groups = list[list[int]]


def all_reduce(block: Any, reduction: str, groups: Groups) -> Any:
    """The reduction (`prod`, `max` or `min`) of the blocks of a group, on every device of it.

    Inside a `shard_map` over all axes of the mesh; `groups` number its devices in row-major order.
    """
    return _primitive().bind(block, reduction=reduction, groups=tuple(map(tuple, groups)), scatter=False)


def reduce_scatter(pieces: Any, reduction: str, groups: Groups) -> Any:
    """Piece n of the reduction on the n-th device of a group, from pieces along dimension 0. As above."""
    return _primitive().bind(pieces, reduction=reduction, groups=tuple(map(tuple, groups)), scatter=True)[0]


@lru_cache(maxsize=1)
def _primitive() -> Any:
    from jax.interpreters import batching, mlir

    untyped: tuple[Any, Any] = (batching, mlir)
    for_batching, for_mlir = untyped
    primitive: Any = core.Primitive("reduce_in_groups")
    primitive.def_abstract_eval(_type)
    for_batching.primitive_batchers[primitive] = _batched
    for_mlir.register_lowering(primitive, _lowered)
    return primitive


def _type(x: Any, *, scatter: bool, **_: Any) -> Any:
    return x.update(shape=(1, *x.shape[1:])) if scatter else x


def _batched(args: Any, dims: Any, *, scatter: bool, **params: Any) -> tuple[Any, int]:
    (x,), (dim,) = args, dims
    if scatter and dim == 0:
        x, dim = jnp.moveaxis(x, 0, -1), x.ndim - 1
    return _primitive().bind(x, scatter=scatter, **params), dim


def _lowered(context: Any, x: Any, *, reduction: str, groups: tuple[tuple[int, ...], ...], scatter: bool) -> Any:
    from jax.extend.mlir import ir as mlir_ir
    from jax.extend.mlir.dialects import stablehlo as hlo_dialect
    from jax.interpreters import mlir as mlir_of_jax

    untyped: tuple[Any, Any, Any] = (mlir_ir, hlo_dialect, mlir_of_jax)
    ir, hlo, mlir = untyped
    (made,) = context.avals_out
    kept, element = (
        mlir.aval_to_ir_type(context.module_context, aval) for aval in (made, jax.core.ShapedArray((), made.dtype))
    )
    terms = {
        "replica_groups": ir.DenseElementsAttr.get(np.asarray(groups, np.int64)),
        "channel_handle": hlo.ChannelHandle.get(1, 1),  # between devices of one program
        "use_global_device_ids": ir.BoolAttr.get(True),
    }
    if scatter:
        op = hlo.ReduceScatterOp(kept, x, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0), **terms)
    else:
        op = hlo.AllReduceOp([kept], [x], **terms)
    block = op.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(block):
        combined = {"prod": hlo.multiply, "max": hlo.maximum, "min": hlo.minimum}[reduction](*block.arguments)
        hlo.return_([combined])
    return list(op.results)
