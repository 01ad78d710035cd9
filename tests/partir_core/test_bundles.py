"""Small collectives made at once: the same values, fewer meetings, little memory."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.partir_cases import models
from redist import Mesh
from redist import partir_core as partir
from redist.collectives.backends.jax.bundle import Bundled
from redist.partir_core import REPLICATED, ManualPartition
from redist.partir_core.bundles import BUNDLE_BYTES, SMALL_BYTES, Bundle, bundled
from redist.partir_core.spmd import Compute, Redistribute, SpmdBlock, SpmdOp, SpmdProgram

DATA = [ManualPartition({"x": 0}, "B")]


def compiled_counts(lowered: Any) -> dict[str, int]:
    text = lowered.compile().executable.as_text()
    return {kind: len(re.findall(rf" {kind}\(", text)) for kind in ("all-gather", "reduce-scatter")}


def blocks_of(block: SpmdBlock) -> list[SpmdBlock]:
    inner = [b for op in block.ops if isinstance(op, Compute) for one in op.blocks for b in blocks_of(one)]
    return [block, *inner]


def check_order(program: SpmdProgram, block: SpmdBlock) -> list[Bundle]:
    """Every operation once, after all that it reads; bundles are small; what does not wait keeps its place."""
    order = bundled(program, block)
    flat = [op for entry in order for op in (entry if isinstance(entry, tuple) else (entry,))]
    assert sorted(map(id, flat)) == sorted(map(id, block.ops))
    known = {*block.inputs, *program.constants}
    place: dict[int, int] = {}
    for n, entry in enumerate(order):
        members: tuple[SpmdOp, ...] = entry if isinstance(entry, tuple) else (entry,)
        for op in members:
            read = [op.operand] if isinstance(op, Redistribute) else [x for x in op.operands if isinstance(x, int)]
            assert known.issuperset(read)
            place[id(op)] = n
        for op in members:
            known.update([op.result] if isinstance(op, Redistribute) else op.results)
    bundles = [entry for entry in order if isinstance(entry, tuple)]
    for bundle in bundles:
        assert len(bundle) > 1
        sizes = [max(op.plan.source.block_bytes(), op.plan.target.block_bytes()) for op in bundle]
        assert max(sizes) <= SMALL_BYTES and sum(sizes) <= BUNDLE_BYTES
        assert all(isinstance(step, Bundled) for op in bundle for step in op.plan.steps)
    # What comes first of two operations is a bundle's member, or waits for one, wherever they change places.
    waiting = {id(op) for bundle in bundles for op in bundle}
    made_by = {x: id(op) for op in flat for x in ([op.result] if isinstance(op, Redistribute) else op.results)}
    for op in flat:
        if isinstance(op, Compute) and any(made_by.get(x) in waiting for x in op.operands if isinstance(x, int)):
            waiting.add(id(op))
    for n, first in enumerate(block.ops):
        if id(first) not in waiting:
            assert all(place[id(first)] < place[id(op)] for op in block.ops[n + 1 :] if id(op) not in waiting)
    return bundles


@pytest.mark.parametrize("name", list(models()))
def test_order_of_models(name: str) -> None:
    case = models()[name]()
    for schedule in case.schedules.values():
        program = partir.jit(case.fn, Mesh({"B": 4, "M": 2}), schedule).lower(*case.args).spmd
        for block in blocks_of(program.block):
            check_order(program, block)


def weights(count: int, size: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {f"w{n}": rng.standard_normal((size, size)).astype(np.float32) for n in range(count)}


def descend(ws: Any, x: Any) -> Any:
    """A step of gradient descent, weights kept whole and updated in parts."""

    def loss(ws: Any) -> Any:
        h = x
        for w in ws.values():
            h = jnp.tanh(h @ w)
        return jnp.sum(h**2)

    made = jax.grad(loss)(ws)
    return {name: w - 0.1 * partir.tag(made[name].T, f"{name} made").T for name, w in ws.items()}


def zero2(ws: Any) -> list[ManualPartition]:
    tags = {f"{name} made": 1 for name in ws}
    return [ManualPartition({"x": 0}, "B"), ManualPartition({"ws": REPLICATED, **tags}, "B")]


def test_gradients_and_updates(check: Any) -> None:
    """Six reduce-scatters are one, and the six gathers of the updates; StableHLO has them apart, as the report."""
    ws, x = weights(6, 16), np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32)
    mesh = Mesh({"B": 4})
    report = check(descend, (ws, x), zero2(ws), mesh=mesh)
    assert {kind: n for kind, n in report.collectives.items() if n} == {"all_gather": 6, "reduce_scatter": 6}
    lowered = partir.jit(descend, mesh, zero2(ws)).lower(ws, x)
    text = lowered.as_text("stablehlo")
    assert (text.count("stablehlo.all_gather"), text.count("stablehlo.reduce_scatter")) == (6, 6)
    assert compiled_counts(lowered) == {"all-gather": 1, "reduce-scatter": 1}


def test_large_ones_stay_apart() -> None:
    """Blocks above `SMALL_BYTES`, where copies cost more than meetings."""
    ws, x = weights(3, 256), np.ones((16, 256), np.float32)
    lowered = partir.jit(descend, Mesh({"B": 4}), zero2(ws)).lower(ws, x)
    assert compiled_counts(lowered) == {"all-gather": 3, "reduce-scatter": 3}


def test_nothing_is_gathered_ahead_of_its_use() -> None:
    """Weights in parts are gathered layer by layer: a product too large to wait for others comes first."""
    size, layers = 160, 6
    ws, x = weights(layers, size), np.ones((8192, size), np.float32)

    def forward(ws: Any, x: Any) -> Any:
        for w in ws.values():
            x = jnp.tanh(x @ w)
        return x

    schedule = [ManualPartition({"x": 0}, "B"), ManualPartition({"ws": 0}, "B")]
    program = partir.jit(forward, Mesh({"B": 4}), schedule).lower(ws, x).spmd
    order = bundled(program, program.block)
    kinds = [
        "gather" if not isinstance(op, Compute) else "product"
        for op in order
        if not isinstance(op, Compute) or op.op.name == "dot_general"
    ]
    assert kinds == ["gather", "product"] * layers
