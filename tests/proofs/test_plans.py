"""Our plans are proved: all of a small mesh, random ones of every kind, steps put together at random."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from redist.collectives import AllGather, Chunk, Plan, Slice
from redist.errors import InfeasibleError
from redist.proofs import Certificate, verify
from redist.synth import synthesize
from redist.testing import all_layouts, random_problems
from redist.types import Layout, Mesh
from redist.types.blocks import CEIL


def _check(plan: Plan) -> Certificate:
    certificate = verify(plan)
    assert certificate.status == "proved", f"{plan.to_json()}\n{certificate}"
    assert certificate.obligation("M").figures["largest block"] == plan.largest_block_bytes
    return certificate


def _pairs(mesh: str, rank: int = 2) -> list[tuple[Layout, Layout]]:
    layouts = all_layouts(Mesh.parse(mesh), rank)
    return [(a, b) for a in layouts for b in layouts]


@pytest.mark.parametrize("mesh", ["x=2,y=2,z=2", "x=4,y=2", "x=2,y=3"])
def test_sampled(mesh: str) -> None:
    """60 pairs of layouts of whole axes."""
    for source, target in Random(0).sample(_pairs(mesh), 60):
        certificate = _check(synthesize(source, target))
        assert certificate.obligation("R").method == "smt"
        assert certificate.obligation("N2").holds


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("mesh", "rank", "count", "sample"),
    [
        ("x=2,y=2,z=2", 2, 2401, None),
        ("x=2,y=4", 2, 121, None),
        ("x=2,y=3", 2, 121, None),
        ("x=2,y=3,z=5", 2, 2401, 1000),
        ("x=2,y=2,z=2", 3, 11236, 2000),
    ],
)
def test_families(mesh: str, rank: int, count: int, sample: int | None) -> None:
    """All pairs of layouts of whole axes, or so many of them: proved, every one."""
    pairs = _pairs(mesh, rank)
    assert len(pairs) == count
    for source, target in Random(0).sample(pairs, sample or count):
        _check(synthesize(source, target))


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
        assert certificate.obligation("M").figures["largest block"] == plan.largest_block_bytes


@pytest.mark.heavy
def test_the_random_problems_are_of_every_kind() -> None:
    """2,000 problems, and how many of them have what is out of the ordinary."""
    found: Counter[str] = Counter()
    for source, target in random_problems(0, 2000, reduction="sum", max_devices=16):
        try:
            _check(synthesize(source, target))
        except InfeasibleError:  # no plan is no proof: every problem has one
            pytest.fail(f"no plan from {source} on {source.mesh} to {target} on {target.mesh}")
        ends = (source, target)
        found["uneven"] += not all(layout.is_even() for layout in ends)
        found["rules"] += any(dim.rule != CEIL for layout in ends for dim in layout.dims)
        found["sub-axes"] += any(axis.size for layout in ends for dim in layout.dims for axis in dim.axes)
        found["unreduced"] += source.mesh.count(source.partial_axes) > 1
        same = set(source.mesh.device_ids) == set(target.mesh.device_ids)
        found["permuted" if same else "other"] += source.mesh.device_ids != target.mesh.device_ids
    assert min(found[name] for name in ("uneven", "rules", "sub-axes", "unreduced", "permuted", "other")) >= 100, found


@pytest.mark.parametrize(
    ("mesh", "source", "target"),
    [
        ("x=5,y=2", "f32[36, 1{y}]", "f32[36{y}, 1{x}]"),
        ("x=3,y=2,z=3", "f32[2, 2, 1{y}]", "f32[2{y}, 2, 1{z}]"),
        ("x=2,y=2,z=2,u=2", "i8[26, 1, 4{u}] sum{x}", "i8[26{x,z,u}, 1{y}, 4]"),
        ("x=2,y=3,z=2", "i8[3{x}, 22, 4{y}:balanced] sum{z}", "i8[3{y}, 22, 4{x}]"),
    ],
)
def test_cutting_what_is_too_short_to_be_cut(mesh: str, source: str, target: str) -> None:
    """Blocks that stay whole when they are sliced: moved more than once, three times the source would be alive."""
    over = Mesh.parse(mesh)
    plan = synthesize(Layout.parse(source, over), Layout.parse(target, over))
    figures = _check(plan).obligation("M").figures
    assert figures["peak"] == plan.peak_bytes <= 2 * plan.source.block_bytes() + plan.target.block_bytes()


def test_the_largest_block_inside_a_chunk() -> None:
    """Gathered and sliced in two parts: of 16 x 8 elements, 16 x 4 are there at once, more than source and target."""
    over = Mesh.parse("x=4,y=4")
    source, target = (Layout.parse(text, over) for text in ("i8[16{x}, 8]", "i8[16{y}, 8]"))
    plan = Plan(source, target, (Chunk(1, 2, (AllGather({0: ["x"]}), Slice({0: ["y"]}))),))
    assert plan.largest_block_bytes == 16 * 4 > plan.block_bound_bytes
    certificate = verify(plan)
    assert certificate.counterexample is not None
    assert certificate.counterexample.text == (
        "REFUTED memory: after step 1.1 a device holds a block of 64 bytes, more than the larger of source and "
        "target, 32"
    )


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
