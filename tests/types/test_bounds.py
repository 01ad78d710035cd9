"""Lower bounds: equal to counting elements device by device, and found without looking at devices."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from redist.errors import LayoutError
from redist.testing import Problem, all_layouts, problems, random_problems
from redist.types import BALANCED, CEIL, Layout, Mesh, SubAxis, lower_bound, missing_by_device
from redist.types.bounds import max_missing, require_same_array


@settings(max_examples=300)
@given(problems(max_devices=16, max_elements=80))
def test_lower_bound_is_that_of_a_count(brute: Any, problem: Problem) -> None:
    """Per element and device, for layouts of every kind: uneven, unreduced, permuted, on other devices."""
    source, target = problem
    require_same_array(source, target)
    assert lower_bound(source, target) == brute.lower_bound(source, target)


@given(problems(max_elements=80))
def test_missing_is_that_of_a_count(brute: Any, problem: Problem) -> None:
    """By device id, those outside the source mesh miss everything."""
    expected = brute.missing(*problem)
    assert missing_by_device(*problem) == expected
    assert max_missing(*problem) == max(expected.values())


@pytest.fixture(params=[(1, 1), (2, 4), (5, 16)], ids=str)
def small_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few entries, so that small problems are cut into pieces, sampled and pruned as large ones are."""
    piece, sample = request.param
    monkeypatch.setattr("redist.types.tables._PIECE", piece)
    monkeypatch.setattr("redist.types.bounds._SAMPLE", sample)
    lower_bound.cache_clear()


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("shape", [(1,), (3,), (5,), (7,), (12,), (13,), (3, 5), (5, 7), (2, 9), (4, 1)], ids=str)
def test_pieces_of_a_table_are_the_table(brute: Any, shape: tuple[int, ...]) -> None:
    """What is decided without looking at a piece is what a look would have shown: bounds, with and without
    reduction, and equivalence of every two layouts of 2x3x2 under either rule (sampled)."""
    mesh = Mesh({"x": 2, "y": 3, "z": 2})
    rng = Random(str(shape))
    found = [ruled(rng, layout) for layout in all_layouts(mesh, shape=shape) for _ in range(2)]
    for _ in range(250):
        a, b = rng.choice(found), rng.choice(found)
        assert max_missing(a, b) == max(brute.missing(a, b).values()), (a, b)
        assert a.equivalent(b) == brute.equivalent(a, b), (a, b)
        used = {axis.axis for dim in a.dims for axis in dim.axes}
        free = [name for name in mesh.names if name not in used]
        if free:
            unreduced = a.with_dims(a.dims, [SubAxis(rng.choice(free))])
            assert lower_bound(unreduced, b) == brute.lower_bound(unreduced, b), (unreduced, b)


def ruled(rng: Random, layout: Layout) -> Layout:
    """The layout with the ceil or the balanced rule in each dimension."""
    return layout.with_dims([replace(dim, rule=rng.choice([CEIL, BALANCED])) for dim in layout.dims])


@pytest.mark.heavy
def test_lower_bound_of_many_problems(brute: Any) -> None:
    """The same over thousands of seeded problems, on larger meshes too."""
    for problem in itertools.chain(
        random_problems(11, 4000, max_devices=12, max_elements=40), random_problems(12, 1000, max_elements=100)
    ):
        assert lower_bound(*problem) == brute.lower_bound(*problem), problem
        assert missing_by_device(*problem) == brute.missing(*problem), problem


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (6,), (7,), (12,), (2, 3), (6, 4), (1, 5), (0, 4)], ids=str)
def test_all_pairs_of_a_small_mesh(brute: Any, shape: tuple[int, ...]) -> None:
    """Every two layouts of 2x3, even and not, k > g and size 0 among them."""
    for a, b in itertools.product(all_layouts(Mesh({"x": 2, "y": 3}), shape=shape), repeat=2):
        assert lower_bound(a, b) == max(brute.missing(a, b).values()), (a, b)


