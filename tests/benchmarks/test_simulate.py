"""The independent simulator: it agrees with redist's own figures where plans are right, and refutes wrong ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.blocks import blocks, boxes_of, lower_bound
from benchmarks.forms import Op, from_steps
from benchmarks.simulate import simulate
from redist.collectives import (
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Permute,
    Plan,
    ReduceScatter,
    Slice,
    Step,
)
from redist.collectives.steps import Exchange, Pairs, Transfer
from redist.synth import synthesize
from redist.testing import random_problems
from redist.types import Layout, Mesh, SubAxis
from redist.types import lower_bound as own_lower_bound

MESH = Mesh.parse("x=2,y=2")


def layout(text: str, mesh: Mesh = MESH) -> Layout:
    return Layout.parse(text, mesh)


def ops_of(source: str, *steps: Step, mesh: Mesh = MESH) -> tuple[Layout, tuple[Op, ...]]:
    """Steps from a source, stated as redist types them."""
    plan = Plan(layout(source, mesh), layout(source, mesh), steps)
    return plan.source, from_steps(plan.source, steps, plan.layouts[1:])


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_plans_of_every_kind(seed: int) -> None:
    for problem in random_problems(seed, 100):
        plan = synthesize(*problem)
        found = simulate(*problem, from_steps(plan.source, plan.steps, plan.layouts[1:]))
        assert found.wrong is None, plan.explain()
        assert found.received * problem.source.itemsize == plan.received_bytes, plan.explain()
        assert found.steps == plan.communication_steps, plan.explain()
        if problem.source.partial is None:
            assert lower_bound(*problem) == own_lower_bound(*problem)


def test_boxes_are_the_layouts_own() -> None:
    for source, target in random_problems(9, 100):
        for one in (source, target):
            assert boxes_of(one) == {device: one.box(device) for device in one.mesh.device_ids}


def test_figures_of_one_plan() -> None:
    """(x,-) -> (-,x) on 4x4: 8 elements a device, of which half leave and half come."""
    source, ops = ops_of("[4{x}, 4]", AllToAll([(["x"], 0, 1)]))
    found = simulate(source, layout("[4, 4{x}]"), ops)
    assert (found.wrong, found.received, found.steps, found.largest_block, found.live) == (None, 4, 1, 8, 16)


def test_slices_receive_nothing_and_gathers_all_but_the_own_part() -> None:
    source, ops = ops_of("[4, 4]", Slice({0: ["y"]}), AllGather({0: ["y"]}))
    found = simulate(source, source, ops)
    assert (found.wrong, found.received, found.steps) == (None, 8, 1)


def test_a_plan_without_steps_is_refuted() -> None:
    found = simulate(layout("[4{x}, 4]"), layout("[4{y}, 4]"), ())
    assert found.wrong == (
        "the target is f32[4{y}, 4], but device 1 (x=0, y=1) holds elements 0..7 as 2x4 "
        "instead of elements 8..15 as 2x4"
    )


def test_the_wrong_final_layout_is_refuted_though_every_step_is_as_stated() -> None:
    source, ops = ops_of("[4, 4]", Slice({0: ["y", "x"]}))
    assert simulate(source, layout("[4{y,x}, 4]"), ops).wrong is None
    assert "the target is f32[4{x,y}, 4]" in str(simulate(source, layout("[4{x,y}, 4]"), ops).wrong)


def test_a_statement_that_is_not_what_a_step_does_is_refuted() -> None:
    source, ops = ops_of("[4, 4]", Slice({0: ["y"]}))
    lied = replace(ops[0], stated=layout("[4{x}, 4]"))
    assert "operation 1 (slice) states f32[4{x}, 4]" in str(simulate(source, layout("[4{x}, 4]"), [lied]).wrong)


def test_a_gather_of_axes_that_are_not_the_last_is_refuted() -> None:
    op = Op("all_gather", layout("[4{y}, 4]"), lost=((0, (SubAxis("x"),)),))
    assert "not the last ones of dimension 0" in str(simulate(layout("[4{x,y}, 4]"), layout("[4{y}, 4]"), [op]).wrong)


def test_permutes() -> None:
    swap = Permute(layout("[4{y}, 4{x}]"), Pairs(((0, 0), (2, 1), (1, 2), (3, 3))))
    source, ops = ops_of("[4{x}, 4{y}]", swap)
    found = simulate(source, layout("[4{y}, 4{x}]"), ops)
    assert (found.wrong, found.received) == (None, 4)
    stay = replace(ops[0], pairs=tuple((device, device) for device in range(4)))
    assert "holds elements" in str(simulate(source, layout("[4{y}, 4{x}]"), [stay]).wrong)
    twice = replace(ops[0], pairs=((0, 0), (0, 1), (1, 2), (3, 3)))
    assert "no bijection" in str(simulate(source, layout("[4{y}, 4{x}]"), [twice]).wrong)


def test_exchanges_send_only_what_is_held() -> None:
    target = layout("[4{y}, 4]")
    boxes = tuple(
        Transfer(s, r, (start, 0), (start + 2, 4)) for s, r, start in ((0, 0, 0), (2, 1, 2), (0, 2, 0), (3, 3, 2))
    )
    source, ops = ops_of("[4{x}, 4]", Exchange(target, boxes))
    found = simulate(source, target, ops)
    assert (found.wrong, found.received) == (None, 8)
    assert ops[0].boxes is not None
    short = replace(ops[0], boxes=ops[0].boxes[1:])
    assert "device 0 is not sent all of its block" in str(simulate(source, target, [short]).wrong)
    bogus = replace(ops[0], boxes=((2, 0, (0, 0), (2, 4)), *ops[0].boxes[1:]))
    assert "does not hold" in str(simulate(source, target, [bogus]).wrong)


def test_dropped_and_doubled_contributions_are_refuted() -> None:
    source, ops = ops_of("[4, 4] sum{x,y}", ReduceScatter({0: ["x"]}), AllReduce(["y"]))
    target = layout("[4{x}, 4]")
    found = simulate(source, target, ops)
    assert (found.wrong, found.received) == (None, 8 + 8)
    slices = (Op("slice", target, gained=((0, (SubAxis("x"),)),)),)
    for wrong in (slices, (*ops, replace(ops[1])), (replace(ops[0], reduced=()), ops[1])):
        assert simulate(source, target, wrong).wrong is not None


def test_contributions_may_stay_apart() -> None:
    source, ops = ops_of("[4{x}, 4] sum{y}", AllToAll([(["x"], 0, 1)]))
    assert simulate(source, layout("[4, 4{x}] sum{y}"), ops).wrong is None
    assert "contributions" in str(simulate(source, layout("[4, 4{x}]"), ops).wrong)


def test_chunks_receive_what_their_steps_do() -> None:
    steps = (AllToAll([(["x"], 0, 1)]),)
    source, ops = ops_of("[4{x}, 4, 6]", Chunk(2, 3, steps))
    assert [op.kind for op in ops] == ["all_to_all"]
    assert simulate(source, layout("[4, 4{x}, 6]"), ops).received == 24


def test_device_ids_and_other_meshes() -> None:
    source = layout("[4{x}, 4{y}]")
    target = layout("[4{x}, 4{y}]", Mesh.parse("x=2,y=2@[3,2,1,0]"))
    plan = synthesize(source, target)
    assert simulate(source, target, from_steps(source, plan.steps, plan.layouts[1:])).wrong is None
    assert simulate(source, target, ()).wrong is not None
    assert blocks(source)[0].tolist() == blocks(target)[3].tolist()
