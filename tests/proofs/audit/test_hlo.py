"""HLO text: shapes, attributes, replica groups in all their forms, and what instructions do to data."""

from __future__ import annotations

import numpy as np
import pytest

from redist.errors import ParseError, ProofError
from redist.proofs.audit.hlo import parse_module, permute_pairs, replica_groups
from redist.proofs.audit.hlo_run import received_by_partition, run_module

HEAD = "HloModule jit__same, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}, num_partitions=4\n\n"


def module(*body: str, local: str = "f32[4]{0}", made: str = "f32[4]{0}"):
    """An entry computation; `%p` is its parameter of this shape."""
    lines = [f"  %p = {local} parameter(0)", *(f"  {line}" for line in body)]
    return parse_module(HEAD + "\n".join([f"ENTRY %main (p: {local}) -> {made} {{", *lines, "}", ""]))


def ran(argument: list, *body: str, local: str = "f32[4]{0}", made: str = "f32[4]{0}") -> list:
    return run_module(module(*body, local=local, made=made), np.asarray(argument)).tolist()


EACH = [[10 * p + n for n in range(4)] for p in range(4)]


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{{0,1},{2,3}}", [[0, 1], [2, 3]]),
        ("{}", [[0, 1, 2, 3]]),
        ("[2,2]<=[4]", [[0, 1], [2, 3]]),
        ("[2,2]<=[2,2]T(1,0)", [[0, 2], [1, 3]]),
        ("mesh['axis_0'=2,'axis_1'=2] {'axis_0'}", [[0, 2], [1, 3]]),
        ("mesh['axis_0'=4] {'axis_0':(2)2}", [[0, 1], [2, 3]]),
        ("mesh['axis_0'=4] {'axis_0':(1)2}", [[0, 2], [1, 3]]),
        ("mesh['axis_0'=2,'axis_1'=2] {'axis_1','axis_0'}", [[0, 2, 1, 3]]),
        ("mesh['axis_0'=2,'axis_1'=2], device_ids=([2,2]T(1,0)) {'axis_0'}", [[0, 1], [2, 3]]),
    ],
)
def test_replica_groups(text: str, groups: list[list[int]]) -> None:
    made = module(f"ROOT %g = f32[8]{{0}} all-gather(%p), channel_id=1, replica_groups={text}, dimensions={{0}}")
    (gather,) = made.collectives()
    assert replica_groups(gather, 4) == groups
    assert gather.attributes["dimensions"] == "{0}"


def test_unknown_groups_are_refused() -> None:
    (gather,) = module("ROOT %g = f32[8]{0} all-gather(%p), replica_groups=<<0>>, dimensions={0}").collectives()
    with pytest.raises(ParseError, match="unknown form of replica groups"):
        replica_groups(gather, 4)


def test_permutes() -> None:
    line = "ROOT %c = f32[4]{0} collective-permute(%p), channel_id=1, source_target_pairs={{0,1},{1,0},{2,2}}"
    (permute,) = module(line).collectives()
    assert permute_pairs(permute) == [(0, 1), (1, 0), (2, 2)]
    assert received_by_partition(module(line), permute) == [4, 4, 0, 0]
    assert ran(EACH, line) == [EACH[1], EACH[0], EACH[2], [0, 0, 0, 0]]


def test_gathers_and_reductions() -> None:
    gather = "ROOT %g = f32[8]{0} all-gather(%p), replica_groups={{0,2},{1,3}}, dimensions={0}"
    assert ran(EACH, gather)[2] == [*EACH[0], *EACH[2]]
    (found,) = module(gather).collectives()
    assert received_by_partition(module(gather), found) == [4, 4, 4, 4]
    reduce = "ROOT %r = f32[4]{0} all-reduce(%p), replica_groups={{0,1},{2,3}}, to_apply=%add"
    assert ran(EACH, reduce)[0] == [10, 12, 14, 16]
    (found,) = module(reduce).collectives()
    assert received_by_partition(module(reduce), found) == [4, 4, 4, 4]
    scatter = "ROOT %r = f32[2]{0} reduce-scatter(%p), replica_groups={{0,1},{2,3}}, dimensions={0}, to_apply=%add"
    assert ran(EACH, scatter)[1] == [14, 16]
    (found,) = module(scatter).collectives()
    assert received_by_partition(module(scatter), found) == [2, 2, 2, 2]


