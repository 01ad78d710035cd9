"""Plans under a memory limit, run on NumPy: what is allocated stays within what was projected, and asked for."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

from redist.collectives import Plan
from redist.collectives.backends.numpy import run_steps, stacked
from redist.collectives.simulate import scatter
from redist.errors import InfeasibleError
from redist.synth import synthesize
from redist.testing import all_layouts
from redist.types import Layout, Mesh

_MESHES = ["x=2,y=2,z=2", "x=2,y=4", "x=2,y=3", "x=3,y=4", "x=8", "x=4,y=4", "x=2,y=2,z=2,w=2"]
_BESIDE = 128 * 1024
"""Bytes that Python's own objects take beside the arrays."""


def _problems(seed: int, count: int) -> Iterator[tuple[Layout, Layout]]:
    rng = random.Random(seed)
    while count:
        mesh = Mesh.parse(rng.choice(_MESHES))
        shape = rng.choice([(192, 960), (960, 240), (96, 48, 48), (24, 192, 48), (240, 96, 12)])
        layouts = [one for one in all_layouts(mesh, rank=len(shape), shape=shape) if one.is_even()]
        source, target = rng.choice(layouts), rng.choice(layouts)
        if not source.equivalent(target):
            count -= 1
            yield source, target


def _limited(source: Layout, target: Layout) -> Plan:
    """The plan at 1.01 times source and target, or at the smallest feasible limit where that is higher."""
    limit = (source.block_bytes() + target.block_bytes()) * 101 // 100
    try:
        return synthesize(source, target, memory_limit=limit)
    except InfeasibleError as error:
        assert error.smallest_limit is not None and error.smallest_limit > limit
        return synthesize(source, target, memory_limit=error.smallest_limit)


def _measured(plan: Plan) -> int:
    """Bytes at the peak, the source's blocks among them, over all devices."""
    array = np.arange(np.prod(plan.source.shape), dtype=np.float32).reshape(plan.source.shape)
    given = scatter(plan.source, array)
    run_steps(stacked([given[d] for d in plan.source.mesh.device_ids], plan.source), plan.steps, plan.source)  # caches
    tracemalloc.start()
    blocks = stacked([given[device] for device in plan.source.mesh.device_ids], plan.source)
    made, final = run_steps(blocks, plan.steps, plan.source)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    expected = scatter(final, array)
    assert all(np.array_equal(made[p], expected[device]) for p, device in enumerate(final.mesh.device_ids))
    return peak


def _check(seed: int, count: int) -> None:
    for source, target in _problems(seed, count):
        plan = _limited(source, target)
        assert plan.options.memory_limit is not None and plan.peak_bytes <= plan.options.memory_limit
        beside = _measured(plan) - plan.peak_bytes * source.mesh.size
        assert beside <= _BESIDE, f"{beside} bytes more than projected\n{plan.explain()}"


def test_measured_memory_is_within_the_projection() -> None:
    """Forty problems; the source is the caller's and stays throughout."""
    _check(1, 40)


@pytest.mark.heavy
def test_measured_memory_of_many_problems() -> None:
    """Five hundred."""
    _check(2, 500)
