"""DTensor's plans: read from transform infos written out here, and from torch where it is installed."""

from __future__ import annotations

import pytest

from redist.collectives import AllGather, AllReduce, AllToAll, ReduceScatter, Slice
from redist.errors import LayoutError
from redist.proofs.audit import dtensor
from redist.types import Layout, Mesh

MESH = Mesh.parse("x=2,y=2,z=2")
torch_here = pytest.mark.skipif(dtensor.missing() is not None, reason=str(dtensor.missing()))


def layout(text: str, mesh: Mesh = MESH) -> Layout:
    return Layout.parse(text, mesh)


def test_every_change_of_a_placement_is_a_typed_step() -> None:
    infos = [(2, "S(1)", "R"), (0, "S(0)", "S(1)"), (1, "R", "S(0)")]
    source, target = layout("[8{x}, 8{z}]"), layout("[8{y}, 8{x}]")
    found = dtensor.read_infos(infos, source, target)
    assert found.steps == (AllGather({1: ["z"]}), AllToAll([(["x"], 0, 1)]), Slice({0: ["y"]}))
    assert [op.name for op in found.ops] == ["S(1) -> R", "S(0) -> S(1)", "R -> S(0)"]
    assert found.reached is not None and found.reached.equivalent(target)


def test_reductions() -> None:
    found = dtensor.read_infos(
        [(0, "P(sum)", "R"), (1, "P(sum)", "S(0)")], layout("[8, 8] sum{x,y}"), layout("[8{y}, 8]")
    )
    assert found.steps == (AllReduce(["x"]), ReduceScatter({0: ["y"]}))


def test_a_slice_outside_the_order_of_axes_ends_elsewhere() -> None:
    """DTensor means (x, y), but slicing x last makes it the minor-most."""
    found = dtensor.read_infos([(0, "R", "S(0)")], layout("[8{y}, 8]"), layout("[8{x,y}, 8]"))
    assert str(found.reached) == "f32[8{y,x}, 8]"


def test_what_does_not_type_is_noted() -> None:
    found = dtensor.read_infos([(0, "S(0)", "R")], layout("[8{x,y}, 8]"), layout("[8{y}, 8]"))
    assert found.steps is None and found.note.startswith("S(0) -> R on mesh dimension 0 does not type")
    found = dtensor.read_infos([(0, "R", "P(sum)")], layout("[8, 8]"), layout("[8, 8]"))
    assert found.steps is None and found.note == "no typed step for R -> P(sum) on mesh dimension 0"


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        (layout("[8{x:(1)2}]", Mesh.parse("x=4")), layout("[8]", Mesh.parse("x=4")), "places whole mesh axes"),
        (layout("[7{x}]"), layout("[7]"), "uneven blocks"),
        (layout("[8{x}]"), layout("[8{x}]", Mesh.parse("x=2,y=4")), "between meshes"),
    ],
)
def test_what_dtensor_cannot_hold_is_refused(source: Layout, target: Layout, why: str) -> None:
    with pytest.raises(LayoutError, match=why):
        dtensor.plan_of_dtensor(source, target)


def test_orders() -> None:
    assert dtensor.left_to_right(layout("[8{x,z}, 8{y}]"))
    assert not dtensor.left_to_right(layout("[8{z,x}, 8{y}]"))


@torch_here
def test_greedy_and_dijkstra() -> None:
    source, target = layout("[8, 8{x,y,z}]"), layout("[8{x,y,z}, 8]")
    greedy = dtensor.plan_of_dtensor(source, target)
    assert [op.text for op in greedy.ops] == [
        "mesh dim 2: S(1) -> R",
        "mesh dim 1: S(1) -> R",
        "mesh dim 0: S(1) -> S(0)",
        "mesh dim 1: R -> S(0)",
        "mesh dim 2: R -> S(0)",
    ]
    found = dtensor.plan_of_dtensor(source, target, shortest_path=True, cost_shape=(4096, 4096))
    assert found.planner == "dtensor-dijkstra" and found.reached is not None and found.reached.equivalent(target)


@torch_here
def test_orders_that_are_not_left_to_right() -> None:
    source, target = layout("[8{y,x}, 8]"), layout("[8{x,y}, 8]")
    found = dtensor.plan_of_dtensor(source, target)
    assert found.reached is not None and found.reached.equivalent(target)
