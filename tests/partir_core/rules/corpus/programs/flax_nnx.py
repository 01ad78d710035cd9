"""Modules of flax.nnx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

X = jnp.ones((4, 6))
IMAGE = jnp.ones((2, 8, 8, 4))
TOKENS = jnp.zeros((2, 5), "int32")
SEQUENCE = jnp.ones((2, 5, 8))


def module(make: Callable[[nnx.Rngs], Any], *inputs: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The module's call as a function of its state and of its inputs."""
    definition, state = nnx.split(make(nnx.Rngs(0)))

    def call(state: Any, *inputs: Any) -> Any:
        model = nnx.merge(definition, state, copy=True)
        out = model(*inputs)
        return out, nnx.state(model)

    return call, (state, *inputs)


class MLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(6, 8, rngs=rngs)
        self.norm = nnx.LayerNorm(8, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)
        self.second = nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.second(self.drop(nnx.gelu(self.norm(self.first(x)))))


class ConvNet(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.conv = nnx.Conv(4, 8, (3, 3), rngs=rngs)
        self.depthwise = nnx.Conv(8, 8, (3, 3), strides=2, feature_group_count=8, rngs=rngs)
        self.pointwise = nnx.Conv(8, 6, (1, 1), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.up = nnx.ConvTranspose(6, 4, (3, 3), strides=(2, 2), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.relu(self.norm(self.conv(x)))
        x = nnx.max_pool(self.depthwise(x), (2, 2), (2, 2))
        x = self.up(self.pointwise(x))
        return nnx.avg_pool(x, (2, 2), (2, 2))


class Block(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.embed = nnx.Embed(16, 8, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 8, decode=False, rngs=rngs)
        self.norm = nnx.RMSNorm(8, rngs=rngs)
        self.out = nnx.Einsum("btd,df->btf", (8, 16), rngs=rngs)

    def __call__(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(tokens))
        return self.embed.attend(x) + self.out(x)


class Decoder(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.attention = nnx.MultiHeadAttention(2, 8, decode=True, rngs=rngs)
        self.attention.init_cache((2, 5, 8))

    def __call__(self, x: Any) -> Any:
        return self.attention(x)


class Trained(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.model = MLP(rngs)


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {
        "mlp": module(MLP, X),
        "convnet": module(ConvNet, IMAGE),
        "block": module(Block, TOKENS),
        "decode": module(Decoder, SEQUENCE[:, :1]),
    }
    for cell in (nnx.LSTMCell, nnx.GRUCell, nnx.SimpleCell, nnx.OptimizedLSTMCell):
        found[cell.__name__] = module(lambda rngs, cell=cell: nnx.RNN(cell(8, 6, rngs=rngs)), SEQUENCE)
    found["bidirectional"] = module(
        lambda rngs: nnx.Bidirectional(
            nnx.RNN(nnx.GRUCell(8, 6, rngs=rngs)), nnx.RNN(nnx.GRUCell(8, 6, rngs=rngs)), rngs=rngs
        ),
        SEQUENCE,
    )
    singles: dict[str, Callable[[nnx.Rngs], Any]] = {
        "group_norm": lambda rngs: nnx.GroupNorm(6, num_groups=2, rngs=rngs),
        "instance_norm": lambda rngs: nnx.InstanceNorm(6, rngs=rngs),
        "spectral_norm": lambda rngs: nnx.SpectralNorm(nnx.Linear(6, 3, rngs=rngs), rngs=rngs),
        "weight_norm": lambda rngs: nnx.WeightNorm(nnx.Linear(6, 3, rngs=rngs), rngs=rngs),
        "lora": lambda rngs: nnx.LoRALinear(6, 4, lora_rank=2, rngs=rngs),
        "general": lambda rngs: nnx.LinearGeneral(6, (2, 3), rngs=rngs),
        "prelu": lambda rngs: nnx.PReLU(),
    }
    found |= {name: module(make, X) for name, make in singles.items()}
    for name in ("glorot_uniform", "he_normal", "orthogonal", "truncated_normal", "lecun_normal", "variance_scaling"):
        maker = getattr(nnx.initializers, name)
        init = maker(1.0, "fan_in", "normal") if name == "variance_scaling" else maker()
        found[f"init {name}"] = (lambda key, init=init: init(key, (4, 6)), (jax.random.key(0),))
    return found
