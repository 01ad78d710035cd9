"""Digits: what alignment says of layouts is what their devices hold, and it exists where it should."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.testing import Kind, Problem, problems
from redist.types import Layout, Mesh, SubAxis, aligned
from redist.types.digits import align, prime_factors, refine_axes
from redist.types.layout import merge_axes

SIX = Mesh({"x": 6, "y": 4})


@given(problems(max_elements=60), st.booleans())
def test_digits_give_the_block_indices(brute: Any, problem: Problem, primes: bool) -> None:
    """Read off the digits, in which of its blocks each device stands, and which contribution it holds, are
    those of either layout, on whatever mesh it was stated."""
    alignment = align(tuple(problem), primes)
    if alignment is None:
        return
    ids = list(problem.source.mesh.device_ids)
    assert math.prod(alignment.sizes) == len(ids) and all(size > 1 for size in alignment.sizes)
    assert not primes or all(prime_factors(size) == [size] for size in alignment.sizes)
    digits = range(len(alignment.sizes))
    read = {device: [p // alignment.strides[d] % alignment.sizes[d] for d in digits] for p, device in enumerate(ids)}
    for layout, form in zip(problem, alignment.forms, strict=True):
        places = brute.coordinates(layout.mesh)
        for dim, numbered in zip(layout.dims, form.dims, strict=True):
            assert alignment.count(numbered) == brute.count(layout.mesh, dim.axes)
            for device in ids:
                index = 0
                for d in numbered:
                    index = index * alignment.sizes[d] + read[device][d]
                assert index == brute.index(layout.mesh, places[device], dim.axes)
        held = brute.contributions(layout)
        pairs = {(held[device], tuple(read[device][d] for d in form.partial)) for device in ids}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert form.used() == {d for dim in form.dims for d in dim} | set(form.partial)


@given(problems(kinds=("same", "transposed")))
def test_digits_are_axes_of_the_first_mesh(brute: Any, problem: Problem) -> None:
    """`axes` writes digits as (sub-)axes with the same index, adjacent ones merged."""
    alignment = align(tuple(problem))
    if alignment is None:
        return
    mesh, places = problem.source.mesh, brute.coordinates(problem.source.mesh)
    target = problem.target
    theirs = brute.coordinates(target.mesh)
    for dim, numbered in zip(target.dims, alignment.forms[1].dims, strict=True):
        axes = alignment.axes(numbered)
        for device in places:
            assert brute.index(mesh, places[device], axes) == brute.index(target.mesh, theirs[device], dim.axes)
    for dim, numbered in zip(problem.source.dims, alignment.forms[0].dims, strict=True):
        assert alignment.axes(numbered) == merge_axes(mesh, [axis for axis in dim.axes if mesh.count([axis]) > 1])


@pytest.mark.parametrize("kind", ["same", "transposed"])
def test_whole_axes_are_always_aligned(kind: Kind) -> None:
    """Over one mesh, or one with its axes in another order."""

    @given(problems(kinds=(kind,), sub_axes=False))
    def check(problem: Problem) -> None:
        assert aligned(*problem) and aligned(*problem, problem.source)

    check()


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("[6{x:(1)2}]", "[6{x:(1)3}]", False),
        ("[6{x:(1)2}]", "[6{x:(3)2}]", False),
        ("[6{x:(1)3}]", "[6{x:(3)2}]", True),
        ("[6{x:(1)2}]", "[6{x}]", True),
        ("[6{x:(1)2}]", "[6{x:(2)3}]", True),
        ("[6{y:(2)2}]", "[6{y:(1)2}, 1]", True),
        ("[6] sum{x:(1)2}", "[6{x:(1)3}]", False),
        ("[6] sum{x:(1)2}", "[6] sum{x:(2)3}", True),
    ],
)
def test_alignment_is_a_common_refinement(one: str, other: str, expected: bool) -> None:
    """Cuts 2|3 and 3|2 of a 6-axis have none, whether they shard or are unreduced."""
    assert aligned(Layout.parse(one, SIX), Layout.parse(other, SIX)) is expected


def test_alignment_across_meshes() -> None:
    """The same devices in row-major order, or permuted digit by digit; not otherwise."""
    whole = Layout.parse("[8{x}]", Mesh({"x": 8}))
    assert aligned(whole, Layout.parse("[8{a,b}]", Mesh({"a": 2, "b": 4})))
    assert aligned(whole, Layout.parse("[8{a,b}]", Mesh({"a": 2, "b": 4}, [0, 2, 4, 6, 1, 3, 5, 7])))
    assert not aligned(whole, Layout.parse("[8{a,b}]", Mesh({"a": 2, "b": 4}, [7, 6, 5, 4, 3, 2, 1, 0])))
    assert not aligned(whole, Layout.parse("[8{a,b}]", Mesh({"a": 2, "b": 4}, [0, 1, 3, 2, 4, 5, 6, 7])))
    assert not aligned(whole, Layout.parse("[8{a}]", Mesh({"a": 4})))
    assert not aligned(whole, Layout.parse("[8{a}]", Mesh({"a": 8}, [8, 1, 2, 3, 4, 5, 6, 7])))


def check_moved_digits(ids: list[int]) -> bool:
    """Whether a mesh with these ids is aligned with the plain one; if so, its digits lead to its ids."""
    size = len(ids)
    alignment = align((Layout(Mesh({"x": size}), [4], [["x"]]), Layout(Mesh({"a": size}, ids), [4], [["a"]])))
    if alignment is None:
        return False
    for p in range(size):
        index = 0
        for d in alignment.forms[1].dims[0]:
            index = index * alignment.sizes[d] + p // alignment.strides[d] % alignment.sizes[d]
        assert ids[index] == p
    return True


@given(st.integers(1, 8).flatmap(lambda size: st.permutations(range(size))))
def test_permuted_ids_are_aligned_or_not_but_never_wrong(ids: list[int]) -> None:
    """On any permutation of a few ids."""
    check_moved_digits(ids)


@pytest.mark.parametrize("sizes", [(2, 2, 2), (2, 3, 2), (4, 2), (2, 6)], ids=str)
def test_permuted_digits_are_aligned_and_with_two_ids_swapped_not(sizes: tuple[int, ...]) -> None:
    """Every order of the digits is found; every such order with two ids swapped is found only if it is
    one of digits again."""
    plain = np.arange(math.prod(sizes)).reshape(sizes)
    orders = [plain.transpose(order).ravel().tolist() for order in itertools.permutations(range(len(sizes)))]
    for ids in orders:
        assert check_moved_digits(ids)
        for a, b in itertools.combinations(range(len(ids)), 2):
            swapped = list(ids)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            check_moved_digits(swapped)


@given(st.integers(1, 10**6))
def test_prime_factors(number: int) -> None:
    """They are prime, ascending, and multiply to the number."""
    factors = prime_factors(number)
    assert math.prod(factors) == number and factors == sorted(factors)
    assert all(factor > 1 and all(factor % d for d in range(2, math.isqrt(factor) + 1)) for factor in set(factors))


X12 = Mesh({"x": 12, "y": 2, "e": 1})


@pytest.mark.parametrize(
    ("axes", "cutters", "expected"),
    [
        (["x"], [], ["x"]),
        (["x"], ["x:(2)3"], ["x:(1)2", "x:(2)3", "x:(6)2"]),
        (["x"], ["x:(1)2", "x:(4)3"], ["x:(1)2", "x:(2)2", "x:(4)3"]),
        (["y", "x:(2)6"], ["x:(1)2", "x:(4)3", "y"], ["y", "x:(2)2", "x:(4)3"]),
        (["x:(1)2"], ["x:(3)4"], ["x:(1)2"]),
        (["x"], ["x:(2)2", "x:(3)2"], None),
        (["x:(1)6"], ["x:(4)3"], None),
        (["e"], ["x", "e"], ["e"]),
        ([], ["x"], []),
    ],
)
def test_refine_axes(axes: list[str], cutters: list[str], expected: list[str] | None) -> None:
    """Axes are split where another begins or ends inside; None where the cuts are not of one factorisation."""
    found = refine_axes(X12, [X12.resolve(a) for a in axes], [X12.resolve(c) for c in cutters])
    assert found == (None if expected is None else tuple(X12.resolve(e) for e in expected))


def test_forms_list_used_digits_in_order() -> None:
    """`{y, x}` on x=6 cut by another layout in 3 and 2: digits major to minor, partial ones sorted."""
    one = Layout.parse("[24{y,x}]", SIX)
    other = Layout.parse("[24] sum{x:(3)2}", SIX)
    alignment = align((one, other))
    assert alignment is not None
    assert alignment.sizes == (3, 2, 4) and alignment.strides == (8, 4, 1)
    assert alignment.forms[0].dims == ((2, 0, 1),) and alignment.forms[0].partial == ()
    assert alignment.forms[1].dims == ((),) and alignment.forms[1].partial == (1,)
    assert alignment.axes((2, 0, 1)) == (SubAxis("y"), SubAxis("x"))
    assert alignment.axes((1, 0)) == (SubAxis("x", 3, 2), SubAxis("x", 1, 3))
