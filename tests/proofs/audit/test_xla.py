"""XLA's plans: read from HLO text kept here, without JAX."""

from __future__ import annotations

import pytest

from redist.collectives import AllGather, AllToAll, Permute, Slice
from redist.errors import LayoutError, ProofError
from redist.proofs.audit.xla import layout_of_boxes, read_hlo
from redist.testing import random_problems
from redist.types import Layout, Mesh

MESH = Mesh.parse("x=2,y=2")

SWAPPED = """\
HloModule jit__same, entry_computation_layout={(f32[2,4]{1,0})->f32[4,2]{1,0}}, num_partitions=4

ENTRY %main (p: f32[2,4]) -> f32[4,2] {
  %p = f32[2,4]{1,0} parameter(0)
  %a = f32[2,2]{1,0} slice(%p), slice={[0:2], [0:2]}
  %b = f32[2,2]{1,0} slice(%p), slice={[0:2], [2:4]}
  %s = (f32[2,2]{1,0}, f32[2,2]{1,0}) all-to-all(%a, %b), channel_id=1, replica_groups={{0,2},{1,3}}
  %g0 = f32[2,2]{1,0} get-tuple-element(%s), index=0
  %g1 = f32[2,2]{1,0} get-tuple-element(%s), index=1
  ROOT %c = f32[4,2]{1,0} concatenate(%g0, %g1), dimensions={0}
}
"""

GATHERED = """\
HloModule jit__same, entry_computation_layout={(f32[2,4]{1,0})->f32[4,2]{1,0}}, num_partitions=4

ENTRY %main (p: f32[2,4]) -> f32[4,2] {
  %p = f32[2,4]{1,0} parameter(0)
  %g = f32[4,4]{1,0} all-gather(%p), channel_id=1, replica_groups={{0,2},{1,3}}, dimensions={0}
  %t = s32[4]{0} constant({0, 2, 0, 2})
  %i = u32[] partition-id()
  %d = s32[1]{0} dynamic-slice(%t, %i), dynamic_slice_sizes={1}
  %o = s32[] bitcast(%d)
  %z = s32[] constant(0)
  ROOT %s = f32[4,2]{1,0} dynamic-slice(%g, %z, %o), dynamic_slice_sizes={4,2}
}
"""

PERMUTED = """\
HloModule jit__same, entry_computation_layout={(f32[2,4]{1,0})->f32[2,4]{1,0}}, num_partitions=4

ENTRY %main (p: f32[2,4]) -> f32[2,4] {
  %p = f32[2,4]{1,0} parameter(0)
  ROOT %c = f32[2,4]{1,0} collective-permute(%p), source_target_pairs={{0,0},{1,2},{2,1},{3,3}}
}
"""


def layout(text: str) -> Layout:
    return Layout.parse(text, MESH)


def test_an_all_to_all() -> None:
    found = read_hlo(SWAPPED, layout("[4{x}, 4]"), layout("[4, 4{x}]"), {"temp_bytes": 64})
    assert found.steps == (AllToAll([(["x"], 0, 1)]),)
    assert found.ops[0].received == (4, 4, 4, 4)
    assert found.measures == {"temp_bytes": 64, "largest_elements": 8}
    assert found.plan is not None and found.plan.received_bytes == 16


def test_a_gather_and_a_slice_without_communication() -> None:
    found = read_hlo(GATHERED, layout("[4{x}, 4]"), layout("[4, 4{y}]"))
    assert found.steps == (AllGather({0: ["x"]}), Slice({1: ["y"]}))
    assert found.measures["largest_elements"] == 16


def test_a_permute_keeps_its_pairs() -> None:
    found = read_hlo(PERMUTED, layout("[4{x}, 4]"), layout("[4{y}, 4]"))
    assert found.steps is not None
    (step,) = found.steps
    assert isinstance(step, Permute) and found.plan is not None
    assert found.plan.layouts[-1] == layout("[4{y}, 4]")
    assert found.ops[0].received == (0, 8, 8, 0)


def test_a_wrong_result_is_refuted_by_device() -> None:
    with pytest.raises(ProofError, match=r"leaves device 0 \(x=0, y=0\) with a wrong block"):
        read_hlo(SWAPPED.replace("all-to-all(%a, %b)", "all-to-all(%b, %a)"), layout("[4{x}, 4]"), layout("[4, 4{x}]"))
    with pytest.raises(ProofError, match=r"leaves device 1 \(x=0, y=1\) with a wrong block"):
        read_hlo(PERMUTED.replace("{1,2},{2,1}", "{1,1},{2,2}"), layout("[4{x}, 4]"), layout("[4{y}, 4]"))


def test_steps_that_are_none_are_noted() -> None:
    """Half a block on the way is no layout over the axes, though the result is right."""
    text = SWAPPED.replace(
        "ROOT %c = f32[4,2]{1,0} concatenate(%g0, %g1)",
        "%e = f32[4,2]{1,0} concatenate(%g0, %g1), dimensions={0}\n"
        "  %h = f32[1,2]{1,0} slice(%e), slice={[1:2], [0:2]}\n"
        "  %k = f32[1,2]{1,0} collective-permute(%h), source_target_pairs={{0,0},{1,1},{2,2},{3,3}}\n"
        "  ROOT %c = f32[4,2]{1,0} concatenate(%g0, %g1)",
    )
    found = read_hlo(text, layout("[4{x}, 4]"), layout("[4, 4{x}]"))
    assert found.steps is None and found.plan is None and found.note
    assert [op.name for op in found.ops] == ["all-to-all", "collective-permute"]


def test_sums() -> None:
    text = (PERMUTED.replace("f32[2,4]", "f32[4,4]").replace("collective-permute", "all-reduce")).replace(
        "source_target_pairs={{0,0},{1,2},{2,1},{3,3}}", "replica_groups={{0,1},{2,3}}, to_apply=%add"
    )
    found = read_hlo(text, layout("[4, 4] sum{y}"), layout("[4, 4]"))
    assert found.plan is not None and found.plan.layouts[-1].equivalent(layout("[4, 4]"))
    with pytest.raises(ProofError, match="wrong block"):
        read_hlo(text.replace("{{0,1},{2,3}}", "{{0,2},{1,3}}"), layout("[4, 4] sum{y}"), layout("[4, 4]"))
    with pytest.raises(LayoutError, match="is unreduced"):
        read_hlo(text, layout("[4, 4] sum{x,y}"), layout("[4, 4] sum{x}"))


def test_another_number_of_devices_is_refused() -> None:
    with pytest.raises(ProofError, match="the program is for 4 devices"):
        read_hlo(PERMUTED, Layout.parse("[4{x}]", Mesh.parse("x=2")), Layout.parse("[4]", Mesh.parse("x=2")))


def test_layouts_are_found_from_boxes() -> None:
    options = {"kinds": ["same"], "uneven": False, "partial": False, "dtypes": ["f32"]}
    for source, _ in random_problems(5, 200, **options):
        if source.mesh.size > 1 and 0 not in source.shape:
            assert layout_of_boxes(source, *source.boxes()).equivalent(source)
