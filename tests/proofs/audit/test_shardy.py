"""Shardy's plans: read from its printed text, and from the pass itself where jaxlib has it."""

from __future__ import annotations

import pytest

from redist.collectives import AllGather, AllToAll, Permute, Slice
from redist.collectives.steps import Pairs
from redist.errors import LayoutError
from redist.proofs.audit import shardy
from redist.proofs.audit.foreign import whole_blocks
from redist.types import Layout, Mesh

pass_here = pytest.mark.skipif(shardy.missing() is not None, reason=str(shardy.missing()))


def pair(mesh: str, source: str, target: str, target_mesh: str | None = None) -> tuple[Layout, Layout]:
    return Layout.parse(source, Mesh.parse(mesh)), Layout.parse(target, Mesh.parse(target_mesh or mesh))


PRINTED = """\
module {
  sdy.mesh @source = <["x"=2, "y"=2, "z"=4]>
  func.func @reshard(%arg0: tensor<16x8xf32>) -> tensor<16x8xf32> {
    %0 = sdy.all_slice [{"z":(1)2}, {}] %arg0 out_sharding=<@source, [{"x", "z":(1)2}, {"y"}]> : tensor<16x8xf32>
    %1 = sdy.collective_permute %0 out_sharding=<@source, [{"y", "z":(1)2}, {"x"}]> : tensor<16x8xf32>
    %2 = sdy.all_to_all [{"x"}: 1->0] %1 out_sharding=<@source, [{"y", "z":(1)2, "x"}, {}]> : tensor<16x8xf32>
    %3 = sdy.all_gather [{"z":(1)2, "x"}, {}] %2 out_sharding=<@source, [{"y"}, {}]> : tensor<16x8xf32>
    return %3 : tensor<16x8xf32>
  }
}
"""


def test_every_operation_is_a_typed_step() -> None:
    source, target = pair("x=2,y=2,z=4", "[16{x}, 8{y}]", "[16{y}, 8]")
    found = shardy.read_module(PRINTED, source, target, {"source": source.mesh})
    assert [op.name for op in found.ops] == ["all_slice", "collective_permute", "all_to_all", "all_gather"]
    assert found.steps is not None and found.plan is not None
    assert [type(step) for step in found.steps] == [Slice, Permute, AllToAll, AllGather]
    assert found.steps[0] == Slice({0: ["z:(1)2"]})
    assert found.steps[2] == AllToAll([(["x"], 1, 0)])
    assert found.reached is not None and found.reached.equivalent(target)
    assert found.plan.layouts[1:] == found.stated


def test_an_operation_without_a_step_is_quoted() -> None:
    source, target = pair("x=2,y=2,z=4", "[16{x}, 8{y}]", "[16{y}, 8]")
    text = PRINTED.replace("sdy.all_to_all [{", "sdy.mystery [{")
    found = shardy.read_module(text, source, target, {"source": source.mesh})
    assert found.steps is None and found.plan is None and found.reached is None
    assert found.note.startswith("no typed step for: %2 = sdy.mystery")


def test_devices_that_hold_their_block_keep_it() -> None:
    before, following = pair("x=2,y=2", "[4{x}, 4]", "[4{y}, 4]")
    assert whole_blocks(before, following) == Pairs(((0, 0), (2, 1), (1, 2), (3, 3)))
    assert whole_blocks(before, Layout.parse("[4, 4]", before.mesh)) is None


@pass_here
def test_a_wrong_final_sharding_is_stated() -> None:
    source, target = pair("x=2,y=3,z=5", "[30{x}, 30{y}]", "[30{y,z}, 30{x}]")
    found = shardy.plan_of_shardy(source, target)
    assert str(found.reached) == "f32[30{z,y}, 30{x}]"
    assert found.plan is not None and not found.plan.layouts[-1].equivalent(target)


@pass_here
def test_a_failure_of_the_pass_is_noted() -> None:
    found = shardy.plan_of_shardy(*pair("x=2,y=3,z=4", "[24{y}, 24{z}]", "[24{z}, 24{x}]"))
    assert found.steps is None and found.note.startswith("Shardy's pass failed: 'sdy.collective_permute' op")


@pass_here
def test_other_device_ids_and_partial_values() -> None:
    source, target = pair("x=2,y=2", "[16{x}, 8{y}]", "[16{x}, 8]", "x=2,y=2@[3,2,1,0]")
    found = shardy.plan_of_shardy(source, target)
    assert [op.name for op in found.ops] == ["collective_permute", "all_gather"]
    assert found.plan is not None and found.plan.layouts[-1].equivalent(target)
    partial = pair("x=2,y=2", "bf16[16{x}, 8] sum{y}", "bf16[16, 8{x}] sum{y}")
    found = shardy.plan_of_shardy(*partial)
    assert found.reached == partial[1]


def test_reductions_are_refused() -> None:
    with pytest.raises(LayoutError, match="are unreduced over other axes"):
        shardy.plan_of_shardy(*pair("x=2,y=2", "[16{x}, 8] sum{y}", "[16, 8{x}]"))


@pass_here
def test_nothing_to_do() -> None:
    source, target = pair("x=2", "[4{x}]", "[4{x}]")
    found = shardy.plan_of_shardy(source, target)
    assert (found.steps, found.reached) == ((), source)
