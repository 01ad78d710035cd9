"""What XLA allocates for a plan is within what the plan projects."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

import redist
from redist.collectives import Plan
from redist.collectives.backends.jax.execute import stacked_jit
from redist.collectives.backends.jax.program import flat_sharding, stacked_shape
from redist.collectives.plan import Options
from redist.collectives.steps import op_name
from redist.collectives.typing import after
from redist.errors import BackendError, InfeasibleError
from redist.synth import synthesize
from redist.testing import random_layout, random_mesh, random_problem, random_steps, reshard_memory
from redist.types import Layout

jax: Any = pytest.importorskip("jax")

BOOKKEEPING = 256
"""Bytes of scalars: places, loop counters."""


def measured(plan: Plan) -> int:
    """Bytes per device of arguments, results and temporaries."""
    source = plan.source
    compiled = (
        stacked_jit(plan.steps, source, plan.layouts[-1], False)
        .lower(jax.ShapeDtypeStruct(stacked_shape(source), "float32", sharding=flat_sharding(source.mesh.device_ids)))
        .compile()
    )
    used = compiled.memory_analysis()
    return used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes


def scaled(layout: Layout, factors: list[int]) -> Layout:
    return Layout(
        layout.mesh,
        [dim.size * factor for dim, factor in zip(layout.dims, factors, strict=True)],
        [dim.axes for dim in layout.dims],
        "f32",
        partial=layout.partial_axes,
        reduction=layout.partial.reduction if layout.partial else "sum",
    )


def factors(rng: Random, layout: Layout) -> list[int]:
    """Powers of two that bring the array to about half a million elements."""
    found = [1] * layout.rank
    while math.prod(layout.shape) * math.prod(found) < 1 << 19:
        found[rng.randrange(layout.rank)] *= 2
    return found


def plans(seed: int, count: int, kinds: tuple[Any, ...] = ("same", "transposed", "reshaped", "permuted")) -> list[Plan]:
    rng, found = Random(seed), list[Plan]()
    while len(found) < count:
        problem = random_problem(rng, max_devices=8, uneven=False, kinds=kinds, dtypes=["f32"])
        source, target = problem
        if not source.rank or source.mesh.size < 2 or (source.partial and source.partial.reduction != "sum"):
            continue
        by = factors(rng, source)
        plan = synthesize(scaled(source, by), scaled(target, by), backend="jax")
        if plan.steps and all(layout.is_even() for layout in plan.layouts) and max(source.mesh.device_ids) < 32:
            found.append(plan)
    return found


@pytest.mark.parametrize("seed", range(3))
def test_peaks_of_plans(seed: int) -> None:
    for plan in plans(seed, 40):
        assert measured(plan) <= plan.peak_bytes + BOOKKEEPING, plan.explain()


def test_projections_are_not_far_off() -> None:
    ratios = sorted(measured(plan) / plan.peak_bytes for plan in plans(9, 30))
    assert ratios[len(ratios) // 2] > 0.75


def test_peaks_under_a_limit() -> None:
    rng, done = Random(0), 0
    for plan in plans(5, 60):
        with pytest.raises(InfeasibleError) as caught:
            synthesize(plan.source, plan.target, backend="jax", memory_limit=1)
        smallest = caught.value.smallest_limit
        assert smallest is not None
        if smallest >= plan.peak_bytes:
            continue
        limit = rng.choice([smallest, (smallest + plan.peak_bytes) // 2])
        bounded = synthesize(plan.source, plan.target, backend="jax", memory_limit=limit)
        assert measured(bounded) <= limit + BOOKKEEPING, bounded.explain()
        done += 1
        if done == 20:
            return
    raise AssertionError("too few plans can be chunked")


@pytest.mark.parametrize("kind", ["slice", "all_gather", "all_to_all", "permute", "reduce_scatter", "all_reduce"])
def test_staging_of_each_step(kind: str) -> None:
    rng, done = Random(kind), 0
    while done < 12:
        source = random_layout(rng, random_mesh(rng, max_devices=8, any_ids=False), uneven=False, dtypes=["f32"])
        if not source.rank or source.mesh.size < 2:
            continue
        source = scaled(source, factors(rng, source))
        steps = random_steps(rng, source, max_steps=1, kinds=[kind], same_mesh=True)
        if not steps or not after(steps[0], source).is_even():
            continue
        plan = Plan(source, after(steps[0], source), steps, Options(backend="jax"))
        assert op_name(steps[0]) == kind
        assert measured(plan) <= plan.peak_bytes + BOOKKEEPING, plan.explain()
        done += 1


def test_a_users_own_check(mesh_of: Any) -> None:
    """`redist.testing.reshard_memory`: projected and measured, with a limit, donated, and where it cannot be."""
    mesh = mesh_of({"x": 4, "y": 2})
    sharding = jax.sharding.NamedSharding
    here, there = sharding(mesh, jax.P("x", "y")), sharding(mesh, jax.P(None, ("y", "x")))
    shape = jax.ShapeDtypeStruct((512, 512), "float32", sharding=here)
    memory = reshard_memory(shape, there)
    assert memory.projected_bytes == memory.plan.peak_bytes
    program = jax.jit(lambda x: redist.reshard(x, there, source=here), in_shardings=here, out_shardings=there)
    used = program.lower(shape).compile().memory_analysis()
    assert memory.measured_bytes == (used.argument_size_in_bytes + used.output_size_in_bytes + used.temp_size_in_bytes)
    assert memory.within and memory.measured_bytes >= 2 * 512 * 512 * 4 // 8
    limit = 512 * 512 * 4 // 8 * 9 // 2
    bounded = reshard_memory(shape, there, memory_limit=limit)
    assert bounded.within and bounded.measured_bytes <= limit + 256
    few = sharding(mesh_of({"a": 4}), jax.P("a"))
    with pytest.raises(BackendError, match="which no single JAX program does"):
        reshard_memory(shape, few)