PARTIAL = [
    ("[8] sum{x}", "[8]"),
    ("[8] sum{x}", "[8{x}]"),
    ("[8] sum{x}", "[8{y}]"),
    ("[8{y}] sum{x}", "[8{x}]"),
    ("[8{x}] sum{y}", "[8{y}]"),
    ("[8{x:(1)2}] sum{x:(2)2}", "[8{x:(2)2}]"),
    ("[8] sum{x,y}", "[8] sum{y}"),
    ("[8] sum{x,y}", "[8{x}] sum{y}"),
    ("[8{z}] sum{x,y}", "[8] sum{x:(1)2}"),
    ("[7{z}] sum{x,y}", "[7{z,x:(2)2}] sum{x:(1)2}"),
    ("[3{z}] sum{x}", "[3{x}]"),
    ("[6{u:(1)2}] sum{x}", "[6{u:(1)3}] sum{x:(2)2}"),
    ("[6{u:(1)2}] sum{x}", "[6{u:(1)3}] sum{x}"),
    ("[] sum{x}", "[]"),
    ("[0] sum{x}", "[0{x}]"),
    ("[8] sum{e}", "[8{x}] max{e}"),
]


@pytest.mark.parametrize(("source", "target"), PARTIAL)
def test_bounds_of_reductions(brute: Any, source: str, target: str) -> None:
    """All-reduce, reduce-scatter along the reduced axes and others, reductions of a part of an axis, kept
    contributions, uneven blocks, cuts that are not aligned."""
    mesh = Mesh({"x": 4, "y": 2, "z": 2, "u": 6, "e": 1} if "u" in source else {"x": 4, "y": 2, "z": 2, "e": 1})
    before, after = Layout.parse(source, mesh), Layout.parse(target, mesh)
    require_same_array(before, after)
    assert lower_bound(before, after) == brute.lower_bound(before, after)


def test_known_bounds() -> None:
    """By hand: an all-reduce over k needs 2(k-1)/k blocks, a reduce-scatter k-1 new ones, a gather k-1."""
    mesh = Mesh({"x": 4, "y": 2})

    def bound(source: str, target: str, to: Mesh = mesh) -> int:
        return lower_bound(Layout.parse(source, mesh), Layout.parse(target, to))

    assert lower_bound(*(Layout.parse(text, Mesh({"x": 4})) for text in ("[16] sum{x}", "[16]"))) == 24
    assert bound("[16] sum{x}", "[16]") == 20, "with two replicas each reduces half, which beats an all-reduce"
    assert bound("[16] sum{x}", "[16{x,y}]") == 6 and bound("[16] sum{x}", "[16{x}]") == 8
    assert bound("[16{x}]", "[16]") == 12 and bound("[16]", "[16{x}]") == 0
    assert bound("[16{x}, 4]", "[16, 4{x}]") == 12 and bound("[16{x,y}]", "[16{y,x}]") == 2
    assert bound("[16{x}]", "[16{x}]", Mesh({"x": 4, "y": 2}, range(8, 16))) == 4
    assert bound("[16]", "[16]", Mesh({"a": 2}, [7, 8])) == 16
    assert bound("[16]", "[16]", Mesh({"a": 2}, [7, 6])) == 0


# -- a million devices ---------------------------------------------------------------------------------

WIDE = Mesh({"a": 32, "b": 32, "c": 32, "d": 32})
LONG = Mesh({"x": 2**20})
N = 2**20


def refuse(*_: object, **__: object) -> None:
    """Stands in for whatever must not be called."""
    raise AssertionError("devices are enumerated")


