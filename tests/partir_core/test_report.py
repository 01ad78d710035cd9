"""Reports: bytes, FLOPs and memory counted by hand, texts, JSON, and the assertion on collectives."""

from __future__ import annotations

import inspect
import json
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from redist import Mesh, TracingError
from redist import partir_core as partir
from redist.partir_core import UNKNOWN, ManualPartition


def shape(*sizes: int, dtype: str = "float32") -> Any:
    return jax.ShapeDtypeStruct(sizes, dtype)


def report_of(fn: Any, args: Any, *tactics: tuple[dict[str, Any], str], **options: Any) -> partir.Report:
    schedule = [ManualPartition(entries, axis) for entries, axis in tactics]
    return partir.jit(fn, Mesh({"B": 4, "M": 2}), schedule, **options).lower(*args).report


def product(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def test_bytes_received_by_kind() -> None:
    report = report_of(product, (shape(16, 8), shape(8, 8)), ({"x": 0}, "B"), ({"w": 0}, "B"), ({"w": 1}, "M"))
    # w is 2x4 on a device; its 8x4 columns are gathered.
    assert report.bytes == {"all_gather": 4 * (8 * 4) * 3 // 4, **dict.fromkeys(
        ("all_reduce", "reduce_scatter", "all_to_all", "permute"), 0)}  # fmt: skip
    assert report.received_bytes == 96


def test_bytes_of_loops_are_multiplied() -> None:
    def f(x: Any, w: Any) -> Any:
        return jax.lax.fori_loop(0, 7, lambda _, h: jnp.tanh(h @ w) @ w.T, x)

    report = report_of(f, (shape(16, 8), shape(8, 8)), ({"w": 1}, "M"))
    assert report.bytes["all_reduce"] == 7 * 4 * 16 * 8  # over 2 devices a block is received once
    assert report.flops == 7 * (2 * 16 * 8 * 4 + 16 * 4 + 2 * 16 * 8 * 4)


@pytest.mark.parametrize(
    "fn, args, flops",
    [
        (product, (shape(16, 8), shape(8, 8)), 2 * 4 * 8 * 8 + 4 * 8),
        (lambda x: x.T, (shape(16, 8),), 0),
        (partial(jnp.sum, axis=1), (shape(16, 8),), 4 * 8),
        (lambda x: jnp.broadcast_to(x[:, None], (16, 4, 8)), (shape(16, 8),), 0),
        (
            lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
            (shape(8, 6, 6, 3), shape(3, 3, 3, 5)),
            2 * (2 * 6 * 6 * 5) * (3 * 3 * 3),
        ),
    ],
)
def test_flops_of_a_device(fn: Any, args: Any, flops: int) -> None:
    assert report_of(fn, args, ({"**": rows}, "B")).flops == flops


def rows(name: str, value: Any) -> Any:
    """The first argument's first dimension."""
    return UNKNOWN if name == "w" else 0


def test_flops_agree_with_the_compilers(mesh: Mesh) -> None:
    def f(x: Any, w: Any) -> Any:
        return jax.grad(lambda w: jnp.sum(product(x, w) ** 2))(w)

    lowered = partir.jit(f, mesh, [ManualPartition({"x": 0}, "B")]).lower(shape(256, 64), shape(64, 128))
    compiled = lowered.compile().executable.cost_analysis()["flops"]
    assert lowered.report.flops == pytest.approx(compiled, rel=0.02)


