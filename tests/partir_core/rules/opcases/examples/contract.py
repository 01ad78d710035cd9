"""Contractions."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from opcases.draw import EXAMPLES, Draw, Program, example


@example("dot_general")
def _(draw: Draw) -> Program:
    names = draw.rng.sample(["b", "c", "i", "j", "k", "l"], draw.rng.randint(2, 5))
    sizes = {name: draw.size() for name in names}
    left = [n for n in names if n in "bcikl"]
    right = [n for n in names if n in "bcjkl"]
    draw.rng.shuffle(left)
    draw.rng.shuffle(right)
    batch = [n for n in names if n in "bc"]
    inner = [n for n in names if n in "kl"]
    numbers = (
        ([left.index(n) for n in inner], [right.index(n) for n in inner]),
        ([left.index(n) for n in batch], [right.index(n) for n in batch]),
    )
    kind = draw.rng.choice(["float32", "int32", "bool"])
    values = [
        draw.mixed(*(sizes[n] for n in side))
        if kind == "float32"
        else draw.ints(*(sizes[n] for n in side))
        if kind == "int32"
        else draw.bools(*(sizes[n] for n in side))
        for side in (left, right)
    ]
    return lambda a, b: lax.dot_general(a, b, numbers), tuple(values)


@example("ragged_dot_general")
def _(draw: Draw) -> Program:
    m, k, n, g = 6, draw.size(), draw.size(), draw.rng.choice([2, 3])
    sizes = jnp.asarray([2, 3, 1][:g] if g == 3 else [4, 2], "int32")
    if draw.rng.random() < 0.5:
        return lax.ragged_dot, (draw.mixed(m, k), draw.mixed(g, k, n), sizes)
    numbers = lax.RaggedDotDimensionNumbers((((0,), (0,)), ((), ())), [0], [])
    return lambda a, b, s: lax.ragged_dot_general(a, b, s, numbers), (draw.mixed(m, k), draw.mixed(m, n), sizes)


def _convolution(draw: Draw, feature_groups: int, batch_groups: int) -> Program:
    rank = draw.rng.randint(1, 2)
    letters = "XY"[:rank]

    def spec(others: str) -> str:
        order = [*others, *letters]
        draw.rng.shuffle(order)
        return "".join(order)

    specs = spec("NC"), spec("OI"), spec("NC")
    space = {x: draw.rng.choice([3, 4, 6]) for x in letters}
    window = {x: draw.rng.choice([1, 2, 3]) for x in letters}
    features, per_group = draw.rng.choice([1, 2, 4]), draw.rng.choice([1, 2, 3])
    lhs = {"N": draw.rng.choice([1, 2, 3]) * batch_groups, "C": features * feature_groups, **space}
    rhs = {"O": per_group * feature_groups * batch_groups, "I": features, **window}
    plain = draw.rng.random() < 0.5
    options: dict[str, Any] = {
        "window_strides": [1 if plain else draw.rng.choice([1, 2]) for _ in letters],
        "padding": "VALID" if plain else [(draw.rng.randint(0, 2), draw.rng.randint(0, 2)) for _ in letters],
        "lhs_dilation": [1 if plain else draw.rng.choice([1, 2]) for _ in letters],
        "rhs_dilation": [1 if plain else draw.rng.choice([1, 2]) for _ in letters],
    }
    options |= {"feature_group_count": feature_groups, "batch_group_count": batch_groups}
    run = partial(lax.conv_general_dilated, dimension_numbers=specs, **options)
    a, b = (draw.mixed(*(sizes[x] for x in one)) for sizes, one in ((lhs, specs[0]), (rhs, specs[1])))
    return run, (a, b)


EXAMPLES += [
    ("conv_general_dilated", lambda draw: _convolution(draw, 1, 1)),
    ("conv_general_dilated", lambda draw: _convolution(draw, draw.rng.choice([2, 4]), 1)),
    ("conv_general_dilated", lambda draw: _convolution(draw, 1, draw.rng.choice([2, 3]))),
]


@example("conv_general_dilated")
def _(draw: Draw) -> Program:
    run, args = _convolution(draw, draw.rng.choice([1, 2]), 1)
    return jax.grad(lambda *xs: (run(*xs) ** 2).sum(), (0, 1)), args
