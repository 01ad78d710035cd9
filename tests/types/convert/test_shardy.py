"""Shardy text: the MLIR attribute parser of jaxlib as oracle, round trips, and every refusal with its full message."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import sdy

from redist.errors import LayoutError, ParseError
from redist.testing import layouts, meshes
from redist.types import Layout, Mesh, SubAxis

MESH = Mesh({"x": 4, "y": 6, "z": 2, "w": 2})
CONTEXT: Any = mlir.make_ir_context()


def summed(layout: Layout) -> Layout:
    """The layout with its partial axes, if any, reduced by sum."""
    return Layout(layout.mesh, layout.shape, [d.axes for d in layout.dims], layout.dtype, partial=layout.partial_axes)


def refs(axes: Any) -> tuple[SubAxis, ...]:
    """Shardy's axis references as ours."""
    found: list[SubAxis] = []
    for axis in axes:
        info = axis.sub_axis_info and sdy.SubAxisInfoAttr(axis.sub_axis_info)
        found.append(SubAxis(axis.name, info.pre_size, info.size) if info else SubAxis(axis.name))
    return tuple(found)


def shardy_axes(text: str) -> tuple[list[tuple[SubAxis, ...]], tuple[SubAxis, ...]]:
    """(axes per dimension, unreduced axes) as MLIR reads them."""
    with CONTEXT:
        attribute = sdy.TensorShardingAttr(ir.Attribute.parse(text))
        dims = [sdy.DimensionShardingAttr(dim) for dim in attribute.dimension_shardings]
        return (
            [refs(map(sdy.AxisRefAttr, dim.axes)) for dim in dims],
            refs(map(sdy.AxisRefAttr, attribute.unreduced_axes)),
        )


# -- meaning -------------------------------------------------------------------------------------------


@given(layouts(rules=False))
def test_layouts_return_from_their_text(layout: Layout) -> None:
    """Layout -> text -> Layout is the identity, bare or as an attribute."""
    layout = summed(layout)
    text = layout.to_shardy()
    for form in (text, f"#sdy.sharding<@mesh, {text}>", f"sdy.sharding<@mesh, {text}>", f"<@mesh, {text}>"):
        assert Layout.from_shardy(form, layout.mesh, layout.shape, layout.dtype) == layout


@given(layouts(rules=False))
def test_shardy_reads_our_text_as_we_mean_it(layout: Layout) -> None:
    """MLIR parses the text as an attribute with the same axes, and its own printing of it reads back."""
    layout = summed(layout)
    attribute = f"#sdy.sharding<@mesh, {layout.to_shardy()}>"
    assert shardy_axes(attribute) == ([dim.axes for dim in layout.dims], layout.partial_axes)
    with CONTEXT:
        printed = str(ir.Attribute.parse(attribute))
    assert Layout.from_shardy(printed, layout.mesh, layout.shape, layout.dtype) == layout


@given(layouts(meshes(max_devices=20, max_axes=4), sub_axes=False, uneven=False, rules=False))
def test_attributes_that_jax_builds(layout: Layout) -> None:
    """With the mesh written out in them."""
    layout = summed(layout)
    with CONTEXT:
        text = str(layout.to_jax()._to_sdy_sharding(layout.rank).build({}))
    if layout.mesh.names:
        assert Layout.from_shardy(text, layout.mesh, layout.shape, layout.dtype) == layout


@given(layouts(MESH, (8, 12), rules=False, dtypes=["f32"]), st.randoms(use_true_random=False))
def test_replicated_axes_and_priorities_change_nothing(layout: Layout, rng: Any) -> None:
    """They steer propagation only."""
    layout = summed(layout)
    used = {axis.axis for axis in [*layout.partial_axes, *(a for dim in layout.dims for a in dim.axes)]}
    free = ", ".join(f'"{name}"' for name in MESH.names if name not in used)
    dims, comma, unreduced = layout.to_shardy().partition(", unreduced")
    text = re.sub(r"\}(?=[,\]])", lambda _: rng.choice(["}", "}p0", "}p12"]), dims) + comma + unreduced
    if free:
        text += rng.choice([" ", ", "]) + f"replicated={{{free}}}"
    assert Layout.from_shardy(text, MESH, layout.shape) == layout


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ('[{"x", "y":(1)2}, {}] replicated={"z"} unreduced={"w"}', "f32[8{x,y:(1)2}, 12] sum{w}"),
        ('[{"x", "y":(1)2}, {}], replicated={"z"}, unreduced={"w"}', "f32[8{x,y:(1)2}, 12] sum{w}"),
        ('[{"x":(1)2}, {"x":(2)2}], unreduced={"w"}, replicated={"y":(3)2}', "f32[8{x:(1)2}, 12{x:(2)2}] sum{w}"),
        ('[{"y":(1)2, "y":(2)3},{}p1]', "f32[8{y}, 12]"),
        ('[ { "x" }p3 , { } ] unreduced = { "w" } ', "f32[8{x}, 12] sum{w}"),
        ('#sdy.sharding<@"my mesh", [{"z"}, {}]>', "f32[8{z}, 12]"),
        ('#sdy.sharding<mesh<["x"=4, "y"=6, "z"=2, "w"=2]>, [{"z"}, {}]>', "f32[8{z}, 12]"),
    ],
)
def test_forms_of_the_text(text: str, layout: str) -> None:
    """Shardy's printed forms; blanks are fine where MLIR takes them."""
    assert Layout.from_shardy(text, MESH, (8, 12)) == Layout.parse(layout, MESH)


