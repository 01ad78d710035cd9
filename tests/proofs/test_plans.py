"""Our plans are proved: all of a small mesh, random ones of every kind, steps put together at random."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from redist.collectives import Chunk, Plan
from redist.errors import InfeasibleError
from redist.proofs import Certificate, Refuted, verify
from redist.synth import synthesize
from redist.testing import all_layouts
from redist.types import Layout, Mesh


def _check(plan: Plan) -> Certificate:
    certificate = verify(plan)
    text = f"{plan.to_json()}\n{certificate}"
    for name in ("R", "T"):
        assert certificate.obligation(name).holds, text
    unordered = isinstance(certificate.obligation("N1").verdict, Refuted)
    assert not unordered or plan.source.partial, text  # a slice may follow a reduction
    assert certificate.obligation("M").holds or unordered, text  # and then the live peak may be too high
    assert certificate.status == ("refuted" if unordered else "proved"), text
    return certificate


def _pairs(mesh: str) -> list[tuple[Layout, Layout]]:
    layouts = all_layouts(Mesh.parse(mesh), 2)
    return [(a, b) for a in layouts for b in layouts]


@pytest.mark.parametrize("mesh", ["x=2,y=2,z=2", "x=4,y=2", "x=2,y=3"])
def test_sampled(mesh: str) -> None:
    """60 pairs of layouts of whole axes."""
    for source, target in Random(0).sample(_pairs(mesh), 60):
        certificate = _check(synthesize(source, target))
        assert certificate.obligation("R").method == "smt"
        assert certificate.obligation("N2").holds


@pytest.mark.heavy
def test_exhaustive() -> None:
    """All 2,401 pairs of layouts of rank 2 on 2x2x2."""
    pairs = _pairs("x=2,y=2,z=2")
    assert len(pairs) == 49 * 49
    for source, target in pairs:
        assert _check(synthesize(source, target)).status == "proved"


def test_random_problems(plans: Any) -> None:
    """150 problems: any meshes, devices, block rules, sub-axes, unreduced sources."""
    rng = Random(1)
    for _ in range(150):
        _check(plans.planned(rng))


def test_assembled(plans: Any) -> None:
    """150 random sequences of steps lead where their typing says; R and T hold."""
    rng = Random(2)
    for _ in range(150):
        plan = plans.assembled(rng)
        certificate = verify(plan)
        assert certificate.obligation("R").holds, f"{plan.to_json()}\n{certificate}"
        assert certificate.obligation("T").holds, f"{plan.to_json()}\n{certificate}"


def test_within_a_memory_limit(plans: Any) -> None:
    """At the smallest limit that the planner finds feasible, some of them in chunks: M holds against that limit."""
    rng = Random(8)
    chunked = 0
    for _ in range(40):
        plan = plans.planned(rng, partial=False)
        with pytest.raises(InfeasibleError) as refusal:
            synthesize(plan.source, plan.target, memory_limit=-1, backend="mpi")
        limit = refusal.value.smallest_limit
        assert limit is not None
        tight = synthesize(plan.source, plan.target, memory_limit=limit, backend="mpi")
        certificate = _check(tight)
        assert certificate.status == "proved"
        assert certificate.obligation("M").figures["limit"] == limit
        chunked += any(isinstance(step, Chunk) for step in tight.steps)
    assert chunked > 0


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3, 7))
def test_many_random_problems(plans: Any, seed: int) -> None:
    """4 x 500 problems, and as many sequences of steps."""
    rng = Random(seed)
    for _ in range(500):
        _check(plans.planned(rng))
        certificate = verify(plan := plans.assembled(rng))
        assert certificate.obligation("R").holds, f"{plan.to_json()}\n{certificate}"


@pytest.mark.parametrize(
    ("mesh", "source", "target"),
    [
        ("x=1024,y=1024", "f32[1048576{x}, 1048576{y}]", "f32[1048576{y,x}, 1048576]"),
        ("x=64,y=64,z=16,w=16", "f32[65536{x,w}, 65536{y}]", "f32[65536{y}, 65536{z,x}]"),
        (
            ",".join(f"a{n}=2" for n in range(20)),
            "f32[1048576{a0,a7,a3}, 1024{a1}]",
            "f32[1048576{a19,a3}, 1024{a0,a2}]",
        ),
    ],
)
def test_a_million_devices(mesh: str, source: str, target: str) -> None:
    """2^20 devices take no longer than a few: the solver sees digits."""
    over = Mesh.parse(mesh)
    assert over.size == 2**20
    certificate = _check(synthesize(Layout.parse(source, over), Layout.parse(target, over)))
    assert certificate.status == "proved"
    assert certificate.obligation("R").method == "smt"
    assert certificate.seconds < 2


@pytest.mark.parametrize(
    ("mesh", "source", "target", "target_mesh", "method"),
    [
        ("x=4", "[16{x}]", "[16]", "x=4", "smt"),
        ("x=6", "[12{x:(1)2}, 12]", "[12, 12{x:(1)3}]", "x=6", "smt"),  # cuts that do not refine each other
        ("x=4,y=2", "[5{x}, 7]", "[5, 7{y,x}]", "x=4,y=2", "smt"),  # uneven
        ("x=4", "[13{x}:balanced]", "[13{x}]", "x=4", "smt"),
        ("x=4", "[13{x}@[0,5,5,9]]", "[13{x}:balanced]", "x=4", "smt"),
        ("x=2,y=4", "[16{x}, 8{y}]", "[16{u}, 8{v}]", "v=4,u=2@[0,4,1,5,2,6,3,7]", "smt"),  # digits permuted
        ("x=8", "[16{x}]", "[16{u}]", "u=4@[9,2,11,5]", "smt"),  # other devices: any replica will do
        ("x=2,y=2", "[8{x}] sum{y}", "[8{y}]", "x=2,y=2", "smt"),
    ],
)
def test_kinds(mesh: str, source: str, target: str, target_mesh: str, method: str) -> None:
    """One plan of each kind, and how it is decided."""
    plan = synthesize(Layout.parse(source, Mesh.parse(mesh)), Layout.parse(target, Mesh.parse(target_mesh)))
    certificate = _check(plan)
    assert certificate.obligation("R").method == method


def test_time_grows_with_neither_devices_nor_size() -> None:
    """The queries of one plan on 8 and on 2^20 devices have as many variables and assertions."""
    sizes: set[int] = set()
    for n, size in ((2, 64), (1024, 2**21)):
        mesh = Mesh({"x": n, "y": n})
        plan = synthesize(Layout(mesh, (size, size), (("x",), ())), Layout(mesh, (size, size), ((), ("y", "x"))))
        queries = [query for o in verify(plan).obligations for query, _ in o.queries]
        sizes.add(sum(len(query.names) + len(query.facts) for query in queries))
    assert len(sizes) == 1
