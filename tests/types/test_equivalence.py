"""Equivalence: two layouts are equivalent exactly when every device holds the same under both."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.testing import Problem, all_layouts, layouts, problems
from redist.types import Layout, Mesh, SubAxis
from redist.types.digits import prime_factors


@given(problems(max_devices=12, max_elements=60))
def test_equivalence_is_that_of_the_blocks(brute: Any, problem: Problem) -> None:
    """On any two layouts of one array: other meshes, ids, rules, unreduced or not."""
    source, target = problem
    assert source.equivalent(target) == brute.equivalent(source, target)
    assert source.equivalent(target) == target.equivalent(source)


SHAPES = [(), (0,), (1,), (2,), (3,), (5,), (8,), (0, 2), (1, 1), (1, 2), (2, 1), (3, 2), (4, 2), (5, 3), (1, 0)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_all_pairs_of_a_small_mesh(brute: Any, shape: tuple[int, ...]) -> None:
    """Every two layouts of 2x2 and of 3x2, where empty blocks hide the order of axes and where they do not."""
    for mesh in (Mesh({"x": 2, "y": 2}), Mesh({"x": 3, "y": 2}, [5, 1, 0, 2, 4, 3])):
        for a, b in itertools.combinations_with_replacement(all_layouts(mesh, shape=shape), 2):
            assert a.equivalent(b) == brute.equivalent(a, b), (a, b)


@pytest.mark.parametrize("size", range(7))
def test_all_pairs_of_rules(brute: Any, size: int) -> None:
    """Every order of the axes under every rule, over the same devices and over permuted ones."""
    plain, turned = Mesh({"x": 2, "y": 2}), Mesh({"y": 2, "x": 2}, [0, 2, 1, 3])
    texts = [
        f"[{size}{{{axes}}}{rule}]"
        for axes in ("x,y", "y,x")
        for rule in ("", ":balanced", f"@[0,0,{size // 2},{size}]")
    ]
    found = [Layout.parse(text, mesh) for mesh in (plain, turned) for text in texts]
    for a, b in itertools.product(found, repeat=2):
        assert a.equivalent(b) == brute.equivalent(a, b), (a, b)


def rewritten(rng: Random, layout: Layout) -> Layout:
    """The same layout over a mesh of prime axes in another order, with an axis of size 1 more."""
    mesh = layout.mesh
    used = [*layout.partial_axes, *(axis for dim in layout.dims for axis in dim.axes)]
    primes: dict[str, list[tuple[int, int, str]]] = {}
    for name, total in mesh.axes:
        cuts = sorted({1, total, *(p for axis in used if axis.axis == name for p in _ends(axis, total))})
        factors = [f for a, b in itertools.pairwise(cuts) for f in prime_factors(b // a)]
        pre = 1
        primes[name] = []
        for n, factor in enumerate(factors):
            primes[name].append((pre, factor, f"{name}_{n}"))
            pre *= factor
    pieces = [piece for several in primes.values() for piece in several]
    order = rng.sample(pieces, len(pieces))
    axes = [("one", 1), *((name, factor) for _, factor, name in order)]
    ids: list[int] = []
    for place in itertools.product(*(range(factor) for _, factor, _ in order)):
        coordinate = {name: c for (_, _, name), c in zip(order, place, strict=True)}
        position = 0
        for _, factor, name in pieces:
            position = position * factor + coordinate[name]
        ids.append(list(mesh.device_ids)[position])
    made = Mesh(axes, ids)

    def moved(axes: tuple[SubAxis, ...]) -> list[str]:
        return [
            name
            for axis in axes
            for pre, _, name in primes[axis.axis]
            if axis.size is None or axis.pre <= pre < axis.pre * axis.size
        ]

    return Layout(
        made,
        layout.shape,
        [[*moved(dim.axes), *(["one"] if i == 0 else [])] for i, dim in enumerate(layout.dims)],
        layout.dtype,
        rules=[dim.rule for dim in layout.dims],
        partial=moved(layout.partial_axes),
        reduction=layout.partial.reduction if layout.partial else "sum",
    )


def _ends(axis: SubAxis, total: int) -> tuple[int, int]:
    return axis.pre, axis.pre * (total if axis.size is None else axis.size)


@given(layouts(), st.randoms(use_true_random=False))
def test_a_layout_is_equivalent_to_itself_on_another_mesh(brute: Any, layout: Layout, rng: Random) -> None:
    """Prime axes, in another order, ids permuted to match: the same blocks on the same devices."""
    other = rewritten(rng, layout)
    assert brute.equivalent(layout, other)
    assert layout.equivalent(other) and other.equivalent(layout)


def test_what_does_not_matter() -> None:
    """Axes of size 1, unreduced over one contribution, and the starts of blocks without elements."""
    mesh = Mesh({"x": 2, "y": 2, "e": 1})

    def same(a: str, b: str) -> bool:
        return Layout.parse(a, mesh).equivalent(Layout.parse(b, mesh))

    assert same("[4{x,e}]", "[4{e,x}]") and same("[4{e}]", "[4]")
    assert same("[4] sum{e}", "[4]") and same("[4] sum{e}", "[4] max{e}")
    assert same("[1{x}, 0{y}]", "[1{x}, 0]") and not same("[1{x}, 0]", "[1{y}, 0]")
    assert same("[0{x}]", "[0{y}]")


def test_what_does_matter() -> None:
    """Shape, dtype, devices, the order of axes, the axes and the kind of a reduction."""
    mesh = Mesh({"x": 2, "y": 2})

    def same(a: str, b: str) -> bool:
        return Layout.parse(a, mesh).equivalent(Layout.parse(b, mesh))

    assert not same("[4]", "[5]") and not same("[4]", "[4, 1]") and not same("[4]", "i32[4]")
    assert not same("[4{x,y}]", "[4{y,x}]") and not same("[4] sum{x}", "[4] sum{y}")
    assert not same("[4] sum{x}", "[4] max{x}") and not same("[4] sum{x}", "[4]")
    assert not same("[0] sum{x}", "[0]")
    plain = Layout.parse("[4{x,y}]", mesh)
    assert not plain.equivalent(Layout.parse("[4{x,y}]", Mesh({"x": 2, "y": 2}, [4, 5, 6, 7])))
    assert not plain.equivalent(Layout.parse("[4{x,y}]", Mesh({"x": 2, "y": 2}, [1, 0, 2, 3])))
    assert plain.equivalent(Layout.parse("[4{z}]", Mesh({"z": 4})))
    assert not Layout.parse("[4]", mesh).equivalent(Layout.parse("[4]", Mesh({"x": 2})))
