"""A convolutional U-Net block of a diffusion model, and its training step: group norms, strided and transposed
convolutions, a skip connection by concatenation, attention over pixels in between, an embedding of the time.

Parameters are `convs` by name (height, width, inputs, outputs), `scales` and `biases` of the group norms, `time`
(frequencies, channels), `qkv` (channels, 3, heads, head size) and `out` (heads, head size, channels).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models.optim import adam, zeros_like

Tree = Any
_IMAGES = ("NHWC", "HWIO", "NHWC")


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes: images of `size` by `size` pixels, `channels` of the upper level, twice as many below."""

    size: int = 64
    colours: int = 3
    channels: int = 128
    groups: int = 8
    heads: int = 8
    batch: int = 64


SMALL = Config(size=8, channels=8, groups=4, heads=4, batch=8)


def init(config: Config, key: Any) -> Tree:
    """Parameters: normal, scaled by the square root of the inputs."""
    c, d = config.channels, 2 * config.channels
    shapes = {
        "enter": (3, 3, config.colours, c),
        "widen": (3, 3, c, d),
        "narrow": (3, 3, d, c),
        "down": (3, 3, c, d),
        "middle": (3, 3, d, d),
        "up": (2, 2, d, c),
        "join": (3, 3, 2 * c, c),
        "leave": (1, 1, c, config.colours),
    }
    others = {
        "time": (16, c),
        "qkv": (d, 3, config.heads, d // config.heads),
        "out": (config.heads, d // config.heads, d),
    }

    def normal(key: Any, shape: tuple[int, ...], inputs: int) -> Any:
        return jax.random.normal(key, shape) * inputs**-0.5

    keys = iter(jax.random.split(key, len(shapes) + len(others)))
    convs = {name: normal(next(keys), s, s[0] * s[1] * s[2]) for name, s in shapes.items()}
    rest = {name: normal(next(keys), s, s[0] if name != "out" else d) for name, s in others.items()}
    norms = {"widen": c, "narrow": d, "down": c, "middle": d, "join": 2 * c, "leave": c}
    return {
        "convs": convs,
        "scales": {name: jnp.ones(size) for name, size in norms.items()},
        "biases": {name: jnp.zeros(size) for name, size in norms.items()},
        **rest,
    }


def state_of(config: Config, key: Any) -> tuple[Tree, Tree]:
    """Parameters and Adam's state."""
    params = init(config, key)
    return params, zeros_like(params)


def batch_of(config: Config, key: Any) -> Tree:
    """Random images, noise and times."""
    images, noise, times = jax.random.split(key, 3)
    shape = (config.batch, config.size, config.size, config.colours)
    return {
        "images": jax.random.normal(images, shape),
        "noise": jax.random.normal(noise, shape),
        "times": jax.random.uniform(times, (config.batch,)),
    }


def normalised(config: Config, params: Tree, name: str, x: Any) -> Any:
    """Group norm and SiLU."""
    grouped = x.reshape(*x.shape[:-1], config.groups, -1)
    mean = jnp.mean(grouped, axis=(1, 2, 4), keepdims=True)
    spread = jnp.var(grouped, axis=(1, 2, 4), keepdims=True)
    flat = ((grouped - mean) * jax.lax.rsqrt(spread + 1e-5)).reshape(x.shape)
    return jax.nn.silu(flat * params["scales"][name] + params["biases"][name])


def attention(params: Tree, x: Any) -> Any:
    """Self-attention over all pixels."""
    flat = x.reshape(x.shape[0], -1, x.shape[-1])
    q, k, v = jnp.einsum("btd,dchk->cbthk", flat, params["qkv"])
    weights = jax.nn.softmax(jnp.einsum("bqhk,bthk->bhqt", q, k) * q.shape[-1] ** -0.5, axis=-1)
    return x + jnp.einsum("bhqt,bthk,hkd->bqd", weights, v, params["out"]).reshape(x.shape)


def forward(config: Config, params: Tree, images: Any, times: Any) -> Any:
    """The noise in images (batch, height, width, colours) at these times (batch,)."""
    convs = params["convs"]

    def conv(name: str, x: Any, stride: int = 1) -> Any:
        return jax.lax.conv_general_dilated(x, convs[name], (stride, stride), "SAME", dimension_numbers=_IMAGES)

    angles = times[:, None] * 2.0 ** jnp.arange(8)
    embedded = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1) @ params["time"]
    x = conv("enter", images) + embedded[:, None, None]
    wide = conv("widen", normalised(config, params, "widen", x))
    kept = x + conv("narrow", normalised(config, params, "narrow", wide))
    x = conv("down", normalised(config, params, "down", kept), 2)
    x = attention(params, x + conv("middle", normalised(config, params, "middle", x)))
    x = jax.lax.conv_transpose(x, convs["up"], (2, 2), "SAME", dimension_numbers=_IMAGES)
    x = conv("join", normalised(config, params, "join", jnp.concatenate([kept, x], axis=-1)))
    return conv("leave", normalised(config, params, "leave", x))


def loss_of(config: Config, params: Tree, batch: Tree) -> Any:
    """Mean square error of the noise."""
    times = batch["times"]
    level = times[:, None, None, None]
    noisy = jnp.sqrt(1 - level) * batch["images"] + jnp.sqrt(level) * batch["noise"]
    return jnp.mean((forward(config, params, noisy, times) - batch["noise"]) ** 2)


def training_step(config: Config, params: Tree, state: Tree, batch: Tree) -> tuple[Tree, Tree, Any]:
    """One step: (parameters, optimizer state, loss)."""
    loss, grads = jax.value_and_grad(partial(loss_of, config))(params, batch)
    params, state = adam(params, grads, state)
    return params, state, loss


def shapes(config: Config) -> tuple[Tree, Tree, Tree]:
    """(parameters, optimizer state, batch) as shapes only."""
    key = jax.random.key(0)
    params, state = jax.eval_shape(partial(state_of, config), key)
    return params, state, jax.eval_shape(partial(batch_of, config), key)