@pytest.fixture
def no_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lists devices fails."""
    for owner, name in [(Layout, "boxes"), (Mesh, "index"), (Mesh, "id_array")]:
        monkeypatch.setattr(owner, name, refuse)
    monkeypatch.setattr("redist.types.bounds._missing", refuse)


@pytest.fixture
def no_devices(monkeypatch: pytest.MonkeyPatch, no_boxes: None) -> None:
    """Whatever lists devices, the blocks of a dimension, or the values of digits fails."""
    monkeypatch.setattr(Layout, "dim_bounds", refuse)
    monkeypatch.setattr("redist.types.bounds.overlap", refuse)
    monkeypatch.setattr("redist.types.equivalence.dim_edges", refuse)
    monkeypatch.setattr("redist.types.equivalence._equivalent_by_device", refuse)
    monkeypatch.setattr("redist.types.blocks.block_bounds", refuse)


@pytest.mark.usefixtures("no_devices")
@pytest.mark.parametrize(
    ("mesh", "source", "target", "bound"),
    [
        (WIDE, f"[{N}{{a,b,c,d}}, {N}]", f"[{N}, {N}{{a,b,c,d}}]", N - 1),
        (WIDE, f"[{N}{{a,b,c,d}}]", f"[{N}{{d,c,b,a}}]", 1),
        (WIDE, f"[{N}{{a,b,c,d}}]", f"[{N}]", N - 1),
        (WIDE, f"[{N}]", f"[{N}{{a,b:(4)8}}]", 0),
        (WIDE, f"[{N}{{a,b}}, 64{{c}}]", f"[{N}{{a,b:(1)4}}, 64{{c,d:(1)2}}]", 2**13 - 2**10),
        (LONG, f"[{N}{{x}}, {N}]", f"[{N}, {N}{{x}}]", N - 1),
        (LONG, f"[{N}{{x:(1)1024}}, {N}{{x:(1024)1024}}]", f"[{N}{{x:(1024)1024}}, {N}{{x:(1)1024}}]", N),
    ],
)
def test_even_layouts_of_a_million_devices(mesh: Mesh, source: str, target: str, bound: int) -> None:
    """Bound, missing, equivalence and block sizes of aligned even layouts come from digits alone."""
    before, after = Layout.parse(source, mesh), Layout.parse(target, mesh)
    assert lower_bound(before, after) == bound
    assert before.is_even() and after.is_even()
    assert not before.equivalent(after)
    assert before.equivalent(Layout.parse(source, mesh))
    assert before.block_elements() > 0


@pytest.mark.usefixtures("no_devices")
def test_other_meshes_of_a_million_devices() -> None:
    """Another mesh over the same devices in order is aligned, and equivalent where the blocks are."""
    wide = Layout.parse(f"[{N}{{a,b}}, 8{{c:(1)8}}]", WIDE)
    long = Layout.parse(f"[{N}{{x:(1)1024}}, 8{{x:(1024)8}}]", LONG)
    assert wide.equivalent(long) and long.equivalent(wide)
    assert lower_bound(wide, long) == 0
    assert lower_bound(wide, Layout.parse(f"[{N}{{x:(1)1024}}, 8]", LONG)) == 1024 * 7


@pytest.mark.usefixtures("no_boxes")
@pytest.mark.parametrize(
    ("source", "target", "bound"),
    [
        (f"[{N + 1}{{a,b,c,d}}]", f"[{N + 1}]", N + 1),
        (f"[{N + 1}{{a,b,c,d}}, 33{{}}]", f"[{N + 1}, 33{{a}}]", 2 * (N + 1) - 4),
        ("[5{a,b}]", "[5{c,d}]", 1),
        (f"[{N - 48573}{{a,b,c,d}}, 4097]", f"[{N - 48573}, 4097{{a,b}}]", 5 * (N - 48573) - 5),
        ("[3{a,b,c,d}, 7]", "[3{b,a,c,d}, 7]", 0),
        (
            f"[{N + 1}, 2] sum{{a,b,c,d}}",
            f"[{N + 1}{{a,b,c,d}}, 2]",
            2 * N,
        ),  # (N-1) receives of 2(N+1) elements, over N
        (f"[{N}{{b,c,d}}] sum{{a}}", f"[{N}{{b,c,d}}]", 62),
        (f"[{N}{{b,c,d}}] sum{{a}}", f"[{N}{{b,c,d,a}}]", 31),
        (f"[{N}{{b,c,d}}] sum{{a}}", f"[{N}{{a,b,c,d}}]", 32),
    ],
)
def test_uneven_and_unreduced_layouts_of_a_million_devices(source: str, target: str, bound: int) -> None:
    """These look at block indices, never at devices."""
    assert lower_bound(Layout.parse(source, WIDE), Layout.parse(target, WIDE)) == bound


# -- what is no redistribution -------------------------------------------------------------------------

KEEP = "A redistribution keeps shape and dtype; reshape or cast before or after it"
REMEDY = "reduce in the target, or state the source as unreduced over the same axes"


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (
            "[4, 5]",
            "[4]",
            f"source and target lay out different arrays: rank 2 (shape [4, 5]) and rank 1 (shape [4]). {KEEP}",
        ),
        (
            "[4, 5, 6]",
            "i32[4, 6, 5]",
            "source and target lay out different arrays: dimension 1 has size 5 in the source and 6 in the target; "
            "dimension 2 has size 6 in the source and 5 in the target; dtype f32 in the source and i32 in the "
            f"target. {KEEP}",
        ),
        ("[4]", "[4] sum{x}", f"the target is unreduced (sum{{x}}) where the source is not; {REMEDY}"),
        ("[4] sum{x}", "[4] max{x}", f"the target is unreduced by max, the source by sum; {REMEDY}"),
        (
            "[4] sum{x}",
            "[4] sum{x,y}",
            f"the target is unreduced over axes (sum{{x,y}}) where the source (sum{{x}}) is not; {REMEDY}",
        ),
        (
            "[4] sum{y:(1)2}",
            "[4] sum{y:(1)3}",
            f"the target is unreduced over axes (sum{{y:(1)3}}) where the source (sum{{y:(1)2}}) is not; {REMEDY}",
        ),
    ],
)
def test_layouts_of_different_arrays(source: str, target: str, message: str) -> None:
    """Rank, sizes, dtype, and contributions that would have to be made up."""
    mesh = Mesh({"x": 4, "y": 6})
    with pytest.raises(LayoutError) as caught:
        require_same_array(Layout.parse(source, mesh), Layout.parse(target, mesh))
    assert str(caught.value) == message


def test_what_is_kept_unreduced_may_be_sharded_anyhow() -> None:
    """Whether the target is unreduced only where the source is does not depend on the other axes' cuts."""
    mesh = Mesh({"x": 6, "y": 2, "e": 1})
    require_same_array(Layout.parse("[6{x:(1)2}] sum{y}", mesh), Layout.parse("[6{x:(1)3}] sum{y}", mesh))
    require_same_array(Layout.parse("[6]", mesh), Layout.parse("[6] sum{e}", mesh))
    require_same_array(Layout.parse("[6] sum{x}", mesh), Layout.parse("[6] sum{x:(2)3}", mesh))


def test_permuted_ids_of_a_million_devices() -> None:
    """Digits in another order are recognised from the ids, and blocks compared on digits."""
    turned = np.arange(N).reshape(32, 32, 32, 32).transpose(3, 1, 0, 2).ravel()  # device = d, b, a, c of WIDE
    mesh = Mesh({"p": 32, "q": 32, "r": 32, "s": 32}, turned.tolist())
    before, after = Layout.parse(f"[{N}{{a,b}}, 3]", WIDE), Layout.parse(f"[{N}{{r,q}}, 3]", mesh)
    assert before.equivalent(after) and after.equivalent(before)
    assert lower_bound(before, Layout.parse(f"[{N}{{r,q,s}}, 3]", mesh)) == 0
    assert not before.equivalent(Layout.parse(f"[{N}{{p,q}}, 3]", mesh))
