"""Programs: names, inlined calls, nested blocks, dead code, constants, tags, source lines."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redist import Mesh
from redist import partir_core as partir
from redist.errors import TracingError
from redist.partir_core.program import Program

X = jax.ShapeDtypeStruct((8, 4), "float32")


def program_of(fn: Any, *args: Any, **kwargs: Any) -> Program:
    return partir.jit(fn, Mesh({})).lower(*args, **kwargs).program


def ops(program: Program) -> list[str]:
    return [op.name for op in program.block.walk()]


def test_inputs_are_named_by_argument_and_path() -> None:
    def f(params: Any, *rest: Any, scale: Any) -> Any:
        return params["layers"][1]["w"] * rest[0] * rest[1][0] * scale

    params = {"layers": [{"w": X}, {"w": X, "b": None}], "norm": X}
    program = program_of(f, params, X, (X,), scale=2.0)
    assert program.input_names == (
        "params/layers/0/w",
        "params/layers/1/w",
        "params/norm",
        "rest/0",
        "rest/1/0",
        "scale",
    )


def test_outputs_are_named_by_path() -> None:
    assert program_of(lambda x: {"a": x, "b": (x, x + 1)}, X).output_names == ("a", "b/0", "b/1")
    assert program_of(lambda x: x, X).output_names == ("result",)


def test_static_arguments_leave_no_input() -> None:
    def f(x: Any, power: int, y: Any, name: str = "sin") -> Any:
        return getattr(jnp, name)(x) ** power + y

    fn = partir.jit(f, Mesh({}), static_argnums=1, static_argnames="name")
    assert fn.lower(X, 3, X, name="cos").program.input_names == ("x", "y")


def test_calls_are_inlined() -> None:
    @jax.jit
    def inner(x: Any) -> Any:
        return jax.nn.relu(x)

    @jax.custom_vjp
    def marked(x: Any) -> Any:
        return jnp.sin(x)

    marked.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g,))
    assert ops(program_of(lambda x: jax.checkpoint(marked)(inner(x)), X)) == ["max", "sin"]


def test_what_nothing_uses_is_left_out_and_unused_inputs_stay() -> None:
    def f(x: Any, y: Any) -> Any:
        jnp.cos(x)

        def body(carry: Any, _: Any) -> Any:
            return (carry[0] * 2, jnp.exp(carry[1])), jnp.sin(carry[1])

        return jax.lax.scan(body, (x, x), length=3)[0][0]

    program = program_of(f, X, X)
    assert ops(program) == ["scan", "mul"]
    assert program.input_names == ("x", "y")


def test_filled_arrays_are_made_for_every_use() -> None:
    def f(x: Any, y: Any) -> Any:
        ones = jnp.ones(8)
        return x @ ones, y @ ones

    matrix = jax.ShapeDtypeStruct((8, 8), "float32")
    assert ops(program_of(f, matrix, matrix)) == ["broadcast_in_dim", "dot_general"] * 2
    # So one use can be cut without the other.
    lowered = partir.jit(f, Mesh({"a": 2}), [partir.ManualPartition({"x": 1}, "a")]).lower(matrix, matrix)
    assert str(lowered.report.inputs["y"]) == "f32[8, 8]"
    lowered.report.assert_collectives(all_reduce=1)


def test_a_second_pass_is_held_apart_from_the_first() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))(x))

    names = ops(program_of(jax.grad(f), X))
    assert names.count("optimization_barrier") == 1
    assert names.count("sin") == 1  # of the first pass only the second pass's part is needed


def test_text_with_control_flow() -> None:
    def f(x: Any, n: Any) -> Any:
        def body(carry: Any, row: Any) -> Any:
            return carry + row, jnp.sin(carry)

        total, rows = jax.lax.scan(body, jnp.zeros(4), x)
        return jax.lax.cond(n > 0, lambda a: a, lambda a: -a, total), rows

    text = program_of(f, X, jax.ShapeDtypeStruct((), "int32")).as_text()
    assert (
        text
        == """\
