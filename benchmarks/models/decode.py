"""Greedy decoding with the GPT of `gpt.py` and a cache of keys and values, one token a step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models.gpt import Config, normalised

Tree = Any


def decode(config: Config, params: Tree, tokens: Any) -> Any:
    """From the first token of each sequence (batch,) to `config.length` tokens (batch, length)."""
    head = config.width // config.heads
    shape = (config.layers, 2, tokens.shape[0], config.length, config.heads, head)
    dtype = params["embed"].dtype

    def attend(p: Tree, x: Any, cache: Any, step: Any) -> tuple[Any, Any]:
        query, *new = jnp.einsum("bd,dchk->cbhk", x, p["qkv"])
        cache = jax.lax.dynamic_update_slice_in_dim(cache, jnp.stack(new)[:, :, None], step, axis=2)
        scores = jnp.einsum("bhk,bthk->bht", query, cache[0]) / jnp.sqrt(head).astype(dtype)
        seen = jnp.arange(config.length) <= step
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e9), axis=-1)
        return jnp.einsum("bhk,hkd->bd", jnp.einsum("bht,bthk->bhk", weights, cache[1]), p["out"]), cache

    def advance(state: tuple[Any, Any], step: Any) -> tuple[tuple[Any, Any], Any]:
        caches, token = state
        x = params["embed"][token]
        kept: list[Any] = []
        for n in range(config.layers):
            p = params[f"layer_{n}"]
            mixed, cache = attend(p, normalised(x) * p["ln1_scale"] + p["ln1_bias"], caches[n], step)
            x = x + mixed
            hidden = jax.nn.gelu((normalised(x) * p["ln2_scale"] + p["ln2_bias"]) @ p["up"] + p["up_bias"])
            x = x + hidden @ p["down"]
            kept.append(cache)
        token = jnp.argmax(normalised(x) @ params["embed"].T, axis=-1).astype(token.dtype)
        return (kept, token), token

    caches = [jnp.zeros(shape[1:], dtype) for _ in range(config.layers)]
    _, made = jax.lax.scan(advance, (caches, tokens), jnp.arange(config.length))
    return made.T
