"""Devices told apart by which digits are equal, against all devices one by one."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import numpy as np
import pytest

from redist.collectives import Plan
from redist.collectives.steps import Exchange, Permute
from redist.collectives.typing import layouts_of
from redist.errors import InfeasibleError
from redist.proofs import verify
from redist.proofs.counts import exceptions, received, space_of, totals
from redist.proofs.spaces import Space
from redist.proofs.trace import Leaf, flatten
from redist.synth import synthesize
from redist.testing import random_layout, random_steps
from redist.types import Layout, Mesh
from redist.types.bounds import missing_by_device

MESHES = ("x=8,y=8", "x=16,y=4,z=4", "x=9,y=27", "x=12,y=18", "x=5,y=5,z=5", "x=64,y=2", "x=6,y=4,z=10", "x=32,y=16")


def _plans(rng: Random, count: int) -> list[Plan]:
    """Plans of ours and steps at random, even blocks, on meshes whose digits have many values."""
    made: list[Plan] = []
    while len(made) < count:
        mesh = Mesh.parse(rng.choice(MESHES))
        shape = (2160 * 32, 2160 * 32)
        source, target = (
            random_layout(rng, mesh, shape, uneven=False, partial=False, dtypes=["f32"], sub_axes=rng.random() < 0.5)
            for _ in range(2)
        )
        if rng.random() < 0.3:
            steps = random_steps(rng, source, max_devices=mesh.size)
            made.append(Plan(source, layouts_of(steps, source)[-1], steps))
            continue
        try:
            made.append(synthesize(source, target, steps={"exchange"} if rng.random() < 0.2 else None))
        except InfeasibleError:
            continue
    return made


def _each(leaf: Leaf) -> np.ndarray:
    """What each device receives, position by position."""
    return np.broadcast_to(received(leaf, None), leaf.following.mesh.size)


def test_counts_by_pattern_are_counts_by_device() -> None:
    """For 150 plans: every pair of (received, missing) for as many devices, and every step's exceptions."""
    rng = Random(5)
    thinned = 0
    for plan in _plans(rng, 150):
        leaves = list(flatten(plan.steps, plan.layouts))
        meshes = {layout.mesh for layout in (plan.source, plan.target, *plan.layouts)}
        if len({mesh.device_ids for mesh in meshes}) > 1:
            continue
        space = space_of(leaves, (plan.source, plan.target))
        if space is None or space.classes is None:
            continue
        thinned += any(map(space.reduced, space.classes))
        got = sum((_each(leaf) for leaf in leaves), np.zeros(plan.source.mesh.size, dtype=np.int64))
        lacking = missing_by_device(plan.source, plan.target)
        expected = Counter(zip(got.tolist(), lacking.values(), strict=True))
        found = totals(leaves, plan.source, plan.target)
        pairs = {(int(g), int(m)) for g, m in zip(found.received.ravel(), found.missing.ravel(), strict=True)}
        counted = {(g, m): found.over_devices((found.received == g) & (found.missing == m)) for g, m in sorted(pairs)}
        assert counted == dict(expected), plan.explain()
        for entry in range(found.received.size):
            position = plan.source.mesh.device_ids.index(found.device(entry))
            assert got[position] == found.received.ravel()[entry], plan.explain()
        for leaf in leaves:
            if isinstance(leaf.step, Permute):
                assert exceptions(leaf) == _held(leaf), plan.explain()
    assert thinned > 75


def _held(leaf: Leaf) -> int:
    """Elements that devices receive though they hold them."""
    moved = _each(leaf) > 0
    lower, upper = leaf.before.boxes()
    start, stop = leaf.following.boxes()
    shared = np.maximum(np.minimum(upper, stop) - np.maximum(lower, start), 0).prod(axis=1)
    return int(shared[moved].sum())


def test_the_weights_are_all_devices() -> None:
    mesh = Mesh.parse("x=6,y=6,z=4")
    source = Layout.parse("[144{x}, 144{z}]", mesh)
    target = Layout.parse("[144{y}, 144]", mesh)
    space = space_of([], (source, target))
    assert space is not None and space.classes is not None
    assert [space.values(n) for n in range(3)] == [1, 2, 2]  # z is compared with nothing
    assert space.over_devices(np.ones((1, 1, 1), dtype=np.int64)) == mesh.size
    same = (space.index(mesh, source.dims[0].axes) == space.index(mesh, target.dims[0].axes)).astype(np.int64)
    assert space.over_devices(same) == 6 * 4


@pytest.mark.parametrize(
    ("mesh", "source", "target"),
    [
        ("x=4,y=4", "[16{x}, 7]", "[16{y}, 7]"),  # a dimension that is whole everywhere
        ("x=6,y=4", "[24{x}]", "[24{y}]"),  # digits that do not line up
        ("x=4,y=4", "[18{x}, 16]", "[18{y}, 16]"),  # uneven
    ],
)
def test_what_is_no_pattern_is_counted_one_by_one(mesh: str, source: str, target: str) -> None:
    ends = [Layout.parse(text, Mesh.parse(mesh)) for text in (source, target)]
    plan = Plan(ends[0], ends[1], (Exchange(ends[1]),))
    figures = verify(plan).obligation("N3").figures
    assert figures["missing"] == max(missing_by_device(*ends).values())
    space = space_of(list(flatten(plan.steps, plan.layouts)), ends)
    assert space is not None
    assert (space.classes is None) == (math.prod(ends[0].shape) != 16 * 7)


def test_positions_have_no_classes() -> None:
    assert Space(Mesh.parse("x=4")).over_devices(np.arange(4)) == 6
