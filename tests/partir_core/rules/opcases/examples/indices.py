"""Gathers, scatters, dynamic slices."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import primitives

from opcases.draw import EXAMPLES, Draw, Program, example

MODES = [lax.GatherScatterMode.CLIP, lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.PROMISE_IN_BOUNDS]


def _window_case(draw: Draw) -> dict[str, Any]:
    """Operand dimensions, each indexed one way, with what gather and scatter want to know about them."""
    ways = [
        draw.rng.choice(["collapsed", "window", "partial", "single", "batch"]) for _ in range(draw.rng.randint(1, 4))
    ]
    sizes = [draw.rng.choice([2, 3, 4, 6]) for _ in ways]
    indexed = [d for d, way in enumerate(ways) if way != "batch" and not (way == "window" and draw.rng.random() < 0.7)]
    draw.rng.shuffle(indexed)
    batching = [d for d, way in enumerate(ways) if way == "batch"]
    extra = [draw.size() for _ in range(draw.rng.randint(0, 2))]
    index_batch = [("batch", d, sizes[d]) for d in batching] + [("free", -1, n) for n in extra]
    draw.rng.shuffle(index_batch)
    where = {d: i for i, (kind, d, _) in enumerate(index_batch) if kind == "batch"}
    widths = [
        {"collapsed": 1, "window": n, "partial": max(1, n - 1), "single": 1, "batch": 1}[way]
        for way, n in zip(ways, sizes, strict=True)
    ]
    dtype = draw.rng.choice(["int32", "int8", "uint32", "uint8"])
    shape = [n for _, _, n in index_batch] + [len(indexed)]
    low = 0 if dtype.startswith("u") else -3
    columns = [draw.numbers.integers(low, sizes[d] + 3, shape[:-1]) for d in indexed]
    indices = np.stack(columns, -1) if columns else np.zeros(shape)
    windows = [d for d, way in enumerate(ways) if way in {"window", "partial", "single"}]
    rank = len(index_batch) + len(windows)
    offsets = sorted(draw.rng.sample(range(rank), len(windows)))
    return {
        "sizes": sizes,
        "widths": widths,
        "windows": windows,
        "offsets": tuple(offsets),
        "collapsed": tuple(d for d, way in enumerate(ways) if way == "collapsed"),
        "indexed": tuple(indexed),
        "batching": tuple(batching),
        "index_batching": tuple(where[d] for d in batching),
        "indices": jnp.asarray(indices).astype(dtype),
        "batch_sizes": shape[:-1],
        "rank": rank,
    }


def _in_bounds(case: dict[str, Any]) -> Any:
    """The case's indices, moved into bounds."""
    limits = [case["sizes"][d] - case["widths"][d] for d in case["indexed"]]
    kind = case["indices"].dtype
    return jnp.clip(case["indices"], 0, jnp.asarray(limits, kind)).astype(kind) if limits else case["indices"]


def _gather(draw: Draw) -> Program:
    case = _window_case(draw)
    mode = draw.rng.choice(MODES)
    numbers = lax.GatherDimensionNumbers(
        case["offsets"], case["collapsed"], case["indexed"], case["batching"], case["index_batching"]
    )
    fill = draw.rng.choice([None, 7]) if mode == lax.GatherScatterMode.FILL_OR_DROP else None
    values = draw.rng.choice([draw.mixed, draw.ints, draw.bools])(*case["sizes"])
    run = partial(lax.gather, dimension_numbers=numbers, slice_sizes=tuple(case["widths"]), mode=mode, fill_value=fill)
    return run, (values, case["indices"])


EXAMPLES += [("gather", _gather)] * 6


@example("gather")
def _(draw: Draw) -> Program:
    keys = jax.random.split(jax.random.key(3), (6,))
    return lambda keys, i: keys[i], (keys, draw.ints(4, high=6))


@example("gather")
def _(draw: Draw) -> Program:
    """Filled where the index is out of bounds, once however many tiles there are."""
    numbers = lax.GatherDimensionNumbers((0,), (0,), (0,))
    run = partial(lax.gather, dimension_numbers=numbers, slice_sizes=(1, 3), mode=MODES[1], fill_value=7)
    return run, (draw.mixed(4, 3), jnp.asarray([[-1], [2], [9], [0]], "int32"))


SCATTERS = {
    "scatter": lax.scatter,
    "scatter-add": lax.scatter_add,
    "scatter-sub": lax.scatter_sub,
    "scatter-mul": lax.scatter_mul,
    "scatter-min": lax.scatter_min,
    "scatter-max": lax.scatter_max,
}


def _scatter(draw: Draw, name: str) -> Program:
    case = _window_case(draw)
    mode = draw.rng.choice(MODES)
    numbers = lax.ScatterDimensionNumbers(
        case["offsets"], case["collapsed"], case["indexed"], case["batching"], case["index_batching"]
    )
    shape: list[int] = []
    windows, batch = iter(case["widths"][d] for d in case["windows"]), iter(case["batch_sizes"])
    for d in range(case["rank"]):
        shape.append(next(windows) if d in case["offsets"] else next(batch))
    # Which of several updates of one element counts last is not defined: only one value is written then.
    updates = jnp.full(shape, 5.0) if name == "scatter" else draw.mixed(*shape)
    indices = _in_bounds(case) if mode == lax.GatherScatterMode.PROMISE_IN_BOUNDS else case["indices"]
    run = partial(SCATTERS[name], dimension_numbers=numbers, mode=mode)
    return run, (draw.mixed(*case["sizes"]), indices, updates)


for _name in SCATTERS:
    EXAMPLES += [(_name, partial(_scatter, name=_name))] * (3 if _name in {"scatter", "scatter-add"} else 1)


@example("dynamic_slice")
def _(draw: Draw) -> Program:
    x = draw.any(*draw.shape())
    sizes = [n if draw.rng.random() < 0.5 else draw.rng.randint(1, n) for n in x.shape]
    starts = [draw.ints(low=-1, high=n + 2) for n in x.shape]
    return lambda x, *starts: primitives.dynamic_slice_p.bind(x, *starts, slice_sizes=tuple(sizes)), (
        x,
        *starts,
    )


def _update(draw: Draw) -> Program:
    x = draw.any(*draw.shape())
    sizes = [n if draw.rng.random() < 0.3 else draw.rng.randint(1, n) for n in x.shape]
    dtype = draw.rng.choice(["int32", "uint8", "int8"])
    starts = [draw.ints(low=0 if dtype == "uint8" else -1, high=n + 2, dtype=dtype) for n in x.shape]
    update = draw.any(*sizes).astype(x.dtype)
    return primitives.dynamic_update_slice_p.bind, (x, update, *starts)


EXAMPLES += [("dynamic_update_slice", _update)] * 3