class TestMemory:
    """Peak memory: arguments, and what is alive with them."""

    def test_arguments_and_results(self) -> None:
        report = report_of(lambda x: jnp.sort(x, axis=0), (shape(16, 8),), ({"x": 0}, "B"))
        x, gathered = 4 * 8 * 4, 16 * 8 * 4
        # While gathering, the input and output and as much staging; while sorting, x and two whole arrays.
        assert report.peak_bytes == max(2 * (x + gathered), x + 2 * gathered)

    def test_what_is_donated_is_freed(self) -> None:
        def f(x: Any) -> Any:
            return jnp.sort(jnp.sort(x))

        block = 16 * 8 * 4 // 4
        assert report_of(f, (shape(16, 8),), ({"x": 0}, "B")).peak_bytes == 3 * block
        assert report_of(f, (shape(16, 8),), ({"x": 0}, "B"), donate_argnums=0).peak_bytes == 2 * block

    def test_elementwise_chains_take_one_buffer(self) -> None:
        def f(x: Any) -> Any:
            return jnp.tanh(jnp.sin(x) * 2 + jnp.ones(8))

        assert report_of(f, (shape(16, 8),)).peak_bytes == 2 * 16 * 8 * 4

    def test_an_elementwise_result_overwrites_what_dies(self) -> None:
        assert report_of(lambda x: jnp.tanh(jnp.sort(x)), (shape(16, 8),)).peak_bytes == 2 * 16 * 8 * 4

    def test_a_loop_holds_one_iteration(self) -> None:
        def f(x: Any, ws: Any) -> Any:
            return jax.lax.scan(lambda h, w: (jnp.sort(h @ w), None), x, ws)[0]

        x, ws, w = 16 * 8 * 4, 5 * 8 * 8 * 4, 8 * 8 * 4
        # Arguments, and the carry, whose place is the result's; the most is alive while a layer multiplies it.
        assert report_of(f, (shape(16, 8), shape(5, 8, 8))).peak_bytes == x + ws + (x + w + x)

    def test_a_loop_takes_over_what_dies_with_it(self) -> None:
        def f(x: Any) -> Any:
            h = jnp.sort(x)
            return jax.lax.while_loop(lambda h: h[0, 0] < 1, lambda h: h * 2 + 1, h)

        assert report_of(f, (shape(16, 8),)).peak_bytes == pytest.approx(2 * 16 * 8 * 4, abs=16)

    def test_what_a_loop_starts_from_stays_for_others(self) -> None:
        def f(x: Any) -> Any:
            h = jnp.sort(x)
            return jax.lax.fori_loop(0, 3, lambda _, g: jnp.sort(g @ h), h)

        square = 16 * 16 * 4
        # The argument, `h`, the carry, and the product while it is sorted into the carry's place.
        assert report_of(f, (shape(16, 16),)).peak_bytes == pytest.approx(4 * square, abs=64)

    @pytest.mark.parametrize(
        "branch, blocks",
        [
            pytest.param(jnp.sort, 3, id="result beside what is read"),
            pytest.param(lambda h: jnp.sort(jnp.sort(h)), 3, id="what dies in between makes room"),
            pytest.param(lambda h: jnp.sort(jnp.sort(h) @ h) @ h, 4, id="two at a time"),
            pytest.param(lambda h: h * 2, 2, id="in place"),
        ],
    )
    def test_a_branch_makes_the_result_where_it_stays(self, branch: Any, blocks: int) -> None:
        def f(p: Any, x: Any) -> Any:
            return jax.lax.cond(p, branch, lambda h: h + 1, jnp.sort(x))

        args = (jax.ShapeDtypeStruct((), np.bool_), shape(16, 16))
        assert report_of(f, args).peak_bytes == pytest.approx(blocks * 16 * 16 * 4, abs=16)

    def test_outer_products_and_transposes_are_computed_where_they_are_used(self) -> None:
        def f(a: Any, b: Any) -> Any:
            return 2 * jnp.einsum("bi,bj->bij", a, b).transpose(0, 2, 1) + 1

        a, result = 4 * 16 * 4, 4 * 16 * 16 * 4
        assert report_of(f, (shape(4, 16), shape(4, 16))).peak_bytes == 2 * a + result

    def test_it_is_near_what_the_compiler_needs(self, mesh: Mesh) -> None:
        def f(ws: Any, x: Any) -> Any:
            def loss(ws: Any) -> Any:
                h = x
                for w in ws:
                    h = jnp.tanh(h @ w)
                return jnp.sum(h * h)

            return jax.tree.map(lambda w, g: w - 0.1 * g, ws, jax.grad(loss)(ws))

        args = ([shape(128, 128)] * 6, shape(512, 128))
        for schedule in ([ManualPartition({"x": 0}, "B")], [ManualPartition({"ws/*": 1}, "M")]):
            lowered = partir.jit(f, mesh, schedule).lower(*args)
            sizes = lowered.compile().executable.memory_analysis()
            needed = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
            assert lowered.report.peak_bytes == pytest.approx(needed, rel=0.25)

    def test_loops_and_branches_are_near_what_the_compiler_needs(self, mesh: Mesh) -> None:
        def f(x: Any, w: Any) -> Any:
            def body(state: Any) -> Any:
                h, grown, n = state
                h = jax.lax.cond(n % 2 == 0, lambda h: jnp.tanh(h @ w), lambda h: h * 0.5, h)
                return h, grown + jnp.einsum("bi,bj->bij", h, h[:, :8]), n + 1

            start = jnp.sin(x), jnp.zeros((*x.shape, 8)), 0
            h, grown, _ = jax.lax.while_loop(lambda state: state[2] < 5, body, start)
            return jax.lax.scan(lambda h, g: (jnp.tanh(h) + g, jnp.sum(h)), h, grown.transpose(2, 0, 1))

        lowered = partir.jit(f, mesh, [ManualPartition({"x": 0}, "B")]).lower(shape(512, 64), shape(64, 64))
        sizes = lowered.compile().executable.memory_analysis()
        needed = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
        assert lowered.report.peak_bytes == pytest.approx(needed, rel=0.25)


