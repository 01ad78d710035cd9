"""What must hold of every plan, whatever the problem."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from redist.collectives import Link, Topology, simulate
from redist.errors import InfeasibleError, LayoutError
from redist.synth import pareto, synthesize
from redist.synth.planner import ALL_STEPS, UNIFORM_STEPS
from redist.testing import all_layouts, random_problems
from redist.types import Layout, Mesh, SubAxis
from redist.types.dtypes import numpy_dtype


def _renamed(layout: Layout, names: dict[str, str], order: list[int]) -> Layout:
    """The same layout with its axes renamed and its dimensions permuted."""
    mesh = Mesh([(names[name], size) for name, size in layout.mesh.axes], layout.mesh.device_ids)
    return Layout(
        mesh,
        [layout.shape[i] for i in order],
        [[SubAxis(names[a.axis], a.pre, a.size) for a in layout.dims[i].axes] for i in order],
        layout.dtype,
    )


def test_cost_does_not_depend_on_names_or_the_order_of_dimensions() -> None:
    """Bytes and steps stay when axes are renamed and dimensions permuted, on pairs of 2x3x2 at rank 3."""
    layouts = list(all_layouts(Mesh.parse("x=2,y=3,z=2"), rank=3))
    rng = random.Random(1)
    for _ in range(150):
        source, target = rng.sample(layouts, 2)
        order = rng.sample(range(3), 3)
        names = dict(zip("xyz", rng.sample(["b", "a", "q"], 3), strict=True))
        plan = synthesize(source, target)
        other = synthesize(_renamed(source, names, order), _renamed(target, names, order))
        assert (plan.received_bytes, plan.communication_steps) == (other.received_bytes, other.communication_steps)


def test_splitting_an_axis_never_raises_cost() -> None:
    """x=4 as x=2, w=2: what could be planned before still can."""
    whole, split = Mesh.parse("x=4,y=2"), Mesh.parse("x=2,w=2,y=2")
    parts = {"x": ["x", "w"], "y": ["y"]}
    for source, target in _pairs(whole, 200):
        finer = [
            Layout(
                split,
                layout.shape,
                [[n for a in dim.axes for n in parts[a.axis]] for dim in layout.dims],
            )
            for layout in (source, target)
        ]
        assert synthesize(*finer).received_bytes <= synthesize(source, target).received_bytes


def _pairs(mesh: Mesh, count: int) -> list[tuple[Layout, Layout]]:
    layouts = list(all_layouts(mesh))
    rng = random.Random(2)
    found: list[tuple[Layout, Layout]] = []
    while len(found) < count:
        source, target = rng.sample(layouts, 2)
        found.append((source, target))
    return found


def test_a_plan_to_the_same_layout_is_empty() -> None:
    """synthesize(a, a) has no steps, whatever the layout."""
    for source, _ in random_problems(seed=4, count=200):
        assert synthesize(source, source).steps == ()


@pytest.mark.parametrize("steps", [UNIFORM_STEPS, ALL_STEPS], ids=["uniform", "with exchange"])
def test_raising_the_limit_never_raises_seconds(steps: frozenset[str]) -> None:
    """Along the feasible limits of 60 problems, under latency, for either step set."""
    topology = Topology("latency", {}, Link(latency=1e-5, bandwidth=1e9))
    for source, target in _pairs(Mesh.parse("x=2,y=2,z=2"), 60):
        biggest = synthesize(source, target, topology=topology, steps=steps).peak_bytes
        seconds: list[float] = []
        for limit in sorted({biggest * k // 8 for k in range(4, 9)} | {biggest}):
            try:
                seconds.append(synthesize(source, target, memory_limit=limit, topology=topology, steps=steps).seconds)
            except InfeasibleError:
                assert not seconds, "a limit that fits stopped fitting when raised"
        assert seconds == sorted(seconds, reverse=True)


def test_tight_limits_are_met_or_the_smallest_is_stated() -> None:
    """500 problems at (source + target) x 1.01: met, or met at the limit that the error states, which is
    not feasible one byte lower."""
    for source, target in random_problems(seed=5, count=500):
        limit = int((source.block_bytes() + target.block_bytes()) * 1.01)
        try:
            plan = synthesize(source, target, memory_limit=limit)
        except InfeasibleError as error:
            assert error.smallest_limit is not None
            assert error.smallest_limit > limit
            plan = synthesize(source, target, memory_limit=error.smallest_limit)
            limit = error.smallest_limit
            with pytest.raises(InfeasibleError):
                synthesize(source, target, memory_limit=limit - 1)
        assert plan.peak_bytes <= limit
        values = np.arange(1, math.prod(source.shape) + 1).reshape(source.shape)
        simulate(plan, values.astype(numpy_dtype(source.dtype)))


def test_pareto_front() -> None:
    """Faster plans first, each smaller than the one before; the ends are the fastest and a small one."""
    topology = Topology("latency", {}, Link(latency=1e-5, bandwidth=1e9))
    mesh = Mesh.parse("x=4,y=2")
    source, target = Layout.parse("[64{x}, 64, 64]", mesh), Layout.parse("[64, 64{y,x}, 64]", mesh)
    front = pareto(source, target, topology=topology)
    assert len(front) > 1
    assert front[0].seconds == synthesize(source, target, topology=topology).seconds
    assert [p.seconds for p in front] == sorted(p.seconds for p in front)
    assert [p.peak_bytes for p in front] == sorted((p.peak_bytes for p in front), reverse=True)
    assert all(p.layouts[-1].equivalent(target) for p in front)


def test_an_exchange_where_it_is_listed_receives_the_lower_bound() -> None:
    """Every pair of 2x2x2 at rank 2."""
    layouts = all_layouts(Mesh.parse("x=2,y=2,z=2"), shape=(8, 8))
    steps = {"slice", "all_gather", "all_to_all", "permute", "exchange"}
    for source in layouts:
        for target in layouts:
            plan = synthesize(source, target, steps=steps)
            assert plan.received_bytes == plan.lower_bound_bytes


@pytest.mark.parametrize(
    ("steps", "source", "target", "ops"),
    [
        ({"slice", "all_gather"}, "[8{x}, 8]", "[8{y}, 8]", None),
        ({"slice", "all_gather", "all_to_all"}, "[8{x}, 8{y}]", "[8{y}, 8{x}]", None),
        ({"slice", "all_gather"}, "[8{x,y}, 8]", "[8{x}, 8{z}]", ["slice", "all_gather"]),
    ],
)
def test_only_the_steps_that_are_allowed(steps: set[str], source: str, target: str, ops: list[str] | None) -> None:
    """Plans of a restricted set keep the block bound, or the error says what is missing."""
    mesh = Mesh.parse("x=2,y=2,z=2")
    try:
        plan = synthesize(Layout.parse(source, mesh), Layout.parse(target, mesh), steps=steps)
    except InfeasibleError as error:
        assert "allow 'exchange'" in str(error)
        assert ops is None
        return
    names = {type(step).__name__ for step in plan.steps}
    assert names <= {"Slice", "AllGather", "AllToAll"}
    simulate(plan, np.arange(64.0, dtype=np.float32).reshape(8, 8))


def test_errors_of_synthesize() -> None:
    """Full messages."""
    mesh = Mesh.parse("x=2,y=2")
    source = Layout.parse("f32[8{x}, 8]", mesh)
    with pytest.raises(LayoutError) as error:
        synthesize(source, Layout.parse("bf16[8, 4{x}]", mesh))
    assert str(error.value) == (
        "source and target lay out different arrays: dimension 1 has size 8 in the source and 4 in the target; dtype "
        "f32 in the source and bf16 in the target. A redistribution keeps shape and dtype; reshape or cast before or "
        "after it"
    )
    with pytest.raises(LayoutError) as error:
        synthesize(source, source, steps={"slice", "teleport"})
    assert str(error.value) == (
        "unknown steps ['teleport']; use some of all_gather, all_reduce, all_to_all, chunk, exchange, permute, "
        "reduce_scatter, slice"
    )
    with pytest.raises(InfeasibleError) as infeasible:
        synthesize(source, Layout.parse("f32[8, 8]", mesh), memory_limit=300)
    assert infeasible.value.smallest_limit == 384
    assert str(infeasible.value) == (
        "no plan from f32[8{x}, 8] to f32[8, 8] keeps the live peak within 300 bytes per device; the smallest feasible "
        "limit is 384 bytes (donating the source may lower it)"
    )
