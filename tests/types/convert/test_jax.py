"""JAX shardings: devices_indices_map as oracle, round trips, and every refusal with its full message."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax._src.lib import xla_client
from jax._src.sharding_impls import GSPMDSharding
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec, SingleDeviceSharding

from redist.errors import LayoutError
from redist.testing import layouts, meshes
from redist.types import Layout, Mesh

P = PartitionSpec
SMALL = meshes(max_devices=20, max_axes=4)
HELD = layouts(SMALL, uneven=False, rules=False, partial=False, dtypes=["f32"])


def jax_mesh(shape: tuple[int, ...], names: Any, order: Any = None, kind: Any = AxisType.Auto) -> Any:
    """A JAX mesh of devices 0..n-1 in the given order."""
    devices = np.array(jax.devices()[: int(np.prod(shape))], dtype=object)
    devices = devices if order is None else devices[list(order)]
    return jax.sharding.Mesh(devices.reshape(shape), names, axis_types=(kind,) * len(shape))


def boxes(layout: Layout) -> dict[int, tuple[tuple[int, int], ...]]:
    """{device id: (start, stop) per dimension} as the library has it."""
    starts, stops = layout.boxes()
    held = [tuple(zip(a, b, strict=True)) for a, b in zip(starts.tolist(), stops.tolist(), strict=True)]
    return dict(zip(layout.mesh.device_ids, held, strict=True))


def jax_boxes(sharding: Any, shape: tuple[int, ...]) -> dict[int, tuple[tuple[int, int], ...]]:
    """The same as JAX has it."""
    indices = sharding.devices_indices_map(shape)
    return {
        device.id: tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))
        for device, index in indices.items()
    }


@st.composite
def named_shardings(draw: st.DrawFn) -> tuple[tuple[int, ...], NamedSharding]:
    """(shape, sharding) over up to three axes in any device order: tuples of axes, Nones, a spec that may
    be shorter than the rank, sizes that the axes divide, zero included."""
    sizes = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    names = ("x", "y", "z")[: len(sizes)]
    mesh = jax_mesh(sizes, names, draw(st.permutations(range(int(np.prod(sizes))))))
    rank = draw(st.integers(0, 3))
    dealt: list[list[str]] = [[] for _ in range(rank)]
    for name in draw(st.permutations(names)):
        place = draw(st.integers(0, rank))
        if place < rank:
            dealt[place].append(name)
    blocks = [int(np.prod([mesh.shape[name] for name in dim], dtype=int)) for dim in dealt]
    shape = tuple(k * draw(st.integers(0, 3)) for k in blocks)
    spec = [
        draw(st.sampled_from([None, ()])) if not dim else (dim[0] if len(dim) == 1 else tuple(dim)) for dim in dealt
    ]
    while spec and not spec[-1] and draw(st.booleans()):
        spec.pop()
    return shape, NamedSharding(mesh, P(*spec))


# -- meaning -------------------------------------------------------------------------------------------


@given(named_shardings())
def test_blocks_are_those_of_jax(drawn: tuple[tuple[int, ...], NamedSharding]) -> None:
    """Every device holds the box that devices_indices_map says."""
    shape, sharding = drawn
    layout = Layout.from_jax(shape, "f32", sharding)
    assert boxes(layout) == jax_boxes(sharding, shape)
    assert layout.mesh == Mesh.from_jax(sharding.mesh)


@given(named_shardings())
def test_a_sharding_returns_on_its_own_mesh(drawn: tuple[tuple[int, ...], NamedSharding]) -> None:
    """Without sub-axes, the mesh of the caller comes back: same devices in the same order, same names."""
    shape, sharding = drawn
    back = Layout.from_jax(shape, "f32", sharding).to_jax()
    assert back.mesh == sharding.mesh
    assert back.is_equivalent_to(sharding, len(shape))


@given(HELD)
def test_layouts_return_from_jax(layout: Layout) -> None:
    """Layout -> NamedSharding -> Layout is the identity, sub-axes and device ids included; JAX has the same boxes."""
    sharding = layout.to_jax()
    assert Layout.from_jax(layout.shape, layout.dtype, sharding) == layout
    assert boxes(layout) == jax_boxes(sharding, layout.shape)


@given(layouts(SMALL, uneven=False, rules=False))
def test_partial_sums_are_unreduced_axes(layout: Layout) -> None:
    """Unreduced axes exist on Explicit meshes, which a partial layout gets by default."""
    layout = Layout(layout.mesh, layout.shape, [d.axes for d in layout.dims], "f32", partial=layout.partial_axes)
    sharding = layout.to_jax()
    kind = AxisType.Explicit if layout.partial else AxisType.Auto
    assert set(sharding.mesh.axis_types) <= {kind}
    assert len(sharding.spec.unreduced) >= len(layout.partial_axes)
    assert Layout.from_jax(layout.shape, "f32", sharding) == layout


@given(SMALL)
def test_meshes_return_from_jax(mesh: Mesh) -> None:
    """Mesh -> jax Mesh -> Mesh is the identity, and abstract meshes have the ids 0..n-1."""
    made = mesh.to_jax()
    assert Mesh.from_jax(made) == mesh
    assert [device.id for device in made.devices.flat] == list(mesh.device_ids)
    if mesh.names:
        assert Mesh.from_jax(made.abstract_mesh) == Mesh(mesh.axes)


def test_array_dtype_and_sharding() -> None:
    """What an array carries is enough, whatever its memory kind."""
    sharding = NamedSharding(jax_mesh((2, 2), ("x", "y")), P(None, ("y", "x")), memory_kind="unpinned_host")
    array = jax.device_put(jnp.zeros((3, 8), jnp.bfloat16), sharding)
    layout = Layout.from_jax(array.shape, array.dtype, array.sharding)
    assert layout == Layout.parse("bf16[3, 8{y,x}]", Mesh({"x": 2, "y": 2}))


def test_nones_inside_and_behind() -> None:
    """Missing trailing entries, empty tuples and None all replicate."""
    mesh = jax_mesh((2, 2), ("x", "y"))
    expected = Layout.parse("f32[4{x}, 4, 4]", Mesh({"x": 2, "y": 2}))
    for spec in (P("x"), P("x", None, None), P(("x",), (), None)):
        assert Layout.from_jax((4, 4, 4), "f32", NamedSharding(mesh, spec)) == expected


def test_single_device_sharding() -> None:
    """A mesh without axes on that device; the way back is a NamedSharding that places arrays there."""
    layout = Layout.from_jax((3,), "f32", SingleDeviceSharding(jax.devices()[3]))
    assert layout == Layout(Mesh({}, [3]), (3,))
    placed = jax.device_put(np.arange(3.0), layout.to_jax())
    assert placed.devices() == {jax.devices()[3]}


@given(named_shardings(), st.booleans())
def test_gspmd_shardings_are_read_through_their_text(
    drawn: tuple[tuple[int, ...], NamedSharding], reverse: bool
) -> None:
    """The numbers in the text are places in the sharding's device list, which may be in any order."""
    shape, named = drawn
    devices = tuple(named.mesh.devices.flat)[:: -1 if reverse else 1]
    sharding = GSPMDSharding(devices, named._to_xla_hlo_sharding(len(shape)))
    assert boxes(Layout.from_jax(shape, "f32", sharding)) == jax_boxes(sharding, shape)


