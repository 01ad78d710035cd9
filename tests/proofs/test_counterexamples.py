"""What people see when a plan is refuted."""

# ruff: noqa: E501  (texts as they are printed)

from __future__ import annotations

from dataclasses import replace

import pytest

from redist.collectives import AllGather, AllReduce, AllToAll, Exchange, Permute, Plan, Slice
from redist.collectives.plan import Options
from redist.collectives.steps import Free, Pairs, Step, Transfer
from redist.proofs import Counterexample, Refuted, verify
from redist.types import Layout, Mesh


def refute(mesh: str, source: str, target: str, steps: list[Step], target_mesh: str | None = None) -> Counterexample:
    """The counterexample of a plan that must have one."""
    plan = Plan(
        Layout.parse(source, Mesh.parse(mesh)),
        Layout.parse(target, Mesh.parse(target_mesh or mesh)),
        tuple(steps),
    )
    certificate = verify(plan)
    assert certificate.status == "refuted"
    assert certificate.counterexample is not None
    return certificate.counterexample


def test_axes_in_the_wrong_order() -> None:
    """Who wants what, gets what from whom, and who carried it after each step."""
    found = refute(
        "x=2,y=2,z=2",
        "[240{x}, 8]",
        "[240{y,z}, 8{x}]",
        [AllToAll([(["x"], 0, 1)]), Slice({0: ["z", "y"]})],
    )
    assert (
        str(found)
        == """\
REFUTED refinement: device 1 (x=0, y=0, z=1), local index (0, 0): wants global (60, 0), gets global (120, 0) from device 5 (x=1, y=0, z=1)
  at the start                        device 5 (x=1, y=0, z=1), local index (0, 0)
  after step 1, all-to-all x: 0 -> 1  device 1 (x=0, y=0, z=1), local index (120, 0)
  after step 2, slice dim 0 by z,y    device 1 (x=0, y=0, z=1), local index (0, 0)
  NumPy shows the same: global (120, 0) is there"""
    )


def test_dropped_gather() -> None:
    """A block that is too small: what is not there."""
    found = refute("x=4", "[8{x}]", "[8]", [])
    assert (
        str(found)
        == """\
REFUTED refinement: device 0 (x=0), local index (2,): wants global (2,), gets nothing (block of shape (2,))
  NumPy shows the same: nothing is there"""
    )


def test_block_that_is_too_large() -> None:
    """What should not be there."""
    found = refute("x=4", "[8]", "[8{x}]", [])
    assert (
        str(found)
        == """\
REFUTED refinement: device 0 (x=0), local index (2,): wants nothing (block of shape (2,)), gets global (2,) from device 0 (x=0)
  at the start  device 0 (x=0), local index (2,)
  NumPy shows the same: global (2,) is there"""
    )


def test_wrong_replica_of_a_swap() -> None:
    """A permute that swaps two axes where a target wanted them as they were."""
    found = refute(
        "x=2,y=2", "[4{x}, 4{y}]", "[4{x}, 4{y}]", [Permute(Layout.parse("[4{y}, 4{x}]", Mesh.parse("x=2,y=2")))]
    )
    assert (
        str(found)
        == """\
REFUTED refinement: device 1 (x=0, y=1), local index (0, 0): wants global (0, 2), gets global (2, 0) from device 2 (x=1, y=0)
  at the start           device 2 (x=1, y=0), local index (0, 0)
  after step 1, permute  device 1 (x=0, y=1), local index (0, 0)
  NumPy shows the same: global (2, 0) is there"""
    )


def test_sum_that_lacks_contributions() -> None:
    """Half of the contributions are never added."""
    found = refute("x=2,y=2", "[4] sum{x,y}", "[4]", [AllReduce(["x"])])
    assert (
        str(found)
        == """\
REFUTED refinement: device 0 (x=0, y=0), local index (0,): wants the sum of 4 contributions, gets 2"""
    )


def test_contribution_twice() -> None:
    """Explicit transfers bring one contribution to both devices that are still to be added."""
    layout = Layout.parse("[2] sum{x}", Mesh.parse("x=2"))
    wrong = (Transfer(0, 0, (0,), (2,)), Transfer(0, 1, (0,), (2,)))
    plan = Plan(layout, Layout.parse("[2]", layout.mesh), (Exchange(layout, wrong), AllReduce(["x"])))
    certificate = verify(plan)
    assert (
        str(certificate.counterexample)
        == """\
REFUTED refinement: device 0 (x=0), local index (0,): wants global (0,), gets global (0,); a contribution is counted 2 times"""
    )
    assert certificate.obligation("R").method in ("enumerated", "smt+enumerated")


