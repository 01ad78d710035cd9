"""Which operations follow which tactics: forward, backward, by partial match; conflicts, obstacles, order."""

from __future__ import annotations

import inspect
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from redist import Mesh
from redist import partir_core as partir
from redist.partir_core import FIRST_DIVISIBLE_DIM, REPLICATED, ManualPartition


def shape(*sizes: int) -> Any:
    return jax.ShapeDtypeStruct(sizes, "float32")


def lowered(fn: Any, args: Any, *tactics: tuple[dict[str, Any], str], mesh: Mesh) -> partir.Lowered:
    schedule = [ManualPartition(entries, axis, label=f"t{n}") for n, (entries, axis) in enumerate(tactics)]
    return partir.jit(fn, mesh, schedule).lower(*args)


def layouts(fn: Any, args: Any, *tactics: tuple[dict[str, Any], str], mesh: Mesh) -> tuple[list[str], list[str]]:
    """(of inputs, of outputs)."""
    report = lowered(fn, args, *tactics, mesh=mesh).report
    return [str(x) for x in report.inputs.values()], [str(x) for x in report.outputs.values()]


def matmul(x: Any, w: Any) -> Any:
    return x @ w


X, W = shape(16, 8), shape(8, 32)


@pytest.mark.parametrize(
    "entries, inputs, output",
    [
        # The tile mappings of a matrix product: rows, columns, and the contracted dimension, where the other
        # operand is sliced because every use of it slices it.
        ({"x": 0}, ["f32[16{B}, 8]", "f32[8, 32]"], "f32[16{B}, 32]"),
        ({"w": 1}, ["f32[16, 8]", "f32[8, 32{B}]"], "f32[16, 32{B}]"),
        ({"x": 1}, ["f32[16, 8{B}]", "f32[8{B}, 32]"], "f32[16, 32]"),
        ({"w": 0}, ["f32[16, 8{B}]", "f32[8{B}, 32]"], "f32[16, 32]"),
        ({"x": 1, "w": 0}, ["f32[16, 8{B}]", "f32[8{B}, 32]"], "f32[16, 32]"),
    ],
)
def test_a_matrix_product(mesh: Mesh, entries: Any, inputs: list[str], output: str) -> None:
    assert layouts(matmul, (X, W), (entries, "B"), mesh=mesh) == (inputs, [output])


def test_a_conflict_names_the_operation_its_line_and_who_asks(mesh: Mesh) -> None:
    report = lowered(matmul, (X, W), ({"x": 0, "w": 1}, "B"), mesh=mesh).report
    line = inspect.getsourcelines(matmul)[1] + 1
    (conflict,) = report.conflicts
    assert str(conflict) == (
        f"dot_general at {__file__}:{line} (matmul): along B, operand 0 (x) is tiled in dimension 0; operand 1 (w) is "
        "tiled in dimension 1 (tactic t0)"
    )
    report.assert_collectives(all_gather=2)  # the product is made whole on every device


@pytest.mark.parametrize(
    "tactics, output, gathers",
    [
        ([({"x": 0}, "B"), ({"w": 1}, "B")], "f32[16{B}, 32]", 1),
        ([({"w": 1}, "B"), ({"x": 0}, "B")], "f32[16, 32{B}]", 1),
        ([({"x": 0, "w": REPLICATED}, "B")], "f32[16{B}, 32]", 0),
        ([({"x": 0}, "B"), ({"w": 1}, "M")], "f32[16{B}, 32{M}]", 0),
    ],
)
def test_order_replicated_or_another_axis_resolves_it(mesh: Mesh, tactics: Any, output: str, gathers: int) -> None:
    report = lowered(matmul, (X, W), *tactics, mesh=mesh).report
    assert not report.conflicts
    assert [str(x) for x in report.outputs.values()] == [output]
    report.assert_collectives(all_gather=gathers)


def test_several_axes_cut_one_dimension_in_the_order_of_tactics(mesh: Mesh) -> None:
    tactics = [({"x": 0}, "M"), ({"x": 0}, "B")]
    assert layouts(matmul, (X, W), *tactics, mesh=mesh)[1] == ["f32[16{M,B}, 32]"]
    sub = [({"x": 0}, "B:(2)2"), ({"w": 1}, "B:(1)2"), ({"x": 0}, "M")]
    assert layouts(matmul, (X, W), *sub, mesh=mesh)[1] == ["f32[16{B:(2)2,M}, 32{B:(1)2}]"]


