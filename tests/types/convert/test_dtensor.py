"""DTensor placements: torch.chunk re-implemented element by element as oracle, round trips, and every refusal."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.errors import LayoutError, ParseError
from redist.testing import layouts, meshes
from redist.types import BALANCED, Layout, Mesh, Offsets


def torch_chunk(elements: list[int], count: int) -> list[list[int]]:
    """torch.chunk of a 1-D tensor, and empty chunks up to `count`."""
    if not elements:
        return [[] for _ in range(count)]
    step = math.ceil(len(elements) / count)
    chunks = [elements[at : at + step] for at in range(0, len(elements), step)]
    return chunks + [[] for _ in range(count - len(chunks))]


def strided_chunk(elements: list[int], count: int, factor: int) -> list[list[int]]:
    """_StridedShard._split_tensor: every one of `factor` chunks is chunked, and each shard takes one piece of each."""
    pieces = [torch_chunk(chunk, count) for chunk in torch_chunk(elements, factor)]
    return [list(itertools.chain.from_iterable(piece[c] for piece in pieces)) for c in range(count)]


def held(placements: list[tuple[int, int] | None], mesh: Mesh, shape: tuple[int, ...]) -> dict[int, list[list[int]]]:
    """{device id: elements per dimension}; a placement is (dim, split factor), None for what does not shard."""
    result: dict[int, list[list[int]]] = {}

    def descend(axis: int, place: int, local: list[list[int]]) -> None:
        if axis == len(mesh.names):
            result[mesh.device_ids[place]] = local
            return
        for c in range(mesh.sizes[axis]):
            mine = list(local)
            placed = placements[axis]
            if placed is not None:
                dim, factor = placed
                mine[dim] = strided_chunk(local[dim], mesh.sizes[axis], factor)[c]
            descend(axis + 1, place * mesh.sizes[axis] + c, mine)

    descend(0, 0, [list(range(size)) for size in shape])
    return result


def elements(layout: Layout) -> dict[int, list[list[int]]]:
    """{device id: elements per dimension} as the library has it."""
    return {
        device: [list(range(part.start, part.stop)) for part in layout.box(device)] for device in layout.mesh.device_ids
    }


@st.composite
def placed(
    draw: st.DrawFn, strided: bool = False
) -> tuple[list[str], list[tuple[int, int] | None], Mesh, tuple[int, ...]]:
    """(texts, the same as (dim, factor) or None, mesh, shape), any size, dimensions counted from either end."""
    mesh = draw(meshes(max_devices=24, max_axes=4))
    rank = draw(st.integers(0, 3))
    shape = tuple(draw(st.integers(0, 40)) for _ in range(rank))
    texts: list[str] = []
    plain: list[tuple[int, int] | None] = []
    for _ in mesh.names:
        dim = draw(st.integers(-1, rank - 1))
        if dim < 0:
            texts.append(draw(st.sampled_from(["R", "P", "P(sum)"])))
            plain.append(None)
            continue
        factor = draw(st.sampled_from([1, 2, 2, 3, 4, 6])) if strided else 1
        written = dim - draw(st.sampled_from([0, rank]))
        texts.append(f"S({written})" if factor == 1 else f"_S({written}, {factor})")
        plain.append((dim, factor))
    return texts, plain, mesh, shape


# -- meaning -------------------------------------------------------------------------------------------


@given(placed())
def test_shards_are_nested_chunks(drawn: Any) -> None:
    """Every device holds what torch.chunk leaves it, mesh axis by mesh axis, whatever the sizes."""
    texts, plain, mesh, shape = drawn
    layout = Layout.from_dtensor(texts, mesh, shape, "bf16")
    assert elements(layout) == held(plain, mesh, shape)
    assert {axis.axis for axis in layout.partial_axes} == {
        name for name, text in zip(mesh.names, texts, strict=True) if text.startswith("P")
    }


@given(placed(strided=True))
def test_strided_shards_are_exact_or_refused(drawn: Any) -> None:
    """A layout where every device holds one block and these follow one another; an error otherwise."""
    texts, plain, mesh, shape = drawn
    expected = held(plain, mesh, shape)
    try:
        layout = Layout.from_dtensor(texts, mesh, shape)
    except LayoutError as error:
        assert "split factors" in str(error) or "no row of blocks" in str(error)
    else:
        assert elements(layout) == expected


@given(layouts(meshes(max_devices=24, max_axes=4), sub_axes=False, uneven=False, rules=False))
def test_even_layouts_of_whole_axes_return(layout: Layout) -> None:
    """In any order of the axes, by strided shards; the oracle agrees with the text."""
    texts = layout.to_dtensor()
    back = Layout.from_dtensor(texts, layout.mesh, layout.shape, layout.dtype)
    assert back == layout if 1 not in layout.mesh.sizes else back.equivalent(layout)
    found = [re.fullmatch(r"_?S\((\d+)(?:, (\d+))?\)", text) for text in texts]
    plain = [(int(match[1]), int(match[2] or 1)) if match else None for match in found]
    assert held(plain, layout.mesh, layout.shape) == elements(layout)


@given(layouts(meshes(max_devices=24, max_axes=4), sub_axes=False, dtypes=["f32"]))
def test_uneven_layouts_return_or_are_refused(layout: Layout) -> None:
    """Other block rules return where DTensor's chunks happen to give the same blocks."""
    try:
        texts = layout.to_dtensor()
    except LayoutError as error:
        assert not layout.is_even()
        assert "other blocks" in str(error) or "no row of blocks" in str(error)
    else:
        assert Layout.from_dtensor(texts, layout.mesh, layout.shape).equivalent(layout)


