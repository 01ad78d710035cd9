"""Arrangement of elements."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from opcases.draw import EXAMPLES, Draw, Program, example


@example("transpose")
def _(draw: Draw) -> Program:
    x = draw.any(*draw.shape(1, 4))
    order = draw.rng.sample(range(x.ndim), x.ndim)
    return lambda x: lax.transpose(x, order), (x,)


@example("broadcast_in_dim")
def _(draw: Draw) -> Program:
    target = draw.shape(1, 4)
    kept = sorted(draw.rng.sample(range(len(target)), draw.rng.randint(0, len(target))))
    x = draw.any(*(target[d] if draw.rng.random() < 0.7 else 1 for d in kept))
    return lambda x: lax.broadcast_in_dim(x, target, kept), (x,)


@example("reshape")
def _(draw: Draw) -> Program:
    primes = [draw.rng.choice([2, 2, 3]) for _ in range(draw.rng.randint(1, 4))]

    def grouped() -> tuple[int, ...]:
        order = draw.rng.sample(primes, len(primes)) if draw.rng.random() < 0.4 else primes
        shape = [1]
        for prime in order:
            if draw.rng.random() < 0.5:
                shape.append(1)
            shape[-1] *= prime
        return tuple(shape)

    before, after = grouped(), grouped()
    order = tuple(draw.rng.sample(range(len(before)), len(before))) if draw.rng.random() < 0.3 else None
    return lambda x: lax.reshape(x, after, order), (draw.any(*before),)


EXAMPLES += [EXAMPLES[-1]] * 2


@example("squeeze")
def _(draw: Draw) -> Program:
    shape = [*draw.shape(1, 3)]
    at = draw.rng.randint(0, len(shape))
    shape.insert(at, 1)
    return lambda x: lax.squeeze(x, (at,)), (draw.any(*shape),)


@example("slice")
def _(draw: Draw) -> Program:
    x = draw.any(*draw.shape(1, 3))
    start, limit, step = [], [], []
    for n in x.shape:
        whole = draw.rng.random() < 0.5
        start.append(0 if whole else draw.rng.randrange(n))
        limit.append(n if whole else draw.rng.randint(start[-1] + 1, n))
        step.append(1 if whole else draw.rng.randint(1, 2))
    return lambda x: lax.slice(x, start, limit, step), (x,)


@example("pad")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape(1, 3))
    choices = [(0, 0, 0), (0, 0, 0), (1, 2, 0), (0, 1, 1), (1, -1, 0)]
    padding = [draw.rng.choice(choices) for _ in x.shape]
    return lambda x, v: lax.pad(x, v, padding), (x, draw.mixed())


@example("rev")
def _(draw: Draw) -> Program:
    x = draw.any(*draw.shape(1, 3))
    return lambda x: lax.rev(x, [d for d in range(x.ndim) if draw_bit(d, x.shape)]), (x,)


def draw_bit(d: int, shape: tuple[int, ...]) -> bool:
    """Some dimensions, the same ones for the same shape."""
    return (d + sum(shape)) % 2 == 0


@example("concatenate")
def _(draw: Draw) -> Program:
    shape = [*draw.shape(1, 3)]
    axis = draw.axis(tuple(shape))
    parts = []
    for _ in range(draw.rng.randint(2, 3)):
        shape[axis] = draw.size()
        parts.append(draw.mixed(*shape))
    return lambda *xs: lax.concatenate(xs, axis), tuple(parts)


@example("split")
def _(draw: Draw) -> Program:
    shape = [*draw.shape(1, 3)]
    axis = draw.axis(tuple(shape))
    sizes = [draw.size() for _ in range(2)]
    shape[axis] = sum(sizes)
    return lambda x: lax.split(x, sizes, axis), (draw.any(*shape),)


@example("stack unstack")
def _(draw: Draw) -> Program:
    shape = draw.shape(1, 3)
    axis = draw.rng.randint(0, len(shape))
    return lambda *xs: jnp.unstack(jnp.stack(xs, axis), axis=axis), tuple(draw.mixed(*shape) for _ in range(3))


@example("tile")
def _(draw: Draw) -> Program:
    x = draw.any(*draw.shape(1, 3))
    copies = tuple(draw.rng.choice([1, 2, 3]) for _ in x.shape)
    return lambda x: lax.tile(x, copies), (x,)


@example("iota")
def _(draw: Draw) -> Program:
    shape = draw.shape(1, 3)
    axis = draw.axis(shape)
    dtype = draw.rng.choice(["int32", "float32", "uint8", "bfloat16", "int8"])
    return lambda: lax.broadcasted_iota(dtype, shape, axis), ()


@example("iota")
def _(draw: Draw) -> Program:
    """Numbers that round, the more so when two rounded ones are added."""
    return lambda: lax.iota("bfloat16", 600), ()
