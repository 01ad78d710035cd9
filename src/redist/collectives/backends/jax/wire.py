"""What travels: steps that only move data move bits, so that no backend widens or rounds them.

XLA's CPU computes in wider floats where it has no narrow ones, collectives included; unsigned integers of
the same width pass untouched, NaN payloads with them.
"""

from __future__ import annotations

from typing import Any

from redist.collectives.backends.jax.modules import jnp, lax

__all__ = ["bits_of", "packed", "unpacked"]


def packed(block: Any) -> Any:
    """The block as a dtype that collectives move as it is."""
    dtype = jnp.dtype(block.dtype)
    if dtype == jnp.bool_:
        return block.astype(jnp.uint8)
    bits = bits_of(dtype)
    if bits < 8:
        return _widened(block, bits)
    if jnp.issubdtype(dtype, jnp.floating) and bits < 32:
        return lax.bitcast_convert_type(block, _unsigned(bits))
    return block


def unpacked(block: Any, dtype: Any) -> Any:
    """What `packed` made, as it was."""
    dtype = jnp.dtype(dtype)
    if block.dtype == dtype:
        return block
    if dtype == jnp.bool_:
        return block != 0
    bits = bits_of(dtype)
    if bits < 8:
        narrow = block.astype(_unsigned(bits))
        return narrow if narrow.dtype == dtype else lax.bitcast_convert_type(narrow, dtype)
    return lax.bitcast_convert_type(block, dtype)


def bits_of(dtype: Any) -> int:
    """Bits of an element as XLA counts them."""
    if jnp.issubdtype(dtype, jnp.integer):
        return int(jnp.iinfo(dtype).bits)
    if jnp.issubdtype(dtype, jnp.floating):
        return int(jnp.finfo(dtype).bits)
    return 8 * dtype.itemsize


def _unsigned(bits: int) -> Any:
    return {2: jnp.uint2, 4: jnp.uint4, 8: jnp.uint8, 16: jnp.uint16}[bits]


def _widened(block: Any, bits: int) -> Any:
    """Elements of less than a byte, a byte each."""
    unsigned = _unsigned(bits)
    return (block if block.dtype == unsigned else lax.bitcast_convert_type(block, unsigned)).astype(jnp.uint8)
