"""Steps that reduce: on the values themselves, not on bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.modules import jnp, lax
from redist.collectives.backends.jax.wire import bits_of, packed, unpacked

if TYPE_CHECKING:
    from redist.collectives.backends.jax.frame import Frame
    from redist.types.layout import Reduction

__all__ = ["all_reduced", "reduce_scattered"]

Groups = list[list[int]]


def reduce_scattered(pieces: Any, reduction: Reduction, groups: Groups, frame: Frame) -> Any:
    """Pieces stacked on a leading dimension by receiver; each device gets the reduction of its own."""
    if reduction == "sum" and pieces.dtype != jnp.bool_ and _native(pieces.dtype, reduction, frame):
        return lax.psum_scatter(pieces, frame.axes, axis_index_groups=groups, scatter_dimension=0, tiled=False)
    return _reduced(_exchanged(pieces, groups, frame), reduction)


def all_reduced(block: Any, reduction: Reduction, groups: Groups, frame: Frame) -> Any:
    """The reduction of the blocks of a group, on every device of it."""
    native = {"sum": lax.psum, "max": lax.pmax, "min": lax.pmin}
    if block.dtype == jnp.bool_:  # as in NumPy, where a sum is any and a product is all
        native |= {"sum": lax.pmax, "prod": lax.pmin}
    if reduction in native and _native(block.dtype, reduction, frame):
        return native[reduction](block, frame.axes, axis_index_groups=groups)
    members, total = len(groups[0]), math.prod(block.shape)
    size = -(-total // members)
    flat = jnp.pad(block.reshape(total), (0, size * members - total))
    part = _reduced(_exchanged(flat.reshape(members, size), groups, frame), reduction)
    whole = lax.all_gather(part, frame.axes, axis_index_groups=groups, axis=0, tiled=True)
    return whole[:total].reshape(block.shape)


def _native(dtype: Any, reduction: Reduction, frame: Frame) -> bool:
    """Whether XLA reduces this dtype across devices itself, and without widening it unless the frame allows that."""
    if jnp.issubdtype(dtype, jnp.complexfloating) and reduction != "sum":
        return False
    exact = 8 if frame.may_widen or not jnp.issubdtype(dtype, jnp.inexact) else 32
    return dtype == jnp.bool_ or (jnp.issubdtype(dtype, jnp.number) and bits_of(dtype) >= exact)


def _exchanged(pieces: Any, groups: Groups, frame: Frame) -> Any:
    bits = packed(pieces)
    moved = lax.all_to_all(bits, frame.axes, 0, 0, axis_index_groups=groups, tiled=True)
    return unpacked(moved, pieces.dtype)


def _reduced(pieces: Any, reduction: Reduction) -> Any:
    """Over the leading dimension; booleans as in NumPy, where a sum is any and a product is all."""
    if pieces.dtype == jnp.bool_:
        return jnp.any(pieces, axis=0) if reduction in ("sum", "max") else jnp.all(pieces, axis=0)
    if bits_of(pieces.dtype) < 8 and jnp.issubdtype(pieces.dtype, jnp.integer):
        return _reduced(pieces.astype(jnp.int8), reduction).astype(pieces.dtype)
    fold = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min, "prod": jnp.prod}[reduction]
    return fold(pieces, axis=0).astype(pieces.dtype)