def test_gspmd_shardings_over_a_list_of_devices() -> None:
    """A list that permutes no digits, over a device list in another order."""
    text = xla_client.HloSharding.from_string("{devices=[2,2]0,1,3,2}")
    sharding = GSPMDSharding(tuple(jax.devices()[9:5:-1]), text)
    layout = Layout.from_jax((4, 6), "f32", sharding)
    assert boxes(layout) == jax_boxes(sharding, (4, 6))
    assert list(layout.mesh.device_ids) == [9, 8, 6, 7]


def test_abstract_shardings_and_reduced_axes() -> None:
    """Inside jit the type's sharding is over an abstract mesh; `reduced` axes hold copies."""
    mesh = AbstractMesh((2, 2, 2), ("x", "y", "z"), axis_types=(AxisType.Explicit,) * 3)
    sharding = NamedSharding(mesh, P("x", reduced={"y"}, unreduced={"z"}))
    layout = Layout.from_jax((4,), "f32", sharding)
    assert layout == Layout.parse("f32[4{x}] sum{z}", Mesh({"x": 2, "y": 2, "z": 2}))


# -- refined meshes ------------------------------------------------------------------------------------


def test_refined_mesh_has_sub_axis_names_and_the_types_of_the_axes() -> None:
    """An axis is split where the layout cuts it, and only such axes are."""
    layout = Layout.parse("f32[8{x:(2)2}, 8{y}]", Mesh({"x": 8, "y": 2}))
    sharding = layout.to_jax(axis_types=(AxisType.Explicit, AxisType.Auto))
    assert sharding.mesh.shape == {"x:(1)2": 2, "x:(2)2": 2, "x:(4)2": 2, "y": 2}
    assert sharding.mesh.axis_types == (*[AxisType.Explicit] * 3, AxisType.Auto)
    assert sharding.spec == P("x:(2)2", "y")


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_refined_meshes_work_in_jit_and_shard_map(kind: Any) -> None:
    """JAX takes the names of the parts wherever it takes axis names."""
    sharding = Layout.parse("f32[8{x:(2)2}, 8{x:(1)2}]", Mesh({"x": 4, "y": 2})).to_jax(kind)
    array = jax.device_put(jnp.arange(64.0).reshape(8, 8), sharding)

    def gather(block: Any) -> Any:
        return jax.lax.all_gather(block, "x:(2)2", tiled=True)

    gathered = jax.jit(
        jax.shard_map(gather, mesh=sharding.mesh, in_specs=sharding.spec, out_specs=P(None, "x:(1)2"), check_vma=False)
    )(array)
    assert np.array_equal(gathered, array)
    assert Layout.from_jax(gathered.shape, "f32", gathered.sharding).dims[0].axes == ()
    doubled = jax.jit(lambda x: x * 2, out_shardings=sharding)(array)
    assert np.array_equal(doubled, 2 * array)