def test_the_assertion_lists_what_there_is() -> None:
    report = report_of(product, (shape(16, 8), shape(8, 8)), ({"x": 0}, "B"), ({"w": 0}, "B"))
    report.assert_collectives(all_gather=1)
    line = inspect.getsourcelines(product)[1] + 1
    with pytest.raises(AssertionError) as caught:
        report.assert_collectives(all_reduce=2)
    assert str(caught.value) == (
        "all_gather: expected 0, the program has 1; all_reduce: expected 2, the program has 0\n"
        f"  all-gather dim 0 by B of f32[8{{B}}, 8] for dot_general at {__file__}:{line} (product), 192 B"
    )
    with pytest.raises(ValueError, match=r"^unknown collectives all_reduces; use some of all_gather, all_reduce, "):
        report.assert_collectives(all_reduces=2)


def test_table() -> None:
    def both(x: Any, w: Any) -> Any:
        return x @ w

    report = report_of(both, (shape(16, 8), shape(8, 8)), ({"x": 0, "w": 1}, "B"))
    line = inspect.getsourcelines(both)[1] + 1
    assert (
        str(report)
        == f"""\
after B(x: 0, w: 1)
  collective      number  received
  all_gather           2     576 B
  all_reduce           0       0 B
  reduce_scatter       0       0 B
  all_to_all           0       0 B
  permute              0       0 B
  2,048 flops, peak 1.44 KiB, 5.76e-08 s (per device, estimated)
  conflicts:
    dot_general at {__file__}:{line} ({both.__qualname__}): along B, operand 0 (x) is tiled in dimension 0; operand 1 \
(w) is tiled in dimension 1 (tactic B(x: 0, w: 1))"""
    )


def test_json() -> None:
    report = report_of(product, (shape(16, 8), shape(8, 8)), ({"x": 0, "w": 1}, "B"))
    data = json.loads(report.to_json())
    assert data["collectives"] == dict(report.collectives)
    assert data["inputs"] == {"x": "f32[16{B}, 8]", "w": "f32[8, 8{B}]"}
    assert data["conflicts"][0]["op"] == "dot_general" and len(data["moves"]) == 2
    assert (data["flops"], data["peak_bytes"]) == (report.flops, report.peak_bytes)


def test_random_keys_have_the_layout_of_their_words() -> None:
    def f(key: Any, x: Any) -> Any:
        return x + jax.random.uniform(key, x.shape)

    report = report_of(f, (jax.eval_shape(jax.random.key, 0), shape(16, 8)), ({"x": 0}, "B"))
    assert str(report.inputs["key"]) == "u32[2]"


@pytest.mark.parametrize(
    "kind, stage, message",
    [
        ("hlo", -1, "unknown kind of text 'hlo'; use 'core', 'spmd' or 'stablehlo'"),
        ("core", 2, "there is no stage 2: the schedule has 1 tactics; use 0..1"),
    ],
)
def test_texts_that_there_are_not(mesh: Mesh, kind: str, stage: int, message: str) -> None:
    lowered = partir.jit(jnp.sin, mesh, [ManualPartition({"x": 0}, "B")]).lower(np.ones((4, 4), np.float32))
    with pytest.raises(TracingError) as caught:
        lowered.as_text(kind, stage)
    assert str(caught.value) == message
