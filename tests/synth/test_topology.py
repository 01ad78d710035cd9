"""Plans under topologies: as fast as brute force over all layouts finds."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from redist.collectives import Link, Plan, Topology
from redist.collectives.bijection import senders
from redist.collectives.copies import Copies
from redist.collectives.steps import AllGather, Permute, op_name
from redist.synth import candidates, planner
from redist.synth.planner import UNIFORM_STEPS, synthesize
from redist.synth.problem import Problem
from redist.synth.realise import crossing_share, digit_bijection, free_groups, swaps
from redist.testing import all_layouts, random_layout
from redist.types import Layout, Mesh, SubAxis
from redist.types.digits import align, aligned

_UNIFORM = Topology()
_SLOW_X = Topology("slow outer axis", {"x": Link(bandwidth=1e9)}, Link(bandwidth=1e10))
_LATENCY = Topology("latency", {}, Link(latency=1.0, bandwidth=1e10))
_BINARY = [("x", 1, 2), ("y", 1, 2), ("z", 1, 2)]
_FAMILIES: list[tuple[str, list[tuple[str, int, int]], tuple[int, ...], int | None]] = [
    ("2x2x2 rank 2", _BINARY, (8, 8), 16),
    ("2x4 with sub-axes", [("x", 1, 2), ("y", 1, 2), ("y", 2, 2)], (8, 8), 10),
    ("2x3", [("x", 1, 2), ("y", 1, 3)], (12, 12), None),
    ("2x3x5", [("x", 1, 2), ("y", 1, 3), ("z", 1, 5)], (30, 30), 6),
    ("2x2x2 rank 3", _BINARY, (8, 8, 8), 4),
]
_HEAVY: list[tuple[str, list[tuple[str, int, int]], tuple[int, ...], int | None]] = [
    ("2x2x2 rank 2", _BINARY, (8, 8), None),
    ("2x4 with sub-axes", [("x", 1, 2), ("y", 1, 2), ("y", 2, 2)], (8, 8), None),
    ("2x3x5", [("x", 1, 2), ("y", 1, 3), ("z", 1, 5)], (30, 30), None),
    ("2x2x2 rank 3", _BINARY, (8, 8, 8), 40),
    ("2x2x2x2 rank 2", [*_BINARY, ("w", 1, 2)], (16, 16), 10),
]


@pytest.mark.parametrize("topology", [_SLOW_X, _LATENCY], ids=lambda t: t.name)
@pytest.mark.parametrize("family", _FAMILIES, ids=lambda f: f[0])
def test_as_fast_as_brute_force(family: Any, topology: Topology, oracle: Any) -> None:
    """Projected seconds, then communication steps, equal the optimum, and the plan says that it is one."""
    _compare(family, topology, oracle)


@pytest.mark.heavy
@pytest.mark.parametrize("topology", [_SLOW_X, _LATENCY, _UNIFORM], ids=lambda t: t.name)
@pytest.mark.parametrize("family", _HEAVY, ids=lambda f: f[0])
def test_as_fast_as_brute_force_large(family: Any, topology: Topology, oracle: Any) -> None:
    """The same on every pair, or more pairs."""
    _compare(family, topology, oracle)


def _compare(family: Any, topology: Topology, oracle: Any) -> None:
    _, parts, shape, sample = family
    sizes: dict[str, int] = {}
    for axis, _, size in parts:
        sizes[axis] = sizes.get(axis, 1) * size
    mesh = Mesh(sizes)
    axes = [SubAxis(axis, pre, size) for axis, pre, size in parts]
    pace = tuple(4 / Fraction(topology.link(axis).bandwidth) for axis, _, _ in parts)
    brute = oracle(tuple(size for _, _, size in parts), shape, pace, Fraction(str(topology.default.latency)))
    layouts = {s: Layout(mesh, shape, [[axes[d] for d in digits] for digits in s]) for s in brute.states}
    rng = random.Random(3)
    wrong: list[str] = []
    for source in brute.states if sample is None else rng.sample(brute.states, sample):
        costs: dict[Fraction, dict[Any, Any]] = {}
        for target in brute.states if sample is None else rng.sample(brute.states, min(50, len(brute.states))):
            if source == target:
                continue
            bound = max(brute.block[source], brute.block[target])
            if bound not in costs:
                costs[bound] = brute.costs(source, bound)
            seconds, steps = costs[bound][target]
            plan = synthesize(layouts[source], layouts[target], topology=topology, steps=UNIFORM_STEPS)
            same = plan.seconds == pytest.approx(float(seconds), rel=1e-9, abs=1e-15)
            if not same or plan.communication_steps != steps or not plan.optimal:
                wrong.append(f"{plan.source} -> {plan.target}: {plan.seconds} against {float(seconds)}, {steps} steps")
            assert all(op_name(step) != "exchange" for step in plan.steps)
    assert not wrong, "\n".join(wrong[:10])


@pytest.mark.parametrize("topology", [_SLOW_X, _LATENCY], ids=lambda t: t.name)
def test_where_digits_are_many_no_more_is_claimed_than_is_true(
    topology: Topology, oracle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small meshes treated as if their digits were too many to search: plans take no less than the optimum, their
    gap says no less than how far they are from it, and many are still the optimum."""
    monkeypatch.setattr(candidates, "_FEW_DIGITS", 0)
    caches = [candidates._routes, planner._synthesize]  # pyright: ignore[reportPrivateUsage]
    for cache in caches:
        cache.cache_clear()
    mesh = Mesh({"x": 2, "y": 2, "z": 2})
    pace = tuple(4 / Fraction(topology.link(axis).bandwidth) for axis in mesh.names)
    brute = oracle((2, 2, 2), (16, 16), pace, Fraction(str(topology.default.latency)))
    layouts = {s: Layout(mesh, (16, 16), [[mesh.names[d] for d in digits] for digits in s]) for s in brute.states}
    cheapest = claimed = 0
    rng = random.Random(11)
    for _ in range(150):
        source, target = rng.sample(brute.states, 2)
        best, _ = brute.costs(source, max(brute.block[source], brute.block[target]))[target]
        setting = candidates._Setting.of(layouts[source], layouts[target], primes=True)  # pyright: ignore[reportPrivateUsage]
        assert setting is not None
        assert setting.least_seconds(setting.prices(topology)) <= float(best) * (1 + 1e-9)
        plan = synthesize(layouts[source], layouts[target], topology=topology, steps=UNIFORM_STEPS)
        assert plan.seconds >= float(best) * (1 - 1e-9)
        assert plan.options.gap is None or plan.seconds <= float(best) * plan.options.gap * (1 + 1e-9)
        assert not plan.optimal or plan.seconds <= float(best) * (1 + 1e-9)
        cheapest += plan.seconds <= float(best) * (1 + 1e-9)
        claimed += plan.options.gap is not None
    for cache in caches:
        cache.cache_clear()
    assert claimed == 150
    assert cheapest > 100


