"""What a rule says, read independently: tiles by index sets, results by the factors' kinds.

Nothing here uses the library but the data of a `Rule`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import jax
import numpy as np

Cut = Mapping[int, int]
"""Factor -> into how many parts it is cut."""

Place = Mapping[int, int]
"""Factor -> which of its parts."""

REDUCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "prod": np.multiply,
}


def is_key(value: Any) -> bool:
    return jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)


def to_numpy(value: Any) -> Any:
    """The elements; of keys, their words."""
    return np.asarray(jax.random.key_data(value) if is_key(value) else value)


def like(data: Any, model: Any) -> Any:
    """JAX's array of these elements, of the model's type."""
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(model)) if is_key(model) else jax.numpy.asarray(data)


def members(rule: Any, dims: tuple[int, ...], cut: Cut, place: Place) -> Any:
    """The indices along a dimension that belong to a tile, in order."""
    found = np.zeros(1, int)
    for f in dims:
        size = rule.factors[f].size
        mine = np.arange(size)
        if f in cut:
            mine = mine.reshape(cut[f], size // cut[f])[place[f]]
        found = (found[:, None] * size + mine).reshape(-1)
    return found


def tile_of(rule: Any, value: Any, dims: Sequence[tuple[int, ...]], cut: Cut, place: Place) -> Any:
    """The tile of a value, in NumPy."""
    data = to_numpy(value)
    for d, factors in enumerate(dims):
        data = np.take(data, members(rule, factors, cut, place), axis=d)
    return data


def places(cut: Cut) -> list[dict[int, int]]:
    """All tiles."""
    return [
        dict(zip(cut, where, strict=True)) for where in itertools.product(*(range(parts) for parts in cut.values()))
    ]


def together(rule: Any, j: int, whole: Any, cut: Cut, tiles: Sequence[tuple[Place, Any]]) -> Any:
    """Result `j` of the whole operation, of which `whole` has the shape and the type, out of its tiles' results.

    Tiles that hold the same block and are not told apart by a reduction have to agree.
    """
    dims = rule.results[j]
    held = {f for factors in dims for f in factors}
    model = to_numpy(whole)
    made = np.zeros_like(model)
    reduced = [f for f in cut if rule.factors[f].kind in REDUCTIONS]
    for block in places({f: parts for f, parts in cut.items() if f in held}):
        same = [(place, to_numpy(data)) for place, data in tiles if all(place[f] == c for f, c in block.items())]
        groups: dict[tuple[int, ...], list[Any]] = {}
        for place, data in same:
            groups.setdefault(tuple(place[f] for f in reduced), []).append(data)
        for group in groups.values():
            for other in group[1:]:
                np.testing.assert_array_equal(group[0], other, "tiles with one block of a result differ")
        parts = [group[0] for group in groups.values()]
        if len(parts) > 1:
            (kind,) = {rule.factors[f].kind for f in reduced}
            value = reduce(REDUCTIONS[kind], parts).astype(model.dtype)
        else:
            (value,) = parts
        where = [members(rule, factors, cut, block) for factors in dims]
        where += [np.arange(n) for n in model.shape[len(dims) :]]
        assert value.shape == tuple(len(axis) for axis in where), (value.shape, [len(axis) for axis in where])
        made[np.ix_(*where)] = value
    return made


def assert_same(made: Any, expected: Any, where: str, exact: bool = False) -> None:
    """Equal, up to the rounding of sums in another order; bit by bit but for zeros' signs where `exact`."""
    expected = to_numpy(expected)
    assert made.dtype == expected.dtype, where
    if exact or expected.dtype.kind in "biu":
        np.testing.assert_array_equal(made, expected, where)
        return
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    loose = expected.dtype.itemsize < 4
    np.testing.assert_allclose(
        made.astype(wide),
        expected.astype(wide),
        rtol=0.05 if loose else 2e-4,
        atol=0.05 if loose else 2e-5,
        err_msg=where,
    )
