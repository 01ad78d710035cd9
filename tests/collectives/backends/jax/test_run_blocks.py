"""Plans on JAX against the reference: random problems, and random step sequences that no planner makes."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest

from redist.collectives import Plan, simulate
from redist.collectives.backends.jax.execute import run_blocks
from redist.collectives.simulate import check_blocks, scatter
from redist.collectives.steps import Chunk, Exchange, Transfer, op_name
from redist.collectives.typing import layouts_of
from redist.errors import BackendError, InfeasibleError
from redist.synth import synthesize
from redist.testing import random_layout, random_mesh, random_problem, random_steps
from redist.types import Layout, Mesh
from redist.types.dtypes import numpy_dtype

DTYPES = ("f32", "bf16", "i8", "bool", "i32", "c64", "u16", "f8e4m3fn", "i4", "f16")


def value_of(layout: Layout) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(layout.shape, dtype=int)) % 7).reshape(layout.shape).astype(numpy_dtype(layout.dtype))


def check(plan: Plan) -> None:
    value = value_of(plan.source)
    made = run_blocks(plan, scatter(plan.source, value))
    check_blocks(plan, value, {device: np.asarray(block) for device, block in made.items()})


def on_devices(*layouts: Layout) -> bool:
    return all(max(layout.mesh.device_ids) < 32 for layout in layouts)


@pytest.mark.parametrize("seed", range(4))
def test_random_problems(seed: int) -> None:
    rng, done = Random(seed), 0
    while done < 30:
        problem = random_problem(rng, max_devices=8, uneven=False, dtypes=DTYPES)
        if not on_devices(*problem):
            continue
        try:
            plan = synthesize(*problem, backend="jax")
        except InfeasibleError:
            continue
        check(plan)
        done += 1


@pytest.mark.parametrize("seed", range(3))
def test_random_steps(seed: int) -> None:
    rng, ran = Random(seed), Counter[str]()
    while sum(ran.values()) < 40:
        source = random_layout(rng, random_mesh(rng, max_devices=8), uneven=False, dtypes=DTYPES)
        steps = random_steps(rng, source, max_devices=8)
        layouts = layouts_of(steps, source)
        if not steps or not on_devices(*layouts):
            continue
        plan = Plan(source, layouts[-1], steps)
        try:
            check(plan)
        except BackendError as error:
            assert "JAX holds blocks of equal size only" in str(error)
        else:
            ran.update(map(op_name, steps))
    assert len(ran) >= 6


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[12{x:(1)2}]", "f32[12{x:(1)3}]"),
        ("f32[12{x:(1)3}]", "f32[12{x:(3)2}]"),
        ("bf16[12{x:(1)2}, 6]", "bf16[12, 6{x:(1)3}]"),
        ("f32[12{x}]", "f32[12{x:(1)2}]"),
        ("f32[6{x:(1)3}, 6] sum{x:(3)2}", "f32[6, 6{x:(1)2}]"),
    ],
)
def test_unaligned_cuts_exchange(source: str, target: str) -> None:
    mesh = Mesh.parse("x=6@[3,5,1,0,2,4]")
    plan = synthesize(Layout.parse(source, mesh), Layout.parse(target, mesh), backend="jax")
    check(plan)


def test_owner_exchange_between_any_aligned_layouts() -> None:
    mesh = Mesh.parse("x=2,y=2,z=2")
    for before, after in (("[16{x}, 8{y,z}]", "[16{z,y}, 8]"), ("[16{x,y}, 8]", "[16, 8{x,z}]"), ("[8{x}]", "[8{y}]")):
        source, target = Layout.parse("f32" + before, mesh), Layout.parse("f32" + after, mesh)
        check(Plan(source, target, (Exchange(target),)))


def test_stated_transfers_that_split_the_dimension_a_chunk_runs_along() -> None:
    mesh = Mesh.parse("x=2")
    source, target = Layout.parse("f32[4, 4{x}]", mesh), Layout.parse("f32[4, 4{x}]", mesh)
    halves = [
        Transfer(device, device, (start, 2 * device), (start + width, 2 * device + 2))
        for device in (0, 1)
        for start, width in ((0, 1), (1, 3))
    ]
    check(Plan(source, target, (Chunk(0, 2, [Exchange(target, tuple(halves))]),)))


def test_chunks_inside_chunks_and_parts_that_do_not_divide() -> None:
    mesh = Mesh.parse("x=2,y=2")
    source = Layout.parse("f32[8{x}, 5, 7, 8{y}]", mesh)
    plan = synthesize(source, Layout.parse("f32[8, 5, 7, 8{y,x}]", mesh), backend="jax")
    inner = Chunk(2, 3, plan.steps)
    check(Plan(source, plan.target, (Chunk(1, 2, (inner,)),)))


def test_partial_results_of_every_reduction_and_dtype() -> None:
    mesh = Mesh.parse("x=2,y=3")
    for reduction in ("sum", "max", "min", "prod"):
        for dtype in ("f32", "bf16", "bool", "i32", "i4", "f8e4m3fn"):
            source = Layout.parse(f"{dtype}[6, 5] {reduction}{{x}}", mesh)
            for target in (f"{dtype}[6{{x}}, 5]", f"{dtype}[6, 5]"):
                check(synthesize(source, Layout.parse(target, mesh), backend="jax"))


def test_blocks_match_the_simulator() -> None:
    mesh = Mesh.parse("x=2,y=2@[3,1,0,2]")
    plan = synthesize(Layout.parse("f32[8{x}, 4{y}]", mesh), Layout.parse("f32[8{y}, 4{x}]", mesh), backend="jax")
    value = value_of(plan.source)
    expected, made = simulate(plan, value), run_blocks(plan, scatter(plan.source, value))
    assert {d: block.tolist() for d, block in expected.items()} == {d: np.asarray(b).tolist() for d, b in made.items()}
