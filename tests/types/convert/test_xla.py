"""XLA tile text: XLA's own HloSharding as oracle, round trips, and every refusal with its full message."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src.lib import xla_client
from jax.sharding import NamedSharding

from redist.errors import LayoutError, ParseError
from redist.testing import layouts, meshes
from redist.types import Layout, Mesh

HloSharding: Any = xla_client.HloSharding
SMALL = meshes(max_devices=20, max_axes=4)
TEXT_LAYOUTS = layouts(SMALL, rules=False, dtypes=["f32"])
"""What the text can hold once the reduction is a sum."""

Meaning = tuple[dict[int, tuple[tuple[int, int], ...]], frozenset[frozenset[int]]]
"""Box per device id, and the groups of devices with equal partial coordinates."""


def summed(layout: Layout) -> Layout:
    """The layout with its partial axes, if any, reduced by sum."""
    return Layout(layout.mesh, layout.shape, [d.axes for d in layout.dims], "f32", partial=layout.partial_axes)


def meaning_of(layout: Layout) -> Meaning:
    """As the library has it."""
    starts, stops = layout.boxes()
    held = [tuple(zip(a, b, strict=True)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    groups: dict[int, set[int]] = {}
    for device, label in zip(layout.mesh.device_ids, layout.mesh.index(layout.partial_axes).tolist(), strict=True):
        groups.setdefault(label, set()).add(device)
    return dict(zip(layout.mesh.device_ids, held, strict=True)), frozenset(map(frozenset, groups.values()))


def meaning_of_tiles(devices: Any, groups: list[str], shape: tuple[int, ...]) -> Meaning:
    """From the array of device numbers, element by element: the last dimensions are subgroups."""
    held: dict[int, tuple[tuple[int, int], ...]] = {}
    parts: dict[tuple[int, ...], set[int]] = {}
    for place, device in np.ndenumerate(devices):
        box: list[tuple[int, int]] = []
        for i, size in enumerate(shape):
            tile = math.ceil(size / devices.shape[i])
            box.append((min(place[i] * tile, size), min((place[i] + 1) * tile, size)))
        held[int(device)] = tuple(box)
        label = tuple(c for c, group in zip(place[len(shape) :], groups, strict=True) if group == "unreduced")
        parts.setdefault(label, set()).add(int(device))
    return held, frozenset(map(frozenset, parts.values()))


def xla_meaning(text: str, shape: tuple[int, ...], count: int) -> Meaning:
    """As XLA reads the text. `count` devices, which XLA drops where all hold the same."""
    read = HloSharding.from_string(text)
    if read.is_replicated() or read.is_unreduced():
        group = "unreduced" if read.is_unreduced() else "replicated"
        return meaning_of_tiles(np.arange(count).reshape([1] * len(shape) + [count]), [group], shape)
    devices = np.asarray(read.tile_assignment_devices()).reshape(read.tile_assignment_dimensions())
    groups = [kind.name.lower() for kind in read.subgroup_types()]
    if read.replicate_on_last_tile_dim():
        groups = ["replicated"]
    if read.is_maximal():
        devices = devices.reshape([1] * len(shape))
    return meaning_of_tiles(devices, groups, shape)


@st.composite
def tile_texts(draw: st.DrawFn) -> tuple[str, tuple[int, ...]]:
    """(text, shape): V1 and V2, any transpose, tile sizes that may cut across the iota, up to two subgroups."""
    reshape = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3, 4, 6]), min_size=1, max_size=3)))
    count = math.prod(reshape)
    rank = draw(st.integers(0, 3))
    groups = draw(st.sampled_from([[], ["replicated"], ["unreduced"], ["unreduced", "replicated"]]))
    tiles = [1] * (rank + len(groups))
    if not tiles:
        tiles, groups = [1], ["replicated"]
    for prime in (p for size in reshape for p in {1: [], 2: [2], 3: [3], 4: [2, 2], 6: [2, 3]}[size]):
        tiles[draw(st.integers(0, len(tiles) - 1))] *= prime
    order = draw(st.permutations(range(len(reshape))))
    transpose = f"T({','.join(map(str, order))})" if len(order) > 1 else ""
    devices = f"<=[{','.join(map(str, reshape))}]{transpose}"
    if draw(st.booleans()) and count > 1:
        numbers = draw(st.permutations(range(count)))
        devices = ",".join(map(str, numbers))
    suffix = f" last_tile_dims={{{', '.join(groups)}}}" if groups else ""
    if groups == ["replicated"] and draw(st.booleans()):
        suffix = " last_tile_dim_replicate"
    shape = tuple(draw(st.integers(0, 13)) for _ in range(rank))
    return f"{{devices=[{','.join(map(str, tiles))}]{devices}{suffix}}}", shape


# -- meaning -------------------------------------------------------------------------------------------


@given(tile_texts())
def test_texts_mean_what_xla_reads(drawn: tuple[str, tuple[int, ...]]) -> None:
    """Boxes and partial groups of every device, uneven tiles included."""
    text, shape = drawn
    layout = Layout.from_xla(text, shape)
    assert meaning_of(layout) == xla_meaning(text, shape, layout.mesh.size)


@given(tile_texts())
def test_texts_return_by_meaning(drawn: tuple[str, tuple[int, ...]]) -> None:
    """text -> Layout -> text -> Layout: equivalent, and the same text from then on."""
    text, shape = drawn
    layout = Layout.from_xla(text, shape)
    again = Layout.from_xla(layout.to_xla(), shape)
    assert again.equivalent(layout)
    assert again.to_xla() == layout.to_xla()


@given(TEXT_LAYOUTS)
def test_layouts_mean_what_xla_reads_in_their_text(layout: Layout) -> None:
    """Any mesh, device order and sub-axes; XLA's meaning of our text is the layout's."""
    layout = summed(layout)
    text = layout.to_xla()
    back = Layout.from_xla(text, layout.shape, layout.dtype)
    assert back.equivalent(layout)
    if layout.mesh.same_devices(Mesh({"n": layout.mesh.size})):
        assert xla_meaning(text, layout.shape, layout.mesh.size) == meaning_of(layout)
    if text.startswith("{devices=["):
        canonical = str(HloSharding.from_string(text))
        assert canonical in (text, "{replicated}", "{unreduced}") or "<=" not in text


@given(layouts(meshes(max_devices=20, max_axes=4, any_ids=False), uneven=False, rules=False))
def test_texts_are_those_that_jax_prints(layout: Layout) -> None:
    """To the letter, but where XLA leaves out the devices."""
    layout = summed(layout)
    sharding: NamedSharding = layout.to_jax()
    expected = str(sharding._to_xla_hlo_sharding(layout.rank))
    if expected not in ("{replicated}", "{unreduced}") and layout.mesh.size > 1:
        assert layout.to_xla() == expected


@pytest.mark.parametrize(
    ("text", "shape", "layout", "mesh"),
    [
        ("{devices=[2,1,4]<=[8] last_tile_dim_replicate}", (8, 8), "f32[8{d0}, 8]", "d0=2,d1=4"),
        ("{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}", (8, 8), "f32[8{d0}, 8]", "d0=2,d1=2"),
        ("{devices=[2,4]<=[2,4]T(1,0)}", (8, 8), "f32[8{d1}, 8{d2,d0}]", "d0=2,d1=2,d2=2"),
        ("{devices=[4,2]<=[2,4]T(1,0)}", (8, 8), "f32[8{d1}, 8{d0}]", "d0=2,d1=4"),
        ("{devices=[4,2]0,4,1,5,2,6,3,7}", (8, 8), "f32[8{d1}, 8{d0}]", "d0=2,d1=4"),
        ("{devices=[3,2]<=[2,3]}", (5, 8), "f32[5{d0}, 8{d1}]", "d0=3,d1=2"),
        ("{devices=[2,3]<=[2,3]T(1,0)}", (8, 9), "f32[8{d0}, 9{d1}]", "d0=2,d1=3@[0,3,1,4,2,5]"),
        ("{devices=[1,2,1,2]1,0,2,3 last_tile_dim_replicate}", (1, 2, 1), "f32[1, 2{d1}, 1]", "d1=2,d3=2@[1,0,2,3]"),
        ("{devices=[2]5,3}", (2,), "f32[2{d0}]", "d0=2@[5,3]"),
        (
            "{devices=[1,2,2,2]<=[8] last_tile_dims={replicated, unreduced}}",
            (4, 4),
            "f32[4, 4{d0}] sum{d2}",
            "d0=2,d1=2,d2=2",
        ),
        ("{maximal device=3}", (4, 4), "f32[4, 4]", "@[3]"),
        ("{devices=[1,1]<=[1]}", (4, 4), "f32[4, 4]", ""),
        ("{devices=[2]<=[2]}", (3,), "f32[3{d0}]", "d0=2"),
        (" { devices=[ 2 , 1 ] <=[ 2 ] } ", (3, 1), "f32[3{d0}, 1]", "d0=2"),
        ('{devices=[2]<=[2] metadata={op_name="jit(f)/{a}" source_line=3}}', (3,), "f32[3{d0}]", "d0=2"),
        ("{devices=[2]<=[2] shard_as 3}", (3,), "f32[3{d0}]", "d0=2"),
    ],
)
def test_forms_of_the_text(text: str, shape: tuple[int, ...], layout: str, mesh: str) -> None:
    """Which mesh we choose: digits with default ids where the device order allows."""
    assert Layout.from_xla(text, shape) == Layout.parse(layout, Mesh.parse(mesh))


def test_digit_aligned_lists_are_printed_as_iota() -> None:
    """The device order decides, not how the mesh states it."""
    mesh = Mesh({"x": 2, "y": 4}, [0, 4, 1, 5, 2, 6, 3, 7])
    assert Layout(mesh, (8, 8), [["x"], []]).to_xla() == "{devices=[2,1,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"
    mesh = Mesh({"x": 2, "y": 2}, [0, 1, 3, 2])
    assert Layout(mesh, (8, 8), [["x"], ["y"]]).to_xla() == "{devices=[2,2]0,1,3,2}"
    assert Layout(Mesh({"x": 2}, [7, 5]), (8,)).to_xla() == "{devices=[1,2]7,5 last_tile_dim_replicate}"
    assert Layout(Mesh({}, [7]), (8,)).to_xla() == "{maximal device=7}"


def test_a_million_devices() -> None:
    """Digits, not devices, are what costs."""
    layout = Layout.from_xla("{devices=[1024,1,1024]<=[1024,1024]T(1,0) last_tile_dim_replicate}", (4096, 3))
    assert layout == Layout.parse("f32[4096{d1}, 3]", Mesh({"d0": 1024, "d1": 1024}))
    assert layout.to_xla() == "{devices=[1024,1,1024]<=[1024,1024]T(1,0) last_tile_dim_replicate}"


def test_number_of_devices_for_whole_shardings() -> None:
    """{replicated} and {unreduced} need to be told."""
    from redist.types.convert.xla import layout_from_xla

    assert layout_from_xla("{replicated}", (4,), devices=6) == Layout(Mesh({"d0": 6}), (4,))
    assert layout_from_xla("{unreduced}", (4,), devices=6) == Layout(Mesh({"d0": 6}), (4,), partial=["d0"])
    assert layout_from_xla("{replicated}", (4,), devices=1) == Layout(Mesh({}), (4,))


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("devices=[2]<=[2]", "expected '{' before the sharding", 0),
        (
            "{devices=[2]<=[2]",
            "expected 'last_tile_dim_replicate', 'last_tile_dims={...}', 'metadata={...}' or '}'",
            17,
        ),
        ("{devices=[2]<=[2]} x", "unexpected text after the sharding", 19),
        ("{tiles=[2]}", "expected 'devices=', 'replicated', 'maximal device=', 'unreduced', 'manual' or 'unknown'", 1),
        ("{devices[2]}", "expected '=[' after 'devices'", 8),
        ("{devices=[2,x]<=[2]}", "expected a tile size, a non-negative integer", 12),
        ("{devices=[2,0]<=[2]}", "a tile size is 0; it is at least 1", 12),
        ("{devices=[2 1]<=[2]}", "expected ',' or ']' after a tile size", 12),
        (
            "{devices=[2,1]<=[2,4]}",
            "tile sizes [2, 1] number 2 devices, the iota [2, 4] numbers 8; make the products equal",
            10,
        ),
        ("{devices=[8]<=[2,4]T(0,0)}", "T(0,0) does not permute the 2 iota dimensions 0..1", 19),
        ("{devices=[8]<=[2,4]T(0)}", "T(0) does not permute the 2 iota dimensions 0..1", 19),
        ("{devices=[2]}", "expected device numbers, or '<=[' and iota sizes, a non-negative integer", 12),
        ("{devices=[2]0,}", "expected a device number, a non-negative integer", 14),
        ("{devices=[2,2]0,1}", "2 device numbers for 4 tiles; give one per tile", 14),
        ("{devices=[2,2]0,1,1,0}", "repeated device numbers [0, 1]; each device holds one tile", 14),
        (
            "{devices=[2]<=[2] last_tile_dims={manual, none}}",
            "expected a kind of subgroup: replicated, unreduced, manual",
            42,
        ),
        ("{devices=[2]<=[2] last_tile_dims={replicated, unreduced}}", "2 subgroups for the 1 tile sizes [2]", 10),
        (
            "{devices=[2]<=[2] last_tile_dim_replicate last_tile_dims={replicated}}",
            "the subgroups are stated twice",
            42,
        ),
        ("{devices=[2]<=[2] metadata=3}", "expected the metadata in braces", 27),
        ("{maximal}", "expected 'device=' after 'maximal'", 8),
        ("{maximal device=x}", "expected a device number, a non-negative integer", 16),
    ],
)
def test_malformed_text(text: str, message: str, column: int) -> None:
    """The column and the whole message."""
    with pytest.raises(ParseError) as caught:
        Layout.from_xla(text, (4,))
    assert str(caught.value) == f"{message}\n  {text}\n  {' ' * column}^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{{replicated}, {replicated}}",
            "{{replicated}, {replicated}} is the sharding of a tuple; convert the sharding of each element by itself",
        ),
        (
            "{mesh['x'=2], [{'x'}]}",
            "{mesh['x'=2], [{'x'}]} names the axes of a mesh; write it as tiles, {devices=[...]<=[...]}",
        ),
        (
            "{unknown}",
            "{unknown} leaves the layout to XLA; convert the sharding that XLA chose, from the compiled HLO",
        ),
        (
            "{manual}",
            "{manual} is manual over all devices: every device has an array of its own there, and the text does not "
            "say how these make up one; convert the sharding outside the manual region, where the axes shard or "
            "replicate",
        ),
        (
            "{devices=[2,3,4]<=[24] last_tile_dims={replicated, manual}}",
            "{devices=[2,3,4]<=[24] last_tile_dims={replicated, manual}} is manual over tile dimension 2 (size 4): "
            "every device has an array of its own there, and the text does not say how these make up one; convert the "
            "sharding outside the manual region, where the axes shard or replicate",
        ),
        (
            "{replicated}",
            "{replicated} does not say how many devices there are; for N devices write "
            "{devices=[1,N]<=[N] last_tile_dim_replicate}",
        ),
        (
            "{unreduced}",
            "{unreduced} does not say how many devices there are; for N devices write "
            "{devices=[1,N]<=[N] last_tile_dims={unreduced}}",
        ),
        (
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
            "{devices=[2,1,2]<=[4] last_tile_dim_replicate} tiles 2 dimensions (tile sizes [2, 1, 2], of which the "
            "last 1 are subgroups), but the array has 1 (shape [4]); give one tile size per dimension",
        ),
    ],
)
def test_texts_without_a_layout(text: str, message: str) -> None:
    """The rule, the values, the remedy."""
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.from_xla(text, (4,))


def test_layouts_without_a_text() -> None:
    """Block rules and reductions that XLA does not have."""
    mesh = Mesh({"x": 3, "y": 2, "z": 2})
    message = (
        "XLA cuts a dimension into blocks of ceil(size/count) only, not dimension 0 (7{x}:balanced), dimension 2 "
        "(5{y}@[0,4]); redistribute to ceil blocks first"
    )
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[7{x}:balanced, 7, 5{y}@[0,4]]", mesh).to_xla()
    message = "partial prod{z}: XLA's unreduced values are sums; reduce it first"
    with pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z"):
        Layout.parse("f32[7] prod{z}", mesh).to_xla()
