"""The public test data: what is drawn is legal and varied, generators are reproducible, counts are known."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import redist.testing
from redist.collectives.steps import Chunk, Exchange, Free, Owner, Pairs, Permute, Step, op_name
from redist.collectives.typing import layouts_of
from redist.testing import (
    DTYPES,
    REDUCTIONS,
    Kind,
    Problem,
    all_layouts,
    layouts,
    meshes,
    problems,
    random_layout,
    random_mesh,
    random_problem,
    random_problems,
    random_shape,
    random_step,
    random_steps,
    valid_steps,
)
from redist.types import Ceil, Layout, Mesh
from redist.types.bounds import require_same_array

SMALL = Mesh({"x": 4, "y": 6})


def drawn(count: int, seed: int = 0, **options: Any) -> list[Problem]:
    return list(random_problems(seed, count, **options))


def parts_of(layout: Layout) -> int:
    """Uses of a part of an axis."""
    axes = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    return sum(axis.size is not None for axis in axes)


# -- all layouts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rank", "count"), [(0, 1), (1, 16), (2, 49), (3, 106)])
def test_all_layouts_of_three_axes(rank: int, count: int) -> None:
    """49 at rank 2, so 2,352 ordered pairs of distinct ones; 106 at rank 3, so 11,130."""
    found = all_layouts(Mesh({"x": 2, "y": 2, "z": 2}), rank)
    assert len(found) == len(set(found)) == count
    assert len(list(itertools.permutations(found, 2))) == count * (count - 1)
    assert all(layout.is_even() and layout.shape == (8,) * rank for layout in found)


@pytest.mark.parametrize("axes", range(4))
@pytest.mark.parametrize("rank", range(1, 4))
def test_all_layouts_are_all(axes: int, rank: int) -> None:
    """Every placement of whole axes: each axis on a dimension or none, in every order within a dimension."""
    mesh = Mesh([("abc"[n], n + 2) for n in range(axes)])
    expected: set[tuple[tuple[str, ...], ...]] = set()
    for places in itertools.product(range(rank + 1), repeat=axes):
        for order in itertools.permutations(mesh.names):
            expected.add(tuple(tuple(n for n in order if places[mesh.names.index(n)] == i) for i in range(rank)))
    found = [tuple(tuple(axis.axis for axis in dim.axes) for dim in layout.dims) for layout in all_layouts(mesh, rank)]
    assert len(found) == len(expected) and set(found) == expected


def test_all_layouts_of_a_shape() -> None:
    """Any shape and dtype, uneven ones too."""
    found = all_layouts(Mesh({"x": 2}), shape=(3, 0), dtype="bf16")
    assert [str(layout) for layout in found] == ["bf16[3, 0]", "bf16[3, 0{x}]", "bf16[3{x}, 0]"]
    assert [str(layout) for layout in all_layouts(Mesh({}), 2)] == ["f32[1, 1]"]


# -- plain generators ----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_problems() -> None:
    """And another seed others."""
    assert drawn(50, 1) == drawn(50, 1) != drawn(50, 2)
    assert random_problem(Random(4)) == random_problem(Random(4))
    source = drawn(1, 7)[0].source
    assert random_steps(Random(4), source) == random_steps(Random(4), source)


def test_problems_of_every_kind() -> None:
    """In a few hundred of them: every relation of the meshes, uneven blocks, every rule, parts of axes,
    contributions kept and reduced by all four reductions, all dtypes, axes of size 1, empty arrays, scalars."""
    found = drawn(600)
    seen: Counter[str] = Counter()
    for source, target in found:
        require_same_array(source, target)
        one, other = source.mesh, target.mesh
        seen["same"] += one == other
        seen["reshaped"] += one != other and list(one.device_ids) == list(other.device_ids)
        seen["permuted"] += one.same_devices(other) and list(one.device_ids) != list(other.device_ids)
        seen["other"] += not one.same_devices(other)
        seen["disjoint"] += not set(one.device_ids) & set(other.device_ids)
        seen["uneven"] += not source.is_even()
        seen["parts"] += parts_of(source) > 0
        seen["unreduced"] += source.partial is not None
        seen["kept"] += target.partial is not None
        seen["unit axes"] += 1 in one.sizes
        seen["one device"] += one.size == 1
        seen["no axes"] += not one.names
        seen["ids"] += not one.has_default_ids
        seen["empty"] += 0 in source.shape
        seen["unit dims"] += 1 in source.shape
        seen["scalar"] += source.rank == 0
        seen["k > g"] += any(k > dim.size > 0 for k, dim in zip(source.block_counts(), source.dims, strict=True))
        seen[source.dtype] += 1
        seen.update(type(dim.rule).__name__ for dim in source.dims)
        if source.partial:
            seen[source.partial.reduction] += 1
    wanted = "same reshaped permuted other disjoint uneven parts unreduced kept ids empty scalar Ceil Balanced Offsets"
    for what in [*wanted.split(), "unit axes", "one device", "no axes", "unit dims", "k > g", *DTYPES, *REDUCTIONS]:
        assert seen[what] >= 5, what
    sizes = {size for source, _ in found for size in source.mesh.sizes}
    assert {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12} == sizes
    assert max(len(source.mesh.names) for source, _ in found) >= 5
    assert max(source.mesh.size for source, _ in found) == 24


@pytest.mark.parametrize("kind", get_args(Kind))
def test_kinds_of_problems(kind: Kind) -> None:
    """Each is what it says; a transposed mesh leaves every device its coordinates."""
    for source, target in drawn(60, kinds=(kind,)):
        one, other = source.mesh, target.mesh
        if kind == "same":
            assert one == other
        elif kind == "transposed":
            assert sorted(one.axes) == sorted(other.axes)
            assert all(one.coordinates(device) == other.coordinates(device) for device in one.device_ids)
        elif kind == "reshaped":
            assert list(one.device_ids) == list(other.device_ids)
        elif kind == "permuted":
            assert one.same_devices(other)
        if kind not in ("same", "transposed"):
            assert target.partial is None


def test_options_narrow_what_is_drawn() -> None:
    """Even blocks, whole axes, no rules, no contributions, few devices, one dtype, low rank, a given mesh."""
    options = {
        "uneven": False,
        "sub_axes": False,
        "partial": False,
        "dtypes": ("i8",),
        "max_rank": 1,
        "max_elements": 50,
    }
    for source, target in drawn(200, max_devices=6, max_axes=2, **options):
        for layout in (source, target):
            assert layout.is_even() and layout.partial is None and layout.dtype == "i8" and layout.rank <= 1
            assert parts_of(layout) == 0 and layout.mesh.size <= 6 and len(layout.mesh.names) <= 2
            assert all(size <= 50 for size in layout.shape)
    assert all(dim.rule == Ceil() for source, _ in drawn(200, rules=False) for dim in source.dims)
    assert all(problem.source.mesh == SMALL for problem in drawn(20, mesh=SMALL))


def test_meshes_and_shapes_by_option() -> None:
    """Their bounds hold, and shapes share factors with the mesh."""
    rng = Random(0)
    found = [random_mesh(rng, max_devices=30, max_axes=3, unit_axes=False, any_ids=False) for _ in range(200)]
    assert all(
        mesh.size <= 30 and len(mesh.names) <= 3 and 1 not in mesh.sizes and mesh.has_default_ids for mesh in found
    )
    assert max(len(random_mesh(rng, max_devices=64).names) for _ in range(300)) == 6
    assert len(random_mesh(Random(1), max_devices=2**9, max_axes=9).names) <= 9
    shapes = [random_shape(rng, SMALL, rank=2, max_elements=100) for _ in range(200)]
    assert all(len(shape) == 2 and shape[0] * shape[1] <= 100 for shape in shapes)
    assert any(shape[0] % 4 == 0 and shape[0] for shape in shapes) and any(shape[0] % 4 for shape in shapes)


def test_sequences_of_every_kind() -> None:
    """Steps of every op, both bijections of permutes, both kinds of exchange, chunks of several steps and
    nested, all-to-alls of several moves, other meshes; and all of them apply."""
    rng = Random(0)
    seen: Counter[str] = Counter()

    def count(step: Step) -> None:
        seen[op_name(step)] += 1
        if isinstance(step, Permute):
            seen["free groups"] += isinstance(step.source, Free) and len(step.source.groups) > 1
            seen["pairs"] += isinstance(step.source, Pairs)
        if isinstance(step, Exchange):
            seen["owner"] += isinstance(step.transfers, Owner)
            seen["transfers"] += isinstance(step.transfers, tuple) and len(step.transfers) > 1
        if isinstance(step, Chunk):
            seen["several inside"] += len(step.steps) > 1
            seen["nested"] += any(isinstance(inner, Chunk) for inner in step.steps)
            for inner in step.steps:
                count(inner)
        if op_name(step) == "all_to_all":
            seen["moves"] += len(getattr(step, "moves", ())) > 1

    for source, _ in drawn(500, 3):
        steps = random_steps(rng, source)
        found = layouts_of(steps, source)
        seen["away"] += any(layout.mesh != source.mesh for layout in found)
        for step in steps:
            count(step)
    ops = "slice all_gather all_to_all permute exchange reduce_scatter all_reduce chunk"
    for what in [
        *ops.split(),
        "free groups",
        "pairs",
        "owner",
        "transfers",
        "several inside",
        "nested",
        "moves",
        "away",
    ]:
        assert seen[what] >= 10, what


def test_steps_by_option() -> None:
    """Only the kinds asked for, on one mesh, so many at most; None where no step of the kind applies."""
    rng = Random(1)
    for source, _ in drawn(200, 4):
        steps = random_steps(rng, source, kinds=("exchange", "slice"), same_mesh=True, max_steps=2)
        assert len(steps) <= 2 and {op_name(step) for step in steps} <= {"exchange", "slice"}
        assert all(layout.mesh == source.mesh for layout in layouts_of(steps, source))
    plain = Layout.parse("f32[]", SMALL)
    assert (
        random_step(rng, plain, kinds=("all_gather", "slice", "all_to_all", "reduce_scatter", "all_reduce", "chunk"))
        is None
    )
    assert random_steps(rng, plain, kinds=("all_gather",)) == ()


def test_random_layouts_of_a_shape() -> None:
    """The shape may be given; even blocks then come from axes that divide it."""
    rng = Random(2)
    for _ in range(100):
        layout = random_layout(rng, SMALL, (8, 9), uneven=False)
        assert layout.shape == (8, 9) and layout.is_even() and layout.mesh == SMALL


# -- strategies ----------------------------------------------------------------------------------------


@given(meshes(max_devices=10, max_axes=2, any_ids=False))
def test_strategy_of_meshes(mesh: Mesh) -> None:
    """Within its bounds."""
    assert mesh.size <= 10 and len(mesh.names) <= 2 and mesh.has_default_ids


@given(st.data())
def test_strategies_take_values_or_strategies(data: st.DataObject) -> None:
    """A mesh or a strategy of meshes, a layout or a strategy of layouts, a shape, options."""
    layout = data.draw(layouts(SMALL, (8, 6), uneven=False, partial=False))
    assert layout.mesh == SMALL and layout.shape == (8, 6) and layout.is_even() and layout.partial is None
    assert data.draw(layouts(meshes(max_devices=4))).mesh.size <= 4
    problem = data.draw(problems(mesh=st.just(SMALL), kinds=("reshaped",), dtypes=("i8",)))
    assert problem.source.mesh == SMALL and problem.target.dtype == "i8"
    source, steps = data.draw(valid_steps(layout, same_mesh=True, max_steps=3))
    assert source == layout and len(layouts_of(steps, source)) == len(steps) + 1 <= 4


@settings(max_examples=30)
@given(problems(max_devices=6), st.data())
def test_strategies_draw_problems_that_fit(problem: Problem, data: st.DataObject) -> None:
    """Source and target lay out one array, and steps from the source apply."""
    require_same_array(*problem)
    source, steps = data.draw(valid_steps(problem.source))
    layouts_of(steps, source)


def test_hypothesis_is_loaded_when_used() -> None:
    """The plain generators work without it; and this test can fail: the strategies do load it."""
    check = (
        "import sys\n"
        "from redist.testing import all_layouts, random_problems\n"
        "list(random_problems(0, 3))\n"
        "assert 'hypothesis' not in sys.modules\n"
        "from redist.testing import problems\n"
        "assert 'hypothesis' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", check], env={"PYTHONPATH": ":".join(sys.path)}, check=True)


def test_public_names() -> None:
    """Everything listed is there, and nothing else answers."""
    assert all(hasattr(redist.testing, name) for name in redist.testing.__all__)
    with pytest.raises(AttributeError, match=r"module 'redist\.testing' has no attribute 'nothing'"):
        redist.testing.nothing  # noqa: B018
