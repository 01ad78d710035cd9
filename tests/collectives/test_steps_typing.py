"""Typing rules: what each step yields, and for each premise a step that breaks it, with the whole message."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.collectives.steps import (
    OWNER,
    AllGather,
    AllReduce,
    AllToAll,
    Chunk,
    Exchange,
    Free,
    Pairs,
    Permute,
    ReduceScatter,
    Slice,
    Step,
    Transfer,
    op_name,
)
from redist.collectives.typing import after, chunk_parts, layouts_of
from redist.errors import ParseError, TypingError
from redist.testing import layouts, valid_steps
from redist.types import BALANCED, CEIL, Layout, Mesh, Offsets, SubAxis

MESH = Mesh({"x": 2, "y": 2, "z": 4, "e": 1})
SIX = Mesh({"x": 6, "y": 2})
FOUR = Mesh({"x": 2, "y": 2})


def parsed(text: str, mesh: Mesh) -> Layout:
    return Layout.parse(text, mesh)


# -- what steps yield ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "step", "expected"),
    [
        ("[8]", Slice({0: ["x", "z"]}), "[8{x,z}]"),
        ("[8{x}, 8]", Slice({1: ["z:(2)2"], 0: ["y"]}), "[8{x,y}, 8{z:(2)2}]"),
        ("[8{z:(1)2}]", Slice({0: ["z:(2)2"]}), "[8{z}]"),
        ("[5]", Slice({0: ["z"]}, {0: BALANCED}), "[5{z}:balanced]"),
        ("[5]", Slice({0: ["z"]}, {0: Offsets((0, 4, 4, 5))}), "[5{z}@[0,4,4,5]]"),
        ("[5{e}]", Slice({0: ["z"]}, {0: BALANCED}), "[5{e,z}:balanced]"),
        ("[7{z}]", Slice({0: ["y"]}), "[7{z,y}]"),
        ("[7{z}@[0,1,2,3]]", Slice({0: ["e"]}), "[7{z,e}@[0,1,2,3]]"),
        ("[0{x}]", Slice({0: ["y"]}), "[0{x,y}]"),
        ("[16{x,y,z}]", AllGather({0: ["z", "y"]}), "[16{x}]"),
        ("[16{x,y,z}]", AllGather({0: ["y", "z:(2)2", "z:(1)2"]}), "[16{x}]"),
        ("[8{z}]", AllGather({0: ["z:(2)2"]}), "[8{z:(1)2}]"),
        ("[8{z}, 8{x}]", AllGather({0: ["z"], 1: ["x"]}), "[8, 8]"),
        ("[5{z}@[0,4,4,5]]", AllGather({0: ["z:(2)2"]}), "[5{z:(1)2}@[0,4]]"),
        ("[5{z}:balanced]", AllGather({0: ["z:(2)2"]}), "[5{z:(1)2}]"),
        ("[4{x}] sum{y}", AllGather({0: ["x"]}), "[4] sum{y}"),
        ("[8{x}, 8]", AllToAll([(["x"], 0, 1)]), "[8, 8{x}]"),
        ("[8{x,y}, 8{z}, 8]", AllToAll([(["z"], 1, 2), (["y"], 0, 2)]), "[8{x}, 8, 8{z,y}]"),
        ("[8{x,y}, 8, 8{z}]", AllToAll([(["x"], 0, 2), (["y"], 0, 1)]), "[8, 8{y}, 8{z,x}]"),
        ("[8{z}, 8]", AllToAll([(["z:(2)2"], 0, 1)]), "[8{z:(1)2}, 8{z:(2)2}]"),
        ("[8{z}, 5]", AllToAll([(["z"], 0, 1)], {1: BALANCED}), "[8, 5{z}:balanced]"),
        ("[8] sum{x}", ReduceScatter({0: ["x"]}), "[8{x}]"),
        ("[8{x}, 4] max{y,z}", ReduceScatter({1: ["z:(1)2"], 0: ["y"]}), "[8{x,y}, 4{z:(1)2}] max{z:(2)2}"),
        ("[5] min{z}", ReduceScatter({0: ["z"]}, {0: BALANCED}), "[5{z}:balanced]"),
        ("[8] sum{x,z}", AllReduce(["z:(2)2", "x"]), "[8] sum{z:(1)2}"),
        ("[] prod{x}", AllReduce(["x"]), "[]"),
        ("[8] sum{x,e}", AllReduce(["e"]), "[8] sum{x}"),
        ("[8, 5{x}]", Chunk(0, 3, [AllGather({1: ["x"]}), Slice({1: ["y"]})]), "[8, 5{y}]"),
    ],
)
def test_layout_after(before: str, step: Step, expected: str) -> None:
    """Axes are appended as minor-most and leave from the minor end; parts merge and split; rules are kept."""
    assert str(after(step, parsed(before, MESH))) == str(parsed(expected, MESH))
    assert after(step, parsed(before, MESH)) == parsed(expected, MESH)


@given(valid_steps(layouts()))
def test_layouts_of_is_after_repeated(sequence: tuple[Layout, tuple[Step, ...]]) -> None:
    """One layout before each step and one more; the array never changes; contributions only get fewer."""
    source, steps = sequence
    found = layouts_of(steps, source)
    assert len(found) == len(steps) + 1 and found[0] == source
    for step, (before, following) in zip(steps, itertools.pairwise(found), strict=True):
        assert after(step, before) == following
        assert following.same_array(source)
        assert following.mesh.count(following.partial_axes) <= before.mesh.count(before.partial_axes)
        if not isinstance(step, (Permute, Exchange)):
            assert following.mesh == source.mesh or any(isinstance(s, (Permute, Exchange)) for s in steps)


@pytest.mark.parametrize("mesh", [Mesh({"x": k, "y": n}) for k in (2, 3, 4) for n in (1, 2, 3)], ids=str)
def test_blocks_nest_or_the_step_is_refused(brute: Any, mesh: Mesh) -> None:
    """All sizes up to 13 under all rules: splitting or joining blocks is typed exactly where every fine
    block lies in the coarse block of its device, and the coarse one is made of the fine ones."""
    k, n = mesh.sizes
    for size, rule in itertools.product(range(14), (CEIL, BALANCED)):
        coarse = Layout(mesh, [size], [["x"]], rules=[rule])
        fine = Layout(mesh, [size], [["x", "y"]], rules=[coarse.dims[0].rule])
        outer, inner = brute.edges(size, k, coarse.dims[0].rule), brute.edges(size, k * n, coarse.dims[0].rule)
        nests = all(
            (inner[b * n][0] == outer[b][0] and inner[b * n + n - 1][1] == outer[b][1])
            or outer[b][0] == outer[b][1] == size
            for b in range(k)
        )
        try:
            assert after(Slice({0: ["y"]}), coarse) == fine
            assert nests
        except TypingError:
            assert not nests
        joined = Layout(mesh, [size], [["x", "y"]], rules=[rule])
        rule_of_joined = joined.dims[0].rule
        inner = brute.edges(size, k * n, rule_of_joined)
        try:
            gathered = after(AllGather({0: ["y"]}), joined)
            made = [(inner[b * n][0], inner[b * n + n - 1][1]) for b in range(k)]
            assert [made[held[0]] for held in brute.blocks_of(gathered)] == [box[0] for box in brute.boxes(gathered)]
        except TypingError:
            outer = brute.edges(size, k, rule_of_joined)
            assert any((inner[b * n][0], inner[b * n + n - 1][1]) != outer[b] for b in range(k))


@given(layouts(max_elements=60, partial=False), st.data())
def test_gathering_undoes_slicing(layout: Layout, data: st.DataObject) -> None:
    """A slice followed by a gather of the same axes gives the same layout back, but for axes of size 1."""
    _, steps = data.draw(valid_steps(layout, kinds=("slice",), max_steps=1))
    for step in steps:
        assert isinstance(step, Slice)
        again = after(AllGather(step.axes), after(step, layout))
        assert again.equivalent(layout)
        assert [dim.rule for dim in again.dims] == [dim.rule for dim in layout.dims]


# -- steps as data -------------------------------------------------------------------------------------


def test_steps_are_plain_data() -> None:
    """Axes may be text, dimensions come in order, equal steps are equal and hash alike."""
    assert Slice({1: ["y"], 0: ["x:(1)2"]}) == Slice([(0, [SubAxis("x", 1, 2)]), (1, [SubAxis("y")])])
    assert hash(AllGather({1: ["y"], 0: ["x"]})) == hash(AllGather([(0, ["x"]), (1, ["y"])]))
    assert AllToAll([(["x"], 0, 1)], {1: CEIL}).rules == ((1, CEIL),)
    assert ReduceScatter({2: ["x"], 1: ["y"]}, {2: CEIL, 1: BALANCED}).rules == ((1, BALANCED), (2, CEIL))
    assert AllReduce(["x"]).axes == (SubAxis("x"),)
    assert Chunk(0, 2, [AllReduce(["x"])]).steps == (AllReduce(["x"]),)
    assert Free.of((["x"], ["y"])) == Free((((SubAxis("x"),), (SubAxis("y"),)),))
    assert Slice([(0, ["x"]), (0, ["y"])]).axes == ((0, (SubAxis("x"),)), (0, (SubAxis("y"),)))


def test_op_names() -> None:
    """The names of JSON and of `steps=`."""
    layout = parsed("[4]", FOUR)
    steps: list[Step] = [
        Slice({0: ["x"]}),
        AllGather({0: ["x"]}),
        AllToAll([(["x"], 0, 1)]),
        Permute(layout),
        Exchange(layout),
        ReduceScatter({0: ["x"]}),
        AllReduce(["x"]),
        Chunk(0, 2, []),
    ]
    names = "slice all_gather all_to_all permute exchange reduce_scatter all_reduce chunk"
    assert [op_name(step) for step in steps] == names.split()


def test_malformed_axes_fail_where_the_step_is_made() -> None:
    """With the place in their text."""
    with pytest.raises(ParseError) as caught:
        Slice({0: ["x:(2)"]})
    assert str(caught.value) == "expected the size of the sub-axis, a non-negative integer\n  x:(2)\n       ^"


@pytest.mark.parametrize("length", range(12))
@pytest.mark.parametrize("parts", range(2, 9))
def test_chunk_parts(length: int, parts: int) -> None:
    """They cover the block in order, none longer than the first, empty ones only at the end."""
    found = chunk_parts(length, parts)
    assert len(found) == parts
    assert [n for a, b in found for n in range(a, b)] == list(range(length))
    sizes = [b - a for a, b in found]
    assert max(sizes) == -(-length // parts) and sizes == sorted(sizes, reverse=True)


# -- premises ------------------------------------------------------------------------------------------


def refused(before: str, step: Step, message: str, mesh: Mesh = MESH) -> None:
    """The step is refused with exactly this message, which starts with the op and the layout before."""
    with pytest.raises(TypingError) as caught:
        after(step, parsed(before, mesh))
    assert str(caught.value) == message


ONCE = "A (sub-)axis is used once; cut the axis, as in x:(1)2 and x:(2)2, or drop a use"
TRAP = (
    "has blocks of up to 3 elements, which 2 does not divide, so 4 blocks of up to 2 cut across them; use an exchange"
)
SHARDED = "which is sharded already; state one only where a dimension was not sharded"


@pytest.mark.parametrize(
    ("before", "step", "message"),
    [
        ("[5{x}]", Slice({0: ["y"]}), f"slice on f32[5{{x}}]: blocks of dimension 0 do not nest: 5{{x}} {TRAP}"),
        (
            "[1, 10{z}:balanced]",
            Slice({1: ["y"]}),
            "slice on f32[1, 10{z}:balanced]: blocks of dimension 1 do not nest: 10{z}:balanced has blocks of up to 3 "
            "elements, which 2 does not divide, so 8 blocks of up to 2 cut across them; use an exchange",
        ),
        (
            "[7{z}@[0,1,2,3]]",
            Slice({0: ["y"]}),
            "slice on f32[7{z}@[0,1,2,3]]: dimension 0 (7{z}@[0,1,2,3]) has explicit offsets, which do not say how a "
            "block splits in 2; use an exchange",
        ),
        (
            "[8{x}, 8]",
            Slice({1: ["x"]}),
            "slice on f32[8{x}, 8]: axis 'x' is used twice: 'x' in dimension 0 (size 8) and in dimension 1 (size 8). "
            f"{ONCE}",
        ),
        (
            "[8{z:(1)2}, 8]",
            Slice({1: ["z"]}),
            "slice on f32[8{z:(1)2}, 8]: axis 'z' is used twice: 'z:(1)2' in dimension 0 (size 8) and 'z' in "
            "dimension 1 "
            f"(size 8). {ONCE}",
        ),
        (
            "[8, 8] sum{y}",
            Slice({1: ["y"]}),
            "slice on f32[8, 8] sum{y}: axis 'y' is used twice: 'y' in the partial axes and in dimension 1 (size 8). "
            f"{ONCE}",
        ),
        ("[8]", Slice({0: ["q"]}), "slice on f32[8]: unknown axis 'q': mesh x=2,y=2,z=4,e=1 has axes x, y, z, e"),
        (
            "[8]",
            Slice({0: ["z:(1)8"]}),
            "slice on f32[8]: sub-axis z:(1)8 does not divide axis z=4: pre*size = 1*8 = 8; choose pre and size whose "
            "product divides 4",
        ),
        ("[8]", Slice({1: ["x"]}), "slice on f32[8]: dimensions [1] do not exist in an array of rank 1"),
        ("[8]", Slice({-1: ["x"], 0: ["y"]}), "slice on f32[8]: dimensions [-1] do not exist in an array of rank 1"),
        ("[]", Slice({0: ["x"]}), "slice on f32[]: dimensions [0] do not exist in an array of rank 0"),
        ("[8]", Slice({}), "slice on f32[8]: the step names no dimension; name at least one"),
        ("[8]", Slice({0: []}), "slice on f32[8]: no axes are given for dimensions [0]; leave those dimensions out"),
        (
            "[8, 8]",
            Slice([(0, ["x"]), (0, ["y"])]),
            "slice on f32[8, 8]: a dimension is named twice in [0, 0]; list its axes together",
        ),
        (
            "[8{x}]",
            Slice({0: ["y"]}, {0: BALANCED}),
            f"slice on f32[8{{x}}]: a block rule (balanced) is stated for dimension 0 (8{{x}}), {SHARDED}",
        ),
        (
            "[8{x}]",
            Slice({0: ["y"]}, {0: CEIL}),
            f"slice on f32[8{{x}}]: a block rule (ceil) is stated for dimension 0 (8{{x}}), {SHARDED}",
        ),
        (
            "[8, 8]",
            Slice({0: ["y"]}, {1: BALANCED}),
            "slice on f32[8, 8]: block rules are stated for dimensions [1], which the step does not shard",
        ),
        (
            "[8]",
            Slice({0: ["y"]}, {0: Offsets((0,))}),
            "slice on f32[8]: dimension 0 (8{y}@[0]): offsets [0] state 1 blocks, but the axes make 2; give one "
            "start per "
            "block",
        ),
    ],
)
def test_premises_of_slice(before: str, step: Step, message: str) -> None:
    """Blocks nest; axes exist and are unused; dimensions exist; rules are for dimensions newly sharded."""
    refused(before, step, message)


LAST = "only the last axes of a dimension can leave it"


@pytest.mark.parametrize(
    ("mesh", "before", "axes", "message"),
    [
        (MESH, "[5{x,y}]", ["y"], f"all_gather on f32[5{{x,y}}]: blocks of dimension 0 do not nest: 5{{x}} {TRAP}"),
        (
            MESH,
            "[8{x,y}]",
            ["x"],
            f"all_gather on f32[8{{x,y}}]: axes {{x}} are not the minor suffix of dimension 0 (8{{x,y}}); {LAST}",
        ),
        (
            MESH,
            "[8{z}]",
            ["z:(1)2"],
            f"all_gather on f32[8{{z}}]: axes {{z:(1)2}} are not the minor suffix of dimension 0 (8{{z}}); {LAST}",
        ),
        (
            MESH,
            "[8{z}]",
            ["z:(2)2", "z:(2)2"],
            "all_gather on f32[8{z}]: axes {z:(2)2,z:(2)2} are not the minor suffix of dimension 0 (8{z}); " + LAST,
        ),
        (
            MESH,
            "[8{x}]",
            ["y"],
            f"all_gather on f32[8{{x}}]: axes {{y}} are not the minor suffix of dimension 0 (8{{x}}); {LAST}",
        ),
        (
            MESH,
            "[8] sum{x}",
            ["x"],
            f"all_gather on f32[8] sum{{x}}: axes {{x}} are not the minor suffix of dimension 0 (8); {LAST}",
        ),
        (
            SIX,
            "[6{x}]",
            ["x:(1)3"],
            f"all_gather on f32[6{{x}}]: axes {{x:(1)3}} are not the minor suffix of dimension 0 (6{{x}}); {LAST}",
        ),
        (
            SIX,
            "[6{x:(1)2}]",
            ["x:(1)3"],
            "all_gather on f32[6{x:(1)2}]: axes {x:(1)3} and dimension 0 (6{x:(1)2}) are not cuts of one factorisation",
        ),
    ],
)
def test_premises_of_all_gather(mesh: Mesh, before: str, axes: list[str], message: str) -> None:
    """Blocks nest; the axes are the minor suffix, each once, cut as the dimension is."""
    refused(before, AllGather({0: axes}), message, mesh)


BOTH = "a dimension does one of them in a step, so use two steps or a permute"


@pytest.mark.parametrize(
    ("before", "moves", "rules", "message"),
    [
        (
            "[8{x}, 8]",
            [(["x"], 0, 0)],
            {},
            f"all_to_all on f32[8{{x}}, 8]: dimensions [0] both lose and gain axes; {BOTH}",
        ),
        (
            "[8{x}, 8{y}, 8]",
            [(["x"], 0, 1), (["y"], 1, 2)],
            {},
            f"all_to_all on f32[8{{x}}, 8{{y}}, 8]: dimensions [1] both lose and gain axes; {BOTH}",
        ),
        ("[8{x}, 8]", [], {}, "all_to_all on f32[8{x}, 8]: the step moves no axes; name at least one move"),
        (
            "[8{x}, 8]",
            [([], 0, 1)],
            {},
            "all_to_all on f32[8{x}, 8]: the move from dimension 0 to 1 names no axes; leave it out",
        ),
        (
            "[8{x}, 8]",
            [(["x"], 0, 2)],
            {},
            "all_to_all on f32[8{x}, 8]: dimensions [2] do not exist in an array of rank 2",
        ),
        (
            "[8{x,y}, 8]",
            [(["x"], 0, 1)],
            {},
            f"all_to_all on f32[8{{x,y}}, 8]: axes {{x}} are not the minor suffix of dimension 0 (8{{x,y}}); {LAST}",
        ),
        (
            "[8{x}, 8]",
            [(["x"], 0, 1), (["x"], 0, 1)],
            {},
            f"all_to_all on f32[8{{x}}, 8]: axes {{x,x}} are not the minor suffix of dimension 0 (8{{x}}); {LAST}",
        ),
        (
            "[5{x,y}, 8]",
            [(["y"], 0, 1)],
            {},
            f"all_to_all on f32[5{{x,y}}, 8]: blocks of dimension 0 do not nest: 5{{x}} {TRAP}",
        ),
        (
            "[8{x}, 5{y}]",
            [(["x"], 0, 1)],
            {},
            f"all_to_all on f32[8{{x}}, 5{{y}}]: blocks of dimension 1 do not nest: 5{{y}} {TRAP}",
        ),
        (
            "[8{x}, 8]",
            [(["x"], 0, 1)],
            {0: CEIL},
            "all_to_all on f32[8{x}, 8]: block rules are stated for dimensions [0], which gain no axes",
        ),
        (
            "[8{x}, 8{y}]",
            [(["x"], 0, 1)],
            {1: CEIL},
            f"all_to_all on f32[8{{x}}, 8{{y}}]: a block rule (ceil) is stated for dimension 1 (8{{y}}), {SHARDED}",
        ),
    ],
)
def test_premises_of_all_to_all(before: str, moves: Any, rules: Any, message: str) -> None:
    """No dimension both loses and gains; what leaves is a suffix; blocks nest on both sides."""
    refused(before, AllToAll(moves, rules), message)


@pytest.mark.parametrize(
    ("before", "step", "message"),
    [
        (
            "[8] sum{x}",
            ReduceScatter({0: ["y"]}),
            "reduce_scatter on f32[8] sum{x}: axes {y} cannot be reduced: the value is unreduced over {x} only",
        ),
        (
            "[8]",
            ReduceScatter({0: ["y"]}),
            "reduce_scatter on f32[8]: axes {y} cannot be reduced: the value is fully reduced",
        ),
        (
            "[8, 8] sum{x}",
            ReduceScatter({0: ["x"], 1: ["x"]}),
            "reduce_scatter on f32[8, 8] sum{x}: axes {x,x} name a part twice; reduce each once",
        ),
        (
            "[5{x}] sum{y}",
            ReduceScatter({0: ["y"]}),
            f"reduce_scatter on f32[5{{x}}] sum{{y}}: blocks of dimension 0 do not nest: 5{{x}} {TRAP}",
        ),
        (
            "[8] sum{z:(1)2}",
            ReduceScatter({0: ["z"]}),
            "reduce_scatter on f32[8] sum{z:(1)2}: axes {z} cannot be reduced: the value is unreduced over {z:(1)2} "
            "only",
        ),
        (
            "[8{z:(1)2}] sum{z:(2)2}",
            AllReduce(["z"]),
            "all_reduce on f32[8{z:(1)2}] sum{z:(2)2}: axes {z} cannot be reduced: the value is unreduced over "
            "{z:(2)2} "
            "only",
        ),
        ("[8] sum{x}", AllReduce([]), "all_reduce on f32[8] sum{x}: no axes are reduced; name at least one"),
        ("[8]", AllReduce(["y"]), "all_reduce on f32[8]: axes {y} cannot be reduced: the value is fully reduced"),
        (
            "[8] sum{x,y}",
            AllReduce(["x", "x"]),
            "all_reduce on f32[8] sum{x,y}: axes {x,x} name a part twice; reduce each once",
        ),
        (
            "[8] sum{x}",
            AllReduce(["q"]),
            "all_reduce on f32[8] sum{x}: unknown axis 'q': mesh x=2,y=2,z=4,e=1 has axes x, y, z, e",
        ),
    ],
)
def test_premises_of_reductions(before: str, step: Step, message: str) -> None:
    """The value is unreduced over all of the axes, each named once."""
    refused(before, step, message)


MOVES = "data that only moves stays unreduced as it is: reduce in a step of its own"


@pytest.mark.parametrize("kind", [Permute, Exchange])
@pytest.mark.parametrize(
    ("before", "layout", "message"),
    [
        ("[8{x}]", "[9{x}]", "f32[9{x}] lays out another array; shape and dtype stay the same"),
        ("[8{x}]", "i32[8{x}]", "i32[8{x}] lays out another array; shape and dtype stay the same"),
        (
            "[8{x}] sum{y}",
            "[8{x}]",
            f"the value before is unreduced (sum{{y}}) and after it fully reduced; {MOVES}",
        ),
        (
            "[8{x}]",
            "[8{x}] sum{y}",
            f"the value before is fully reduced and after it unreduced (sum{{y}}); {MOVES}",
        ),
        (
            "[8{x}] sum{y}",
            "[8{x}] max{y}",
            f"the value before is unreduced (sum{{y}}) and after it unreduced (max{{y}}); {MOVES}",
        ),
        (
            "[8{x}] sum{z}",
            "[8{x}] sum{y}",
            f"the value before is unreduced (sum{{z}}) and after it unreduced (sum{{y}}); {MOVES}",
        ),
    ],
)
def test_moving_data_keeps_it(kind: Any, before: str, layout: str, message: str) -> None:
    """Same array, as many contributions, reduced alike."""
    step = kind(parsed(layout, MESH))
    refused(before, step, f"{op_name(step)} on {parsed(before, MESH)}: {message}")


WHOLE = "Whole blocks move only between equal block counts and rules"


@pytest.mark.parametrize(
    ("before", "layout", "message"),
    [
        (
            "[8{x}]",
            "[8{z}]",
            f"permute on f32[8{{x}}]: blocks differ: dimension 0 has blocks of 8{{x}} (2) before and of 8{{z}} (4) "
            f"after. {WHOLE}",
        ),
        (
            "[5{z}]",
            "[5{z}:balanced]",
            "permute on f32[5{z}]: blocks differ: dimension 0 has blocks of 5{z} (4) before and of 5{z}:balanced (4) "
            f"after. {WHOLE}",
        ),
        (
            "[5{z}, 8{x}]",
            "[5{x,y}:balanced, 8{z}]",
            "permute on f32[5{z}, 8{x}]: blocks differ: dimension 0 has blocks of 5{z} (4) before and of "
            "5{x,y}:balanced "
            f"(4) after; dimension 1 has blocks of 8{{x}} (2) before and of 8{{z}} (4) after. {WHOLE}",
        ),
    ],
)
def test_permutes_move_whole_blocks(before: str, layout: str, message: str) -> None:
    """Equal counts and equal rules per dimension; every dimension that differs is named."""
    refused(before, Permute(parsed(layout, MESH)), message)


def test_permutes_need_as_many_devices() -> None:
    """A bijection of devices."""
    step = Permute(parsed("[8{x}]", Mesh({"x": 2})))
    refused("[8{x}]", step, "permute on f32[8{x}]: 16 devices before and 2 after; whole blocks need as many")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "free axes {} of the sender must be those that f32[8{x}] does not use on mesh x=2,y=2,z=4,e=1, each once"),
        (
            [(["y"], ["x"])],
            "free axes {y} of the sender must be those that f32[8{x}] does not use on mesh x=2,y=2,z=4,e=1, each once",
        ),
        (
            [(["y"], ["x"]), (["z:(1)2"], ["z:(1)2"])],
            "free axes {y,z:(1)2} of the sender must be those that f32[8{x}] does not use on mesh x=2,y=2,z=4,e=1, "
            "each "
            "once",
        ),
        (
            [(["y", "z"], ["x", "z"]), (["x"], ["y"])],
            "free axes {y,z,x} of the sender must be those that f32[8{x}] does not use on mesh x=2,y=2,z=4,e=1, each "
            "once",
        ),
        (
            [(["y", "z"], ["z", "y"])],
            "free axes {z,y} of the receiver must be those that f32[8{y}] does not use on mesh x=2,y=2,z=4,e=1, each "
            "once",
        ),
        ([(["y", "z"], ["x"])], "free axes {y,z} of the sender have 8 values, {x} of the receiver 2"),
        ([(["q"], ["x"])], "unknown axis 'q': mesh x=2,y=2,z=4,e=1 has axes x, y, z, e"),
    ],
)
def test_free_axes_of_a_permute(groups: Any, message: str) -> None:
    """Those that no dimension uses, each once on each side, paired with equal counts."""
    step = Permute(parsed("[8{y}]", MESH), Free.of(*groups))
    refused("[8{x}]", step, f"permute on f32[8{{x}}]: {message}")


def test_free_axes_cover_the_major_end_too() -> None:
    """Leaving out the first axis of the mesh alone, on either side."""
    only = "must be those that f32[8{z}] does not use on mesh x=2,y=2,z=4,e=1, each once"
    missing = Permute(parsed("[8{z}]", MESH), Free.of((["y"], ["y"])))
    refused("[8{z}]", missing, f"permute on f32[8{{z}}]: free axes {{y}} of the sender {only}")
    lopsided = Permute(parsed("[8{z}]", Mesh({"x": 4, "z": 4})), Free.of((["x", "y"], ["x:(2)2"]), ([], ["x:(1)2"])))
    message = "permute on f32[8{z}]: free axes {x,y} of the sender have 4 values, {x:(2)2} of the receiver 2"
    refused("[8{z}]", lopsided, message)


@pytest.mark.parametrize(
    ("before", "layout", "pairs", "message"),
    [
        (
            "[8{x}]",
            "[8{y}]",
            ((0, 0), (1, 1), (2, 2), (3, 3)),
            "(sender, receiver) pairs [(1, 1), (2, 2)] move a block to a device that holds another one in f32[8{y}]",
        ),
        (
            "[8{x}] sum{y}",
            "[8{x}] sum{y}",
            ((0, 1), (1, 0), (2, 2), (3, 3)),
            "(sender, receiver) pairs [(0, 1), (1, 0)] move a block to a device that holds another one in f32[8{x}] "
            "sum{y}",
        ),
        (
            "[8{x}]",
            "[8{y}]",
            ((0, 0), (0, 2), (2, 1), (3, 3)),
            "senders [0, 0, 2, 3] are not the devices of mesh x=2,y=2, each once",
        ),
        (
            "[8{x}]",
            "[8{y}]",
            ((0, 0), (1, 2), (2, 1)),
            "senders [0, 1, 2] are not the devices of mesh x=2,y=2, each once",
        ),
        (
            "[8{x}]",
            "[8{y}]",
            ((0, 0), (1, 2), (2, 1), (3, 4)),
            "receivers [0, 2, 1, 4] are not the devices of mesh x=2,y=2, each once",
        ),
    ],
)
def test_pairs_of_a_permute(before: str, layout: str, pairs: Any, message: str) -> None:
    """A bijection of the devices, each to one that holds the same block of the same contribution."""
    step = Permute(parsed(layout, FOUR), Pairs(pairs))
    refused(before, step, f"permute on {parsed(before, FOUR)}: {message}", FOUR)


@pytest.mark.parametrize(
    ("layout", "transfer", "message"),
    [
        (
            "[8]",
            (0, 0, (0,), (5,)),
            "Transfer(sender=0, receiver=0, starts=(0,), stops=(5,)): the box is not inside the sender's block, (0,) "
            "to (4,)",
        ),
        (
            "[8{x}]",
            (0, 2, (0,), (4,)),
            "Transfer(sender=0, receiver=2, starts=(0,), stops=(4,)): the box is not inside the receiver's block, "
            "(4,) to (8,)",
        ),
        (
            "[8]",
            (2, 0, (3,), (5,)),
            "Transfer(sender=2, receiver=0, starts=(3,), stops=(5,)): the box is not inside the sender's block, (4,) "
            "to (8,)",
        ),
        (
            "[8]",
            (0, 0, (3,), (1,)),
            "Transfer(sender=0, receiver=0, starts=(3,), stops=(1,)): the box is not inside the sender's block, (0,) "
            "to (4,)",
        ),
        (
            "[8]",
            (4, 0, (0,), (4,)),
            "Transfer(sender=4, receiver=0, starts=(0,), stops=(4,)): the sender is not a device of its mesh",
        ),
        (
            "[8]",
            (0, 4, (0,), (4,)),
            "Transfer(sender=0, receiver=4, starts=(0,), stops=(4,)): the receiver is not a device of its mesh",
        ),
        (
            "[8]",
            (0, 0, (0, 0), (4, 0)),
            "Transfer(sender=0, receiver=0, starts=(0, 0), stops=(4, 0)): the box has another rank than the array, 1",
        ),
    ],
)
def test_transfers_of_an_exchange(layout: str, transfer: Any, message: str) -> None:
    """Between devices that exist, of boxes that the sender holds and the receiver wants."""
    step = Exchange(parsed(layout, FOUR), (Transfer(0, 0, (0,), (1,)), Transfer(*transfer)))
    refused("[8{x}]", step, f"exchange on f32[8{{x}}]: {message}", FOUR)


ALONE = "chunk along a dimension that the steps leave alone"
GATHER = AllGather({1: ["x"]})


@pytest.mark.parametrize(
    ("before", "step", "message"),
    [
        ("[8, 8{x}]", Chunk(1, 2, [GATHER]), f"chunk on f32[8, 8{{x}}]: dimension 1 is touched by all_gather; {ALONE}"),
        (
            "[8, 8{x}]",
            Chunk(0, 2, [Slice({0: ["y"]})]),
            f"chunk on f32[8, 8{{x}}]: dimension 0 is touched by slice; {ALONE}",
        ),
        (
            "[8, 8{x}]",
            Chunk(0, 2, [Slice({1: ["y"]}), AllToAll([(["y"], 1, 0)])]),
            f"chunk on f32[8, 8{{x}}]: dimension 0 is touched by all_to_all; {ALONE}",
        ),
        (
            "[8{y}, 8{x}]",
            Chunk(0, 2, [Permute(parsed("[8{x}, 8{y}]", MESH), Free.of((["z"], ["z"])))]),
            f"chunk on f32[8{{y}}, 8{{x}}]: dimension 0 is touched by permute; {ALONE}",
        ),
        (
            "[8, 8{x}]",
            Chunk(0, 2, [Exchange(parsed("[8{y}, 8{x}]", MESH))]),
            f"chunk on f32[8, 8{{x}}]: dimension 0 is touched by exchange; {ALONE}",
        ),
        (
            "[8, 8{x}] sum{y}",
            Chunk(0, 2, [ReduceScatter({0: ["y"]})]),
            f"chunk on f32[8, 8{{x}}] sum{{y}}: dimension 0 is touched by reduce_scatter; {ALONE}",
        ),
        (
            "[8, 8{x}, 8]",
            Chunk(0, 2, [Chunk(0, 2, [GATHER])]),
            f"chunk on f32[8, 8{{x}}, 8]: dimension 0 is touched by chunk; {ALONE}",
        ),
        (
            "[8, 8{x}]",
            Chunk(0, 2, [Exchange(parsed("[8, 8{x}]", FOUR))]),
            "chunk on f32[8, 8{x}]: exchange goes from mesh x=2,y=2,z=4,e=1 to x=2,y=2; the steps of a chunk keep "
            "the mesh",
        ),
        (
            "[8, 8{x}]",
            Chunk(0, 1, [GATHER]),
            "chunk on f32[8, 8{x}]: 1 parts of dimension 0 (8), whose longest block has 8 elements; use from 2 to as "
            "many "
            "parts",
        ),
        (
            "[8{y}, 8{x}]",
            Chunk(0, 5, [GATHER]),
            "chunk on f32[8{y}, 8{x}]: 5 parts of dimension 0 (8{y}), whose longest block has 4 elements; use from 2 "
            "to as "
            "many parts",
        ),
        ("[8, 8{x}]", Chunk(0, 2, []), "chunk on f32[8, 8{x}]: a chunk has no steps; put at least one in"),
        (
            "[8, 8{x}]",
            Chunk(2, 2, [GATHER]),
            "chunk on f32[8, 8{x}]: dimensions [2] do not exist in an array of rank 2",
        ),
        (
            "[8, 8{x}]",
            Chunk(0, 2, [AllGather({1: ["y"]})]),
            f"all_gather on f32[8, 8{{x}}]: axes {{y}} are not the minor suffix of dimension 1 (8{{x}}); {LAST}",
        ),
    ],
)
def test_premises_of_chunk(before: str, step: Step, message: str) -> None:
    """The steps apply, stay on the mesh and leave the dimension alone; there are parts for everyone."""
    refused(before, step, message)


def test_exchange_takes_any_layout() -> None:
    """Uneven, unaligned, another mesh, other devices; transfers need not be complete to be typed."""
    before = parsed("[6{x:(1)2}, 5]", SIX)
    for text, mesh in [
        ("[6{x:(1)3}, 5{y}:balanced]", SIX),
        ("[6{a}@[0,0,6], 5]", Mesh({"a": 3}, [77, 78, 2])),
        ("[6, 5]", Mesh({})),
    ]:
        target = parsed(text, mesh)
        assert after(Exchange(target, OWNER), before) == target
        assert after(Exchange(target, ()), before) == target