def test_backward_from_a_use_that_slices(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        return jnp.sin(jnp.cos(x)) + y

    assert layouts(f, (X, X), ({"y": 0}, "B"), mesh=mesh) == (["f32[16{B}, 8]"] * 2, ["f32[16{B}, 8]"])


def test_backward_through_uses_that_would_follow(mesh: Mesh) -> None:
    """`c` is sliced by one use, squared by another that has no loop yet: both go along. Being an output is
    neutral."""

    def f(x: Any, y: Any) -> Any:
        c = jnp.cos(x)
        return c + y, jnp.sum(c * c), c

    inputs, outputs = layouts(f, (X, X), ({"y": 0}, "B"), mesh=mesh)
    assert inputs == ["f32[16{B}, 8]"] * 2
    assert outputs == ["f32[16{B}, 8]", "f32[]", "f32[16{B}, 8]"]


def test_no_backward_step_where_a_use_needs_another_slice(mesh: Mesh) -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        c = jnp.cos(x)
        return c + y, c + z

    inputs, outputs = layouts(f, (X, X, X), ({"y": 0, "z": 1}, "M"), mesh=mesh)
    assert inputs == ["f32[16, 8]", "f32[16{M}, 8]", "f32[16, 8{M}]"]
    assert outputs == ["f32[16{M}, 8]", "f32[16, 8{M}]"]


def test_no_backward_step_where_a_use_needs_it_whole(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        c = jnp.cos(x)
        return c + y, jnp.sort(c, axis=0)

    inputs, outputs = layouts(f, (X, X), ({"y": 0}, "B"), mesh=mesh)
    assert inputs == ["f32[16, 8]", "f32[16{B}, 8]"]
    assert outputs == ["f32[16{B}, 8]", "f32[16, 8]"]


def test_an_unnamed_input_is_sharded_only_if_all_its_uses_slice_it_alike(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y, jnp.sum(y)

    # The sum of y has no loop, and one use alone does not shard an input.
    assert layouts(f, (X, X), ({"x": 0}, "B"), mesh=mesh)[0] == ["f32[16{B}, 8]", "f32[16, 8]"]
    assert layouts(lambda x, y: (x + y, y * x), (X, X), ({"x": 0}, "B"), mesh=mesh)[0] == ["f32[16{B}, 8]"] * 2
    assert layouts(lambda x, y: (x + y, y.T), (X, X), ({"x": 0}, "B"), mesh=mesh)[0][1] == "f32[16, 8]"


def test_replicated_keeps_everything_whole_that_would_cut_it(mesh: Mesh) -> None:
    def f(x: Any, y: Any) -> Any:
        return x * y, x * 2

    low = lowered(f, (X, X), ({"x": 0, "y": REPLICATED}, "B"), mesh=mesh)
    assert [str(x) for x in low.report.outputs.values()] == ["f32[16, 8]", "f32[16{B}, 8]"]
    (blocked,) = low.report.blocked
    assert (blocked.op, blocked.axis, blocked.reason) == ("mul", "B", "y is REPLICATED along B")
    other = lowered(f, (X, X), ({"y": REPLICATED}, "B"), ({"x": 0}, "M"), mesh=mesh)
    assert [str(x) for x in other.report.outputs.values()] == ["f32[16{M}, 8]"] * 2


def test_replicated_holds_for_parts_of_the_axis(mesh: Mesh) -> None:
    low = lowered(lambda x, y: x * y, (X, X), ({"y": REPLICATED}, "B:(1)2"), ({"x": 0}, "B"), mesh=mesh)
    assert [b.reason for b in low.report.blocked] == ["y is REPLICATED along B"]
    free = lowered(lambda x, y: x * y, (X, X), ({"y": REPLICATED}, "B:(1)2"), ({"x": 0}, "B:(2)2"), mesh=mesh)
    assert not free.report.blocked


@pytest.mark.parametrize(
    "fn, args, entries, reason",
    [
        (lambda x: x[:6] * 1, (shape(12, 3),), {"x": 0}, "it needs this dimension whole"),
        (lambda x: jnp.sort(x, axis=0), (X,), {"x": 0}, "it needs this dimension whole"),
        (
            lambda x: x.reshape(2, 8, 8),
            (X,),
            {"x": 0},
            "local size 2 does not divide by B=4",
        ),
    ],
)
def test_what_cannot_follow_is_reported_with_the_reason(
    mesh: Mesh, fn: Any, args: Any, entries: Any, reason: str
) -> None:
    report = lowered(fn, args, (entries, "B"), mesh=mesh).report
    assert [b.reason for b in report.blocked] == [reason]
    assert not report.conflicts
    report.assert_collectives(all_gather=1)


def test_reshapes(mesh: Mesh) -> None:
    def merge(x: Any) -> Any:
        return x.reshape(32, 8)

    x = shape(8, 4, 8)
    assert layouts(merge, (x,), ({"x": 0}, "B"), mesh=mesh)[1] == ["f32[32{B}, 8]"]
    # The minor part of a merged dimension can be cut once the major part is cut up.
    report = lowered(merge, (x,), ({"x": 1}, "B"), mesh=mesh).report
    assert "minor part" in report.blocked[0].reason
    small = shape(4, 4, 8)
    both = layouts(lambda x: x.reshape(16, 8), (small,), ({"x": 0}, "B"), ({"x": 1}, "M"), mesh=mesh)
    assert both == (["f32[4{B}, 4{M}, 8]"], ["f32[16{B,M}, 8]"])
    split = layouts(lambda x: x.reshape(4, 4, 8), (shape(16, 8),), ({"x": 0}, "B"), ({"x": 0}, "M"), mesh=mesh)
    assert split == (["f32[16{B,M}, 8]"], ["f32[4{B}, 4{M}, 8]"])


def test_a_primitive_without_rule_is_kept_whole_and_listed(mesh: Mesh) -> None:
    def called_back(x: Any) -> Any:
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct(x.shape, x.dtype), jnp.sin(x)) + x

    report = lowered(called_back, (X,), ({"x": 0}, "B"), mesh=mesh).report
    assert report.without_rule == ("pure_callback",)
    assert [b.reason for b in report.blocked if b.op == "pure_callback"] == ["its primitive has no rule"]
    report.assert_collectives(all_gather=1)


class TestLoops:
    """Control flow: what passes in and out of a body is one identity."""

    def test_a_scan_follows_its_carry(self, mesh: Mesh) -> None:
        def f(x: Any, ws: Any) -> Any:
            return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), jnp.sum(h)), x, ws)

        args = (shape(16, 8), shape(3, 8, 8))
        assert layouts(f, args, ({"x": 0}, "B"), mesh=mesh) == (
            ["f32[16{B}, 8]", "f32[3, 8, 8]"],
            ["f32[16{B}, 8]", "f32[3]"],
        )
        # The stacked dimension is never cut; the first divisible one is that of a layer.
        assert layouts(f, args, ({"x": 0}, "B"), ({"ws": FIRST_DIVISIBLE_DIM}, "M"), mesh=mesh)[0] == [
            "f32[16{B}, 8{M}]",
            "f32[3, 8{M}, 8]",
        ]
        low = lowered(f, (shape(16, 8), shape(4, 8, 8)), ({"ws": 0}, "B"), mesh=mesh)
        assert [b.reason for b in low.report.blocked] == ["it needs this dimension whole"]

    def test_what_is_added_to_stacked_values_has_the_stacked_dimension_too(self, mesh: Mesh) -> None:
        """Optimizer state is scanned by no loop, but follows gradients that one stacks."""

        def f(ws: Any, state: Any, x: Any) -> Any:
            def loss(ws: Any) -> Any:
                return jnp.sum(jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0])

            return state + jax.grad(loss)(ws)

        args = (shape(4, 8, 8), shape(4, 8, 8), shape(16, 8))
        inputs, _ = layouts(f, args, ({"x": 0}, "B"), ({"state": FIRST_DIVISIBLE_DIM}, "B"), mesh=mesh)
        assert inputs[1] == "f32[4, 8{B}, 8]"

    def test_a_while_loop_needs_its_condition_whole(self, mesh: Mesh) -> None:
        def f(x: Any) -> Any:
            return jax.lax.while_loop(lambda x: jnp.sum(x) < 10, lambda x: x + 1, x)

        report = lowered(f, (X,), ({"x": 0}, "B"), mesh=mesh).report
        assert [str(x) for x in report.outputs.values()] == ["f32[16{B}, 8]"]
        report.assert_collectives(all_reduce=1)
        assert len(report.uncounted) == 1

    def test_branches_agree(self, mesh: Mesh) -> None:
        def f(x: Any, y: Any, n: Any) -> Any:
            return jax.lax.switch(n, [lambda x, y: x, lambda x, y: x + y, lambda x, y: y], x, y)

        args = (X, X, jax.ShapeDtypeStruct((), "int32"))
        inputs, outputs = layouts(f, args, ({"x": 0}, "B"), mesh=mesh)
        assert (inputs[:2], outputs) == (["f32[16{B}, 8]"] * 2, ["f32[16{B}, 8]"])

    def test_a_barrier_ties_nothing_together(self, mesh: Mesh) -> None:
        def f(x: Any, y: Any) -> Any:
            return jax.lax.optimization_barrier((x, y))

        assert layouts(f, (X, W), ({"x": 0}, "B"), ({"y": 0}, "B"), mesh=mesh)[1] == ["f32[16{B}, 8]", "f32[8{B}, 32]"]
