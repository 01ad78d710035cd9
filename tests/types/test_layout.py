"""Layouts: which block each device holds, their normal form, and every impossible one refused by name."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from redist.collectives import AllGather, AllReduce
from redist.errors import LayoutError
from redist.testing import layouts
from redist.types import BALANCED, CEIL, Dim, Layout, Mesh, Offsets, Partial, SubAxis
from redist.types.layout import merge_axes

MESH = Mesh({"x": 4, "y": 6, "e": 1})


@given(layouts())
def test_blocks_are_those_of_an_independent_count(brute: Any, layout: Layout) -> None:
    """Boxes of all devices, by position and by id, against loops over coordinates and block lengths."""
    expected = brute.boxes(layout)
    starts, stops = layout.boxes()
    assert starts.shape == stops.shape == (layout.mesh.size, layout.rank)
    found = zip(starts.tolist(), stops.tolist(), strict=True)
    assert [tuple(zip(a, b, strict=True)) for a, b in found] == list(expected.values())
    for device, box in expected.items():
        assert layout.box(device) == tuple(slice(a, b) for a, b in box)


@given(layouts())
def test_every_element_is_held_once_per_replica_and_contribution(brute: Any, layout: Layout) -> None:
    """Blocks cover the array: each element is on as many devices as there are replicas times contributions."""
    elements = brute.elements(layout)
    replicas = layout.mesh.size
    for count in layout.block_counts():
        replicas //= count
    holders: dict[tuple[int, ...], int] = {}
    for held in elements.values():
        for element in held:
            holders[element] = holders.get(element, 0) + 1
    assert len(holders) == np.prod(layout.shape, dtype=int)
    assert set(holders.values()) <= {replicas}


@given(layouts())
def test_block_sizes(brute: Any, layout: Layout) -> None:
    """`block_shape` is the longest block per dimension, `is_even` whether all are alike."""
    boxes = list(brute.boxes(layout).values())
    lengths = [{box[i][1] - box[i][0] for box in boxes} for i in range(layout.rank)]
    assert layout.block_shape() == tuple(map(max, lengths))
    assert layout.is_even() == all(len(found) == 1 for found in lengths)
    assert layout.block_elements() == np.prod([max(found) for found in lengths], dtype=int)
    assert layout.block_bytes() == layout.block_elements() * layout.itemsize
    assert layout.block_counts() == tuple(brute.count(layout.mesh, dim.axes) for dim in layout.dims)


def test_a_block_is_the_mixed_radix_index_major_first() -> None:
    """`8{y,x}` on x=2,y=2: y is major, so device (x=1, y=0) holds the second quarter."""
    layout = Layout.parse("f32[8{y,x}]", Mesh({"x": 2, "y": 2}))
    assert layout.box(2) == (slice(2, 4),)
    assert layout.box(1) == (slice(4, 6),)


def test_blocks_follow_device_ids() -> None:
    """Position 0 holds the first block, whatever device stands there."""
    layout = Layout.parse("f32[4{x}]", Mesh({"x": 4}, [7, 3, 9, 1]))
    assert [layout.box(device) for device in (7, 3, 9, 1)] == [(slice(p, p + 1),) for p in range(4)]


def test_scalars_and_empty_arrays_have_layouts() -> None:
    """Rank 0, dimensions of size 0 and 1, more blocks than elements, a mesh without axes."""
    assert Layout(MESH, ()).box(0) == () and Layout(MESH, ()).block_elements() == 1
    assert Layout.parse("f32[] sum{x}", MESH).partial == Partial((SubAxis("x"),), "sum")
    empty = Layout.parse("f32[0{x}, 5{y}]", MESH)
    assert empty.box(23) == (slice(0, 0), slice(5, 5)) and empty.block_elements() == 0
    assert not empty.is_even() and Layout.parse("f32[0{x}, 6{y}]", MESH).is_even()
    assert Layout.parse("f32[1{x}]", MESH).box(0) == (slice(0, 1),)
    assert Layout.parse("f32[1{x}]", MESH).box(23) == (slice(1, 1),)
    assert Layout.parse("f32[3, 2]", Mesh({})).box(0) == (slice(0, 3), slice(0, 2))
    assert Layout.parse("f32[3{e}]", MESH).box(5) == (slice(0, 3),)


# -- normal form ---------------------------------------------------------------------------------------


def test_adjacent_parts_merge() -> None:
    """Parts that continue each other are one; in another order, or apart, they stay."""
    layout = Layout(MESH, [8, 8], [["x:(1)2", "x:(2)2"], ["y:(2)3", "y:(1)2"]])
    assert str(layout) == "f32[8{x}, 8{y:(2)3,y:(1)2}]"
    assert layout == Layout(MESH, [8, 8], [["x"], ["y:(2)3", "y:(1)2"]])
    apart = [SubAxis("x", 1, 2), SubAxis("y"), SubAxis("x", 2, 2)]
    assert merge_axes(MESH, apart) == tuple(apart)


def test_rules_are_canonical() -> None:
    """A rule is kept only where it says something: even blocks are ceil blocks, and so are equal ones."""
    assert Layout.parse("f32[8{x}:balanced, 7]", MESH) == Layout.parse("f32[8{x}, 7:balanced]", MESH)
    assert Layout.parse("f32[8{x}@[0,2,4,6]]", MESH).dims[0].rule == CEIL
    assert Layout.parse("f32[5{x}@[0,2,3,4]]", MESH).dims[0].rule == BALANCED
    assert Layout.parse("f32[7{x}:balanced]", MESH).dims[0].rule == CEIL
    assert Layout.parse("f32[5{x}@[0,0,1,4]]", MESH).dims[0].rule == Offsets((0, 0, 1, 4))
    assert Layout.parse("f32[5{x}:ceil]", MESH) == Layout.parse("f32[5{x}]", MESH)


def test_partial_axes_are_in_mesh_order() -> None:
    """Their order says nothing."""
    one = Layout(MESH, [4], partial=["y", "x:(2)2", "x:(1)2"], reduction="max")
    assert one == Layout(MESH, [4], partial=["x", "y"], reduction="max")
    assert str(one) == "f32[4] max{x,y}" and one.partial_axes == (SubAxis("x"), SubAxis("y"))
    assert Layout(MESH, [4], reduction="max").partial is None


def test_construction_takes_numpy_integers_and_dtypes() -> None:
    """Shapes come from arrays too."""
    layout = Layout(MESH, np.asarray([4, 5]), [["x"], []], np.dtype("int16"))
    assert str(layout) == "i16[4{x}, 5]" and layout.itemsize == 2
    assert layout.same_array(Layout.parse("i16[4, 5]", Mesh({})))
    assert not layout.same_array(Layout.parse("i16[5, 4]", Mesh({})))
    assert not layout.same_array(Layout.parse("u16[4, 5]", Mesh({})))


def test_a_bare_string_is_one_axis() -> None:
    """Never the letters of its name."""
    mesh = Mesh({"xy": 2, "x": 2, "y": 2})
    assert Layout(mesh, [4, 4], ["xy", "x"], partial="y") == Layout.parse("[4{xy}, 4{x}] sum{y}", mesh)
    assert AllGather({0: "xy"}) == AllGather({0: ["xy"]}) and AllReduce("xy") == AllReduce(["xy"])


def test_with_dims_keeps_the_rest() -> None:
    """Mesh, dtype and reduction stay; partial axes unless replaced."""
    layout = Layout.parse("bf16[4{x}, 5] min{y}", MESH)
    assert str(layout.with_dims([Dim(4), Dim(5, (SubAxis("x"),))])) == "bf16[4, 5{x}] min{y}"
    assert str(layout.with_dims(layout.dims, [SubAxis("y", 1, 2)])) == "bf16[4{x}, 5] min{y:(1)2}"
    assert str(layout.with_dims(layout.dims, [])) == "bf16[4{x}, 5]"


@given(layouts())
def test_layouts_built_from_their_fields_are_equal(layout: Layout) -> None:
    """The fields say everything; equal layouts hash alike; repr names mesh and layout."""
    again = Layout(
        Mesh(layout.mesh.axes, layout.mesh.device_ids),
        layout.shape,
        [dim.axes for dim in layout.dims],
        layout.dtype,
        rules=[dim.rule for dim in layout.dims],
        partial=reversed(layout.partial_axes),
        reduction=layout.partial.reduction if layout.partial else "sum",
    )
    assert again == layout and hash(again) == hash(layout)
    assert eval(repr(layout), {"Layout": Layout, "Mesh": Mesh}) == layout


# -- refusals ------------------------------------------------------------------------------------------

ONCE = "A (sub-)axis is used once; cut the axis, as in x:(1)2 and x:(2)2, or drop a use"


@pytest.mark.parametrize(
    ("axes", "partial", "message", "place"),
    [
        (
            [["x"], ["x"]],
            [],
            f"axis 'x' is used twice: 'x' in dimension 0 (size 8) and in dimension 1 (size 9). {ONCE}",
            (1, 0),
        ),
        (
            [["y", "x", "x"], []],
            [],
            f"axis 'x' is used twice: 'x' in dimension 0 (size 8) and in dimension 0 (size 8). {ONCE}",
            (0, 2),
        ),
        (
            [["e"], ["x", "e"]],
            [],
            f"axis 'e' is used twice: 'e' in dimension 0 (size 8) and in dimension 1 (size 9). {ONCE}",
            (1, 1),
        ),
        (
            [["x"], []],
            ["y", "x"],
            f"axis 'x' is used twice: 'x' in the partial axes and in dimension 0 (size 8). {ONCE}",
            (-1, 1),
        ),
        (
            [["x"], ["y", "x:(2)2"]],
            [],
            f"axis 'x' is used twice: 'x' in dimension 0 (size 8) and 'x:(2)2' in dimension 1 (size 9). {ONCE}",
            (1, 1),
        ),
        (
            [["y:(1)2"], ["y:(1)3"]],
            [],
            f"axis 'y' is used twice: 'y:(1)2' in dimension 0 (size 8) and 'y:(1)3' in dimension 1 (size 9). {ONCE}",
            (1, 0),
        ),
        (
            [["y:(1)2"], ["y:(3)2"]],
            [],
            "sub-axes 'y:(1)2' in dimension 0 (size 8) and 'y:(3)2' in dimension 1 (size 9) are not cuts of one "
            f"factorisation of y=6: 1*2 = 2 does not divide 3. {ONCE}",
            (1, 0),
        ),
        (
            [["x", "y"], ["x:(1)2"]],
            ["y:(2)3"],
            "axis 'x' is used twice: 'x:(1)2' in dimension 1 (size 9) and 'x' in dimension 0 (size 8); axis 'y' is "
            "used "
            f"twice: 'y' in dimension 0 (size 8) and 'y:(2)3' in the partial axes. {ONCE}",
            (1, 0),
        ),
    ],
)
def test_axes_used_twice(axes: Any, partial: Any, message: str, place: tuple[int, int]) -> None:
    """Whole, in part, in one dimension or two, in the partial axes, of size 1; `place` is the later use."""
    with pytest.raises(LayoutError) as caught:
        Layout(MESH, [8, 9], axes, partial=partial)
    assert str(caught.value) == message
    assert caught.value.place == place


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            ([4], [["x"], ["y"]]),
            {},
            "an array of rank 1 got axes for 2 dimensions and rules for 1; give one of each per dimension",
        ),
        (
            ([4], None),
            {"rules": []},
            "an array of rank 1 got axes for 1 dimensions and rules for 0; give one of each per dimension",
        ),
        (([4, -1],), {}, "dimension 1 has size -1; a size is an integer of at least 0"),
        (([2.0],), {}, "dimension 0 has size 2.0; a size is an integer of at least 0"),
        (([True],), {}, "dimension 0 has size True; a size is an integer of at least 0"),
        (([4],), {"reduction": "mean"}, "unknown reduction 'mean'; use one of sum, max, min, prod"),
        (([4], [["q"]]), {}, "unknown axis 'q': mesh x=4,y=6,e=1 has axes x, y, e"),
        (
            ([4], [["x"]]),
            {"rules": [Offsets((0, 1))]},
            "dimension 0 (4{x}@[0,1]): offsets [0, 1] state 2 blocks, but the axes make 4; give one start per block",
        ),
        (
            ([4, 4], [[], []]),
            {"rules": [CEIL, Offsets((1,))]},
            "dimension 1 (4@[1]): offsets [1] do not cover the dimension: the first block starts at 1; start at 0",
        ),
        (
            ([4],),
            {"dtype": object},
            "dtype object holds Python objects, which have no bytes to move; use a plain dtype",
        ),
    ],
)
def test_impossible_layouts(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    """Miscounted arguments, sizes that are none, unknown names, offsets that do not cover."""
    with pytest.raises(LayoutError) as caught:
        Layout(MESH, *arguments, **options)
    assert str(caught.value) == message


def test_boxes_of_devices_outside() -> None:
    """A device that is not in the mesh holds nothing."""
    with pytest.raises(LayoutError) as caught:
        Layout.parse("f32[4{x}]", Mesh({"x": 2}, [5, 6])).box(0)
    assert str(caught.value) == "device 0 is not in mesh x=2@[5,6]"


def test_overlaps_are_found_among_many_parts() -> None:
    """Whenever two of several parts overlap or their cuts do not fit, the layout is refused; else it is not."""
    mesh = Mesh({"x": 24})
    rng = Random(5)
    refused = 0
    for _ in range(300):
        pieces: list[tuple[int, int]] = []
        while len(pieces) < 3:
            pre, size = rng.choice([1, 2, 3, 4, 6, 8, 12]), rng.choice([2, 3, 4, 6])
            if 24 % (pre * size) == 0:
                pieces.append((pre, size))
        ordered = sorted(pieces)
        chain = all(b[0] % (a[0] * a[1]) == 0 for a, b in itertools.pairwise(ordered))
        try:
            Layout(mesh, [24] * 3, [[SubAxis("x", *piece)] for piece in pieces])
            assert chain
        except LayoutError:
            assert not chain
            refused += 1
    assert 50 < refused < 300