_MEMORY = [
    ("2x2x2 rank 2", _BINARY, (16, 16), 12),
    ("2x2x2, a long row", _BINARY, (8, 64), 8),
    ("2x2x2 rank 3", _BINARY, (8, 8, 8), 3),
    ("2x3", [("x", 1, 2), ("y", 1, 3)], (12, 12), None),
    ("2x2x2, a short dimension", _BINARY, (2, 16, 8), 3),
]


@pytest.mark.parametrize("family", _MEMORY, ids=lambda f: f[0])
def test_copies_count_where_memory_is_shared(family: Any, oracle: Any) -> None:
    """Seconds, then steps, equal the optimum where packing, unpacking and slicing cost as much as moving."""
    name, parts, shape, sample = family
    topology = Topology(
        "memory", {}, Link(1e-8, 4e9, "memory", exchange_slowdown=3.0), Copies(bandwidth=2e9, run_latency=3e-9)
    )
    memory = oracle.Memory(slowdown=Fraction(3), element=Fraction(2, 10**9), run=Fraction(3, 10**9))
    _compare((name, parts, shape, sample), topology, partial(oracle, memory=memory))


def test_slow_links_are_spared() -> None:
    """Gathering a slow axis where fast ones replicate: each device fetches a part of the block, and the rest from
    next door, in one gather over both axes instead of one over the slow axis alone."""
    mesh = Mesh.parse("x=2,y=4")
    source, target = Layout.parse("[64{x}, 64]", mesh), Layout.parse("[64, 64]", mesh)
    plain, sparing = synthesize(source, target), synthesize(source, target, topology=_SLOW_X, steps=UNIFORM_STEPS)
    assert [op_name(step) for step in plain.steps] == ["all_gather"]
    assert [op_name(step) for step in sparing.steps] == ["slice", "all_gather"]
    (gather,) = (step for step in sparing.steps if isinstance(step, AllGather))
    assert {axis.axis for _, axes in gather.axes for axis in axes} == {"x", "y"}
    crossing, array = plain.received_bytes / 4, 64 * 64 * 4
    beside = array * 7 / 8 - crossing
    assert sparing.seconds == pytest.approx(
        crossing / _SLOW_X.link("x").bandwidth + beside / _SLOW_X.link("y").bandwidth
    )


