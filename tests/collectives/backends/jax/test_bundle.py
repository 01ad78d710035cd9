"""Steps of several arrays as one collective: what NumPy makes of each step on its own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from redist import Layout, Mesh
from redist.collectives.backends.jax.bundle import Bundled, kind_of, run_bundle
from redist.collectives.backends.jax.frame import Frame
from redist.collectives.backends.numpy import run_steps
from redist.collectives.steps import AllGather, ReduceScatter
from redist.types.dtypes import numpy_dtype
from redist.types.mesh import AxisLike

jax: Any = pytest.importorskip("jax")
P: Any = jax.sharding.PartitionSpec

MESH = Mesh({"x": 2, "y": 2, "z": 2})
DTYPES = ("f32", "bf16", "i32", "u8", "bool", "f16", "c64", "f8_e4m3fn", "i4")
GOES: Sequence[tuple[AxisLike, ...]] = (("x",), ("z",), ("x", "z"), ("z", "y"), ("y", "x", "z"))


def random_step(rng: Random, gathers: bool, over: tuple[AxisLike, ...], reduction: Any, dtype: str) -> Any:
    """A gather or reduce-scatter over these axes, in this order, and a layout that it takes: the axes are spread over
    dimensions, beside others that stay."""
    rank = rng.randint(1, 3)
    cuts = sorted(rng.randint(0, len(over)) for _ in range(rank - 1))
    moved = [over[a:b] for a, b in zip((0, *cuts), (*cuts, len(over)), strict=True)]
    kept: list[list[AxisLike]] = [[] for _ in range(rank)]
    for axis in rng.sample(["x", "y", "z"], 3):
        if axis not in over and rng.random() < 0.5:
            kept[rng.randrange(rank)].append(axis)
    shape = [8 * rng.randint(1, 3) for _ in range(rank)]
    by_dim = {i: axes for i, axes in enumerate(moved) if axes}
    if gathers:
        axes = [(*kept[i], *moved[i]) for i in range(rank)]
        return AllGather(by_dim), Layout(MESH, shape, axes, dtype)
    return ReduceScatter(by_dim), Layout(MESH, shape, kept, dtype, partial=over, reduction=reduction)


def random_blocks(layout: Layout, rng: np.random.Generator) -> list[Any]:
    """A block per device: of whole numbers small enough for every dtype, equal where the layout replicates."""
    whole = rng.integers(0, 2, (layout.mesh.size, *layout.shape))
    version = layout.mesh.index(layout.partial_axes)
    boxes = map(layout.box, range(layout.mesh.size))
    return [
        whole[n][tuple(slice(side.start, side.stop) for side in box)] for n, box in zip(version, boxes, strict=True)
    ]


def check(mesh_of: Any, steps: Sequence[tuple[Bundled, Layout]], seed: int) -> None:
    """Run as one collective, the steps give what NumPy makes of each."""
    assert len({kind_of(*step) for step in steps}) == 1
    numbers, axes = np.random.default_rng(seed), steps[0][1].mesh.axes
    inputs = [[x.astype(numpy_dtype(before.dtype)) for x in random_blocks(before, numbers)] for _, before in steps]
    names = tuple(name for name, _ in axes)

    def local(*stacks: Any) -> list[Any]:
        frame = Frame(names, tuple(range(8)))
        return [made[None] for made in run_bundle(steps, frame, [stack[0] for stack in stacks])]

    every = P(names)
    jitted = jax.jit(jax.shard_map(local, mesh=mesh_of(dict(axes)), in_specs=every, out_specs=every, check_vma=False))
    stacks = [np.stack(blocks) for blocks in inputs]
    made = jitted(*stacks)
    for (step, before), blocks, got in zip(steps, inputs, made, strict=True):
        expected, _ = run_steps(blocks, [step], before)
        for position in range(8):
            wanted = np.asarray(expected[position])
            one = np.asarray(got)[position]
            assert one.shape == wanted.shape
            assert one.tobytes() == np.ascontiguousarray(wanted).tobytes(), (step, before, position)
    counted = re.findall(r"stablehlo\.(all_gather|reduce_scatter|all_to_all)\b", jitted.lower(*stacks).as_text())
    assert len(counted) == 1


@pytest.mark.parametrize("seed", range(12))
def test_as_each_on_its_own(mesh_of: Any, seed: int) -> None:
    rng = Random(seed)
    gathers, over, dtype = seed % 2 == 0, rng.choice(GOES), rng.choice(DTYPES)
    reduction = rng.choice(("sum", "max", "min", "prod")) if dtype != "c64" else "sum"
    steps = [random_step(rng, gathers, over, reduction, dtype) for _ in range(rng.randint(2, 5))]
    check(mesh_of, steps, seed)


def test_axes_that_are_cut_elsewhere(mesh_of: Any) -> None:
    """Digits are numbered anew for every array: here y is the third of one and the second of the other."""
    mesh = Mesh({"x": 4, "y": 2})
    for gathers in (True, False):
        steps: list[tuple[Bundled, Layout]] = []
        for kept in (["x:(1)2"], ["x"]):
            if gathers:
                before = Layout(mesh, (16, 8), [kept, ["y"]], "f32")
                steps.append((AllGather({1: ("y",)}), before))
            else:
                before = Layout(mesh, (16, 8), [kept, []], "f32", partial=["y"])
                steps.append((ReduceScatter({1: ("y",)}), before))
        check(mesh_of, steps, 0)


def test_kinds_differ() -> None:
    """What cannot share a collective: other axes or order of axes, dtypes, reductions, sorts."""
    gathered = Layout(MESH, (8, 8), [["x", "y"], []], "f32")
    partial = Layout(MESH, (8, 8), [[], []], "f32", partial=["x", "y"])
    steps: list[tuple[Bundled, Layout]] = [
        (AllGather({0: ("x", "y")}), gathered),
        (AllGather({0: ("y",)}), gathered),
        (AllGather({0: ("y", "x")}), Layout(MESH, (8, 8), [["y", "x"], []], "f32")),
        (AllGather({0: ("x", "y")}), Layout(MESH, (8, 8), [["x", "y"], []], "bf16")),
        (ReduceScatter({0: ("x", "y")}), partial),
        (ReduceScatter({0: ("x", "y")}), Layout(MESH, (8, 8), [[], []], "f32", partial=["x", "y"], reduction="max")),
    ]
    assert len({kind_of(*step) for step in steps}) == len(steps)
    other = Layout(MESH, (24,), [["z", "x", "y"]], "f32")
    assert kind_of(AllGather({0: ("x", "y")}), other) == kind_of(*steps[0])