def test_transfer_off_by_one() -> None:
    """A gap that no transfer fills."""
    source, target = (Layout.parse(text, Mesh.parse("x=2")) for text in ("[4{x}]", "[4]"))
    boxes = [
        Transfer(0, 0, (0,), (2,)),
        Transfer(1, 0, (2,), (4,)),
        Transfer(0, 1, (0,), (1,)),
        Transfer(1, 1, (2,), (4,)),
    ]
    certificate = verify(Plan(source, target, (Exchange(target, tuple(boxes)),)))
    assert (
        str(certificate.counterexample)
        == """\
REFUTED refinement: device 1 (x=1), local index (1,): wants global (1,), gets nothing; no element arrives there"""
    )


def test_devices_in_another_order() -> None:
    """The plan ends on the right devices, each with another one's block."""
    found = refute("x=4", "[8{x}]", "[8{x}]", [], "x=4@[2,0,3,1]")
    assert (
        str(found)
        == """\
REFUTED refinement: device 2 (x=0), local index (0,): wants global (0,), gets global (4,); another element is there"""
    )


def test_limit_exceeded() -> None:
    """Memory has no element to show, but a step and two numbers."""
    mesh = Mesh.parse("x=4")
    plan = Plan(Layout.parse("[8{x}]", mesh), Layout.parse("[8]", mesh), (AllGather({0: ["x"]}),))
    peak = plan.peak_bytes
    assert verify(replace(plan, options=Options(memory_limit=peak))).status == "proved"
    certificate = verify(replace(plan, options=Options(memory_limit=peak - 1)))
    assert (
        str(certificate.counterexample)
        == """\
REFUTED memory: in step 1 a device keeps 40 bytes alive, more than the limit stated, 39"""
    )


def test_large_block() -> None:
    """Gather everything, then slice: right, and too large."""
    mesh = Mesh.parse("x=4")
    plan = Plan(
        Layout.parse("[8{x}, 8]", mesh), Layout.parse("[8, 8{x}]", mesh), (AllGather({0: ["x"]}), Slice({1: ["x"]}))
    )
    certificate = verify(plan)
    assert certificate.obligation("R").holds
    assert (
        str(certificate.counterexample)
        == """\
REFUTED memory: after step 1 a device holds a block of 256 bytes, more than the larger of source and target, 64"""
    )
    order = certificate.obligation("N1").verdict
    assert isinstance(order, Refuted)
    assert (
        str(order.counterexample)
        == """\
REFUTED order of steps: step 2 is a slice after step 1 communicated; slice first"""
    )


def test_ill_typed() -> None:
    """The premise that fails; nothing else is decided."""
    mesh = Mesh.parse("x=4")
    plan = Plan(Layout.parse("[8{x}]", mesh), Layout.parse("[8]", mesh), (Slice({0: ["x"]}),))
    certificate = verify(plan)
    assert certificate.status == "refuted"
    assert (
        str(certificate.counterexample)
        == """\
REFUTED typing: slice on f32[8{x}]: blocks of dimension 0 do not nest: 8{x} has blocks of up to 2 elements, which 4 does not divide, so 16 blocks of up to 1 cut across them; use an exchange"""
    )


def test_tables_name_the_pair() -> None:
    """A wrong pair is stopped by typing; devices outside the mesh too."""
    layout = Layout.parse("[4{x}]", Mesh.parse("x=4"))
    pairs = Pairs(((0, 1), (1, 0), (2, 2), (3, 3)))
    found = refute("x=4", "[4{x}]", "[4{x}]", [Permute(layout, pairs)])
    assert "(sender, receiver) pairs [(0, 1), (1, 0)]" in str(found)


@pytest.mark.parametrize("scale", [1, 2**20])
def test_minimal(scale: int) -> None:
    """Of all wrong elements, the one on the first device, first in its block, however large the array is."""
    mesh = Mesh({"x": 2, "y": 4})
    source = Layout(mesh, (8 * scale, 8), (("x", "y"), ()))
    target = Layout(mesh, (8 * scale, 8), (("y", "x"), ()))
    certificate = verify(Plan(source, target, ()))
    found = certificate.counterexample
    assert found is not None
    assert (found.device, found.local) == (1, (0, 0))
    assert found.wanted == (2 * scale, 0)
    assert found.got == (scale, 0)
    assert found.sender == 1
    assert found.confirmed is True or scale > 1


def test_free_groups_matter_to_nobody() -> None:
    """Which replica sends is free: any pairing of free axes is right."""
    mesh = Mesh.parse("x=2,y=2,z=2")
    layout = Layout.parse("[4{x}]", mesh)
    for free in (Free.of((["y", "z"], ["z", "y"])), Free.of((["y"], ["z"]), (["z"], ["y"]))):
        assert verify(Plan(layout, layout, (Permute(layout, free),))).obligation("R").holds