def _exchange_seconds(source: Layout, target: Layout, topology: Topology, native: bool) -> float:
    """Element by element: of the devices that hold one, that with the receiver's own coordinates on the axes
    that do not shard sends it, over the slowest axis on which they differ."""
    mesh = source.mesh
    places = list(itertools.product(*map(range, mesh.sizes)))
    sharding = {axis.axis for dim in source.dims for axis in dim.axes}
    holders: dict[tuple[int, ...], list[int]] = {}
    for device in range(mesh.size):
        for at in itertools.product(*(range(s.start, s.stop) for s in source.box(device))):
            holders.setdefault(at, []).append(device)
    worst = 0.0
    for receiver in range(mesh.size):
        seconds, links = 0.0, dict[int, Link]()
        for at in itertools.product(*(range(s.start, s.stop) for s in target.box(receiver))):
            (sender,) = (
                d
                for d in holders[at]
                if all(places[d][n] == places[receiver][n] for n, name in enumerate(mesh.names) if name not in sharding)
            )
            if sender != receiver:
                crossed = [n for n in range(len(mesh.names)) if places[sender][n] != places[receiver][n]]
                link = min((topology.link(mesh.names[n]) for n in crossed), key=lambda link: link.bandwidth)
                links[sender] = link
                seconds += source.itemsize / link.bandwidth
        if links:
            each = [link.latency + link.peer_latency for link in links.values()]
            once = max(link.latency for link in links.values()) + sum(link.peer_latency for link in links.values())
            seconds += once if native else sum(each)
        worst = max(worst, seconds)
    return worst


@pytest.mark.parametrize("backend", ["numpy", "jax"])
def test_an_exchange_is_chosen_where_it_is_faster(backend: str) -> None:
    """Under latencies that make it sometimes so, and never on a tie; the plan says why."""
    mesh = Mesh({"x": 2, "y": 4})
    topology = Topology(
        "two nodes", {"x": Link(3e-8, 1e9, peer_latency=1e-8), "y": Link(2e-8, 1e10, peer_latency=1e-8)}
    )
    layouts = list(all_layouts(mesh, rank=2, shape=(16, 16)))
    rng = random.Random(5)
    chosen = 0
    for _ in range(80):
        source, target = rng.choice(layouts), rng.choice(layouts)
        plan = synthesize(source, target, topology=topology, backend=backend)
        uniform = synthesize(source, target, topology=topology, backend=backend, steps=UNIFORM_STEPS)
        exchange = _exchange_seconds(source, target, topology, native=backend == "numpy")
        assert plan.seconds == pytest.approx(min(uniform.seconds, exchange), rel=1e-9), (source, target)
        if [op_name(step) for step in plan.steps] == ["exchange"]:
            assert exchange < uniform.seconds
            assert "an exchange, because uniform collectives would take" in plan.explain()
            chosen += 1
        else:
            assert exchange >= uniform.seconds * (1 - 1e-9), (source, target)
    assert 5 < chosen < 75


