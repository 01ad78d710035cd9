"""Random programs under random schedules compute what they do unpartitioned: small arrays through matrix
products, elementwise operations, reductions, transposes, reshapes, broadcasts, concatenations, gathers, scans,
conditionals and derivatives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redist import Mesh
from redist import partir_core as partir
from redist.errors import LayoutError
from redist.partir_core import FIRST_DIVISIBLE_DIM, REPLICATED, ManualPartition

pytestmark = pytest.mark.filterwarnings("ignore:tactic .* changes nothing")
MESHES = ({"B": 2, "M": 2}, {"B": 4, "M": 2}, {"B": 2, "M": 2, "Z": 2})

SIZES = (1, 2, 4, 8)
Program = Callable[[dict[str, Any]], dict[str, Any]]


def random_inputs(rng: random.Random, count: int) -> dict[str, Any]:
    """Named arrays of rank 0 to 3, of multiples of a quarter: sums of products of few are exact."""
    made: dict[str, Any] = {}
    for n in range(count):
        shape = tuple(rng.choice(SIZES) for _ in range(rng.choice((0, 1, 2, 2, 2, 3))))
        values = np.random.default_rng(rng.getrandbits(32)).integers(-4, 5, shape)
        made[f"x{n}"] = (values / 4).astype(np.float32)
    return made


def random_program(rng: random.Random, length: int) -> Program:
    """A function of named arrays. It draws its operations from a fixed seed, so that it is the same program
    every time it is traced."""
    seed = rng.getrandbits(32)

    def program(inputs: dict[str, Any]) -> dict[str, Any]:
        draw = random.Random(seed)
        pool = [jnp.asarray(inputs[name]) for name in sorted(inputs)]
        for _ in range(length):
            pool.append(_step(draw, pool))
        results = draw.sample(pool[len(inputs) :], min(3, length))
        return {f"y{n}": y for n, y in enumerate([*results, pool[-1]])}

    return program


def random_gradient(rng: random.Random, length: int) -> Program:
    """The gradient of a random program's sum."""
    program = random_program(rng, length)

    def total(inputs: dict[str, Any]) -> Any:
        return sum(jnp.sum(jnp.tanh(y)) for y in program(inputs).values())

    return jax.grad(total)


def random_schedule(rng: random.Random, inputs: dict[str, Any], axes: list[str], length: int) -> list[ManualPartition]:
    """Tactics on these axes, some of which may not fit."""
    tactics: list[ManualPartition] = []
    for _ in range(length):
        entries: dict[str, Any] = {}
        for name in rng.sample(sorted(inputs), rng.randint(1, len(inputs))):
            rank = np.ndim(inputs[name])
            choices: list[Any] = [FIRST_DIVISIBLE_DIM, *range(rank)]
            if rng.random() < 0.1:
                choices = [REPLICATED]
            entries[f"inputs/{name}"] = rng.choice(choices)
        tactics.append(ManualPartition(entries, rng.choice(axes)))
    return tactics


def _step(draw: random.Random, pool: list[Any]) -> Any:
    x = draw.choice(pool)
    y = draw.choice([y for y in pool if y.shape == x.shape])
    kind = draw.choice(_KINDS)
    return kind(draw, x, y, pool)


