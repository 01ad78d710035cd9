"""Layers stacked along a dimension and scanned over, trained with momentum."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["training_step", "weights_of"]


def weights_of(layers: int, width: int = 8, hidden: int = 16) -> dict[str, Any]:
    """Random weights: `up` [layers, width, hidden], `down` [layers, hidden, width], `bias` [layers, hidden]."""
    rng = np.random.default_rng(0)
    shapes = {"up": (layers, width, hidden), "down": (layers, hidden, width), "bias": (layers, hidden)}
    return {name: rng.standard_normal(shape).astype(np.float32) / 4 for name, shape in shapes.items()}


def training_step(ws: Any, m: Any, x: Any) -> Any:
    """(weights, momenta, loss) after a step on x [batch, width]."""

    def loss(ws: Any) -> Any:
        def layer(h: Any, w: Any) -> Any:
            return h + jnp.tanh(h @ w["up"] + w["bias"]) @ w["down"], jnp.mean(h)

        h, means = jax.lax.scan(layer, x, ws)
        return jnp.mean(h * h) + jnp.sum(means)

    value, grads = jax.value_and_grad(loss)(ws)
    m = jax.tree.map(lambda m, g: 0.9 * m + g, m, grads)
    return jax.tree.map(lambda w, m: w - 0.1 * m, ws, m), m, value
