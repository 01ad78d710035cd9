"""Reductions, cumulative operations, windows, sorting."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opcases.draw import Draw, Program, example


def _axes(draw: Draw, rank: int) -> tuple[int, ...]:
    return tuple(sorted(draw.rng.sample(range(rank), draw.rng.randint(1, rank))))


for _name, _function in {
    "reduce_sum": jnp.sum,
    "reduce_max": jnp.max,
    "reduce_min": jnp.min,
    "reduce_prod": jnp.prod,
}.items():

    @example(_name)
    def _(draw: Draw, function: Callable[..., Any] = _function) -> Program:
        x = draw.rng.choice([draw.mixed, partial(draw.ints, high=4)])(*draw.shape())
        return partial(function, axis=_axes(draw, x.ndim)), (x,)


@example("reduce_or reduce_and reduce_xor")
def _(draw: Draw) -> Program:
    x = draw.rng.choice([draw.bools, draw.ints])(*draw.shape())
    axes = _axes(draw, x.ndim)
    return lambda x: (lax.reduce_or(x, axes), lax.reduce_and(x, axes), lax.reduce_xor(x, axes)), (x,)


@example("reduce")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape())
    axes = _axes(draw, x.ndim)

    def both(a: Any, b: Any) -> Any:
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    return lambda x, y: lax.reduce((x, y), (0.0, -jnp.inf), both, axes), (x, x * 2)


@example("psum pmax pmin")
def _(draw: Draw) -> Program:
    def run(x: Any) -> Any:
        return lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i")

    return jax.vmap(run, axis_name="i"), (draw.mixed(*draw.shape()),)


@example("argmax argmin")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape())
    axis = draw.axis(x.shape)
    return lambda x: (lax.argmax(x, axis, "int32"), lax.argmin(x, axis, "int32")), (x,)


@example("cumsum cumprod cummax cummin cumlogsumexp")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape())
    axis, back = draw.axis(x.shape), draw.rng.random() < 0.5
    functions = (lax.cumsum, lax.cumprod, lax.cummax, lax.cummin, lax.cumlogsumexp)
    return lambda x: [function(x, axis, reverse=back) for function in functions], (x,)


@example("sort")
def _(draw: Draw) -> Program:
    shape = draw.shape()
    axis, count = draw.axis(shape), draw.rng.randint(1, 3)
    values = tuple(draw.ints(*shape, high=4) for _ in range(count))
    return lambda *xs: lax.sort(xs, dimension=axis, num_keys=draw.rng.randint(1, 1)), values


@example("top_k")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape(0, 2), 4)
    return lambda x: lax.top_k(x, 2), (x,)


@example("approx_top_k")
def _(draw: Draw) -> Program:
    return lambda x: lax.approx_max_k(x, 2, reduction_dimension=1), (draw.mixed(draw.size(), 6, draw.size()),)


@example("reduce_window_sum reduce_window_max reduce_window_min reduce_window")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape(1, 3))
    window = [min(draw.rng.choice([1, 1, 2, 3]), n) for n in x.shape]
    plain = [draw.rng.random() < 0.7 for _ in x.shape]
    strides = [1 if p else 2 for p in plain]
    padding = [(0, 0) if p else (1, 0) for p in plain]
    base = [1 if p else 2 for p in plain]
    run = partial(
        lax.reduce_window, window_dimensions=window, window_strides=strides, padding=padding, base_dilation=base
    )
    return lambda x: (
        run(x, 0.0, lax.add),
        run(x, -jnp.inf, lax.max),
        run(x, jnp.inf, lax.min),
        run(x, 1.0, lax.mul),
    ), (x,)


@example("select_and_scatter_add")
def _(draw: Draw) -> Program:
    x = draw.mixed(draw.size(), 4, 4, draw.size())
    window = (1, 2, draw.rng.choice([1, 2]), 1)
    pool = partial(
        lax.reduce_window, init_value=-jnp.inf, computation=lax.max, window_dimensions=window, padding="VALID"
    )
    return jax.grad(lambda x: (pool(x, window_strides=window) ** 2).sum()), (x,)


@example("select_and_gather_add")
def _(draw: Draw) -> Program:
    x = draw.mixed(draw.size(), 4, draw.size())
    pool = partial(
        lax.reduce_window, init_value=-jnp.inf, computation=lax.max, window_dimensions=(1, 2, 1), padding="VALID"
    )
    return lambda x, t: jax.jvp(lambda x: pool(x, window_strides=(1, 2, 1)), (x,), (t,))[1], (x, x + 1)