@pytest.mark.parametrize(
    "axes",
    [
        [("x:(2)2", 2), ("x:(1)2", 2)],
        [("x:(1)2", 2), ("x:(4)2", 2)],
        [("x:(1)2", 2), ("y:(2)2", 2)],
        [("x:(1)4", 2), ("x:(4)2", 2)],
        [("x:(1)2", 2), ("z", 2), ("x:(2)2", 2)],
        [("x:(1)2", 2)],
    ],
)
def test_parts_that_make_no_axis_are_malformed_names(axes: list[tuple[str, int]]) -> None:
    """Only consecutive parts from the first on are joined."""
    mesh = jax_mesh(tuple(size for _, size in axes), tuple(name for name, _ in axes))
    with pytest.raises(LayoutError, match="malformed axis name"):
        Mesh.from_jax(mesh)


def test_two_refined_axes_side_by_side() -> None:
    """Each run of parts ends where the next axis begins."""
    mesh = jax_mesh((2, 2, 3, 2, 1), ("x:(1)2", "x:(2)2", "y:(1)3", "y:(3)2", "z"))
    assert Mesh.from_jax(mesh) == Mesh({"x": 4, "y": 6, "z": 1})


# -- refusals ------------------------------------------------------------------------------------------


def refused(message: str) -> Any:
    """The whole message."""
    return pytest.raises(LayoutError, match=rf"\A{re.escape(message)}\Z")


def test_jax_refuses_what_we_refuse() -> None:
    """The rule behind the refusal below, as JAX has it: blocks of equal size, zero included."""
    sharding = NamedSharding(jax_mesh((2,), ("x",)), P("x"))
    with pytest.raises(ValueError, match="evenly divide"):
        jax.device_put(np.zeros(9), sharding)
    with pytest.raises(ValueError, match="evenly divide"):
        jax.jit(lambda x: x, out_shardings=sharding)(np.zeros(9))
    with pytest.raises(ValueError, match="evenly divide"):
        sharding.devices_indices_map((9,))
    assert jax.device_put(np.zeros((0, 3)), sharding).shape == (0, 3)


