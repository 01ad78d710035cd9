"""Adam and gradient clipping on pytrees."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

Tree = Any


def zeros_like(params: Tree) -> Tree:
    """Adam's state: first and second moments of every parameter."""
    return {"m": jax.tree.map(jnp.zeros_like, params), "v": jax.tree.map(jnp.zeros_like, params)}


def adam(params: Tree, grads: Tree, state: Tree, lr: float = 1e-3, b1: float = 0.9, b2: float = 0.95) -> Any:
    """One step of Adam without bias correction: (parameters, state)."""
    m = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state["v"], grads)
    params = jax.tree.map(lambda p, m, v: p - lr * m / (jnp.sqrt(v) + 1e-8), params, m, v)
    return params, {"m": m, "v": v}


def clip_by_global_norm(grads: Tree, largest: float = 1.0) -> Tree:
    """Gradients scaled so that their joint norm is at most `largest`."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, grads)