@given(placed())
def test_placements_return(drawn: Any) -> None:
    """texts -> Layout -> texts, in the form that torch prints."""
    texts, _, mesh, shape = drawn
    layout = Layout.from_dtensor(texts, mesh, shape)
    expected = [re.sub(r"S\(-(\d)\)", lambda m: f"S({len(shape) - int(m[1])})", text) for text in texts]
    assert layout.to_dtensor() == tuple("P(sum)" if text == "P" else text for text in expected)


def test_five_rows_over_two_by_two() -> None:
    """Nested chunks 2, 1, 1, 1, where ceil blocks would be 2, 2, 1, 0."""
    mesh = Mesh({"p": 2, "q": 2})
    layout = Layout.from_dtensor(["S(0)", "S(0)"], mesh, (5, 3))
    assert [layout.box(device)[0] for device in range(4)] == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert layout.dims[0].rule == BALANCED
    layout = Layout.from_dtensor(["S(0)", "S(0)"], Mesh({"p": 2, "q": 3}), (7, 5))
    assert layout.dims[0].rule == Offsets((0, 2, 4, 4, 5, 6))


@pytest.mark.parametrize(
    ("texts", "mesh", "axes"),
    [
        (["_S(0, 2)", "S(0)"], Mesh({"x": 2, "y": 2}), "f32[24{y,x}]"),
        (["_S(0, 6)", "_S(0, 2)", "S(0)"], Mesh({"x": 2, "y": 3, "z": 2}), "f32[24{z,y,x}]"),
        (["_S(0, 2)", "_S(0, 2)", "S(0)"], Mesh({"x": 2, "y": 3, "z": 2}), "f32[24{z,x,y}]"),
        (["_S(0, 2)", "S(0)"], Mesh({"x": 3, "y": 4}), "f32[24{y:(1)2,x,y:(2)2}]"),
        (["_S(0, 4)", "S(0)", "S(0)"], Mesh({"x": 3, "y": 2, "z": 2}), "f32[24{y,z,x}]"),
        (["_S(0, 1)", "R", "S(0)"], Mesh({"x": 3, "y": 2, "z": 2}), "f32[24{x,z}]"),
    ],
)
def test_orders_by_strided_shards(texts: list[str], mesh: Mesh, axes: str) -> None:
    """The factor says how many shards come first from the right; it may cut an axis into sub-axes."""
    assert Layout.from_dtensor(texts, mesh, (24,)) == Layout.parse(axes, mesh)


# -- torch's objects -----------------------------------------------------------------------------------


@dataclass
class Shard:
    dim: int


@dataclass
class _StridedShard(Shard):
    split_factor: int


class Replicate:
    pass


@dataclass
class Partial:
    reduce_op: str = "sum"


class _MaskPartial(Partial):
    pass


