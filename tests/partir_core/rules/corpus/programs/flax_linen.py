"""Modules of flax.linen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

X = jnp.ones((4, 6))
IMAGE = jnp.ones((2, 8, 8, 4))
TOKENS = jnp.zeros((2, 5), "int32")
SEQUENCE = jnp.ones((2, 5, 8))


def module(model: nn.Module, *inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module's call as a function of its variables and inputs, with everything mutable."""
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    variables = model.init(keys, *inputs)

    def call(variables: Any, key: Any, *inputs: Any) -> Any:
        return model.apply(variables, *inputs, rngs={"dropout": key}, mutable=True)

    return call, (variables, jax.random.key(2), *inputs)


class ConvNet(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3))(x)
        x = nn.BatchNorm(use_running_average=False)(x)
        x = nn.max_pool(nn.relu(x), (2, 2), (2, 2))
        x = nn.Conv(8, (3, 3), feature_group_count=2, padding="CIRCULAR")(x)
        x = nn.ConvTranspose(4, (2, 2), (2, 2))(x)
        x = nn.ConvLocal(3, (2, 2))(x)
        x = nn.avg_pool(x, (2, 2), (1, 1), "SAME")
        return nn.Dense(5)(nn.Dropout(0.2, deterministic=False)(x.reshape(x.shape[0], -1)))


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(16, 8)(tokens)
        for _ in range(2):
            y = nn.LayerNorm()(x)
            mask = nn.make_causal_mask(tokens)
            y = nn.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=False)(y, y, mask=mask)
            x = x + y
            x = x + nn.Dense(8)(nn.swish(nn.Dense(16)(nn.RMSNorm()(x))))
        return nn.DenseGeneral((2, 3))(x)


class Scanned(nn.Module):
    @nn.compact
    def __call__(self, x: Any) -> Any:
        body = nn.scan(
            nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3, in_axes=nn.broadcast
        )
        return body()(x, None)[0]


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x: Any, _: Any) -> Any:
        return nn.tanh(nn.Dense(6)(x)), None


def programs() -> dict[str, Any]:
    found = {
        "convnet": module(ConvNet(), IMAGE),
        "transformer": module(Transformer(), TOKENS),
        "scan": module(Scanned(), X),
        "group_norm": module(nn.GroupNorm(2), X),
        "weight_norm": module(nn.WeightNorm(nn.Dense(4)), X),
        "einsum": module(nn.Einsum((6, 3), "bi,io->bo"), X),
        "decode": module(nn.MultiHeadDotProductAttention(2, decode=True), SEQUENCE[:, :1], SEQUENCE[:, :1]),
        "conv_lstm": module(nn.RNN(nn.ConvLSTMCell(4, (3, 3))), IMAGE[:, None]),
    }
    for cell in (nn.LSTMCell, nn.GRUCell, nn.MGUCell, nn.SimpleCell, nn.OptimizedLSTMCell):
        found[cell.__name__] = module(nn.RNN(cell(6)), SEQUENCE)
    return found
