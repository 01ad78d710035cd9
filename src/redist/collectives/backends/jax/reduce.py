"""Steps that reduce: on the values themselves, not on bits.

Each is one collective of XLA's wherever that gives what NumPy does. Where XLA has none (maxima of complex numbers), or
one that rounds otherwise than to the dtype (sums and products of short floats, unless the frame allows that),
contributions are exchanged, reduced on the device, and gathered for an all-reduce.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.modules import jnp, lax
from redist.collectives.backends.jax.native import all_reduce, reduce_scatter
from redist.collectives.backends.jax.wire import bits_of, packed, unpacked

if TYPE_CHECKING:
    from redist.collectives.backends.jax.frame import Frame
    from redist.types.layout import Reduction

__all__ = ["all_reduced", "reduce_scattered"]

Groups = list[list[int]]


def reduce_scattered(pieces: Any, reduction: Reduction, groups: Groups, frame: Frame) -> Any:
    """Pieces stacked on a leading dimension by receiver; each device gets the reduction of its own."""
    if not _native(pieces.dtype, reduction, frame):
        return _reduced(_exchanged(pieces, groups, frame), reduction)
    terms, kind = _comparable(pieces, reduction), _kind(pieces.dtype, reduction)
    if kind == "sum":
        made = lax.psum_scatter(terms, frame.axes, axis_index_groups=groups, scatter_dimension=0, tiled=False)
    else:
        made = reduce_scatter(terms, kind, groups)
    return _restored(made, pieces.dtype, reduction)


def all_reduced(block: Any, reduction: Reduction, groups: Groups, frame: Frame) -> Any:
    """The reduction of the blocks of a group, on every device of it."""
    if _native(block.dtype, reduction, frame):
        terms, kind = _comparable(block, reduction), _kind(block.dtype, reduction)
        if kind == "sum":
            made = lax.psum(terms, frame.axes, axis_index_groups=groups)
        else:
            made = all_reduce(terms, kind, groups)
        return _restored(made, block.dtype, reduction)
    members, total = len(groups[0]), math.prod(block.shape)
    size = -(-total // members)
    flat = jnp.pad(block.reshape(total), (0, size * members - total))
    part = _reduced(_exchanged(flat.reshape(members, size), groups, frame), reduction)
    whole = lax.all_gather(part, frame.axes, axis_index_groups=groups, axis=0, tiled=True)
    return whole[:total].reshape(block.shape)


def _kind(dtype: Any, reduction: Reduction) -> str:
    """As XLA knows it: of booleans, as in NumPy, a sum is any and a product is all."""
    return {"sum": "max", "prod": "min"}.get(reduction, reduction) if dtype == jnp.bool_ else reduction


def _native(dtype: Any, reduction: Reduction, frame: Frame) -> bool:
    """Whether one collective of XLA's will do."""
    if reduction in ("max", "min"):
        return not jnp.issubdtype(dtype, jnp.complexfloating)
    return not jnp.issubdtype(dtype, jnp.inexact) or bits_of(dtype) >= (8 if frame.may_widen else 32)


def _comparable(block: Any, reduction: Reduction) -> Any:
    """What is reduced in the block's stead.

    XLA's CPU drops NaN from maxima and minima of floats, so these are taken of integers in the same order, NaN
    beyond all of them. Integers of less than a byte are a byte each.
    """
    if not _by_order(block.dtype, reduction):
        return _whole_bytes(block)
    if bits_of(block.dtype) < 16:
        block = block.astype(jnp.bfloat16)  # exact, in two bytes
    bits = lax.bitcast_convert_type(block, {16: jnp.int16, 32: jnp.int32, 64: jnp.int64}[bits_of(block.dtype)])
    limits = jnp.iinfo(bits.dtype)
    return jnp.where(jnp.isnan(block), limits.max if reduction == "max" else limits.min, _turned(bits))


def _restored(made: Any, dtype: Any, reduction: Reduction) -> Any:
    """What `_comparable` made, as it was."""
    if not _by_order(dtype, reduction):
        return made.astype(dtype)
    width = jnp.iinfo(made.dtype).bits
    short = dtype if bits_of(dtype) == width else jnp.bfloat16
    return lax.bitcast_convert_type(_turned(made), short).astype(dtype)


def _by_order(dtype: Any, reduction: Reduction) -> bool:
    return reduction in ("max", "min") and jnp.issubdtype(dtype, jnp.floating)


def _turned(bits: Any) -> Any:
    """Floats, as integers of sign and magnitude, in two's complement, and back: the order becomes that of values. The
    largest and the smallest integer are NaN."""
    return jnp.where(bits < 0, bits ^ jnp.iinfo(bits.dtype).max, bits)


def _whole_bytes(block: Any) -> Any:
    if not jnp.issubdtype(block.dtype, jnp.integer) or bits_of(block.dtype) >= 8:
        return block
    return block.astype(jnp.int8 if jnp.issubdtype(block.dtype, jnp.signedinteger) else jnp.uint8)


def _exchanged(pieces: Any, groups: Groups, frame: Frame) -> Any:
    bits = packed(pieces)
    moved = lax.all_to_all(bits, frame.axes, 0, 0, axis_index_groups=groups, tiled=True)
    return unpacked(moved, pieces.dtype)


def _reduced(pieces: Any, reduction: Reduction) -> Any:
    """Over the leading dimension."""
    fold = {"sum": jnp.sum, "max": jnp.max, "min": jnp.min, "prod": jnp.prod}[reduction]
    return fold(pieces, axis=0).astype(pieces.dtype)
