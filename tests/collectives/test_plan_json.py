"""Plans as JSON: every plan reads back equal, and every malformed text is refused at its place."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redist.collectives import Options, Plan
from redist.collectives.plan_json import SCHEMA, dump_layout, dump_step
from redist.collectives.steps import (
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
)
from redist.collectives.topology import Link, Topology
from redist.errors import ParseError
from redist.testing import layouts, valid_steps
from redist.types import BALANCED, CEIL, Layout, Mesh, Offsets

MESH = Mesh({"x": 2, "y": 2})

options = st.builds(
    Options,
    backend=st.sampled_from(["numpy", "jax", "mpi", "another"]),
    donate=st.booleans(),
    memory_limit=st.none() | st.integers(0, 2**70),
    topology=st.builds(
        Topology,
        name=st.text(max_size=5),
        links=st.dictionaries(
            st.sampled_from(["x", "data"]),
            st.builds(Link, st.floats(0, 1), st.floats(1, 1e12), st.sampled_from(["local", "switch", "ring", "torus"])),
        ),
        default=st.builds(Link, latency=st.floats(0, 1)),
    ),
    optimal=st.booleans(),
    gap=st.none() | st.floats(1, 1e300) | st.just(float("inf")),
    notes=st.lists(st.text(max_size=8), max_size=3).map(tuple),
)


@given(valid_steps(layouts()), options, st.none() | st.integers(0, 4))
def test_plans_read_back(sequence: tuple[Layout, tuple[Step, ...]], chosen: Options, indent: int | None) -> None:
    """Any source, target, steps of all kinds and options; the text is JSON and of this schema."""
    source, steps = sequence
    plan = Plan(source, Plan(source, source, steps).layouts[-1], steps, chosen)
    text = plan.to_json(indent)
    assert Plan.from_json(text) == plan
    assert Plan.from_json(text).to_json(indent) == text
    assert json.loads(text)["schema"] == SCHEMA == 1


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Slice({1: ["x"], 0: ["y:(1)2"]}), {"op": "slice", "axes": {"0": ["y:(1)2"], "1": ["x"]}}),
        (
            Slice({0: ["x"], 1: ["y"]}, {0: CEIL, 1: Offsets((0, 3))}),
            {"op": "slice", "axes": {"0": ["x"], "1": ["y"]}, "rules": {"0": "ceil", "1": [0, 3]}},
        ),
        (AllGather({0: ["x", "y"]}), {"op": "all_gather", "axes": {"0": ["x", "y"]}}),
        (
            AllToAll([(["x"], 0, 1)], {1: BALANCED}),
            {"op": "all_to_all", "moves": [[["x"], 0, 1]], "rules": {"1": "balanced"}},
        ),
        (ReduceScatter({0: ["x"]}), {"op": "reduce_scatter", "axes": {"0": ["x"]}}),
        (AllReduce(["x", "y"]), {"op": "all_reduce", "axes": ["x", "y"]}),
        (
            Permute(Layout.parse("f32[4{x}]", MESH), Free.of((["y"], ["y"]))),
            {"op": "permute", "layout": {"mesh": "x=2,y=2", "type": "f32[4{x}]"}, "free": [[["y"], ["y"]]]},
        ),
        (
            Permute(Layout.parse("f32[4{x}]", MESH), Pairs(((0, 1), (1, 0), (2, 2), (3, 3)))),
            {
                "op": "permute",
                "layout": {"mesh": "x=2,y=2", "type": "f32[4{x}]"},
                "pairs": [[0, 1], [1, 0], [2, 2], [3, 3]],
            },
        ),
        (
            Exchange(Layout.parse("f32[4]", Mesh({}, [7]))),
            {"op": "exchange", "layout": {"mesh": "@[7]", "type": "f32[4]"}, "transfers": "owner"},
        ),
        (
            Exchange(Layout.parse("f32[4]", MESH), (Transfer(0, 3, (1,), (2,)),)),
            {"op": "exchange", "layout": {"mesh": "x=2,y=2", "type": "f32[4]"}, "transfers": [[0, 3, [1], [2]]]},
        ),
        (
            Chunk(0, 2, [AllReduce(["x"])]),
            {"op": "chunk", "dim": 0, "parts": 2, "steps": [{"op": "all_reduce", "axes": ["x"]}]},
        ),
    ],
)
def test_the_form_of_steps(step: Step, expected: dict[str, Any]) -> None:
    """What is written, field by field."""
    assert dump_step(step) == expected


def test_the_form_of_plans() -> None:
    """A small plan, whole."""
    source = Layout.parse("bf16[4{x}] sum{y}", MESH)
    plan = Plan(source, Layout.parse("bf16[4{x}]", MESH), (AllReduce(["y"]),), Options(memory_limit=9, notes=("why",)))
    assert dump_layout(source) == {"mesh": "x=2,y=2", "type": "bf16[4{x}] sum{y}"}
    written = json.loads(plan.to_json())
    topology = written["options"].pop("topology")
    assert written == {
        "schema": 1,
        "source": {"mesh": "x=2,y=2", "type": "bf16[4{x}] sum{y}"},
        "target": {"mesh": "x=2,y=2", "type": "bf16[4{x}]"},
        "steps": [{"op": "all_reduce", "axes": ["y"]}],
        "options": {
            "backend": "numpy",
            "donate": False,
            "memory_limit": 9,
            "optimal": False,
            "gap": None,
            "notes": ["why"],
        },
    }
    assert topology["name"] == "uniform" and topology["links"] == {}
    assert {"latency": 0.0, "bandwidth": 1e10, "kind": "switch"}.items() <= topology["default"].items()


def test_numpy_integers_are_written() -> None:
    """Ids, boxes and offsets computed with NumPy."""
    layout = Layout.parse("f32[4{x}]", MESH)
    one, two = np.int64(1), np.int32(2)
    steps: tuple[Step, ...] = (
        Slice({0: ["x"]}, {0: Offsets(np.asarray([0, 2]))}),  # pyright: ignore[reportArgumentType]
        Exchange(layout, (Transfer(one, one, (one,), (two,)),)),  # pyright: ignore[reportArgumentType]
        Permute(layout, Pairs(((one, two),))),  # pyright: ignore[reportArgumentType]
        Chunk(0, two, [AllReduce(["x"])]),  # pyright: ignore[reportArgumentType]
    )
    plan = Plan(layout, layout, steps)
    assert Plan.from_json(plan.to_json()) == plan


def test_options_may_be_left_out() -> None:
    """All of them, or some."""
    text = '{"schema": 1, "source": {"mesh": "", "type": "[4]"}, "target": {"mesh": "", "type": "[4]"}, "steps": []'
    assert Plan.from_json(text + "}").options == Options()
    assert Plan.from_json(text + ', "options": {}}').options == Options()
    assert Plan.from_json(text + ', "options": {"donate": true, "gap": 2}}').options == Options(donate=True, gap=2.0)


# -- what is refused -----------------------------------------------------------------------------------


def form(**changes: Any) -> str:
    """A right plan with some fields replaced; `...` leaves a field out."""
    layout = {"mesh": "x=2,y=2", "type": "f32[4{x}]"}
    fields = {"schema": 1, "source": layout, "target": layout, "steps": [], "options": {}} | changes
    return json.dumps({key: value for key, value in fields.items() if value is not ...})


def steps(*several: Any) -> str:
    """A plan with these steps."""
    return form(steps=list(several))


OPS = "slice, all_gather, all_to_all, permute, exchange, reduce_scatter, all_reduce, chunk"
LAYOUT = {"mesh": "x=2,y=2", "type": "f32[4{x}]"}


@pytest.mark.parametrize(
    ("text", "message", "shown", "column"),
    [
        (form(schema=2), "plan.schema: schema version 2 is not supported; this version reads schema 1", "2", 0),
        (
            form(schema=True),
            "plan.schema: schema version True is not supported; this version reads schema 1",
            "true",
            0,
        ),
        (form(schema="1"), "plan.schema: schema version '1' is not supported; this version reads schema 1", '"1"', 0),
        (
            form(schema=None),
            "plan.schema: schema version None is not supported; this version reads schema 1",
            "null",
            0,
        ),
        ("[]", "plan: expected an object", "[]", 0),
        ("{}", "plan: the field 'schema' is missing", "{}", 0),
        ('{"schema": 1}', "plan: the field 'source' is missing", '{"schema": 1}', 0),
        (form(steps={}), "plan.steps: expected a list", "{}", 0),
        (form(source=3), "plan.source: expected an object", "3", 0),
        (form(source={"mesh": 3}), "plan.source.mesh: expected a string", "3", 0),
        (form(source={"mesh": "x=2"}), "plan.source: the field 'type' is missing", '{"mesh": "x=2"}', 0),
        (
            form(source={"mesh": "x=2,x=3", "type": "[4]"}),
            "plan.source.mesh: mesh axis named twice: x; give each axis its own name",
            "x=2,x=3",
            4,
        ),
        (
            form(target={"mesh": "x=2", "type": "f32[4{q}]"}),
            "plan.target.type: unknown axis 'q': mesh x=2 has axis x",
            "f32[4{q}]",
            6,
        ),
        (steps({"op": "shuffle"}), f"plan.steps[0].op: unknown op 'shuffle'; use one of {OPS}", '"shuffle"', 0),
        (steps({"op": "all_reduce", "axes": ["x"]}, {}), "plan.steps[1]: the field 'op' is missing", "{}", 0),
        (steps({"op": 3}), "plan.steps[0].op: expected a string", "3", 0),
        (steps("slice"), "plan.steps[0]: expected an object", '"slice"', 0),
        (steps({"op": "slice"}), "plan.steps[0]: the field 'axes' is missing", '{"op": "slice"}', 0),
        (steps({"op": "slice", "axes": ["x"]}), "plan.steps[0].axes: expected an object", '["x"]', 0),
        (
            steps({"op": "slice", "axes": {"a": ["x"]}}),
            "plan.steps[0].axes.a: 'a' is no dimension; use a non-negative integer",
            '["x"]',
            0,
        ),
        (
            steps({"op": "slice", "axes": {"²": ["x"]}}),
            "plan.steps[0].axes.²: '²' is no dimension; use a non-negative integer",
            '["x"]',
            0,
        ),
        (
            steps({"op": "slice", "axes": {"-1": ["x"]}}),
            "plan.steps[0].axes.-1: '-1' is no dimension; use a non-negative integer",
            '["x"]',
            0,
        ),
        (steps({"op": "slice", "axes": {"0": "x"}}), "plan.steps[0].axes.0: expected a list", '"x"', 0),
        (steps({"op": "slice", "axes": {"0": [1]}}), "plan.steps[0].axes.0[0]: expected a string", "1", 0),
        (
            steps({"op": "slice", "axes": {"0": ["x", "x:(2)"]}}),
            "plan.steps[0].axes.0[1]: expected the size of the sub-axis, a non-negative integer",
            "x:(2)",
            5,
        ),
        (
            steps({"op": "slice", "axes": {"0": ["x"]}, "rules": {"0": "even"}}),
            'plan.steps[0].rules.0: unknown block rule; use "ceil", "balanced" or a list of offsets',
            '"even"',
            0,
        ),
        (
            steps({"op": "slice", "axes": {"0": ["x"]}, "rules": {"0": [0, True]}}),
            "plan.steps[0].rules.0[1]: expected an integer",
            "true",
            0,
        ),
        (
            steps({"op": "all_to_all", "moves": [[["x"], 0]]}),
            "plan.steps[0].moves[0]: a move is [axes, from dimension, to dimension]",
            '[["x"], 0]',
            0,
        ),
        (
            steps({"op": "all_to_all", "moves": [[["x"], 0, 1.0]]}),
            "plan.steps[0].moves[0][2]: expected an integer",
            "1.0",
            0,
        ),
        (
            steps({"op": "permute", "layout": {"mesh": "", "type": "[]"}}),
            "plan.steps[0]: the field 'free' is missing",
            '{"op": "permute", "layout": {"mesh": "", "type": "[]"}}',
            0,
        ),
        (
            steps({"op": "permute", "layout": LAYOUT, "free": [[["x"]]]}),
            "plan.steps[0].free[0]: a group is [sender axes, receiver axes]",
            '[["x"]]',
            0,
        ),
        (
            steps({"op": "permute", "layout": LAYOUT, "pairs": [[0, 1, 2]]}),
            "plan.steps[0].pairs[0]: a pair is [sender, receiver]",
            "[0, 1, 2]",
            0,
        ),
        (
            steps({"op": "exchange", "layout": LAYOUT, "transfers": "all"}),
            "plan.steps[0].transfers: expected a list",
            '"all"',
            0,
        ),
        (
            steps({"op": "exchange", "layout": LAYOUT, "transfers": [[0, 1, [0]]]}),
            "plan.steps[0].transfers[0]: a transfer is [sender, receiver, starts, stops]",
            "[0, 1, [0]]",
            0,
        ),
        (
            steps({"op": "chunk", "dim": 0, "parts": 2, "steps": [{"op": "chunk"}]}),
            "plan.steps[0].steps[0]: the field 'steps' is missing",
            '{"op": "chunk"}',
            0,
        ),
        (
            steps({"op": "chunk", "dim": "0", "parts": 2, "steps": []}),
            "plan.steps[0].dim: expected an integer",
            '"0"',
            0,
        ),
        (form(options={"donate": 1}), "plan.options.donate: expected true or false", "1", 0),
        (form(options={"memory_limit": 1.5}), "plan.options.memory_limit: expected an integer", "1.5", 0),
        (form(options={"gap": "1"}), "plan.options.gap: expected a number", '"1"', 0),
        (form(options={"notes": "why"}), "plan.options.notes: expected a list", '"why"', 0),
        (form(options={"topology": {}}), "plan.options.topology: the field 'name' is missing", "{}", 0),
        (
            form(options={"topology": {"name": "a", "links": {"x": {"kind": "rope"}}, "default": {}}}),
            "plan.options.topology.links.x.kind: unknown kind of link; use one of local, switch, ring, torus, memory",
            '"rope"',
            0,
        ),
    ],
)
def test_malformed_plans(text: str, message: str, shown: str, column: int) -> None:
    """Other versions, unknown ops, fields of another kind: the message starts with the path to the value."""
    with pytest.raises(ParseError) as caught:
        Plan.from_json(text)
    assert str(caught.value) == f"{message}\n  {shown}\n  {' ' * column}^"
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "malformed JSON, line 1: Expecting value", "", 0),
        ("{", "malformed JSON, line 1: Expecting property name enclosed in double quotes", "{", 1),
        ('{"schema": 1,\n', "malformed JSON, line 2: Expecting property name enclosed in double quotes", "", 0),
        ('{"schema": 1,\n "steps": [}\n', "malformed JSON, line 2: Expecting value", ' "steps": [}', 11),
        ('{"a": "\u2028",\n x}', "malformed JSON, line 2: Expecting property name enclosed in double quotes", " x}", 1),
        ("{} {}", "malformed JSON, line 1: Extra data", "{} {}", 3),
    ],
)
def test_text_that_is_no_json(text: str, message: str, line: str, column: int) -> None:
    """The line and the column of it, in files that break off too."""
    with pytest.raises(ParseError) as caught:
        Plan.from_json(text)
    assert str(caught.value) == f"{message}\n  {line}\n  {' ' * column}^"


def test_long_values_are_shown_in_part() -> None:
    """A message stays readable."""
    with pytest.raises(ParseError) as caught:
        Plan.from_json(form(source=list(range(1000))))
    first, shown, _ = str(caught.value).split("\n")
    assert first == "plan.source: expected an object"
    assert len(shown) == 202 and shown.endswith("...")