@pytest.mark.parametrize("mesh", ["x=8,y=8,z=8", "x=6,y=4,z=4", "x=4,y=6,z=9", "x=16,y=12"])
def test_axes_cut_in_parts_under_a_topology(mesh: str) -> None:
    """Meshes of more primes than are searched, layouts with parts of axes: plans reach the target all the same."""
    rng = random.Random(mesh)
    axes = Mesh.parse(mesh)
    for _ in range(8):
        shape = (axes.size, axes.size)
        source, target = (
            random_layout(rng, axes, shape, uneven=False, rules=False, partial=False, dtypes=("f32",)) for _ in range(2)
        )
        for topology in (_SLOW_X, _LATENCY) if aligned(source, target) else ():
            plan = synthesize(source, target, topology=topology, steps=UNIFORM_STEPS)
            assert plan.layouts[-1].equivalent(target)
            assert plan.largest_block_bytes <= plan.block_bound_bytes


def _swapping(plan: Plan) -> list[bool]:
    """Per permute: whether some device sends a block to the one that it gets one from."""
    found: list[bool] = []
    for step, before in zip(plan.steps, plan.layouts, strict=False):
        if isinstance(step, Permute):
            sender = senders(step, before).tolist()
            found.append(any(s != p and sender[s] == p for p, s in enumerate(sender)))
    return found


def test_devices_do_not_swap_where_they_need_not() -> None:
    """Digits may be sliced in two orders that take as long; in one of them, pairs of devices exchange their blocks, in
    the other no two do."""
    mesh = Mesh.parse("x=2,y=2,z=2")
    slow = Topology("slow", {"x": Link(bandwidth=1e8), "y": Link(bandwidth=1e8)}, Link(bandwidth=1e10))
    plan = synthesize(Layout.parse("[64{x}]", mesh), Layout.parse("[64{y,z,x}]", mesh), topology=slow)
    assert [op_name(step) for step in plan.steps] == ["slice", "permute"]
    assert _swapping(plan) == [False]


def test_less_goes_to_a_host_where_seconds_are_equal() -> None:
    """Of permutes that take as long, the one in which fewer devices of a host fetch their block from another one."""
    mesh = Mesh.parse("x=2,y=2,z=2")
    slow = Topology("slow", {"x": Link(1e-3, 1e8), "y": Link(1e-3, 1e8)}, Link(1e-3, 1e10))
    source, target = Layout.parse("[64, 64{y}]", mesh), Layout.parse("[64{x}, 64{z}]", mesh)
    plan = synthesize(source, target, topology=slow, steps=UNIFORM_STEPS)
    (step,) = (step for step in plan.steps if isinstance(step, Permute))
    hosts = np.arange(8) // 2
    from_elsewhere = hosts[senders(step, plan.layouts[-2])] != hosts
    assert np.bincount(hosts, from_elsewhere).max() == 1


def test_what_is_told_of_permutes() -> None:
    """Who swaps, and which share crosses slow links, is told from digits as devices do it."""
    rng, seen, shares = random.Random(0), [0, 0], set[float]()
    for axes in ("x=2,y=2,z=2", "x=3,y=3,z=3", "x=2,y=3,z=2", "x=4,y=2"):
        pairs = list(itertools.product(all_layouts(Mesh.parse(axes)), repeat=2))
        for source, target in rng.sample(pairs, min(800, len(pairs))):
            alignment = align((source, target), primes=True)
            assert alignment is not None
            before, after = (form.dims for form in alignment.forms)
            problem = Problem(alignment.sizes, source.shape, before, after)
            if list(map(problem.count, before)) != list(map(problem.count, after)):
                continue
            here = np.arange(source.mesh.size)
            sender = senders(Permute(target, free_groups(problem, alignment, before, after)), source)
            told = all(len(a) == 1 for a, _ in digit_bijection(problem, before, after))
            slow = frozenset(rng.sample(range(len(problem.sizes)), rng.randint(1, 2)))
            place = sum((here // alignment.strides[d] % alignment.sizes[d]) * 100**n for n, d in enumerate(slow))
            _, host = np.unique(place, return_inverse=True)
            elsewhere = np.bincount(host, host[sender] != host).max() / np.bincount(host).max()
            assert crossing_share(problem, before, after, slow) == pytest.approx(elsewhere if told else 1.0)
            shares |= {round(float(elsewhere), 3)} if told else set()
            moved = sender != here
            if moved.any():
                all_swap = bool((sender[sender] == here)[moved].all())
                assert swaps(problem, before, after) == (all_swap and told), (source, target)
                seen[all_swap] += told
    assert min(seen) > 30 and shares == {0.0, 0.5, 0.667, 1.0}
