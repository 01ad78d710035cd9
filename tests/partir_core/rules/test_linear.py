"""Operations said to be linear are: of sums on the named operands, they make the sum of what they make of each."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

from opcases.examples import EXAMPLES, Draw  # noqa: E402
from opcases.operations import Operation, operations_of  # noqa: E402
from opcases.tiling import assert_same, is_key, to_numpy  # noqa: E402

from redist.partir_core.rules import families, linear_in  # noqa: E402


def random_like(value: Any, rng: np.random.Generator) -> Any:
    """Other numbers of the same shape and type; small ones, which integers hold."""
    return jax.numpy.asarray(rng.normal(size=value.shape) * 4).astype(value.dtype)


def sets_of(operation: Operation) -> tuple[frozenset[int], ...]:
    return linear_in(operation.name, operation.params, len(operation.operands))


def check_linear(operation: Operation, rng: np.random.Generator) -> int:
    """Each set of operands, as the sum of two random summands."""
    count = 0
    for one in sets_of(operation):
        values = list(operation.operands)
        assert all(0 <= k < len(values) for k in one)
        if any(is_key(values[k]) or values[k].dtype == np.dtype(bool) for k in one):
            continue
        parts: list[list[Any]] = [list(values), list(values)]
        for k in one:
            for part in parts:
                part[k] = random_like(values[k], rng)
            values[k] = parts[0][k] + parts[1][k]
        whole = operation.run(values)
        for j, (a, b) in enumerate(zip(*(operation.run(part) for part in parts), strict=True)):
            assert_same(
                (to_numpy(a) + to_numpy(b)).astype(to_numpy(whole[j]).dtype), whole[j], f"{operation.name} {one}"
            )
        count += 1
    return count


LINEAR = {name for name, entry in families().items() if entry.linear}
CASES = [n for n, (names, _) in enumerate(EXAMPLES) if LINEAR & set(names.split())]


@pytest.mark.parametrize("n", CASES, ids=[EXAMPLES[n][0] for n in CASES])
def test_linear_operations_are_linear(n: int) -> None:
    """Every primitive with linear operands."""
    names, maker = EXAMPLES[n]
    wanted = LINEAR & set(names.split())
    checked: set[str] = set()
    for seed in range(10):
        function, args = maker(Draw(Random(zlib.crc32(names.encode()) + 100 * n + seed)))
        for operation in operations_of(function, *args):
            if operation.name not in wanted:
                continue
            on_keys = any(map(is_key, operation.operands))  # nothing to add up
            by_params = callable(families()[operation.name].linear) and not sets_of(operation)  # a gather that fills
            if on_keys or by_params or check_linear(operation, np.random.default_rng(seed)):
                checked.add(operation.name)
        if checked == wanted:
            return
    raise AssertionError(f"{wanted - checked} did not come up")


@pytest.mark.parametrize(
    ("name", "params", "operands", "expected"),
    [
        ("add", {}, 2, ({0, 1},)),
        ("mul", {}, 2, ({0}, {1})),
        ("dot_general", {}, 2, ({0}, {1})),
        ("transpose", {}, 1, ({0},)),
        ("select_n", {}, 4, ({1, 2, 3},)),
        ("select_n", {}, None, ()),
        ("concatenate", {}, 3, ({0, 1, 2},)),
        ("scatter-add", {}, 3, ({0, 2},)),
        ("convert_element_type", {}, 1, ()),
        ("div", {}, 2, ()),  # not of integers
        ("max", {}, 2, ()),
        ("reduce_max", {}, 1, ()),
        ("exp", {}, 1, ()),
    ],
)
def test_sets(name: str, params: dict[str, Any], operands: int | None, expected: tuple[set[int], ...]) -> None:
    assert linear_in(name, params, operands) == tuple(frozenset(one) for one in expected)