def test_all_to_alls_in_both_forms() -> None:
    pieces = ("%a = f32[2]{0} slice(%p), slice={[0:2]}", "%b = f32[2]{0} slice(%p), slice={[2:4]}")
    swap = "%s = (f32[2]{0}, f32[2]{0}) all-to-all(%a, %b), replica_groups={{0,1},{2,3}}"
    parts = [f"%g{n} = f32[2]{{0}} get-tuple-element(%s), index={n}" for n in range(2)]
    joined = "ROOT %c = f32[4]{0} concatenate(%g0, %g1), dimensions={0}"
    expected = [[0, 1, 10, 11], [2, 3, 12, 13], [20, 21, 30, 31], [22, 23, 32, 33]]
    assert ran(EACH, *pieces, swap, *parts, joined) == expected
    whole = "ROOT %s = f32[4]{0} all-to-all(%p), replica_groups={{0,1},{2,3}}, dimensions={0}"
    assert ran(EACH, whole) == expected
    (found,) = module(*pieces, swap, *parts, joined).collectives()
    assert received_by_partition(module(*pieces, swap, *parts, joined), found) == [2, 2, 2, 2]


def test_bitcasts_go_through_the_order_in_memory() -> None:
    """Column-major 2x2 of 0 1 2 3 lies in memory as 0 2 1 3."""
    lines = ["%r = f32[2,2]{1,0} reshape(%p)", "%c = f32[2,2]{0,1} copy(%r)", "ROOT %b = f32[4]{0} bitcast(%c)"]
    assert ran(EACH, *lines)[0] == [0, 2, 1, 3]
    plain = ["%r = f32[2,2]{1,0} reshape(%p)", "ROOT %b = f32[4]{0} bitcast(%r)"]
    assert ran(EACH, *plain)[0] == [0, 1, 2, 3]


def test_starts_by_partition() -> None:
    lines = [
        "%t = s32[4]{0} constant({0, 1, 2, 7})",
        "%i = u32[] partition-id()",
        "%d = s32[1]{0} dynamic-slice(%t, %i), dynamic_slice_sizes={1}",
        "%o = s32[] reshape(%d)",
        "ROOT %s = f32[2]{0} dynamic-slice(%p, %o), dynamic_slice_sizes={2}",
    ]
    assert ran(EACH, *lines) == [[0, 1], [11, 12], [22, 23], [32, 33]]  # the last start is clamped


def test_local_instructions() -> None:
    pad = ["%z = f32[] constant(5)", "ROOT %d = f32[7]{0} pad(%p, %z), padding=1_2"]
    assert ran(EACH, *pad)[0] == [5, 0, 1, 2, 3, 5, 5]
    update = ["%z = s32[] constant(2)", "%c = f32[1]{0} constant({9})"]
    assert ran(EACH, *update, "ROOT %u = f32[4]{0} dynamic-update-slice(%p, %c, %z)")[1] == [10, 11, 9, 13]
    assert ran(EACH, "ROOT %b = f32[2,4]{1,0} broadcast(%p), dimensions={1}")[0] == [EACH[0], EACH[0]]
    turned = ["%r = f32[2,2]{1,0} reshape(%p)", "ROOT %t = f32[2,2]{1,0} transpose(%r), dimensions={1,0}"]
    assert ran(EACH, *turned)[0] == [[0, 2], [1, 3]]
    assert ran(EACH, "%i = s32[4]{0} iota(), iota_dimension=0", "ROOT %a = f32[4]{0} add(%p, %i)")[0] == [0, 2, 4, 6]


def test_fusions_run_what_they_call() -> None:
    text = HEAD + (
        "%fused (q: f32[4]) -> f32[2] {\n  %q = f32[4]{0} parameter(0)\n"
        "  ROOT %s = f32[2]{0} slice(%q), slice={[1:4:2]}\n}\n\n"
        "ENTRY %main (p: f32[4]) -> f32[2] {\n  %p = f32[4]{0} parameter(0)\n"
        "  ROOT %f = f32[2]{0} fusion(%p), kind=kLoop, calls=%fused\n}\n"
    )
    assert run_module(parse_module(text), np.asarray(EACH)).tolist()[1] == [11, 13]


def test_what_is_not_known_is_named() -> None:
    with pytest.raises(ProofError, match="HLO instruction 'sort' is not known here: ROOT %s"):
        ran(EACH, "ROOT %s = f32[4]{0} sort(%p), dimensions={0}")
    with pytest.raises(ProofError, match="a constant is left out of the text"):
        ran(EACH, "ROOT %c = f32[4]{0} constant({...})")
    with pytest.raises(ParseError, match="expected 'HloModule'"):
        parse_module("module {}")
    with pytest.raises(ParseError, match="no ENTRY"):
        parse_module("HloModule empty")