def test_objects_are_known_by_the_names_of_their_classes() -> None:
    """torch itself is not needed."""
    mesh = Mesh({"x": 2, "y": 2, "z": 2, "w": 2})
    placements = [_StridedShard(0, 2), Shard(-2), Replicate(), Partial("product")]
    assert Layout.from_dtensor(placements, mesh, (4, 4)) == Layout.parse("f32[4{y,x}, 4] prod{w}", mesh)
    with pytest.raises(LayoutError, match="_MaskPartial has no meaning here; use Shard, Replicate, Partial or"):
        Layout.from_dtensor([_MaskPartial(), Shard(0), Shard(0), Shard(0)], mesh, (4, 4))


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Shard(1)", "S(1)"),
        ("Shard(dim=1)", "S(1)"),
        (" S( -1 ) ", "S(1)"),
        ("Replicate()", "R"),
        ("Replicate", "R"),
        ("R()", "R"),
        ("Partial(max)", "P(max)"),
        ("Partial(reduce_op=min)", "P(min)"),
        ("Partial()", "P(sum)"),
        ("P", "P(sum)"),
        ("P(prod)", "P(product)"),
        ("_S(0,1)", "S(0)"),
        ("_StridedShard(dim=0, sf=1)", "S(0)"),
        ("_StridedShard(0, split_factor=1)", "S(0)"),
    ],
)
def test_forms_of_the_text(text: str, same: str) -> None:
    """What torch prints and what people write."""
    assert Layout.from_dtensor([text], Mesh({"x": 2}), (4, 4)).to_dtensor() == (same,)


def test_device_order_is_the_mesh_s() -> None:
    """Ids may be any; placements go by coordinates."""
    mesh = Mesh({"x": 2, "y": 2}, [7, 3, 5, 1])
    assert Layout.from_dtensor(["R", "S(0)"], mesh, (4,)).box(3) == (slice(2, 4),)


def test_large_even_dimensions_cost_nothing() -> None:
    """Nothing is enumerated where the shards divide the dimension."""
    mesh = Mesh({"x": 1024, "y": 1024})
    layout = Layout.from_dtensor(["_S(0, 1024)", "S(0)"], mesh, (2**40,))
    assert layout == Layout.parse(f"f32[{2**40}{{y,x}}]", mesh)
    assert layout.to_dtensor() == ("_S(0, 1024)", "S(0)")


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("X(0)", "expected a placement: S(dim), R, P(reduction) or _S(dim, split factor)", 0),
        ("", "expected a placement: S(dim), R, P(reduction) or _S(dim, split factor)", 0),
        ("S", "expected '(' and a dimension after 'S'", 1),
        ("S(a)", "expected a dimension, an integer", 2),
        ("S(0", "expected ')' after the placement", 3),
        ("S(0) R", "unexpected text after the placement", 5),
        ("_S(0)", "expected ',' and the split factor", 4),
        ("_S(0, x)", "expected the split factor, a non-negative integer", 6),
        ("_S(0, 0)", "split factor 0; it is at least 1", 6),
        ("R(0)", "expected ')' after the placement", 2),
    ],
)
def test_malformed_text(text: str, message: str, column: int) -> None:
    """The column and the whole message."""
    with pytest.raises(ParseError) as caught:
        Layout.from_dtensor([text], Mesh({"x": 2}), (4,))
    assert str(caught.value) == f"{message}\n  {text}\n  {' ' * column}^"