func f(%x: f32[8, 4], %n: i32[]) {
  %0 = broadcast_in_dim 0.0 {broadcast_dimensions=(), shape=(4,)} : f32[4]
  %1: f32[4], %2: f32[8, 4] = scan %0: f32[4], %x: f32[8, 4] {length=8, num_carry=1, num_consts=0, \
reverse=False, unroll=1}
  (%3: f32[4], %4: f32[4]) {
    %5 = add %3, %4 : f32[4]
    %6 = sin %3 : f32[4]
    yield %5, %6
  }
  %7 = gt %n, 0 : bool[]
  %8 = convert_element_type %7 {new_dtype=int32, weak_type=False} : i32[]
  %9: f32[4] = cond %8: i32[], %1: f32[4]
  (%10: f32[4]) {
    %11 = neg %10 : f32[4]
    yield %11
  }
  (%12: f32[4]) {
    yield %12
  }
  return %9, %2
}"""
    )


def test_operations_know_their_line() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x)  # this line

    line = inspect.getsourcelines(f)[1] + 1
    (op,) = program_of(f, X).block.ops
    assert str(op.source).endswith(f"test_trace.py:{line} ({f.__qualname__})")


def test_captured_arrays_are_constants_and_scalars_literals() -> None:
    table = jnp.arange(4.0)
    program = program_of(lambda x: x * table + jnp.float32(3) + table, X)
    assert [np.asarray(c).tolist() for c in program.constants.values()] == [[0, 1, 2, 3]]
    assert program.input_names == ("x",)


def test_captured_values_of_an_outer_trace(mesh: Mesh) -> None:
    def outer(scale: Any, x: Any) -> Any:
        inner = partir.jit(lambda x: x * scale, mesh, [partir.ManualPartition({"x": 0}, "B")])
        return inner(x)

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    np.testing.assert_array_equal(np.asarray(jax.jit(outer)(2.0, x)), 2 * x)
    np.testing.assert_array_equal(np.asarray(jax.jit(outer)(3.0, x)), 3 * x)


def test_hints_inside_the_function_do_not_count(mesh: Mesh, check: Any) -> None:
    spec = jax.sharding.NamedSharding(mesh.to_jax(), jax.sharding.PartitionSpec(None, "M"))

    def f(x: Any) -> Any:
        return jax.lax.with_sharding_constraint(x * 2, spec) + 1

    report = check(f, [np.ones((8, 4), np.float32)], [partir.ManualPartition({"x": 0}, "B")])
    assert str(report.outputs["result"]) == "f32[8{B}, 4]"


class TestTag:
    """`partir.tag`."""

    def test_is_the_identity_under_transformations(self) -> None:
        x = jnp.arange(4.0)
        tagged = partial(partir.tag, name="value")
        np.testing.assert_array_equal(tagged(x), x)
        np.testing.assert_array_equal(jax.jit(tagged)(x), x)
        np.testing.assert_array_equal(jax.vmap(tagged)(x), x)
        np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(tagged(x) ** 2))(x), 2 * x)
        np.testing.assert_array_equal(jax.jvp(tagged, (x,), (2 * x,))[1], 2 * x)
        assert jax.hessian(lambda x: jnp.sum(tagged(x) ** 3))(x).shape == (4, 4)

    def test_names_values_for_tactics(self, check: Any) -> None:
        def f(x: Any, w: Any) -> Any:
            return jnp.tanh(partir.tag(x @ w, "hidden")) @ w.T

        args = [np.ones((8, 4), np.float32), np.ones((4, 16), np.float32) / 4]
        report = check(f, args, [partir.ManualPartition({"hidden": 1}, "B")])
        assert str(report.inputs["w"]) == "f32[4, 16{B}]"
        report.assert_collectives(all_reduce=1)

    def test_stands_for_all_uses_of_the_name(self) -> None:
        def f(x: Any) -> Any:
            for _ in range(3):
                x = partir.tag(jnp.sin(x), "layer")
            return x

        assert len(program_of(f, X).tags["layer"]) == 3

    @pytest.mark.parametrize("name", ["", 3])
    def test_needs_a_name(self, name: Any) -> None:
        with pytest.raises(TracingError, match=r"^a tag's name is a non-empty string, got "):
            partir.tag(jnp.ones(3), name)