def test_uneven_dimensions_are_named() -> None:
    """All of them, whatever the rule that cuts them."""
    layout = Layout.parse("f32[9{x}, 8{y}, 7{z}:balanced, 4{w}@[0,3]]", Mesh({"x": 2, "y": 2, "z": 3, "w": 2}))
    with refused(
        "JAX holds blocks of equal size only: dimension 0 (9{x}) has 2 blocks, which do not divide 9 (pad it to 10); "
        "dimension 2 (7{z}:balanced) has 3 blocks, which do not divide 7 (pad it to 9); dimension 3 (4{w}@[0,3]) has "
        "blocks of unequal size by its offsets (use ceil blocks). Redistribute to such a layout, pad, or shard "
        "over axes whose sizes divide the dimension"
    ):
        layout.to_jax()


def test_missing_devices_are_named() -> None:
    """By id, with the ids that there are."""
    with refused(
        "mesh x=4 holds devices that JAX does not have: 40..41, 50; jax.devices() has 0..31. Use those ids, or start "
        "JAX with more devices (on CPU, XLA_FLAGS=--xla_force_host_platform_device_count=51)"
    ):
        Mesh({"x": 4}, [40, 1, 50, 41]).to_jax()


def test_reductions_and_axis_types() -> None:
    """JAX's unreduced values are sums over Explicit axes."""
    mesh = Mesh({"x": 2, "y": 2})
    with refused("partial max{x}: JAX's unreduced values are sums; reduce it before handing it to JAX"):
        Layout.parse("f32[4] max{x}", mesh).to_jax()
    with refused(
        "partial sum{x,y}: axes y are not Explicit, and JAX has unreduced values over Explicit axes only; pass "
        "axis_types=jax.sharding.AxisType.Explicit, or reduce before"
    ):
        Layout.parse("f32[4] sum{x,y}", mesh).to_jax((AxisType.Explicit, AxisType.Auto))
    with refused("1 axis types for mesh x=2,y=2 of 2 axes; give one per axis, or one for all"):
        mesh.to_jax((AxisType.Auto,))


def test_meshes_without_names_or_devices() -> None:
    """Axis names must be strings, and there must be a device."""
    with refused("mesh axes 3, ('a', 1) are not named by strings; name every axis by a string"):
        Mesh.from_jax(jax_mesh((2, 1, 2), (3, "x", ("a", 1))))
    with refused("the mesh is empty: it holds no devices; pass a mesh of at least one device"):
        Mesh.from_jax(jax.sharding.get_abstract_mesh())
    with refused("3 is not a mesh; pass a jax.sharding.Mesh or jax.sharding.AbstractMesh"):
        Mesh.from_jax(3)


def test_specs_without_a_layout() -> None:
    """Too long, unconstrained, manual, or no sharding at all."""
    mesh = jax_mesh((2, 2), ("x", "y"))
    with refused("P(None, 'x', 'y') names 3 dimensions, but the array has 1 (shape [4]); drop the last 2"):
        Layout.from_jax((4,), "f32", NamedSharding(mesh, P(None, "x", "y")))
    with refused(
        "dimensions [0, 2] of P(UNCONSTRAINED, 'x', UNCONSTRAINED) are UNCONSTRAINED: XLA chooses their "
        "layout, so there is none to convert; name axes, or None to replicate"
    ):
        Layout.from_jax((4, 4, 4), "f32", NamedSharding(mesh, P(P.UNCONSTRAINED, "x", P.UNCONSTRAINED)))
    manual = AbstractMesh((2, 2), ("x", "y"), axis_types=(AxisType.Manual, AxisType.Explicit))
    with refused(
        "mesh axes x are Manual: inside shard_map every device has an array of its own along them, and the sharding "
        "does not say how these make up one; convert the sharding outside shard_map"
    ):
        Layout.from_jax((4,), "f32", NamedSharding(manual, P("y")))
    with refused("P('x',) is not a sharding; pass jax.sharding.NamedSharding(mesh, spec), or the array's .sharding"):
        Layout.from_jax((4,), "f32", P("x"))


def test_shardings_without_text() -> None:
    """A sharding of someone else's making that JAX itself cannot put into words."""

    class Foreign(jax.sharding.Sharding):
        pass

    with refused("Foreign has no XLA text to read; put the array into a NamedSharding first, with jax.device_put"):
        Layout.from_jax((4,), "f32", Foreign())