@pytest.mark.parametrize(
    ("placements", "shape", "message"),
    [
        ("S(0)", (4,), "placements 'S(0)' are one text; give one per mesh axis, as in ['S(0)', 'R']"),
        (["S(0)"], (4,), "1 placements [S(0)] for mesh x=2,y=3 of 2 axes; give one per axis"),
        (
            ["S(2)", "S(-3)"],
            (4, 4),
            "S(2) on axis x, S(-3) on axis y: the array has no such dimension, its shape is [4, 4]; shard one of -2..1",
        ),
        (["R", "S(0)"], (), "S(0) on axis y: the array has no such dimension, its shape is []; replicate it"),
        (
            ["P(avg)", "P(bor)"],
            (4,),
            "P(avg) on axis x, P(bor) on axis y: a layout is unreduced by sum, max, min or product. Divide by the "
            "number of devices and use sum in place of avg; reduce others in PyTorch before",
        ),
        (
            ["P(max)", "P"],
            (4,),
            "P(max) on axis x, P(sum) on axis y: a layout is unreduced by one reduction; reduce all but one in PyTorch "
            "before",
        ),
        (
            ["_S(0, 3)", "R"],
            (12,),
            "dimension 0 (size 12): split factors 3 on axis x=2 are not matched by the axes to the right, so that "
            "devices hold several pieces instead of one block; let each factor be the product of the axes that shard "
            "the dimension first",
        ),
        (
            ["_S(0, 2)", "S(0)"],
            (12,),
            "dimension 0 (size 12): split factors 2 on axis x=2, 1 on axis y=3 are not matched by the axes to the "
            "right, so that devices hold several pieces instead of one block; let each factor be the product of the "
            "axes that shard the dimension first",
        ),
    ],
)
def test_placements_without_a_layout(placements: Any, shape: tuple[int, ...], message: str) -> None:
    """The rule, the values, the remedy."""
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.from_dtensor(placements, Mesh({"x": 2, "y": 3}), shape)


def test_chunks_that_are_no_row_of_blocks_are_named() -> None:
    """Uneven strided shards may leave a device two pieces; both block maps are in the message."""
    message = (
        "dimension 0 (size 13): DTensor's chunks over {y,x} are [0:3, 3:6, 6:7+11:12, 7:9, 9:11, 12:13], no row of "
        "blocks; ceil blocks there are [0:3, 3:6, 6:9, 9:12, 12:13, empty]. Pad the dimension to a multiple of 6, or "
        "use Shard in place of _StridedShard"
    )
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.from_dtensor(["_S(0, 2)", "S(0)"], Mesh({"x": 3, "y": 2}), (13,))
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[13{y,x}]", Mesh({"x": 3, "y": 2})).to_dtensor()


def test_sub_axes_are_refused() -> None:
    """DTensor has no word for them."""
    message = "sub-axes x:(2)2, x:(1)2: DTensor places whole mesh axes; give the parts mesh axes of their own"
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[4{x:(1)2}] sum{x:(2)2}", Mesh({"x": 4})).to_dtensor()


def test_other_blocks_are_named() -> None:
    """Both block maps, for every dimension that differs."""
    message = (
        "placements [S(0), S(0), S(1)] would mean other blocks: dimension 0 (5{x,y}) has blocks [0:2, 2:4, 4:5, "
        "empty], DTensor's chunks are [0:2, 2:3, 3:4, 4:5]; dimension 1 (4{z}@[0,1]) has blocks [0:1, 1:4], DTensor's "
        "chunks are [0:2, 2:4]. Pad the dimension to a multiple of its number of blocks, or redistribute to DTensor's "
        "blocks first"
    )
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[5{x,y}, 4{z}@[0,1]]", Mesh({"x": 2, "y": 2, "z": 2})).to_dtensor()


def test_long_block_maps_are_cut() -> None:
    """Sixteen blocks say enough."""
    with pytest.raises(
        LayoutError, match=r"\[0:2, .*, 30:32, and 16 more\], DTensor's chunks are \[0:2, .*, and 16 more\]"
    ):
        Layout.parse("f32[33{x,y}]", Mesh({"x": 16, "y": 2})).to_dtensor()


def test_the_oracle_knows_torch() -> None:
    """Figures from torch's documentation: 8 rows on dp=2, tp=2, placed from left to right and the other way."""
    mesh = Mesh({"dp": 2, "tp": 2})
    rows = {device: part[0] for device, part in held([(0, 2), (0, 1)], mesh, (8,)).items()}
    assert rows == {0: [0, 1], 1: [4, 5], 2: [2, 3], 3: [6, 7]}
    assert [len(chunk) for chunk in torch_chunk(list(range(11)), 6)] == [2, 2, 2, 2, 2, 1]
    assert [len(chunk) for chunk in torch_chunk(list(range(5)), 4)] == [2, 2, 1, 0]
    assert np.prod([len(part) for part in held([None, (0, 1)], mesh, (3, 2))[0]]) == 4
