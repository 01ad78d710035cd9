"""Every plan simulates to the exact target, through no block above max(source, target)."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from redist.collectives import Plan, simulate
from redist.synth import synthesize
from redist.testing import all_layouts, random_problems
from redist.types import Layout, Mesh
from redist.types.dtypes import numpy_dtype


def _check(source: Layout, target: Layout) -> Plan:
    plan = synthesize(source, target)
    values = np.arange(1, math.prod(source.shape) + 1).reshape(source.shape)
    simulate(plan, values.astype(numpy_dtype(source.dtype)))
    assert plan.layouts[-1].equivalent(target)
    bound = max(source.block_bytes(), target.block_bytes())
    assert all(layout.block_bytes() <= bound for layout in plan.layouts), f"{source} -> {target}"
    assert plan.received_bytes >= plan.lower_bound_bytes
    return plan


@pytest.mark.parametrize(
    ("mesh", "shape", "pairs"),
    [("x=2,y=2,z=2", (8, 8), 2352), ("x=2,y=4", (8, 8), 110), ("x=2,y=3", (12, 12), 110)],
)
def test_all_pairs(mesh: str, shape: tuple[int, ...], pairs: int) -> None:
    """All ordered pairs of distinct layouts over whole axes."""
    layouts = all_layouts(Mesh.parse(mesh), shape=shape)
    found = list(itertools.permutations(layouts, 2))
    assert len(found) == pairs
    for source, target in found:
        _check(source, target)


@pytest.mark.parametrize(("mesh", "shape"), [("x=2,y=3,z=5", (30, 30)), ("x=2,y=2,z=2", (8, 8, 8))])
def test_sampled_pairs(mesh: str, shape: tuple[int, ...]) -> None:
    """3,000 pairs, drawn from all ordered pairs of distinct layouts."""
    layouts = list(all_layouts(Mesh.parse(mesh), shape=shape))
    rng = random.Random(7)
    for _ in range(3000):
        source, target = rng.sample(layouts, 2)
        _check(source, target)


def test_random_problems() -> None:
    """2,000 problems: uneven, block rules, sub-axes, partial sources, other meshes and device sets."""
    for source, target in random_problems(seed=11, count=2000):
        _check(source, target)


@pytest.mark.parametrize("mesh", ["x=2,y=2,z=2,w=3", "x=4,y=6", "x=8,y=3", "x=2,y=3,z=4"])
def test_mixed_meshes(mesh: str) -> None:
    """300 pairs of each, all sizes divisible."""
    devices = Mesh.parse(mesh)
    layouts = list(all_layouts(devices))
    rng = random.Random(5)
    for _ in range(300):
        source, target = rng.sample(layouts, 2)
        _check(source, target)


def test_same_layout_needs_no_steps() -> None:
    """synthesize(a, a) is empty, also where only the notation differs."""
    mesh = Mesh.parse("x=4,y=2")
    layout = Layout.parse("f32[16{x,y}, 8]", mesh)
    other = Layout.parse("f32[16{z}, 8]", Mesh.parse("z=8"))
    assert synthesize(layout, layout).steps == ()
    assert synthesize(layout, other).steps == ()
