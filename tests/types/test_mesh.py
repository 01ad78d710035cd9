"""Meshes: coordinates, ids, sub-axes, and every malformed one refused by name."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from redist.errors import LayoutError
from redist.testing import meshes
from redist.types import Layout, Mesh, SubAxis


@given(meshes())
def test_coordinates_run_row_major_over_the_ids(brute: Any, mesh: Mesh) -> None:
    """Position p holds device_ids[p], and the last axis runs fastest."""
    expected = brute.coordinates(mesh)
    assert {device: mesh.coordinates(device) for device in mesh.device_ids} == expected
    assert mesh.size == len(expected) == len(set(mesh.device_ids))
    assert mesh.id_array().tolist() == list(mesh.device_ids) == list(expected)


@given(meshes())
def test_index_and_digit_read_coordinates_off_positions(brute: Any, mesh: Mesh) -> None:
    """`index` over any axes is the mixed-radix number of the coordinates; `digit` is one of them."""
    axes = [SubAxis(name) for name in reversed(mesh.names)]
    places = list(brute.coordinates(mesh).values())
    assert mesh.index(axes).tolist() == [brute.index(mesh, place, axes) for place in places]
    for axis in axes:
        stride, size = mesh.digit(axis)
        assert [p // stride % size for p in range(mesh.size)] == [place[axis.axis] for place in places]
    some = np.asarray([mesh.size - 1, 0])
    assert mesh.index(axes, some).tolist() == [brute.index(mesh, places[p], axes) for p in (-1, 0)]


@given(meshes())
def test_text_reads_back(mesh: Mesh) -> None:
    """str and repr name the mesh completely."""
    assert Mesh.parse(str(mesh)) == mesh
    assert eval(repr(mesh), {"Mesh": Mesh}) == mesh
    assert hash(Mesh.parse(str(mesh))) == hash(mesh)


def test_parts_of_an_axis() -> None:
    """An axis of 12 split as (2, 3, 2): the middle part counts the coordinate by twos, modulo 3."""
    mesh = Mesh({"a": 2, "x": 12, "b": 5})
    assert mesh.resolve("x:(2)3") == SubAxis("x", 2, 3)
    assert mesh.cut(SubAxis("x", 2, 3)) == (2, 3)
    assert mesh.digit(SubAxis("x", 2, 3)) == (10, 3)
    assert mesh.count([SubAxis("x", 2, 3), SubAxis("b")]) == 15
    assert mesh.index([SubAxis("x", 2, 3)])[:60:5].tolist() == [0, 0, 1, 1, 2, 2] * 2


def test_whole_axes_have_one_form() -> None:
    """A cut that is the whole axis resolves to it; of an axis of size 1 there is only the whole."""
    mesh = Mesh({"x": 4, "e": 1})
    assert mesh.resolve("x:(1)4") == mesh.resolve("x") == SubAxis("x")
    assert mesh.resolve("e") == SubAxis("e")
    assert mesh.digit(SubAxis("e")) == (1, 1)
    assert str(SubAxis("x")) == "x" and str(SubAxis("x", 2, 2)) == "x:(2)2"
    assert SubAxis.parse(" x:( 2 ) 2 ") == SubAxis("x", 2, 2)


def test_meshes_without_axes_and_with_axes_of_one() -> None:
    """No axes: one device, of any id. An axis of size 1 is an axis."""
    assert Mesh({}).size == 1 and list(Mesh({}).device_ids) == [0] and str(Mesh({})) == ""
    assert Mesh({}, [7]).coordinates(7) == {} and Mesh({}, [7]).describe_device(7) == "device 7"
    assert str(Mesh({}, [7])) == "@[7]" and Mesh.parse("@[7]") == Mesh({}, [7])
    assert Mesh({"x": 1}).coordinates(0) == {"x": 0} and Mesh({"x": 1}) != Mesh({})
    assert Mesh({}).id_array().tolist() == [0] and Mesh({}).index([]).tolist() == [0]


def test_ids_in_order_are_the_default() -> None:
    """Stating 0..n-1 is the same mesh as leaving the ids out; NumPy integers are integers."""
    assert Mesh({"x": 2, "y": 2}, range(4)) == Mesh({"x": 2, "y": 2})
    assert Mesh({"x": np.int64(2)}, np.asarray([0, 1])).has_default_ids
    assert not Mesh({"x": 2}, [1, 0]).has_default_ids
    assert Mesh([("x", 2), ("y", 3)]).axes == (("x", 2), ("y", 3))
    assert Mesh({"x": 2, "y": 3}) != Mesh({"y": 3, "x": 2})


def test_describe_device() -> None:
    """Messages name a device with its coordinates."""
    assert Mesh({"x": 2, "y": 2}, [4, 5, 6, 7]).describe_device(6) == "device 6 (x=1, y=0)"


def test_same_devices_compares_sets() -> None:
    """Order and axes do not matter; the ids do."""
    mesh = Mesh({"x": 2, "y": 2})
    assert mesh.same_devices(Mesh({"a": 4})) and mesh.same_devices(Mesh({"a": 4}, [3, 1, 0, 2]))
    assert not mesh.same_devices(Mesh({"a": 2})) and not mesh.same_devices(Mesh({"a": 4}, [1, 2, 3, 4]))
    assert Mesh({"a": 2}, [5, 9]).same_devices(Mesh({"b": 2}, [9, 5]))
    assert not Mesh({"a": 2}, [5, 9]).same_devices(Mesh({"b": 2}, [9, 6]))


def test_names_may_be_unicode_and_dotted() -> None:
    """Letters of any script, digits, and _ . - / after the first character."""
    mesh = Mesh({"größe": 2, "data-parallel/1": 2, "_v.2": 2})
    assert Mesh.parse(str(mesh)) == mesh
    assert str(Layout(mesh, [8], [["größe", "_v.2"]])) == "f32[8{größe,_v.2}]"


def test_pickled_meshes_hash_like_new_ones() -> None:
    """A mesh or layout from a process whose strings hash otherwise is found in dictionaries."""
    mesh = Mesh({"x": 2, "y": 2}, [3, 1, 2, 0])
    layout = Layout.parse("f32[5{x,y}:balanced, 3]", mesh)
    partial = Layout.parse("bf16[4] max{y}", mesh)
    written = pickle.dumps((mesh, layout, partial, Mesh({"x": 2})))
    check = (
        "import pickle, sys; from redist.types import Layout, Mesh\n"
        "mesh, layout, partial, plain = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "new = Mesh({'x': 2, 'y': 2}, [3, 1, 2, 0])\n"
        "one, other = Layout.parse('f32[5{x,y}:balanced, 3]', new), Layout.parse('bf16[4] max{y}', new)\n"
        "assert {mesh, layout, partial, plain} == {new, Mesh({'x': 2}), one, other}\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", check, written.hex()], env=environment, check=True)


MALFORMED = "a name starts with a letter or '_' and goes on with letters, digits and any of '_.-/'"


@pytest.mark.parametrize(
    ("axes", "ids", "message"),
    [
        ({"x": 0}, None, "axis x=0: an axis has an integer size of at least 1"),
        ({"x": -2}, None, "axis x=-2: an axis has an integer size of at least 1"),
        ({"x": 2.0}, None, "axis x=2.0: an axis has an integer size of at least 1"),
        ({"x": True}, None, "axis x=True: an axis has an integer size of at least 1"),
        ({"1x": 2}, None, f"malformed axis name '1x': {MALFORMED}"),
        ({"a b": 2, "": 1}, None, f"malformed axis name 'a b', '': {MALFORMED}"),
        ({"x\n": 2}, None, f"malformed axis name 'x\\n': {MALFORMED}"),
        ({3: 2}, None, f"malformed axis name 3: {MALFORMED}"),
        ([("x", 2), ("y", 1), ("x", 2)], None, "mesh axis named twice: x; give each axis its own name"),
        ({"x": 2}, [0], "1 device ids for a mesh of 2 devices; give one id per device"),
        ({"x": 2}, [], "0 device ids for a mesh of 2 devices; give one id per device"),
        ({"x": 2, "y": 2}, [0, 3, 3, 0], "repeated device ids [0, 3]; each device stands in a mesh once"),
        ({"x": 2}, [-1, 0], "negative device ids [-1]; ids are 0 or more"),
    ],
)
def test_malformed_meshes(axes: Any, ids: Any, message: str) -> None:
    """Every mesh that cannot exist, with the whole message."""
    with pytest.raises(LayoutError) as caught:
        Mesh(axes, ids)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ("q", "unknown axis 'q': mesh x=4,y=6 has axes x, y"),
        (
            "x:(1)3",
            "sub-axis x:(1)3 does not divide axis x=4: pre*size = 1*3 = 3; choose pre and size whose product divides 4",
        ),
        (
            SubAxis("x", 4, 2),
            "sub-axis x:(4)2 does not divide axis x=4: pre*size = 4*2 = 8; choose pre and size whose product divides 4",
        ),
        (
            "y:(2)2",
            "sub-axis y:(2)2 does not divide axis y=6: pre*size = 2*2 = 4; choose pre and size whose product divides 6",
        ),
    ],
)
def test_axes_that_a_mesh_does_not_have(axis: str | SubAxis, message: str) -> None:
    """Unknown axes, and parts whose sizes do not divide the axis."""
    with pytest.raises(LayoutError) as caught:
        Mesh({"x": 4, "y": 6}).resolve(axis)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        (Mesh({}), "unknown axis 'q': mesh of one device has no axes"),
        (Mesh({"x": 2}), "unknown axis 'q': mesh x=2 has axis x"),
        (Mesh({"x": 2}, [5, 6]), "unknown axis 'q': mesh x=2 has axis x"),
    ],
)
def test_unknown_axes_list_the_axes_there_are(mesh: Mesh, message: str) -> None:
    """In the singular, and on a mesh without any."""
    with pytest.raises(LayoutError) as caught:
        mesh.axis_size("q")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", 2), "sub-axis of 'x' states pre=2 without a size; write x:(2)SIZE"),
        (("x", 1, 1), "sub-axis x:(1)1 needs pre >= 1 and size >= 2, got pre=1 and size=1; leave out a part of size 1"),
        (("x", 0, 2), "sub-axis x:(0)2 needs pre >= 1 and size >= 2, got pre=0 and size=2; leave out a part of size 1"),
    ],
)
def test_malformed_sub_axes(arguments: tuple[Any, ...], message: str) -> None:
    """Parts of size 1 and parts without a size."""
    with pytest.raises(LayoutError) as caught:
        SubAxis(*arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize("device", [4, -1])
def test_devices_outside(device: int) -> None:
    """A device that the mesh does not hold has no coordinates."""
    with pytest.raises(LayoutError) as caught:
        Mesh({"x": 2, "y": 2}).coordinates(device)
    assert str(caught.value) == f"device {device} is not in mesh x=2,y=2"
