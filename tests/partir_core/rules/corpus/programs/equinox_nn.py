"""Modules of equinox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

KEY = jax.random.key(0)


def module(model: Any, *inputs: Any, batched: bool = True, **kwargs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module mapped over a batch, as a function of its arrays and inputs."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def call(arrays: Any, *inputs: Any) -> Any:
        whole = eqx.combine(arrays, static)

        def apply(*xs):
            return whole(*xs, **kwargs)

        return (jax.vmap(apply) if batched else apply)(*inputs)

    return call, (arrays, *inputs)


def programs() -> dict[str, Any]:
    x, image, sequence = jnp.ones((4, 6)), jnp.ones((2, 4, 8, 8)), jnp.ones((2, 5, 8))
    found = {
        "mlp": module(eqx.nn.MLP(6, 4, 8, 2, key=KEY), x),
        "linear": module(eqx.nn.Linear(6, 4, key=KEY), x),
        "conv1d": module(eqx.nn.Conv1d(5, 4, 3, padding=1, key=KEY), sequence),
        "conv2d": module(eqx.nn.Conv2d(4, 8, 3, groups=2, dilation=2, key=KEY), image),
        "conv_transpose": module(eqx.nn.ConvTranspose2d(4, 6, 3, stride=2, key=KEY), image),
        "max_pool": module(eqx.nn.MaxPool2d(2, 2), image),
        "avg_pool": module(eqx.nn.AvgPool2d(2, 1), image),
        "adaptive": module(eqx.nn.AdaptiveAvgPool2d(3), image),
        "layer_norm": module(eqx.nn.LayerNorm(6), x),
        "rms_norm": module(eqx.nn.RMSNorm(6), x),
        "group_norm": module(eqx.nn.GroupNorm(2, 4), image),
        "embedding": module(eqx.nn.Embedding(16, 8, key=KEY), jnp.zeros((4,), "int32")),
        "gru": module(eqx.nn.GRUCell(6, 8, key=KEY), x, jnp.ones((4, 8))),
        "lstm": module(eqx.nn.LSTMCell(6, 8, key=KEY), x, (jnp.ones((4, 8)), jnp.ones((4, 8)))),
        "attention": module(eqx.nn.MultiheadAttention(2, 8, key=KEY), sequence, sequence, sequence),
        "rotary": module(eqx.nn.RotaryPositionalEmbedding(8), sequence),
        "prelu": module(eqx.nn.PReLU(), x),
        "dropout": module(eqx.nn.Dropout(0.5), x[0], batched=False, key=KEY),
    }

    weights, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch")

    def batch_norm(state: Any, x: Any) -> Any:
        return jax.vmap(weights, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)[0]

    found["batch_norm"] = (batch_norm, (state, jnp.ones((3, 4, 5))))
    return found