def _unary(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    return draw.choice([jnp.tanh, jnp.negative, jnp.abs, lambda x: x * 0.5, lambda x: x + 1, jax.nn.relu])(x)


def _binary(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    return draw.choice([jnp.add, jnp.subtract, jnp.multiply, jnp.maximum])(x, y)


def _matmul(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    pairs = [
        (a, b, i, j)
        for a in pool
        for b in pool
        for i in range(a.ndim)
        for j in range(b.ndim)
        if a.shape[i] == b.shape[j] and a.ndim + b.ndim <= 5
    ]
    if not pairs:
        return jnp.tanh(x)
    a, b, i, j = draw.choice(pairs)
    return jnp.tensordot(a, b, axes=(i, j)) * 0.25


def _reduce(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    if x.ndim == 0:
        return x
    axis = draw.randrange(x.ndim)
    return draw.choice([jnp.sum, jnp.max, jnp.mean, jnp.min])(x, axis=axis, keepdims=draw.random() < 0.4)


def _transpose(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    order = list(range(x.ndim))
    draw.shuffle(order)
    return jnp.transpose(x, order)


def _reshape(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    size, shape = x.size, []
    while size > 1 and len(shape) < 3:
        part = draw.choice([n for n in (1, 2, 4, 8, size) if size % n == 0])
        shape.append(part)
        size //= part
    return x.reshape([*shape, size] if size > 1 else shape)


def _broadcast(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    if x.ndim >= 3:
        return x
    return jnp.broadcast_to(x, (draw.choice(SIZES), *x.shape)) + jnp.zeros((1,) * (x.ndim + 1))


def _concatenate(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    return jnp.concatenate([x, y], axis=draw.randrange(x.ndim)) if x.ndim else jnp.stack([x, y])


def _slice(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    if x.ndim == 0:
        return x
    axis = draw.randrange(x.ndim)
    return jax.lax.slice_in_dim(x, 0, max(1, x.shape[axis] // 2), axis=axis)


def _gather(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    if x.ndim == 0:
        return x
    indices = jnp.arange(draw.choice(SIZES)) * 3 % x.shape[0]
    return x[indices]


def _scan(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    if x.ndim == 0:
        return x

    def body(carry: Any, row: Any) -> Any:
        return 0.5 * carry + row, jnp.tanh(carry) * row

    carry, ys = jax.lax.scan(body, jnp.zeros(x.shape[1:]), x, reverse=draw.random() < 0.3)
    return draw.choice([carry, ys])


def _cond(draw: random.Random, x: Any, y: Any, pool: list[Any]) -> Any:
    return jax.lax.cond(jnp.sum(x) > 0, lambda a, b: a + b, lambda a, b: a * 0.5, x, y)


_KINDS = (
    _unary, _binary, _binary, _matmul, _matmul, _reduce, _transpose, _reshape, _broadcast, _concatenate, _slice,
    _gather, _scan, _cond,
)  # fmt: skip


def fitting(fn: Program, inputs: dict[str, Any], mesh: Mesh, tactics: list[ManualPartition]) -> list[ManualPartition]:
    """Those tactics that divide and contradict none before them."""
    kept: list[ManualPartition] = []
    for tactic in tactics:
        try:
            partir.jit(fn, mesh, [*kept, tactic]).lower(inputs)
            kept.append(tactic)
        except LayoutError:
            continue
    return kept


def run_one(seed: int, check: Any) -> partir.Report:
    rng = random.Random(seed)
    inputs = random_inputs(rng, rng.randint(1, 4))
    program = (random_gradient if rng.random() < 0.4 else random_program)(rng, rng.randint(1, 12))
    mesh = Mesh(rng.choice(MESHES))
    axes = [*mesh.names, *(["B:(1)2", "B:(2)2"] if mesh.sizes[0] == 4 else [])]
    schedule = fitting(program, inputs, mesh, random_schedule(rng, inputs, axes, rng.randint(1, 4)))
    options = {"share_gathers": rng.random() < 0.3, "any_reduction": rng.random() < 0.3}
    return check(program, [inputs], schedule, mesh, **options)


def test_random_programs(check: Any) -> None:
    reports = [run_one(seed, check) for seed in range(20)]
    assert sum(sum(r.collectives.values()) > 0 for r in reports) >= 6  # they do communicate


@pytest.mark.heavy
@pytest.mark.parametrize("first", range(1000, 2000, 50))
def test_more_random_programs(check: Any, first: int) -> None:
    for seed in range(first, first + 50):
        run_one(seed, check)
