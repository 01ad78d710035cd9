"""PartIR's running example: two matrix products on mesh B=4, M=2 under batch, model and ZeRO-3 parallelism."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from redist import Layout, Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition

BP = ManualPartition({"x": 0}, "B", label="BP")
MP = ManualPartition({"w1": 1}, "M", label="MP")
Z3 = ManualPartition({"w1": 0, "w2": 1}, "B", label="Z3")


def f(x: Any, w1: Any, w2: Any) -> Any:
    return (x @ w1) @ w2


@pytest.fixture
def lowered(mesh: Mesh) -> partir.Lowered:
    shape = np.empty
    return partir.jit(f, mesh, [BP, MP, Z3]).lower(
        shape((256, 8), np.float32), shape((8, 16), np.float32), shape((16, 8), np.float32)
    )


DOT = "dimension_numbers=(((1,), (0,)), ((), ())), preferred_element_type=float32"

CORE = [
    f"""\
func f(%x: f32[256, 8], %w1: f32[8, 16], %w2: f32[16, 8]) {{
  %0 = dot_general %x, %w1 {{{DOT}}} : f32[256,16]
  %1 = dot_general %0, %w2 {{{DOT}}} : f32[256,8]
  return %1
}}""",
    f"""\
func f(%x: f32[256{{B}}, 8], %w1: f32[8, 16], %w2: f32[16, 8]) {{
  %0 : f32[256,16] = loop "B" [#tile<0>] (%B: range<4>) {{
    yield dot_general (slice 0[%B] %x), %w1 {{{DOT}}}
  }}
  %1 : f32[256,8] = loop "B" [#tile<0>] (%B: range<4>) {{
    yield dot_general (slice 0[%B] %0), %w2 {{{DOT}}}
  }}
  return %1
}}""",
    f"""\
func f(%x: f32[256{{B}}, 8], %w1: f32[8, 16{{M}}], %w2: f32[16{{M}}, 8]) {{
  %0 : f32[256,16] = loop "B" [#tile<0>] (%B: range<4>) {{
    loop "M" [#tile<1>] (%M: range<2>) {{
      yield dot_general (slice 0[%B] %x), (slice 1[%M] %w1) {{{DOT}}}
    }}
  }}
  %1 : f32[256,8] = loop "B" [#tile<0>] (%B: range<4>) {{
    loop "M" [#sum] (%M: range<2>) {{
      yield dot_general (slice 0[%B] 1[%M] %0), (slice 0[%M] %w2) {{{DOT}}}
    }}
  }}
  return %1
}}""",
]
# ZeRO-3 comes after batch parallelism: the loops stay, only the parameters are sharded further.
CORE.append(CORE[2].replace("%w1: f32[8, 16{M}], %w2: f32[16{M}, 8]", "%w1: f32[8{B}, 16{M}], %w2: f32[16{M}, 8{B}]"))


@pytest.mark.parametrize("stage", range(4))
def test_loops_after_every_tactic(lowered: partir.Lowered, stage: int) -> None:
    assert lowered.as_text("core", stage) == CORE[stage]


def test_the_device_program(lowered: partir.Lowered) -> None:
    assert (
        lowered.as_text("spmd")
        == f"""\
spmd f(%x: f32[256{{B}}, 8], %w1: f32[8{{B}}, 16{{M}}], %w2: f32[16{{M}}, 8{{B}}]) on B=4,M=2 {{
  %0 = [all-gather dim 0 by B] %w1 : f32[8,8]
  %1 = dot_general %x, %0 {{{DOT}}} : f32[64,8]
  %2 = [all-gather dim 1 by B] %w2 : f32[8,8]
  %3 = dot_general %1, %2 {{{DOT}}} : f32[64,8] sum{{M}}
  %4 = [all-reduce M] %3 : f32[64,8]
  return %4: f32[256{{B}}, 8]
}}"""
    )


def test_the_report(lowered: partir.Lowered, mesh: Mesh) -> None:
    report = lowered.report
    report.assert_collectives(all_gather=2, all_reduce=1)
    # Of two gathered 8x8 blocks three quarters come from others; an all-reduce over 2 receives its 64x8 block.
    assert (report.bytes["all_gather"], report.bytes["all_reduce"]) == (2 * 3 * 64, 64 * 8 * 4)
    assert report.flops == 2 * (64 * 8 * 8) * 2
    assert not report.conflicts and not report.blocked and not report.without_rule
    assert {name: str(layout) for name, layout in report.inputs.items()} == {
        "x": "f32[256{B}, 8]",
        "w1": "f32[8{B}, 16{M}]",
        "w2": "f32[16{M}, 8{B}]",
    }
    assert report.outputs == {"result": Layout.parse("f32[256{B}, 8]", mesh)}


def test_the_report_after_every_tactic(lowered: partir.Lowered) -> None:
    counts = [(r.tactic, r.collectives["all_gather"], r.collectives["all_reduce"]) for r in lowered.stages]
    assert counts == [("BP", 0, 0), ("MP", 0, 1), ("Z3", 2, 1)]


def test_it_computes_what_the_function_does(check: Any) -> None:
    rng = np.random.default_rng(0)
    args = [rng.standard_normal(s).astype(np.float32) for s in ((256, 8), (8, 16), (16, 8))]
    for schedule in ([], [BP], [BP, MP], [BP, MP, Z3]):
        check(f, args, schedule)


def test_its_redistributions_are_proved(lowered: partir.Lowered) -> None:
    assert lowered.verify() == 3
