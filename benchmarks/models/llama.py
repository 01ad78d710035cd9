"""A Transformer with SwiGLU, grouped-query attention, rotary positions, RMS norms and an untied head, and its
training step.

Large tensors of a layer: `query` (width, groups, queries of a group, head size), `key` and `value` (width,
groups, head size), `out` (groups, queries of a group, head size, width), `gate` and `up` (width, hidden),
`down` (hidden, width). Small ones: `norm1`, `norm2`. With `embed`, `norm` and `head`, L layers have 9 L + 3
parameters, of which 7 L + 2 are large.
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
    """Sizes. Each of `groups` key-value heads serves `heads / groups` query heads."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    groups: int = 8
    hidden: int = 14336
    vocabulary: int = 32768
    batch: int = 32
    length: int = 2048
    checkpoint: bool = False
    clip: bool = False

    @property
    def head(self) -> int:
        """Size of a head."""
        return self.width // self.heads


SMALL = Config(layers=2, width=16, heads=8, groups=4, hidden=32, vocabulary=32, batch=8, length=8)


def init(config: Config, key: Any) -> Tree:
    """Parameters: normal with standard deviation 0.02, scales 1."""
    d, g, q, h, f = config.width, config.groups, config.heads // config.groups, config.head, config.hidden
    shapes = {
        "query": (d, g, q, h),
        "key": (d, g, h),
        "value": (d, g, h),
        "out": (g, q, h, d),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }

    def normal(key: Any, shape: tuple[int, ...]) -> Any:
        return 0.02 * jax.random.normal(key, shape)

    keys = jax.random.split(key, config.layers + 2)
    params: Tree = {
        "embed": normal(keys[-1], (config.vocabulary, d)),
        "head": normal(keys[-2], (d, config.vocabulary)),
        "norm": jnp.ones(d),
    }
    for n in range(config.layers):
        each = jax.random.split(keys[n], len(shapes))
        params[f"layer_{n}"] = {
            **{name: normal(k, shape) for k, (name, shape) in zip(each, shapes.items(), strict=True)},
            "norm1": jnp.ones(d),
            "norm2": jnp.ones(d),
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


def rms_norm(x: Any, scale: Any) -> Any:
    """Root mean square 1 along the last dimension, then scaled."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5) * scale


def rotary(x: Any) -> Any:
    """Rotary position embedding of (batch, position, ..., head size)."""
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-jnp.arange(half) / half)
    angles = jnp.arange(x.shape[1])[:, None] * rates
    angles = angles.reshape(x.shape[1], *(1,) * (x.ndim - 3), half)
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1)


def attention(p: Tree, x: Any) -> Any:
    """Causal grouped-query attention."""
    length = x.shape[1]
    q = rotary(jnp.einsum("btd,dgqh->btgqh", x, p["query"]))
    k = rotary(jnp.einsum("btd,dgh->btgh", x, p["key"]))
    v = jnp.einsum("btd,dgh->btgh", x, p["value"])
    scores = jnp.einsum("bsgqh,btgh->bgqst", q, k) / jnp.sqrt(q.shape[-1]).astype(x.dtype)
    causal = jnp.arange(length)[:, None] >= jnp.arange(length)[None, :]
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bgqst,btgh->bsgqh", weights, v)
    return jnp.einsum("bsgqh,gqhd->bsd", mixed, p["out"])


def layer(p: Tree, x: Any) -> Any:
    """One pre-norm layer."""
    x = x + attention(p, rms_norm(x, p["norm1"]))
    y = rms_norm(x, p["norm2"])
    return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]


def loss_of(config: Config, params: Tree, batch: Tree) -> Any:
    """Mean cross-entropy of the next token."""
    x = params["embed"][batch["tokens"]]
    apply = jax.checkpoint(layer) if config.checkpoint else layer
    for n in range(config.layers):
        x = apply(params[f"layer_{n}"], x)
    logits = rms_norm(x, params["norm"]) @ params["head"]
    picked = jnp.take_along_axis(logits, batch["targets"][..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)


def training_step(config: Config, params: Tree, state: Tree, batch: Tree) -> tuple[Tree, Tree, Any]:
    """One step: (parameters, optimizer state, loss)."""
    loss, grads = jax.value_and_grad(partial(loss_of, config))(params, batch)
    if config.clip:
        grads = clip_by_global_norm(grads)
    params, state = adam(params, grads, state)
    return params, state, loss
