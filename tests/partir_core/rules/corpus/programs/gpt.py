"""A transformer's training step in plain JAX, mixed precision, checkpointed and scanned layers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp


def _layer(x: Any, weights: dict[str, Any]) -> Any:
    h = x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6) * weights["norm"]
    q, k, v = jnp.split(h.astype(jnp.bfloat16) @ weights["qkv"].astype(jnp.bfloat16), 3, axis=-1)
    q, k, v = (y.reshape(*y.shape[:2], 2, -1).transpose(0, 2, 1, 3) for y in (q, k, v))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    out = jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores).astype(jnp.bfloat16), v)
    x = x + (out.transpose(0, 2, 1, 3).reshape(x.shape) @ weights["out"].astype(jnp.bfloat16)).astype(x.dtype)
    return x + jax.nn.silu(x @ weights["up"]) @ weights["down"]


def _loss(params: dict[str, Any], tokens: Any, scan: bool) -> Any:
    x = params["embed"][tokens]
    if scan:
        x, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(_layer)(x, w), None), x, params["layers"])
    else:
        for n in range(2):
            x = jax.checkpoint(_layer)(x, jax.tree.map(lambda leaf, n=n: leaf[n], params["layers"]))
    logits = x[:, :-1] @ params["embed"].T
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)
    return -picked.mean()


def programs() -> dict[str, Any]:
    d = 8
    layers = {
        "norm": jnp.ones((2, d)),
        "qkv": jnp.ones((2, d, 3 * d)),
        "out": jnp.ones((2, d, d)),
        "up": jnp.ones((2, d, 4 * d)),
        "down": jnp.ones((2, 4 * d, d)),
    }
    params = {"embed": jnp.ones((16, d)), "layers": layers}
    tokens = jnp.zeros((2, 6), "int32")
    return {
        "unrolled": (lambda p, t: _loss(p, t, False), (params, tokens)),
        "scanned": (lambda p, t: _loss(p, t, True), (params, tokens)),
    }
