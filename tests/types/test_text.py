"""The text of meshes, axes and layouts: it reads back, and every error points at the place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.errors import ParseError
from redist.testing import layouts, meshes
from redist.types import Layout, Mesh, SubAxis

MESH = Mesh({"x": 4, "y": 6, "e": 1})


@given(layouts())
def test_layouts_read_back(layout: Layout) -> None:
    """The printed text parses to an equal layout, and prints the same again."""
    text = str(layout)
    assert Layout.parse(text, layout.mesh) == layout
    assert str(Layout.parse(text, layout.mesh)) == text


@given(layouts(), st.data())
def test_blanks_do_not_matter(layout: Layout, data: st.DataObject) -> None:
    """Between any two tokens there may be blanks, tabs and new lines."""
    text = str(layout)
    quotes = text.rfind("'") + 1
    spread = text[:quotes]
    for c in text[quotes:]:
        spread += f"{c}{data.draw(st.sampled_from(['', ' ', chr(9), chr(10)]))}" if c in "[]{},@" else c
    assert Layout.parse(spread, layout.mesh) == layout


@given(meshes(), st.text(alphabet="xy=,@[]0123:() {}f", max_size=12))
def test_any_text_parses_or_points_inside(mesh: Mesh, text: str) -> None:
    """Whatever is typed, the result is a mesh, an axis or a layout, or a ParseError with a column in the text."""
    readers: list[Callable[[], Any]] = [
        lambda: Mesh.parse(text),
        lambda: SubAxis.parse(text),
        lambda: Layout.parse(text, mesh),
    ]
    for read in readers:
        try:
            read()
        except ParseError as error:
            assert error.text == text and 0 <= error.column <= len(text)
            assert str(error) == f"{error.message}\n  {text}\n  {' ' * error.column}^"


@given(layouts(), st.data())
def test_damaged_text_parses_or_points_inside(layout: Layout, data: st.DataObject) -> None:
    """The same after a character of a right text is dropped, doubled or replaced."""
    text = str(layout)
    at = data.draw(st.integers(0, len(text) - 1))
    put = data.draw(st.sampled_from(["", text[at] * 2, "x", "{", "]", "9", ",", "'"]))
    damaged = text[:at] + put + text[at + 1 :]
    try:
        Layout.parse(damaged, layout.mesh)
    except ParseError as error:
        assert error.text == damaged and 0 <= error.column <= len(damaged)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("f32[1024{x,y}, 512]", "f32[1024{x,y}, 512]"),
        ("[4]", "f32[4]"),
        ("[]", "f32[]"),
        ("f32 [ 4 { x , y:( 2 )3 } , 7 ]  sum { e } ", "f32[4{x,y:(2)3}, 7] sum{e}"),
        ("[4{}]", "f32[4]"),
        ("float32[5{x}:balanced]", "f32[5{x}:balanced]"),
        ("pred[13{x}@[0,2,3,4]] max{y:(1)2}", "bool[13{x}@[0,2,3,4]] max{y:(1)2}"),
        ("'>f4'[4{x}]", "'>f4'[4{x}]"),
        ("'float32'[5{x}:ceil]", "f32[5{x}]"),
        ("[4{x:(1)2,x:(2)2}]", "f32[4{x}]"),
        ("[0{x}, 1{y}]", "f32[0{x}, 1{y}]"),
    ],
)
def test_spellings(text: str, printed: str) -> None:
    """What may be written, and the one way in which it is printed."""
    assert str(Layout.parse(text, MESH)) == printed


def fails(read: Callable[[], Any], message: str, column: int, text: str) -> None:
    """The read fails with exactly this message, and the caret stands below the column."""
    with pytest.raises(ParseError) as caught:
        read()
    assert caught.value.message == message
    assert caught.value.column == column
    assert str(caught.value) == f"{message}\n  {text}\n  {' ' * column}^"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("x", 1, "expected '=' after axis name 'x'"),
        ("x=", 2, "expected the size of axis 'x', a non-negative integer"),
        ("x=y", 2, "expected the size of axis 'x', a non-negative integer"),
        ("x==2", 2, "expected the size of axis 'x', a non-negative integer"),
        ("x=-1", 2, "expected the size of axis 'x', a non-negative integer"),
        ("x = 0", 4, "axis x=0: an axis has an integer size of at least 1"),
        ("x=2.5", 3, "unexpected text after the mesh"),
        ("x=2,", 4, "expected an axis name"),
        ("x=2,@[0,1]", 4, "expected an axis name"),
        ("=2", 0, "expected an axis name"),
        ("2=3", 0, "expected an axis name"),
        ("x=2, x=3", 5, "mesh axis named twice: x; give each axis its own name"),
        ("x=2 y=3", 4, "unexpected text after the mesh"),
        ("x=2@", 4, "expected '[' before the device ids"),
        ("x=2@[0", 6, "expected ',' or ']' after a device id"),
        ("x=2@[0;1]", 6, "expected ',' or ']' after a device id"),
        ("x=2@[0,]", 7, "expected a device id, a non-negative integer"),
        ("x=2@[-1,0]", 5, "expected a device id, a non-negative integer"),
        ("x=2@[0,0]", 5, "repeated device ids [0]; each device stands in a mesh once"),
        ("x=2@[]", 5, "0 device ids for a mesh of 2 devices; give one id per device"),
        ("x=2@[0,1,2]", 5, "3 device ids for a mesh of 2 devices; give one id per device"),
        ("x=2@[0,1] z", 10, "unexpected text after the mesh"),
    ],
)
def test_malformed_meshes(text: str, column: int, message: str) -> None:
    """Every way to end a mesh too early, too late or wrongly."""
    fails(lambda: Mesh.parse(text), message, column, text)


PART = "needs pre >= 1 and size >= 2"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "expected an axis name"),
        ("x y", 2, "unexpected text after the axis"),
        ("x:2", 1, "unexpected text after the axis"),
        ("x:()2", 3, "expected the product of the parts before it in sub-axis of 'x', a non-negative integer"),
        ("x:(2", 4, "expected ')' after the pre-size of a sub-axis"),
        ("x:(2)", 5, "expected the size of the sub-axis, a non-negative integer"),
        (" x:(0)2", 1, f"sub-axis x:(0)2 {PART}, got pre=0 and size=2; leave out a part of size 1"),
        ("x:(2)1", 0, f"sub-axis x:(2)1 {PART}, got pre=2 and size=1; leave out a part of size 1"),
    ],
)
def test_malformed_axes(text: str, column: int, message: str) -> None:
    """Sub-axes that break off, or that are of size 1."""
    fails(lambda: SubAxis.parse(text), message, column, text)


ONCE = "A (sub-)axis is used once; cut the axis, as in x:(1)2 and x:(2)2, or drop a use"
UNKNOWN = "unknown axis 'q': mesh x=4,y=6,e=1 has axes x, y, e"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "expected '[' before the dimensions"),
        ("f32", 3, "expected '[' before the dimensions"),
        ("f32[", 4, "expected a dimension's size, a non-negative integer"),
        ("f32[a]", 4, "expected a dimension's size, a non-negative integer"),
        ("f32[-1]", 4, "expected a dimension's size, a non-negative integer"),
        ("f32[4,]", 6, "expected a dimension's size, a non-negative integer"),
        ("f32[4", 5, "expected ',' or ']' after a dimension"),
        ("f32[4;5]", 5, "expected ',' or ']' after a dimension"),
        ("f32[4{x]", 7, "expected ',' or '}' after an axis"),
        ("f32[4{x,}]", 8, "expected an axis name"),
        ("f32[4{x}:]", 9, "expected a block rule"),
        ("f32[4{x}: even]", 10, "unknown block rule 'even'; use balanced, ceil, or offsets as @[0,2,3]"),
        ("f32[4{x}@]", 9, "expected '[' before the offsets"),
        ("f32[4{x}@[0,2,-3]]", 14, "expected an offset, a non-negative integer"),
        ("f32[4] sum", 10, "expected '{' after 'sum'"),
        ("f32[4] sum{}", 7, "'sum' names no axes; list the axes that are unreduced, or leave it out"),
        ("f32[4] mean{x}", 7, "unknown reduction 'mean'; use one of sum, max, min, prod"),
        ("f32[4] {x}", 7, "expected a reduction (sum, max, min, prod) or the end"),
        ("f32[4] sum{x} y", 14, "unexpected text after the layout"),
        ("f32[4] sum{x} max{y}", 14, "unexpected text after the layout"),
        ("'f4[4]", 0, "expected '[' before the dimensions"),
        ("'O'[4]", 0, "dtype object holds Python objects, which have no bytes to move; use a plain dtype"),
        ("f32[4{q}]", 6, UNKNOWN),
        ("f32[4, 5{x}, 6{y,q}]", 17, UNKNOWN),
        ("f32[4] sum{x, q}", 14, UNKNOWN),
        (
            "f32[4{x:(1)8}]",
            6,
            "sub-axis x:(1)8 does not divide axis x=4: pre*size = 1*8 = 8; choose pre and size whose product divides 4",
        ),
        (
            "f32[4{y, x:(0)2}]",
            9,
            f"sub-axis x:(0)2 {PART}, got pre=0 and size=2; leave out a part of size 1",
        ),
        (
            "f32[4{x}, 8{x}]",
            12,
            f"axis 'x' is used twice: 'x' in dimension 0 (size 4) and in dimension 1 (size 8). {ONCE}",
        ),
        (
            "f32[4{x,x}]",
            8,
            f"axis 'x' is used twice: 'x' in dimension 0 (size 4) and in dimension 0 (size 4). {ONCE}",
        ),
        (
            "f32[4{x}] sum{x}",
            14,
            f"axis 'x' is used twice: 'x' in the partial axes and in dimension 0 (size 4). {ONCE}",
        ),
        (
            "f32[4{x}, 8{y,x:(2)2}]",
            14,
            f"axis 'x' is used twice: 'x' in dimension 0 (size 4) and 'x:(2)2' in dimension 1 (size 8). {ONCE}",
        ),
        (
            "f32[4{y:(1)2}, 8{y:(3)2}]",
            17,
            "sub-axes 'y:(1)2' in dimension 0 (size 4) and 'y:(3)2' in dimension 1 (size 8) are not cuts of one "
            f"factorisation of y=6: 1*2 = 2 does not divide 3. {ONCE}",
        ),
        (
            "f32[4{x} @[0,1,2]]",
            9,
            "dimension 0 (4{x}@[0,1,2]): offsets [0, 1, 2] state 3 blocks, but the axes make 4; give one start per "
            "block",
        ),
        (
            "f32[9, 4{x}@[1,1,2,3]]",
            11,
            "dimension 1 (4{x}@[1,1,2,3]): offsets [1, 1, 2, 3] do not cover the dimension: the first block starts at "
            "1; start at 0",
        ),
        (
            "f32[4{x}@[0,2,1,3]]",
            8,
            "dimension 0 (4{x}@[0,2,1,3]): offsets [0, 2, 1, 3] fall at blocks [2]; blocks follow one another, so "
            "starts never decrease",
        ),
        (
            "f32[4{x}@[0,2,3,5]]",
            8,
            "dimension 0 (4{x}@[0,2,3,5]): offsets [0, 2, 3, 5] do not fit: block 3 starts at 5, beyond the "
            "dimension's 4 elements",
        ),
    ],
)
def test_malformed_layouts(text: str, column: int, message: str) -> None:
    """Every way to break a layout's text, and every rule of layouts, at the place of the first offender."""
    fails(lambda: Layout.parse(text, MESH), message, column, text)


def test_unknown_dtypes_point_at_the_start() -> None:
    """The message lists the short names."""
    with pytest.raises(ParseError) as caught:
        Layout.parse("  f33[4]", MESH)
    assert caught.value.column == 2
    assert caught.value.message.startswith("unknown dtype 'f33': use a short name (bool, i8, ")


def test_the_caret_stands_in_its_line() -> None:
    """Of a text of several lines only the line in question is shown, tabs kept."""
    with pytest.raises(ParseError) as caught:
        Layout.parse("f32[4,\n\t5{q},\n6]", MESH)
    assert str(caught.value) == f"{UNKNOWN}\n  \t5{{q}},\n  \t  ^"
    assert caught.value.column == 10
