"""Reductions across devices of every kind and dtype, and what NumPy makes of the same numbers."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from redist.partir_core import ManualPartition

__all__ = ["DTYPES", "KINDS", "SCHEDULE", "arguments", "exactly", "expected", "function"]

KINDS: dict[str, tuple[Any, Any]] = {
    "sum": (lax.reduce_sum, np.add),
    "prod": (lax.reduce_prod, np.multiply),
    "max": (lax.reduce_max, np.maximum),
    "min": (lax.reduce_min, np.minimum),
    "or": (lax.reduce_or, np.logical_or),
    "and": (lax.reduce_and, np.logical_and),
}
DTYPES: dict[str, tuple[str, ...]] = {
    "float32": ("sum", "prod", "max", "min"),
    "bfloat16": ("sum", "prod", "max", "min"),
    "float16": ("sum", "prod", "max", "min"),
    "int8": ("sum", "prod", "max", "min"),
    "uint16": ("sum", "prod", "max", "min"),
    "int32": ("sum", "prod", "max", "min"),
    "bool": ("or", "and"),
    "complex64": ("sum", "prod"),
}
SCHEDULE = [ManualPartition({"x": 0, "z": 0}, "B")]
"""Rows apart: every reduction is one of contributions. A sum with `z` needs a part of it alone."""


def function(dtype: str) -> Any:
    """Of x (12, 8) and z (8,): every reduction of the rows, whole, and once more with z beside it, in parts."""

    def reduced(x: Any, z: Any) -> Any:
        kinds = [KINDS[kind][0] for kind in DTYPES[dtype]]
        return [reduce(x, (0,)) for reduce in kinds], [
            jnp.where(z, reduce(x, (0,)), jnp.zeros((), x.dtype)) for reduce in kinds
        ]

    return reduced


def arguments(dtype: str) -> tuple[Any, Any]:
    """Numbers whose sums and products are exact in any order, a zero, an infinity and NaN among them."""
    rng = np.random.default_rng(0)
    x = rng.choice([-2.0, -1.0, 1.0, 1.0, 2.0], (12, 8))
    if dtype == "bool":
        x = rng.random((12, 8)) < np.linspace(0, 1, 8)
    elif dtype == "complex64":
        x = x * rng.choice([1, 1j], x.shape)
    elif dtype.startswith("uint"):
        x = np.abs(x)
    elif "float" in dtype:
        x[5, 1:3], x[11, 2:4], x[0, 4] = np.nan, np.inf, -np.inf
    x[7, 5] = 0
    return jnp.asarray(x).astype(dtype), np.arange(8) % 3 > 0


def expected(x: Any, z: Any) -> Any:
    """By NumPy, row by row."""
    rows = np.asarray(x)
    whole: list[Any] = []
    for kind in DTYPES[str(rows.dtype)]:
        total = rows[0]
        for row in rows[1:]:
            with np.errstate(all="ignore"):
                total = KINDS[kind][1](total, row).astype(rows.dtype)
        whole.append(total)
    return whole, [np.where(z, total, np.zeros((), rows.dtype)) for total in whole]


def exactly(got: Any, wanted: Any) -> None:
    """Equal arrays of equal dtypes, NaN included."""
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    np.testing.assert_array_equal(*(np.asarray(y).astype(complex) for y in (got, wanted)))
