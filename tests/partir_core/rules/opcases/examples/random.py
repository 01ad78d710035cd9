"""Random numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from opcases.draw import Draw, Program, example


def _keys(draw: Draw, shape: tuple[int, ...], impl: str = "threefry2x32") -> Any:
    keys = jax.random.split(jax.random.key(draw.rng.randrange(1000), impl=impl), int(np.prod(shape, dtype=int)))
    return keys.reshape(shape)


@example("random_bits")
def _(draw: Draw) -> Program:
    shape, width = draw.shape(), draw.rng.choice([8, 16, 32])
    return lambda keys: primitives.random_bits_p.bind(keys, bit_width=width, shape=shape), (
        _keys(draw, draw.shape(0, 1)),
    )


@example("random_bits")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    return lambda key: jax.random.bits(key, shape), (jax.random.key(1, impl=draw.rng.choice(["rbg", "unsafe_rbg"])),)


@example("random_split")
def _(draw: Draw) -> Program:
    shape = draw.shape(1, 2)
    return lambda keys: primitives.random_split_p.bind(keys, shape=shape), (_keys(draw, draw.shape(0, 1)),)


@example("random_seed random_fold_in random_wrap random_unwrap random_clone")
def _(draw: Draw) -> Program:
    def run(seeds: Any, data: Any) -> Any:
        keys = primitives.random_seed_p.bind(seeds, impl=jax.random.key(0).dtype._impl)
        keys = primitives.random_fold_in_p.bind(keys, data)
        return jax.random.clone(jax.random.wrap_key_data(jax.random.key_data(keys)))

    shape = draw.shape(1, 2)
    return run, (draw.ints(*shape), draw.ints(*(shape if draw.rng.random() < 0.5 else ())))


@example("random_gamma")
def _(draw: Draw) -> Program:
    shape = draw.size(), draw.rng.choice([1, 2])
    return lambda keys, a: primitives.random_gamma_p.bind(keys, a, log_space=True), (
        _keys(draw, shape[: draw.rng.randint(0, len(shape))]),
        draw.floats(*shape),
    )


@example("rng_bit_generator")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    return lambda state: lax.rng_bit_generator(state, shape), (jnp.arange(4, dtype="uint32"),)


@example("threefry2x32")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    words = [draw.ints(*one, dtype="uint32") for one in ((), (), shape, shape)]
    return primitives.threefry2x32_p.bind, tuple(words)
