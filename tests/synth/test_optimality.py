"""Plans cost what brute force over all layouts finds, on every pair of small families."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import pytest

from redist.collectives.steps import op_name
from redist.synth import synthesize
from redist.types import Layout, Mesh, SubAxis

# (sub-axes as (axis, pre, size), shape, sources and targets sampled per source; None is all)
_FAMILIES: list[tuple[str, list[tuple[str, int, int]], tuple[int, ...], int | None]] = [
    ("2x2x2 rank 2", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2)], (8, 8), None),
    ("2x4 with sub-axes", [("x", 1, 2), ("y", 1, 2), ("y", 2, 2)], (8, 8), None),
    ("2x3", [("x", 1, 2), ("y", 1, 3)], (12, 12), None),
    ("2x3x5", [("x", 1, 2), ("y", 1, 3), ("z", 1, 5)], (30, 30), 12),
    ("2x2x2, a short dimension", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2)], (16, 4), None),
    ("2x2x2, short dimensions", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2)], (4, 2, 8), 20),
    ("2x2x3 rank 3", [("x", 1, 2), ("y", 1, 2), ("z", 1, 3)], (12, 12, 12), 15),
    ("2x3x3, short dimensions", [("x", 1, 2), ("y", 1, 3), ("z", 1, 3)], (18, 6, 3), 10),
]
_HEAVY: list[tuple[str, list[tuple[str, int, int]], tuple[int, ...], int | None]] = [
    ("2x3x5", [("x", 1, 2), ("y", 1, 3), ("z", 1, 5)], (30, 30), None),
    ("2x2x2 rank 3", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2)], (8, 8, 8), None),
    ("2x2x3 rank 3", [("x", 1, 2), ("y", 1, 2), ("z", 1, 3)], (12, 12, 12), None),
    ("2x2x2x2 rank 2", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2), ("w", 1, 2)], (16, 16), 100),
    ("2x8 rank 3", [("x", 1, 2), ("y", 1, 2), ("y", 2, 2), ("y", 4, 2)], (16, 16, 16), 12),
    ("2x2x2x3 rank 2", [("x", 1, 2), ("y", 1, 2), ("z", 1, 2), ("w", 1, 3)], (24, 24), 40),
]


def _ids(family: tuple[str, Any, Any, Any]) -> str:
    return family[0]


@pytest.mark.parametrize("family", _FAMILIES, ids=_ids)
def test_as_cheap_as_brute_force(family: Any, oracle: Any) -> None:
    """Received elements, then communication steps, equal the optimum over normal-form plans."""
    _compare(family, oracle)


@pytest.mark.heavy
@pytest.mark.parametrize("family", _HEAVY, ids=_ids)
def test_as_cheap_as_brute_force_large(family: Any, oracle: Any) -> None:
    """The same on larger families."""
    _compare(family, oracle)


def _compare(family: Any, oracle: Any) -> None:
    _, parts, shape, sample = family
    sizes: dict[str, int] = {}
    for axis, _, size in parts:
        sizes[axis] = sizes.get(axis, 1) * size
    mesh = Mesh(sizes)
    axes = [SubAxis(axis, pre, size) for axis, pre, size in parts]
    brute = oracle(tuple(size for _, _, size in parts), shape)
    layouts = {s: Layout(mesh, shape, [[axes[d] for d in digits] for digits in s]) for s in brute.states}
    rng = random.Random(20)
    sources = brute.states if sample is None else rng.sample(brute.states, sample)
    wrong: list[str] = []
    for source in sources:
        costs: dict[Fraction, dict[Any, Any]] = {}
        for target in brute.states if sample is None else rng.sample(brute.states, min(150, len(brute.states))):
            if source == target:
                continue
            bound = max(brute.block[source], brute.block[target])
            if bound not in costs:
                costs[bound] = brute.costs(source, bound)
            plan = synthesize(layouts[source], layouts[target])
            ours = (Fraction(plan.received_bytes, 4), plan.communication_steps)
            if ours != costs[bound][target] or any(op_name(step) == "exchange" for step in plan.steps):
                wrong.append(f"{plan.source} -> {plan.target}: {ours} against {costs[bound][target]}")
    assert not wrong, "\n".join(wrong[:10])


def test_the_oracle_is_right_on_a_case_by_hand(oracle: Any) -> None:
    """x=2: moving 2 of 4 rows' halves costs half a block, gathering the other block costs one."""
    brute = oracle((2,), (4, 4))
    costs = brute.costs(((0,), ()), Fraction(16))
    assert costs[(), (0,)] == (Fraction(4), 1)
    assert costs[(), ()] == (Fraction(8), 1)
    assert math.prod(brute.shape) == 16
