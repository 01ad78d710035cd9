"""JAX as an untyped module: its own annotations are too partial for strict checking."""

from __future__ import annotations

from typing import Any

import jax as _jax
import jax.numpy as _jnp
from jax import lax as _lax
from jax.extend import core as _core

__all__ = ["core", "jax", "jnp", "lax"]

jax: Any = _jax
jnp: Any = _jnp
lax: Any = _lax
core: Any = _core
