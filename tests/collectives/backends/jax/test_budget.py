"""One memory limit for a whole tree: the order of moves needs least, and what is alive keeps the limit."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

import redist
from redist.collectives.backends.jax.budget import Need, allotted
from redist.collectives.backends.jax.execute import Executor
from redist.errors import InfeasibleError


def peak(needs: list[Need], order: tuple[int, ...], donate: bool) -> int:
    """By the story: sources are there, moves happen one by one, results stay."""
    here = sum(need.source for need in needs)
    highest = here
    for n in order:
        highest = max(highest, here - needs[n].source + needs[n].smallest)
        here += needs[n].target - (needs[n].source if donate else 0)
    return highest


@pytest.mark.parametrize("donate", [False, True])
def test_no_order_needs_less(donate: bool) -> None:
    """Than any of all permutations, and one byte less is refused."""
    rng = Random(3)
    for _ in range(200):
        needs: list[Need] = []
        for _ in range(rng.randint(1, 5)):
            source, target = rng.randint(1, 20), rng.randint(1, 20)
            needs.append(Need(source, target, source + rng.randint(0 if donate else target, target + 20)))
            if donate:
                needs[-1] = Need(source, target, max(source, target) + rng.randint(0, 20))
        least = min(peak(needs, order, donate) for order in itertools.permutations(range(len(needs))))
        found = allotted(needs, least, donate)
        assert sorted(n for n, _ in found) == list(range(len(needs)))
        assert peak(needs, tuple(n for n, _ in found), donate) == least, needs
        assert all(allowed >= needs[n].smallest for n, allowed in found)
        with pytest.raises(InfeasibleError) as caught:
            allotted(needs, least - 1, donate)
        assert caught.value.smallest_limit == least


@pytest.mark.parametrize("donate", [False, True])
def test_what_is_alive_keeps_the_limit(mesh_of: Any, donate: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured by JAX's own list of live arrays before every move, plus what the move's plan projects."""
    mesh = mesh_of({"x": 4, "y": 2})
    shardings = [NamedSharding(mesh, spec) for spec in (PartitionSpec("x"), PartitionSpec("y", "x"))]
    before = {id(a) for a in jax.live_arrays()}
    leaves = [jax.device_put(np.full((64 * k, 128), k, np.float32), shardings[k % 2]) for k in range(1, 6)]
    wanted = [shardings[1 - k % 2] if k < 5 else shardings[k % 2] for k in range(1, 6)]
    expected = [np.asarray(leaf) for leaf in leaves]
    with pytest.raises(InfeasibleError) as caught:
        redist.reshard(leaves, wanted, memory_limit=1, donate=donate)
    limit = caught.value.smallest_limit
    assert limit is not None
    note = "" if donate else " (donating the sources may lower it)"
    assert str(caught.value) == (
        f"4 arrays do not move within 1 bytes per device; the smallest feasible limit is {limit} bytes{note}"
    )
    highest: list[int] = []
    call = Executor.__call__

    def measured(self: Executor, x: Any) -> Any:
        alive = [a for a in jax.live_arrays() if id(a) not in before and a is not x and len(a.devices()) > 1]
        held = sum(np.prod(a.sharding.shard_shape(a.shape)) * a.dtype.itemsize for a in alive)
        highest.append(int(held) + self.plan.peak_bytes)
        return call(self, x)

    monkeypatch.setattr(Executor, "__call__", measured)
    made = redist.reshard(leaves, wanted, memory_limit=limit, donate=donate)
    assert len(highest) == 4 and max(highest) <= limit
    for array, sharding, value in zip(made, wanted, expected, strict=True):
        assert array.sharding == sharding and np.array_equal(np.asarray(array), value)
    assert [leaf.is_deleted() for leaf in leaves] == [donate] * 4 + [False]