def test_names_beyond_ascii() -> None:
    """MLIR prints them byte by byte."""
    mesh = Mesh({"größe": 2})
    layout = Layout(mesh, (4,), [["größe"]])
    assert layout.to_shardy() == '[{"größe"}]'
    with CONTEXT:
        printed = str(ir.Attribute.parse(f"#sdy.sharding<@mesh, {layout.to_shardy()}>"))
    assert printed == '#sdy.sharding<@mesh, [{"gr\\C3\\B6\\C3\\9Fe"}]>'
    assert Layout.from_shardy(printed, mesh, (4,)) == layout


def test_mesh_of_one_device() -> None:
    """Shardy writes no dimensions for a maximal sharding."""
    mesh = Mesh({}, [3])
    assert Layout.from_shardy("#sdy.sharding<mesh<[], device_ids=[3]>, []>", mesh, (4, 4)) == Layout(mesh, (4, 4))
    assert Layout(mesh, (4, 4)).to_shardy() == "[{}, {}]"


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"x"}', "expected '[' before the dimensions", 0),
        ('["x"]', "expected '{' before the axes of a dimension", 1),
        ("[{x}]", "expected an axis name in double quotes", 2),
        ('[{"x" "y"}]', "expected ',' or '}' after an axis", 6),
        ('[{"x", }]', "expected an axis name in double quotes", 7),
        ('[{?, "x"}]', "expected '}' after '?', which comes last", 5),
        ('[{"x":2}]', "expected '(' before the pre-size of a sub-axis", 6),
        ('[{"x":(a)2}]', "expected the product of the parts before the sub-axis, a non-negative integer", 7),
        ('[{"x":(1 2}]', "expected ')' after the pre-size of a sub-axis", 9),
        (
            '[{"y":(2)4}]',
            "sub-axis y:(2)4 does not divide axis y=6: pre*size = 2*4 = 8; choose pre and size whose product divides 6",
            2,
        ),
        ('[{"q"}]', "unknown axis 'q': mesh x=4,y=6,z=2,w=2 has axes x, y, z, w", 2),
        ('[{"x"}] open', "unexpected text after the sharding", 8),
        ('[{"x"}], open', "expected 'replicated={...}' or 'unreduced={...}'", 9),
        ('[{"x"}] replicated="x"', "expected '{' after 'replicated='", 19),
        ('[{"x"}] replicated', "expected '=' after 'replicated'", 18),
        ('[{"x"}] unreduced={"y"} unreduced={"z"}', "'unreduced' is stated twice; join the lists", 24),
        ('[{"x"}] unreduced={?}', "expected an axis name in double quotes", 19),
        (
            '[{"z", "x"}] replicated={"x":(2)2}',
            "axis 'x:(2)2' in the replicated axes is in use already, by 'x' in dimension 0; a (sub-)axis is used once",
            25,
        ),
        (
            '[{"x"}] unreduced={"x"}',
            "axis 'x' in the unreduced axes is in use already, by 'x' in dimension 0; a (sub-)axis is used once",
            19,
        ),
        ('#sdy.sharding<[{"x"}]>', "expected 'mesh<[' or '@' and the name of a mesh", 14),
        ('#sdy.sharding<@mesh [{"x"}]>', "expected ',' after the mesh", 20),
        ('#sdy.sharding<@mesh, [{"x"}]', "expected '>' after the sharding", 28),
        ('<mesh<["x"4]>, []>', "expected '=' after axis \"x\"", 10),
        ('<mesh<["x"=]>, []>', 'expected the size of axis "x", a non-negative integer', 11),
    ],
)
def test_malformed_text(text: str, message: str, column: int) -> None:
    """The column and the whole message."""
    with pytest.raises(ParseError) as caught:
        Layout.from_shardy(text, MESH, (8,))
    assert str(caught.value) == f"{message}\n  {text}\n  {' ' * column}^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"x", ?}, {}, {?}]',
            """dimensions [0, 2] of [{"x", ?}, {}, {?}] are open ('?'): propagation may shard them further, so their """
            "layout is not settled; convert the sharding after propagation, or close them by removing '?'",
        ),
        (
            '[{"x"}]',
            '[{"x"}] has 1 dimensions, but the array has 3 (shape [8, 12, 5]); give one list of axes per dimension',
        ),
        (
            '<mesh<["x"=4, "y"=6], device_ids=[1, 0]>, [{"x"}]>',
            "the text is over mesh x=4,y=6@[1,0], the given mesh is x=4,y=6,z=2,w=2; pass the mesh of the text",
        ),
        (
            '<mesh<["x"=4, "y"=6, "z"=2, "w"=2], device_ids=[1]>, [{"x"}]>',
            "the text is over mesh x=4,y=6,z=2,w=2@[1], the given mesh is x=4,y=6,z=2,w=2; pass the mesh of the text",
        ),
    ],
)
def test_texts_without_a_layout(text: str, message: str) -> None:
    """The rule, the values, the remedy."""
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.from_shardy(text, MESH, (8, 12, 5))


def test_layouts_without_a_text() -> None:
    """Block rules and reductions that Shardy does not have."""
    message = (
        "Shardy cuts a dimension into blocks of ceil(size/count) only, not dimension 0 (7{y:(1)3}:balanced), dimension "
        "2 (5{z}@[0,4]); redistribute to ceil blocks first"
    )
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[7{y:(1)3}:balanced, 7, 5{z}@[0,4]]", MESH).to_shardy()
    message = "partial min{w}: Shardy's unreduced axes are sums; reduce it first"
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[7] min{w}", MESH).to_shardy()
