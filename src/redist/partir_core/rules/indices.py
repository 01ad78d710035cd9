"""Arithmetic on indices of any integer type, as gather, scatter and dynamic slices need it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import jax

__all__ = ["clamped", "signed", "vector"]


def signed(indices: Any) -> jax.Array:
    """The indices as signed numbers; an unsigned one that is too large becomes negative: out of bounds still."""
    from redist.collectives.backends.jax.modules import lax

    return lax.convert_element_type(indices, "int64" if np.dtype(indices.dtype).itemsize == 8 else "int32")


def clamped(indices: Any, limits: Sequence[int]) -> jax.Array:
    """Signed indices in 0..limits, one limit per position in the last dimension.

    Clamped in the type they come in, so that a large unsigned index ends at the limit, and never at 0.
    """
    from redist.collectives.backends.jax.modules import jnp

    dtype = np.dtype(indices.dtype)
    top = [min(limit, int(np.iinfo(dtype).max)) for limit in limits]
    return signed(jnp.clip(indices, dtype.type(0), vector(top, dtype)))


def vector(values: Sequence[Any], dtype: Any) -> jax.Array:
    """A vector of numbers, traced ones among them."""
    from redist.collectives.backends.jax.modules import jnp

    return jnp.stack([jnp.asarray(value).astype(dtype) for value in values])
