"""A GPT-style Transformer with 9 parameter tensors a layer and a tied embedding, and its training step.

Large tensors of a layer: `qkv` (width, 3, heads, head size), `out` (heads, head size, width), `up`
(width, 4 width), `down` (4 width, width). Small ones: `ln1_scale`, `ln1_bias`, `ln2_scale`, `ln2_bias`,
`up_bias`. With the embedding, L layers have 9 L + 1 parameters, of which 4 L + 1 are large.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models.optim import adam, clip_by_global_norm, zeros_like

Tree = Any


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes. `T32` is 32 layers of width 4096."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    vocabulary: int = 32768
    batch: int = 48
    length: int = 1024
    checkpoint: bool = False
    clip: bool = False


T32 = Config()
SMALL = Config(layers=2, width=16, heads=4, vocabulary=32, batch=8, length=8)


def init(config: Config, key: Any) -> Tree:
    """Parameters: normal with standard deviation 0.02, scales 1, biases 0."""
    d, h = config.width, config.heads

    def normal(key: Any, *shape: int) -> Any:
        return 0.02 * jax.random.normal(key, shape)

    keys = jax.random.split(key, config.layers + 1)
    params: Tree = {"embed": normal(keys[-1], config.vocabulary, d)}
    for n in range(config.layers):
        qkv, out, up, down = jax.random.split(keys[n], 4)
        params[f"layer_{n}"] = {
            "qkv": normal(qkv, d, 3, h, d // h),
            "out": normal(out, h, d // h, d),
            "up": normal(up, d, 4 * d),
            "down": normal(down, 4 * d, d),
            "ln1_scale": jnp.ones(d),
            "ln1_bias": jnp.zeros(d),
            "ln2_scale": jnp.ones(d),
            "ln2_bias": jnp.zeros(d),
            "up_bias": jnp.zeros(4 * d),
        }
    return params


def state_of(config: Config, key: Any) -> tuple[Tree, Tree]:
    """Parameters and Adam's state."""
    params = init(config, key)
    return params, zeros_like(params)


def batch_of(config: Config, key: Any) -> Tree:
    """Random tokens and targets."""
    tokens = jax.random.randint(key, (config.batch, config.length + 1), 0, config.vocabulary)
    return {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}


def shapes(config: Config) -> tuple[Tree, Tree, Tree]:
    """(parameters, optimizer state, batch) as shapes only."""
    key = jax.random.key(0)
    params, state = jax.eval_shape(partial(state_of, config), key)
    return params, state, jax.eval_shape(partial(batch_of, config), key)


def normalised(x: Any) -> Any:
    """Zero mean and unit variance along the last dimension."""
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)


def attention(qkv: Any, out: Any, x: Any) -> Any:
    """Causal self-attention."""
    length = x.shape[1]
    q, k, v = jnp.einsum("btd,dchk->cbthk", x, qkv)
    scores = jnp.einsum("bqhk,bthk->bhqt", q, k) / jnp.sqrt(q.shape[-1]).astype(x.dtype)
    causal = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqt,bthk->bqhk", weights, v)
    return jnp.einsum("bqhk,hkd->bqd", mixed, out)


def layer(p: Tree, x: Any) -> Any:
    """One pre-norm layer."""
    x = x + attention(p["qkv"], p["out"], normalised(x) * p["ln1_scale"] + p["ln1_bias"])
    hidden = jax.nn.gelu((normalised(x) * p["ln2_scale"] + p["ln2_bias"]) @ p["up"] + p["up_bias"])
    return x + hidden @ p["down"]


def forward(config: Config, params: Tree, tokens: Any) -> Any:
    """Logits (batch, length, vocabulary)."""
    x = params["embed"][tokens]
    apply = jax.checkpoint(layer) if config.checkpoint else layer
    for n in range(config.layers):
        x = apply(params[f"layer_{n}"], x)
    return normalised(x) @ params["embed"].T


def loss_of(config: Config, params: Tree, batch: Tree) -> Any:
    """Mean cross-entropy of the next token."""
    logits = forward(config, params, batch["tokens"])
    picked = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)


def training_step(config: Config, params: Tree, state: Tree, batch: Tree) -> tuple[Tree, Tree, Any]:
    """One step: (parameters, optimizer state, loss)."""
    loss, grads = jax.value_and_grad(partial(loss_of, config))(params, batch)
    if config.clip:
        grads = clip_by_global_norm(grads)
    params, state = adam(params, grads, state)
    return params, state, loss
