"""Programs are compared by what they do to the data: hand-written texts that differ in one thing each."""

from __future__ import annotations

import pytest

from benchmarks.programs import same_program

SLICE = """HloModule jit_f, is_scheduled=true, num_partitions=4

%fused (p0: f32[8,4], p1: u32[]) -> f32[2,4] {
  %p0 = f32[8,4]{1,0} parameter(0)
  %p1 = u32[] parameter(1)
  %two = s32[] constant(2)
  %index = s32[] convert(%p1)
  %start = s32[] multiply(%index, %two)
  %zero = s32[] constant(0)
  ROOT %cut = f32[2,4]{1,0} dynamic-slice(%p0, %start, %zero), dynamic_slice_sizes={2,4}
}

ENTRY %main (x: f32[8,4]) -> f32[2,4] {
  %device = u32[] partition-id()
  %x = f32[8,4]{1,0} parameter(0)
  ROOT %fusion = f32[2,4]{1,0} fusion(%x, %device), kind=kLoop, calls=%fused
}
"""

MOVES = """HloModule jit_f, is_scheduled=true, num_partitions=4

ENTRY %main (x: f32[4,4]) -> f32[2,8] {
  %x = f32[4,4]{1,0} parameter(0)
  %a = f32[2,4]{1,0} slice(%x), slice={[0:2], [0:4]}
  %b = f32[2,4]{1,0} slice(%x), slice={[2:4], [0:4]}
  %t = (f32[2,4]{1,0}, f32[2,4]{1,0}) all-to-all(%a, %b), channel_id=1, replica_groups={{0,1},{2,3}}
  %c = f32[2,4]{1,0} get-tuple-element(%t), index=0
  %d = f32[2,4]{1,0} get-tuple-element(%t), index=1
  ROOT %e = f32[2,8]{1,0} concatenate(%c, %d), dimensions={1}
}
"""


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


@pytest.mark.parametrize("text", [SLICE, MOVES])
def test_a_program_is_the_same_as_itself(text: str) -> None:
    assert same_program(text, text)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (SLICE, "%cut", "%something.else"),
        (SLICE, "num_partitions=4", "num_partitions=4, frontend_attributes={}"),
        (
            SLICE,
            "  %start = s32[] multiply(%index, %two)",
            "  %one = s32[] constant(1)\n  %start = s32[] shift-left(%index, %one)",
        ),
        (SLICE, "fusion(%x, %device), kind", 'fusion(%x, %device), metadata={op_name="f" source_line=3}, kind'),
        (MOVES, "channel_id=1", "channel_id=7"),
        (MOVES, "{{0,1},{2,3}}", "[2,2]<=[4]"),
    ],
)
def test_names_notes_and_index_arithmetic_do_not_count(text: str, old: str, new: str) -> None:
    assert same_program(text, changed(text, old, new))


def test_neither_do_bitcasts_nor_the_order_of_operands_that_are_no_data() -> None:
    cast = changed(MOVES, "all-to-all(%a, %b)", "all-to-all(%z, %b)")
    cast = changed(cast, "  %b = f32", "  %z = f32[2,4]{1,0} bitcast(%a)\n  %b = f32")
    assert same_program(MOVES, cast)
    turned = changed(SLICE, "fusion(%x, %device)", "fusion(%device, %x)")
    turned = changed(turned, "(p0: f32[8,4], p1: u32[])", "(p1: u32[], p0: f32[8,4])")
    turned = changed(turned, "u32[] parameter(1)", "u32[] parameter(0)")
    turned = changed(turned, "%p0 = f32[8,4]{1,0} parameter(0)", "%p0 = f32[8,4]{1,0} parameter(1)")
    assert same_program(SLICE, turned)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (SLICE, "dynamic_slice_sizes={2,4}", "dynamic_slice_sizes={1,4}"),
        (SLICE, "num_partitions=4", "num_partitions=2"),
        (MOVES, "slice={[2:4], [0:4]}", "slice={[1:3], [0:4]}"),
        (MOVES, "{{0,1},{2,3}}", "{{0,2},{1,3}}"),
        (MOVES, "all-to-all(%a, %b)", "all-to-all(%b, %a)"),
        (MOVES, "get-tuple-element(%t), index=1", "get-tuple-element(%t), index=0"),
        (MOVES, "concatenate(%c, %d)", "concatenate(%d, %c)"),
        (MOVES, "f32[2,8]{1,0} concatenate", "f32[2,8]{0,1} concatenate"),
    ],
)
def test_what_is_done_to_the_data_does(text: str, old: str, new: str) -> None:
    assert not same_program(text, changed(text, old, new))
