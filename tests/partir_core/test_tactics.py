"""What tactics say: kinds of inputs, names and globs, and what they are told when they do not fit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import pytest

from redist import LayoutError, Mesh, TracingError
from redist import partir_core as partir
from redist.errors import BackendError
from redist.partir_core import FIRST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, ManualPartition
from redist.partir_core.names import near, select


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, "float32")


PARAMS = {"layer_0": {"w": shape(6, 8), "b": shape(8)}, "layer_1": {"w": shape(8, 8), "b": shape(6)}}


def f(params: Any, x: Any, scale: Any) -> Any:
    return {"params": params, "y": x * 2, "scale": scale}


@pytest.fixture
def inputs(mesh: Mesh) -> Callable[..., dict[str, str]]:
    """Layouts of the sharded inputs after a schedule."""

    def run(*schedule: ManualPartition) -> dict[str, str]:
        report = partir.jit(f, mesh, schedule).lower(PARAMS, shape(16, 8), shape()).report
        return {name: str(layout) for name, layout in report.inputs.items() if "{" in str(layout)}

    return run


W0, W1, B0, B1 = "params/layer_0/w", "params/layer_1/w", "params/layer_0/b", "params/layer_1/b"


@pytest.mark.parametrize(
    "entries, axis, expected",
    [
        ({"x": 0}, "B", {"x": "f32[16{B}, 8]"}),
        ({"x": -1}, "M", {"x": "f32[16, 8{M}]"}),
        ({"x": 0}, "B:(1)2", {"x": "f32[16{B:(1)2}, 8]"}),
        ({W1: 1, "params/layer_0": UNKNOWN}, "B", {W1: "f32[8, 8{B}]"}),
        ({"params/layer_0": 0}, "M", {B0: "f32[8{M}]", W0: "f32[6{M}, 8]"}),
        ({"params/*/w": 1}, "B", {W0: "f32[6, 8{B}]", W1: "f32[8, 8{B}]"}),
        ({"**/b": 0}, "M", {B0: "f32[8{M}]", B1: "f32[6{M}]"}),
        ({"params/layer_[1-9]": 0}, "M", {B1: "f32[6{M}]", W1: "f32[8{M}, 8]"}),
        ({"params": FIRST_DIVISIBLE_DIM}, "B", {B0: "f32[8{B}]", W0: "f32[6, 8{B}]", W1: "f32[8{B}, 8]"}),
        ({"params": 0, B1: UNKNOWN, W0: REPLICATED}, "B", {B0: "f32[8{B}]", W1: "f32[8{B}, 8]"}),
        ({"params": {"layer_0": {"w": 1, "b": 0}}}, "B", {B0: "f32[8{B}]", W0: "f32[6, 8{B}]"}),
        ({"params/*": {"w": 1}}, "B", {W0: "f32[6, 8{B}]", W1: "f32[8, 8{B}]"}),
        ({"params": {"layer_1": 0, "layer_0": UNKNOWN}}, "M", {B1: "f32[6{M}]", W1: "f32[8{M}, 8]"}),
        (
            {"params": lambda name, value: 1 if name.endswith("/w") and value.shape[0] == 8 else REPLICATED},
            "B",
            {W1: "f32[8, 8{B}]"},
        ),
        ({"**": lambda name, value: 0 if value.ndim and value.shape[0] % 4 == 0 else UNKNOWN}, "B", {
            B0: "f32[8{B}]", W1: "f32[8{B}, 8]", "x": "f32[16{B}, 8]"}),
    ],
)  # fmt: skip
def test_kinds_of_inputs(inputs: Any, entries: Any, axis: str, expected: dict[str, str]) -> None:
    assert inputs(ManualPartition(entries, axis)) == expected


def test_later_tactics_cut_further(inputs: Any) -> None:
    schedule = [ManualPartition({"x": 0}, "M"), ManualPartition({"x": 0}, "B")]
    assert inputs(*schedule) == {"x": "f32[16{M,B}, 8]"}
    assert inputs(*reversed(schedule)) == {"x": "f32[16{B,M}, 8]"}
    assert inputs(schedule[0], ManualPartition({"x": FIRST_DIVISIBLE_DIM}, "B")) == {"x": "f32[16{M,B}, 8]"}
    # Of the local size 2, no quarter; so the second dimension.
    assert inputs(ManualPartition({W1: 0}, "B"), ManualPartition({W1: FIRST_DIVISIBLE_DIM}, "M")) == {
        W1: "f32[8{B,M}, 8]"
    }
    assert inputs(ManualPartition({W1: 0}, "M"), ManualPartition({W1: FIRST_DIVISIBLE_DIM}, "B")) == {
        W1: "f32[8{M,B}, 8]"
    }
    assert inputs(ManualPartition({W0: 0}, "M"), ManualPartition({W0: FIRST_DIVISIBLE_DIM}, "B")) == {
        W0: "f32[6{M}, 8{B}]"
    }


@pytest.mark.parametrize(
    "schedule, error, message",
    [
        (
            [({"parms/layer_0/w": 0, "params/*/v": 0}, "B")],
            TracingError,
            "tactic B(parms/layer_0/w: 0, params/*/v: 0): 'parms/layer_0/w' matches no input or tag; near matches are "
            "params/layer_0/w, params/layer_1/w, params/layer_0/b, params/layer_0, params/layer_1/b; 'params/*/v' "
            "matches no input or tag; near matches are params, params/layer_1/w, params/layer_1/b, params/layer_0/w, "
            "params/layer_0/b",
        ),
        (
            [({"params/*/b": 0}, "B")],
            LayoutError,
            "tactic B(params/*/b: 0): dimension 0 of params/layer_1/b, f32[6], has 6 elements, which B=4 does not "
            "divide; pad it to 8, or choose another dimension",
        ),
        (
            [({"params/*/w": 1}, "B"), ({"params/*/w": 0, "x": 0}, "M"), ({W1: 0}, "B:(1)2")],
            LayoutError,
            "tactic B:(1)2(params/layer_1/w: 0): params/layer_1/w: dimension 0 along B:(1)2, but tactic "
            "B(params/*/w: 1) shards its dimension 1 along it, and no tactic undoes an earlier one",
        ),
        (
            [({B0: 0}, "B"), ({B0: 0}, "M"), ({W0: 0}, "M"), ({W0: 0}, "B")],
            LayoutError,
            "tactic B(params/layer_0/w: 0): dimension 0 of params/layer_0/w, f32[6,8], has 6 elements (3 on each "
            "device, over M), which B=4 does not divide; pad it to 8, or choose another dimension",
        ),
        (
            [({"params/*/b": 3, "scale": 0}, "B")],
            TracingError,
            "tactic B(params/*/b: 3, scale: 0): params/layer_0/b: 3: f32[8] has no dimension 3; use -1..0; "
            "params/layer_1/b: 3: f32[6] has no dimension 3; use -1..0; scale: 0: f32[] has no dimension 0; a scalar "
            "cannot be sharded: use REPLICATED or UNKNOWN",
        ),
        ([({"x": 0}, "Q")], LayoutError, "tactic Q(x: 0): unknown axis 'Q': mesh B=4,M=2 has axes B, M"),
        (
            [({"x": 0}, "B:(1)3")],
            LayoutError,
            "tactic B:(1)3(x: 0): sub-axis B:(1)3 does not divide axis B=4: pre*size = 1*3 = 3; choose pre and size "
            "whose product divides 4",
        ),
        (
            [({"x": 0}, "B"), ({"x": 1}, "B")],
            LayoutError,
            "tactic B(x: 1): x: dimension 1 along B, but tactic B(x: 0) shards its dimension 0 along it, and no tactic "
            "undoes an earlier one",
        ),
        (
            [({"x": 0}, "B"), ({"x": REPLICATED}, "B")],
            LayoutError,
            "tactic B(x: REPLICATED): x cannot be REPLICATED along B: tactic B(x: 0) shards its dimension 0, and no "
            "tactic undoes an earlier one; put REPLICATED before it",
        ),
        (
            [({"x": REPLICATED}, "B"), ({"x": 0}, "B")],
            LayoutError,
            "tactic B(x: 0): x: dimension 0 along B, but tactic B(x: REPLICATED) keeps it REPLICATED, and no tactic "
            "undoes an earlier one",
        ),
        (
            [({"params": {"layer_0": {"w": 1, "v": 0}, "layer_2": 0}}, "B")],
            TracingError,
            "tactic B(params: ...): 'params': the pytree names params/layer_0/v, params/layer_2, which are not in the "
            "program",
        ),
        (
            [({"params/layer_0": lambda name, value: "first"}, "B")],
            TracingError,
            "tactic B(params/layer_0: <lambda>): 'params/layer_0': the function returned 'first' for params/layer_0/b, "
            "which is not a dimension, FIRST_DIVISIBLE_DIM, REPLICATED or UNKNOWN; 'params/layer_0': the function "
            "returned 'first' for params/layer_0/w, which is not a dimension, FIRST_DIVISIBLE_DIM, REPLICATED or "
            "UNKNOWN",
        ),
    ],
)
def test_what_does_not_fit(inputs: Any, schedule: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        inputs(*(ManualPartition(entries, axis) for entries, axis in schedule))
    assert str(caught.value) == message


def test_tagged_values_that_cannot_be_cut(mesh: Mesh) -> None:
    def g(x: Any) -> Any:
        return partir.tag(x * 2, "double")

    schedule = [ManualPartition({"x": REPLICATED, "double": UNKNOWN}, "B"), ManualPartition({"double": 0}, "B")]
    with pytest.raises(LayoutError) as caught:
        partir.jit(g, mesh, [*schedule, ManualPartition({"double": 1}, "B")]).lower(shape(16, 1))
    assert str(caught.value) == (
        "tactic B(double: 1): double: dimension 1 along B, but tactic B(double: 0) shards its dimension 0 along it, "
        "and no tactic undoes an earlier one"
    )


@pytest.mark.parametrize(
    "schedule, reason",
    [
        ([({"x": UNKNOWN}, "B")], "everything it names is left UNKNOWN"),
        ([({"x": 0}, "B"), ({"x": 0}, "B")], "x is tiled along B already, in dimension 0"),
        ([({B1: FIRST_DIVISIBLE_DIM}, "B")], "no dimension of params/layer_1/b, f32[6], divides by B=4"),
    ],
)
def test_a_tactic_that_changes_nothing_warns(inputs: Any, schedule: Any, reason: str) -> None:
    tactics = [ManualPartition(entries, axis, label=f"t{n}") for n, (entries, axis) in enumerate(schedule)]
    with pytest.warns(UserWarning, match=f"^tactic {tactics[-1]} changes nothing: {re.escape(reason)}$") as caught:
        inputs(*tactics)
    assert caught[0].filename == __file__  # it points at the user's line


def test_an_axis_of_one_device_changes_nothing() -> None:
    fn = partir.jit(f, Mesh({"B": 1}), [ManualPartition({"x": 0}, "B")])
    with pytest.warns(UserWarning, match="axis B has size 1$"):
        report = fn.lower(PARAMS, shape(16, 8), shape()).report
    assert not any("{" in str(layout) for layout in report.inputs.values())


@pytest.mark.parametrize(
    "make, message",
    [
        (
            lambda: ManualPartition({}, "B"),
            "a tactic's inputs are a non-empty mapping from names to dimensions, got {}; write "
            'ManualPartition(inputs={"x": 0}, axis="B")',
        ),
        (lambda: ManualPartition({3: 0}, "B"), "names of inputs are non-empty strings, got 3"),  # type: ignore[dict-item]
        (
            lambda: ManualPartition({"x": True, "y": None, "z": 0}, "B"),
            "x: True, y: None: an input gets a dimension, FIRST_DIVISIBLE_DIM, REPLICATED, UNKNOWN, a function of "
            "(name, value), or a pytree of these",
        ),
        (lambda: partir.jit(f, Mesh({}), [0]), "a schedule is a list of tactics, got 0"),  # type: ignore[list-item]
        (lambda: partir.jit(3, Mesh({})), "3 is not a function; partir.jit takes a function of arrays and pytrees"),  # type: ignore[arg-type]
    ],
)
def test_tactics_and_functions_of_the_wrong_kind(make: Any, message: str) -> None:
    with pytest.raises(TracingError) as caught:
        make()
    assert str(caught.value) == message


def test_unknown_backend() -> None:
    with pytest.raises(BackendError, match=r"^unknown backend 'tpu'; partitioned programs run on 'jax' and 'mpi'$"):
        partir.jit(f, Mesh({}), backend="tpu")


def test_tactics_are_plain_data() -> None:
    tactic = ManualPartition({"x": 0}, "B", label="BP")
    assert tactic == ManualPartition({"x": 0}, "B", label="BP")
    assert str(tactic) == "BP"
    assert str(ManualPartition({"x": 0, "y": REPLICATED}, "B")) == "B(x: 0, y: REPLICATED)"
    with pytest.raises(TypeError):
        tactic.inputs["y"] = 1  # type: ignore[index]


NAMES = ("a/b/c", "a/b/d", "a/x", "b", "b/c")


@pytest.mark.parametrize(
    "pattern, expected",
    [
        ("a", {0: 1, 1: 1, 2: 1}),
        ("a/b", {0: 2, 1: 2}),
        ("*/b", {0: 2, 1: 2}),
        ("**/c", {0: 3, 4: 2}),
        ("**", {0: 3, 1: 3, 2: 2, 3: 1, 4: 2}),
        ("b", {3: 1, 4: 1}),
        ("a/**/d", {1: 3}),
        ("a/?", {0: 2, 1: 2, 2: 2}),
        ("c", {}),
        ("a/b/c/d", {}),
    ],
)
def test_patterns(pattern: str, expected: dict[int, int]) -> None:
    assert select(pattern, NAMES) == expected


def test_near_matches_are_sorted_by_likeness() -> None:
    assert near("a/b/e", NAMES)[:2] in (["a/b/d", "a/b/c"], ["a/b/c", "a/b/d"])
    assert near("zzz", NAMES) == ["a", "a/b", "a/b/c", "a/b/d", "a/x"]
