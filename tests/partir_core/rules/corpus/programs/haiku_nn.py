"""Modules of haiku."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp

KEY = jax.random.PRNGKey(0)


def module(make: Callable[[], Callable[..., Any]], *inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module as a function of parameters, state, key and inputs."""

    def run(*inputs: Any) -> Any:
        return make()(*inputs)  # modules are made inside the transform

    model = hk.transform_with_state(run)
    params, state = model.init(KEY, *inputs)
    return model.apply, (params, state, KEY, *inputs)


def programs() -> dict[str, Any]:
    x, image, sequence = jnp.ones((4, 6)), jnp.ones((2, 8, 8, 4)), jnp.ones((5, 2, 8))

    def batch_norm() -> Any:
        norm = hk.BatchNorm(True, True, 0.9)
        return lambda x: norm(x, is_training=True)

    def unrolled(core: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            cell = core()
            return lambda xs: hk.dynamic_unroll(cell, xs, cell.initial_state(2))

        return make

    return {
        "mlp": module(lambda: hk.nets.MLP([8, 4]), x),
        "conv": module(lambda: hk.Conv2D(8, 3, stride=2), image),
        "depthwise": module(lambda: hk.DepthwiseConv2D(2, 3), image),
        "separable": module(lambda: hk.SeparableDepthwiseConv2D(2, 3), image),
        "transposed": module(lambda: hk.Conv2DTranspose(4, 3, stride=2), image),
        "batch_norm": module(batch_norm, image),
        "layer_norm": module(lambda: hk.LayerNorm(-1, True, True), x),
        "group_norm": module(lambda: hk.GroupNorm(2), image),
        "rms_norm": module(lambda: hk.RMSNorm(-1), x),
        "max_pool": module(lambda: hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID"), image),
        "avg_pool": module(lambda: hk.AvgPool((2, 2, 1), (1, 1, 1), "SAME"), image),
        "embed": module(lambda: hk.Embed(16, 8), jnp.zeros((2, 5), "int32")),
        "attention": module(
            lambda: lambda x: hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling())(x, x, x), sequence
        ),
        "lstm": module(unrolled(lambda: hk.LSTM(6)), sequence),
        "gru": module(unrolled(lambda: hk.GRU(6)), sequence),
        "rnn": module(unrolled(lambda: hk.VanillaRNN(6)), sequence),
        "dropout": module(lambda: lambda x: hk.dropout(hk.next_rng_key(), 0.5, x), x),
        "resnet": module(lambda: lambda x: hk.nets.ResNet18(3)(x, is_training=True), jnp.ones((2, 16, 16, 3))),
        "spectral": module(hk.SpectralNorm, x),
    }
