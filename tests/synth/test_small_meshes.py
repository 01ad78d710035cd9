"""Every mesh of up to 16 devices and four prime axes, ranks up to 3, three topologies: plans cost what brute
force over all layouts finds. Pairs are sampled where there are many."""

from __future__ import annotations

import itertools
import math
import random
from fractions import Fraction
from typing import Any

import pytest

from redist.collectives import Link, Topology
from redist.collectives.steps import op_name
from redist.collectives.topology import step_seconds
from redist.synth.planner import UNIFORM_STEPS, synthesize
from redist.types import Layout, Mesh, SubAxis

_PRIMES = (2, 3, 5, 7, 11, 13)
_UNIFORM = Topology()
_SLOW = Topology("slow outer axis", {"a": Link(bandwidth=1e9)}, Link(bandwidth=1e10))
_LATENCY = Topology("latency", {}, Link(latency=1.0, bandwidth=1e10))
_ONLY_SLOW = Topology("counts the slow axis", {"a": Link(bandwidth=1.0)}, Link(bandwidth=1e30))

MESHES = [
    sizes for length in range(1, 5) for sizes in itertools.product(_PRIMES, repeat=length) if math.prod(sizes) <= 16
]
ALL_PAIRS, SAMPLE = 20_000, 5_000


class Family:
    """All layouts of a shape whose every dimension the whole mesh divides, and brute force over them."""

    def __init__(self, oracle: Any, sizes: tuple[int, ...], rank: int, topology: Topology) -> None:
        self.topology = topology
        self.mesh = Mesh(dict(zip("abcd", sizes, strict=False)))
        shape = (math.prod(sizes),) * rank
        pace = tuple(4 / Fraction(topology.link(axis).bandwidth) for axis in self.mesh.names)
        if topology.bytes_only(self.mesh):
            pace = (Fraction(1),) * len(sizes)
        self.brute = oracle(sizes, shape, pace, Fraction(str(topology.default.latency)))
        self.layouts = {
            state: Layout(self.mesh, shape, [[self.mesh.names[d] for d in digits] for digits in state])
            for state in self.brute.states
        }

    def pairs(self, seed: int) -> dict[Any, list[Any]]:
        """source -> targets: all of them, or where there are many, those of some sources, drawn at random."""
        states = self.brute.states
        if len(states) * (len(states) - 1) <= ALL_PAIRS:
            return {a: [b for b in states if a != b] for a in states}
        rng = random.Random(seed)
        count = min(len(states), int(SAMPLE**0.5))
        per_source = min(len(states) - 1, -(-SAMPLE // count))
        return {a: rng.sample([b for b in states if a != b], per_source) for a in rng.sample(states, count)}

    def dearer(self, pairs: dict[Any, list[Any]]) -> list[str]:
        """What our plans cost where that is not the cheapest, in words."""
        wrong: list[str] = []
        for source, targets in pairs.items():
            costs: dict[Fraction, dict[Any, Any]] = {}
            for target in targets:
                bound = max(self.brute.block[source], self.brute.block[target])
                if bound not in costs:
                    costs[bound] = self.brute.costs(source, bound)
                best, steps = costs[bound][target]
                plan = synthesize(
                    self.layouts[source], self.layouts[target], topology=self.topology, steps=UNIFORM_STEPS
                )
                bytes_only = self.topology.bytes_only(self.mesh)
                ours = plan.received_bytes / 4 if bytes_only else plan.seconds
                same = ours == pytest.approx(float(best), rel=1e-9, abs=1e-15)
                if not same or plan.communication_steps != steps or any(op_name(s) == "exchange" for s in plan.steps):
                    wrong.append(
                        f"{plan.source} -> {plan.target}: {ours} in {plan.communication_steps} steps against "
                        f"{float(best)} in {steps}"
                    )
        return wrong


@pytest.mark.heavy
@pytest.mark.parametrize("topology", [_UNIFORM, _SLOW, _LATENCY], ids=lambda t: t.name)
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("sizes", MESHES, ids=lambda s: "x".join(map(str, s)))
def test_as_cheap_as_brute_force(sizes: tuple[int, ...], rank: int, topology: Topology, oracle: Any) -> None:
    """Cost, then communication steps, in this topology."""
    family = Family(oracle, sizes, rank, topology)
    pairs = family.pairs(7)
    wrong = family.dearer(pairs)
    print(f"{'x'.join(map(str, sizes))} rank {rank} {topology.name}: {sum(map(len, pairs.values()))} pairs")
    assert not wrong, f"{len(wrong)} of {sum(map(len, pairs.values()))}\n" + "\n".join(wrong[:10])


@pytest.mark.heavy
@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 4)], ids=lambda s: "x".join(map(str, s)))
def test_fewest_bytes_over_the_slow_axis(sizes: tuple[int, ...], oracle: Any) -> None:
    """With a tenth of the bandwidth on the outer axis, no plan of any cost sends less over it, on every pair."""
    digits = [(axis, pre, 2) for axis, size in zip("abc", sizes, strict=False) for pre in (1, 2, 4) if pre < size]
    mesh = Mesh(dict(zip("abc", sizes, strict=False)))
    brute = oracle((2, 2, 2), (8, 8), tuple(Fraction(int(axis == "a")) for axis, _, _ in digits))
    axes = [SubAxis(*digit) for digit in digits]
    layouts = {s: Layout(mesh, (8, 8), [[axes[d] for d in part] for part in s]) for s in brute.states}
    wrong: list[str] = []
    for source in brute.states:
        costs: dict[Fraction, dict[Any, Any]] = {}
        for target in brute.states:
            bound = max(brute.block[source], brute.block[target])
            if source != target:
                if bound not in costs:
                    costs[bound] = brute.costs(source, bound)
                plan = synthesize(layouts[source], layouts[target], topology=_SLOW, steps=UNIFORM_STEPS)
                slow = sum(step_seconds(s, at, _ONLY_SLOW) for s, at in zip(plan.steps, plan.layouts, strict=False)) / 4
                if slow != pytest.approx(float(costs[bound][target][0])):
                    wrong.append(f"{plan.source} -> {plan.target}: {slow} against {costs[bound][target][0]}")
    assert not wrong, f"{len(wrong)} of {len(brute.states) ** 2 - len(brute.states)}\n" + "\n".join(wrong[:10])
