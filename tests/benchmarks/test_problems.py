"""Problems: families are complete, samples are seeded, cases carry their figures, arrays are what is asked for."""

from __future__ import annotations

import math

import pytest

from benchmarks.problems import (
    all_layouts,
    case_problems,
    family,
    named_mesh,
    sampled,
    shrunk,
    timing_problems,
    tree_problems,
)
from redist.testing import all_layouts as own_layouts
from redist.types import Layout, Mesh, lower_bound


@pytest.mark.parametrize(("mesh", "rank", "count"), [("2x2x2", 2, 2352), ("2x2x2", 3, 11130), ("2x3x5", 2, 2352)])
def test_families_are_all_ordered_pairs(mesh: str, rank: int, count: int) -> None:
    problems = family(mesh, rank)
    assert len(problems) == len({p.key for p in problems}) == count
    assert all(p.source.is_even() and p.target.is_even() for p in problems[:: count // 50])


def test_layouts_are_those_of_the_library() -> None:
    mesh = named_mesh("2x3x2")
    assert set(all_layouts(mesh, [12, 12])) == set(own_layouts(mesh, 2, shape=[12, 12]))


def test_samples_are_seeded() -> None:
    problems = family("2x4", 2)
    assert sampled(problems, 10, 1) == sampled(problems, 10, 1) != sampled(problems, 10, 2)
    assert sampled(problems, None, 1) == sampled(problems, 10**6, 1) == problems


def test_shardys_cases_carry_their_figures() -> None:
    cases = {p.key: p for p in case_problems("shardy")}
    assert len(cases) == 90
    swap = cases["swap_diff_size_axes_between_dims"]
    assert (swap.at_most, lower_bound(swap.source, swap.target)) == (24 / 128, 16)
    assert cases["reorder_device_ids"].target.mesh == Mesh.parse("x=2,y=2@[3,2,1,0]")
    assert sum(p.at_most is not None for p in cases.values()) == 61


def test_reported_cases_are_shrunk_and_the_same_problem() -> None:
    cases = {p.key: p for p in case_problems("reported")}
    assert len(cases) == 22
    assert all(math.prod(p.source.shape) <= 2**16 for p in cases.values())
    assert str(cases["jax-18591"].source) == "f32[256{x,y}, 256]"
    assert str(cases["pytorch-194457-c"].source) == "f32[7{x,y}@[0,2,4,4,5,6], 5]"


def test_shrinking_keeps_what_layouts_cut() -> None:
    mesh = Mesh.parse("tp=4,ep=64")
    source = Layout.parse("f32[256, 2048, 1408{tp}]", mesh)
    target = Layout.parse("f32[256{ep,tp}, 2048, 1408]", mesh)
    small, other = shrunk(source, target)
    assert small.shape == other.shape and math.prod(small.shape) <= 2**16
    assert small.block_counts() == source.block_counts() and other.block_counts() == target.block_counts()
    assert small.is_even() and other.is_even()
    uneven = Layout.parse("f32[100000{tp}]", Mesh.parse("tp=3"))
    assert shrunk(uneven, uneven) == (uneven, uneven)


def test_a_models_parameters() -> None:
    leaves = tree_problems(shrink=False)
    assert {p.key: p.source.shape for p in leaves}["attention/qkv"] == (768, 2304)
    assert all(p.source.is_even() and p.target.is_even() for p in [*leaves, *tree_problems()])
    assert sum(p.count for p in leaves) == 112


@pytest.mark.parametrize("devices", [8, 16])
def test_timed_arrays(devices: int) -> None:
    problems = timing_problems(devices, 60, seed=0)
    assert len({p.key for p in problems}) == 60
    assert {len(p.source.mesh.names) for p in problems} == ({1, 2, 3} if devices == 8 else {2, 3, 4})
    assert {p.source.rank for p in problems} == {1, 2, 3, 4}
    assert {math.prod(p.source.shape) * 4 // 2**20 for p in problems} == {4, 16, 64}
    assert all(p.source.is_even() and p.target.is_even() and p.source != p.target for p in problems)
    assert problems == timing_problems(devices, 60, seed=0) != timing_problems(devices, 60, seed=1)
