"""Partitioned functions run: as `jax.jit` in every respect, with the numbers of the unpartitioned run."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.models import gpt, llama, stacked
from benchmarks.models.decode import decode
from benchmarks.models.schedules import BP, GPT_MP, GPT_Z2, GPT_Z3, LLAMA_MP, LLAMA_Z3
from redist import Layout, LayoutError, Mesh, TracingError
from redist import partir_core as partir
from redist.partir_core import FIRST_DIVISIBLE_DIM, ManualPartition

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
SCHEDULE = [ManualPartition({"x": 0}, "B"), ManualPartition({"w": 1}, "M")]


def dense(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def stablehlo_counts(text: str) -> dict[str, int]:
    """Collectives in what XLA is given."""
    kinds = ("all_gather", "all_reduce", "reduce_scatter", "all_to_all", "collective_permute")
    return {kind.removeprefix("collective_"): len(re.findall(rf"stablehlo\.{kind}\b", text)) for kind in kinds}


def numbers(config: Any, module: Any, scale: float = 0.02) -> tuple[Any, Any, Any]:
    """(parameters, optimizer state, batch): scales around 1, what else is floating around 0."""
    rng = np.random.default_rng(0)
    params, state, batch = module.shapes(config)
    params = {
        layer: jax.tree.map_with_path(
            lambda path, s: (
                np.float32("scale" in str(path) or "norm" in str(path))
                + scale * rng.standard_normal(s.shape, np.float32)
            ),
            values,
        )
        for layer, values in params.items()
    }
    state = jax.tree.map(lambda s: np.zeros(s.shape, np.float32), state)
    return params, state, jax.tree.map(lambda s: rng.integers(0, config.vocabulary, s.shape, np.int32), batch)


def steps(step: Any, params: Any, state: Any, batch: Any, count: int = 3) -> tuple[Any, list[float]]:
    losses: list[float] = []
    for _ in range(count):
        params, state, loss = step(params, state, batch)
        losses.append(float(loss))
    return params, losses


@pytest.mark.parametrize(
    "model, schedule",
    [
        ("gpt", [BP, GPT_MP, GPT_Z2]),
        ("gpt", [GPT_MP]),
        ("gpt, clipped and checkpointed", [BP, GPT_MP, GPT_Z3]),
        *(
            pytest.param(model, schedule, marks=pytest.mark.heavy)
            for model, schedule in (
                ("gpt of two layers", [BP]),
                ("gpt of two layers", [BP, GPT_MP]),
                ("gpt of two layers", [BP, GPT_MP, GPT_Z2]),
                ("gpt of two layers", [BP, GPT_MP, GPT_Z3]),
                ("gpt of two layers", [GPT_MP]),
                ("llama of two layers", [BP, LLAMA_MP, LLAMA_Z3]),
            )
        ),
    ],
)
def test_training_steps(mesh: Mesh, model: str, schedule: Any) -> None:
    """Three steps; the report's collectives are those of the program that XLA is given."""
    module: Any = llama if "llama" in model else gpt
    extras = {"clip": True, "checkpoint": True} if "clipped" in model else {}
    config = replace(module.SMALL, layers=2 if "two" in model else 1, **extras)
    params, state, batch = numbers(config, module)
    step = partial(module.training_step, config)
    partitioned = partir.jit(step, mesh, schedule)
    got, losses = steps(partitioned, params, state, batch)
    expected, plain_losses = steps(jax.jit(step), params, state, batch)
    np.testing.assert_allclose(losses, plain_losses, rtol=1e-5)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), atol=3e-5)
    lowered = partitioned.lower(params, state, batch)
    assert stablehlo_counts(lowered.as_text("stablehlo")) == dict(lowered.report.collectives)


def test_decoding(mesh: Mesh) -> None:
    config = gpt.SMALL
    params = numbers(config, gpt, 0.4)[0]
    tokens = jnp.arange(8) * 3 % config.vocabulary
    expected = jax.jit(partial(decode, config))(params, tokens)
    for schedule in ([ManualPartition({"tokens": 0}, "B")], [ManualPartition({"tokens": 0}, "B"), GPT_MP]):
        got = partir.jit(partial(decode, config), mesh, schedule)(params, tokens)
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_stacked_layers_under_zero3(check: Any) -> None:
    ws = stacked.weights_of(4)
    m = jax.tree.map(np.zeros_like, ws)
    tactics = [ManualPartition({"x": 0}, "B"), ManualPartition({"ws/up": 2, "ws/down": 1}, "M")]
    zero = ManualPartition({"ws": FIRST_DIVISIBLE_DIM, "m": FIRST_DIVISIBLE_DIM}, "B")
    report = check(stacked.training_step, [ws, m, X], [*tactics, zero])
    # Per layer: up, bias and down gathered forward, and again backward but for the bias, whose gradient needs
    # no bias; three gradients scattered; one sum over columns each way, and one mean. The loss once.
    report.assert_collectives(all_gather=4 * 5, reduce_scatter=4 * 3, all_reduce=4 * 3 + 1)


@pytest.mark.parametrize("schedule", [SCHEDULE, [ManualPartition({"x": 1}, "B"), ManualPartition({"w": 1}, "M")]])
def test_control_flow(check: Any, schedule: Any) -> None:
    def f(x: Any, w: Any, n: Any) -> Any:
        def condition(state: Any) -> Any:
            return (state[1] < n) & (jnp.sum(state[0]) < 1e6)

        def body(state: Any) -> Any:
            return jnp.tanh(state[0] @ w) + state[0], state[1] + 1

        y, count = jax.lax.while_loop(condition, body, (x, 0))
        z = jax.lax.cond(jnp.sum(y) > 0, lambda y: y @ w, lambda y: y * 2, y)
        return jax.lax.switch(count % 3, [jnp.sin, jnp.cos, lambda z: z], z), count

    for n in (0, 5):
        check(f, [X, W, np.int32(n)], schedule)


@pytest.mark.parametrize("key", [jax.random.key(3), jax.random.PRNGKey(3)])
def test_random_numbers_are_those_of_the_whole(check: Any, key: Any) -> None:
    def f(key: Any, x: Any) -> Any:
        noise, mask = jax.random.split(key)
        return x + jax.random.normal(noise, x.shape), jax.random.bernoulli(mask, 0.5, x.shape)

    check(f, [key, X], SCHEDULE[:1]).assert_collectives()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8", "bool", "complex64"])
def test_dtypes(check: Any, dtype: str) -> None:
    x = jnp.asarray(np.round(4 * X)).astype(dtype)

    def f(x: Any) -> Any:
        return jnp.sum(x, axis=0), jnp.sort(x.real if x.dtype == jnp.complex64 else x, axis=0), x.T

    check(f, [x], [ManualPartition({"x": 0}, "B")])


def test_sub_axes(check: Any) -> None:
    report = check(dense, [X, W], [ManualPartition({"x": 0}, "B:(1)2"), ManualPartition({"w": 1}, "B:(2)2")])
    assert str(report.outputs["result"]) == "f32[16{B:(1)2}, 8{B:(2)2}]"


def test_a_mesh_of_other_devices(check: Any) -> None:
    report = check(dense, [X, W], SCHEDULE, Mesh({"B": 2, "M": 2}, [5, 3, 9, 0]))
    assert report.outputs["result"].mesh.device_ids == (5, 3, 9, 0)


def test_dimensions_of_equal_blocks_in_other_orders(check: Any) -> None:
    """A gathered axis that is not the minor one, and axes that trade places."""

    def f(x: Any, y: Any) -> Any:
        return (x + y) @ y.T

    def g(x: Any, y: Any) -> Any:
        return jnp.sort(x, axis=1) * 2 + jnp.sort(y, axis=0)

    both = [ManualPartition({"x": 0}, "B"), ManualPartition({"x": 0, "y": 0}, "M")]
    check(f, [X, X], both)
    swapped = [ManualPartition({"x": 0}, "B"), ManualPartition({"y": 1}, "M"), ManualPartition({"y": 1}, "B:(1)2")]
    check(g, [X, X], swapped)
    check(g, [X, X], [ManualPartition({"y": 1}, "B"), ManualPartition({"x": 0}, "M"), ManualPartition({"x": 0}, "B")])


class TestAsJit:
    """What `jax.jit` can, a partitioned function can."""

    def test_static_arguments(self, mesh: Mesh) -> None:
        traced: list[str] = []

        def f(x: Any, kind: str, *, power: int = 1) -> Any:
            traced.append(kind)
            return getattr(jnp, kind)(x) ** power

        fn = partir.jit(f, mesh, SCHEDULE[:1], static_argnums=1, static_argnames="power")
        for _ in range(2):
            np.testing.assert_allclose(fn(X, "sin", power=2), np.sin(X) ** 2, rtol=1e-5)
            np.testing.assert_allclose(fn(X, "cos"), np.cos(X), rtol=1e-5)
        assert traced == ["sin", "cos"]

    def test_it_traces_once_per_shapes(self, mesh: Mesh) -> None:
        shapes: list[Any] = []

        def f(x: Any) -> Any:
            shapes.append(x.shape)
            return x * 2

        fn = partir.jit(f, mesh, SCHEDULE[:1])
        for rows in (8, 16, 8, 16):
            fn(np.ones((rows, 4), np.float32))
        assert shapes == [(8, 4), (16, 4)]

    def test_donation(self, mesh: Mesh) -> None:
        fn = partir.jit(lambda x, w: x * 2 + w[0], mesh, SCHEDULE[:1], donate_argnames="x")
        x = fn(X, W)
        y = fn(x, W)
        assert x.is_deleted() and not y.is_deleted()
        np.testing.assert_allclose(np.asarray(y), 4 * X + 3 * W[0], rtol=1e-5)

    def test_inputs_from_anywhere(self, mesh: Mesh) -> None:
        fn = partir.jit(dense, mesh, SCHEDULE)
        expected = np.tanh(X @ W)
        elsewhere = jax.sharding.NamedSharding(Mesh({"z": 4}).to_jax(), jax.sharding.PartitionSpec(None, "z"))
        for x in (X, jnp.asarray(X), jax.device_put(X, jax.devices()[7]), jax.device_put(X, elsewhere)):
            np.testing.assert_allclose(np.asarray(fn(x, W)), expected, rtol=1e-5)

    def test_python_scalars(self, mesh: Mesh) -> None:
        fn = partir.jit(lambda x, a, b: x * a + b, mesh, SCHEDULE[:1])
        y = fn(X, 2, 0.5)
        assert y.dtype == jnp.float32
        np.testing.assert_allclose(np.asarray(y), 2 * X + 0.5, rtol=1e-6)

    def test_inside_jit_and_vmap(self, mesh: Mesh) -> None:
        fn = partir.jit(dense, mesh, SCHEDULE)
        np.testing.assert_allclose(np.asarray(jax.jit(lambda x: fn(x, W) + 1)(X)), np.tanh(X @ W) + 1, atol=1e-6)
        pair = np.stack([X, 2 * X])
        np.testing.assert_allclose(
            np.asarray(jax.vmap(fn, (0, None))(pair, W)), np.tanh(pair @ W), rtol=1e-5, atol=1e-6
        )

    @pytest.mark.parametrize("jitted", [False, True])
    def test_derivatives(self, mesh: Mesh, jitted: bool) -> None:
        def f(x: Any, w: Any) -> Any:
            return jnp.sum(jax.nn.softmax(jnp.tanh(x @ w) @ w.T) ** 2)

        fn = partir.jit(f, mesh, SCHEDULE)
        for make in (
            lambda g: jax.grad(g, (0, 1)),
            lambda g: lambda x, w: jax.jvp(g, (x, w), (w[0] + x, w)),
            lambda g: lambda x, w: jax.jvp(lambda w: jax.grad(g, 1)(x, w), (w,), (w,)),
        ):
            got, expected = (jax.jit(make(g)) if jitted else make(g) for g in (fn, f))
            for one, other in zip(jax.tree.leaves(got(X, W)), jax.tree.leaves(expected(X, W)), strict=True):
                np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-3, atol=1e-5)

    def test_derivatives_that_the_function_defines(self, mesh: Mesh) -> None:
        @jax.custom_vjp
        def tripled(x: Any) -> Any:
            return x

        tripled.defvjp(lambda x: (x, None), lambda _, g: (3 * g,))
        fn = partir.jit(lambda x, n: {"y": tripled(x), "n": n + 1}, mesh, SCHEDULE[:1])
        grad = jax.grad(lambda x: jnp.sum(fn(x, np.int32(1))["y"]))(X)
        np.testing.assert_array_equal(np.asarray(grad), np.full_like(X, 3))

    @pytest.mark.parametrize("axes", [("B", "M"), ("B", "M:(1)2"), ("B:(1)2", "B:(2)2")])
    def test_explicit_meshes(self, axes: tuple[str, str]) -> None:
        explicit = jax.make_mesh((4, 4), ("B", "M"), devices=jax.devices()[:16])
        with jax.set_mesh(explicit):
            x = jax.device_put(X, jax.P("B", None))
            schedule = [ManualPartition({"x": 0}, axes[0]), ManualPartition({"w": 1}, axes[1])]
            fn = partir.jit(lambda x, w: jnp.sum(jax.nn.softmax(dense(x, w) + jnp.arange(8.0)), 1), explicit, schedule)
            expected = np.sum(jax.nn.softmax(np.tanh(X @ W) + np.arange(8.0)), 1)
            np.testing.assert_allclose(np.asarray(fn(x, W)), expected, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(np.asarray(jax.jit(fn)(x, W)), expected, rtol=1e-4, atol=1e-6)
            if axes[0] != "B":  # the result is cut along half an axis, for which an explicit mesh has no type
                return
            fn = partir.jit(lambda x, w: jnp.sum(jax.nn.softmax(dense(x, w)) ** 2, 1), explicit, schedule)
            grad = jax.jit(jax.grad(lambda x: jnp.sum(fn(x, W) ** 2)))(x)
            plain = jax.grad(lambda x: jnp.sum(jnp.sum(jax.nn.softmax(jnp.tanh(x @ W)) ** 2, 1) ** 2))(X)
            np.testing.assert_allclose(np.asarray(grad), np.asarray(plain), rtol=1e-3, atol=1e-6)

    def test_shardings_for_jit(self, mesh: Mesh) -> None:
        """What a schedule decides, for those who stay with `jax.jit`."""
        lowered = partir.jit(dense, mesh, SCHEDULE).lower(X, w=W)
        args, kwargs = lowered.in_shardings
        spec = jax.sharding.PartitionSpec
        assert (args[0].spec, kwargs["w"].spec, lowered.out_shardings.spec) == (
            spec("B", None),
            spec(None, "M"),
            spec("B", "M"),
        )
        fn = jax.jit(dense, in_shardings=(args[0], kwargs["w"]), out_shardings=lowered.out_shardings)
        np.testing.assert_allclose(np.asarray(fn(X, W)), np.tanh(X @ W), atol=1e-6)

    def test_one_inside_another_is_the_plain_function(self, mesh: Mesh, check: Any) -> None:
        inner = partir.jit(dense, mesh, [ManualPartition({"w": 1}, "M")])
        report = check(lambda x, w: inner(x, w) + 1, [X, W], SCHEDULE[:1])
        assert str(report.outputs["result"]) == "f32[16{B}, 8]"

    def test_functions_that_are_partitioned_by_hand(self, mesh: Mesh) -> None:
        spec = jax.sharding.PartitionSpec("B")
        by_hand = jax.shard_map(jnp.sin, mesh=mesh.to_jax(), in_specs=spec, out_specs=spec)
        with pytest.raises(TracingError, match=r"^the function calls shard_map at .*, which is partitioned by hand"):
            partir.jit(lambda x: by_hand(x) + 1, mesh, SCHEDULE[:1]).lower(X)

    def test_compiled(self, mesh: Mesh) -> None:
        lowered = partir.jit(dense, mesh, SCHEDULE).lower(X, W)
        assert lowered.out_info.shape == (16, 8)
        compiled = lowered.compile()
        y = compiled(X, W)
        assert Layout.from_jax(y.shape, y.dtype, y.sharding) == lowered.report.outputs["result"]
        with pytest.raises(LayoutError) as caught:
            compiled(X[:8], W.astype(np.int32))
        assert str(caught.value) == (
            "compiled for other shapes: x is float32[8,8], not f32[16,8]; w is int32[8,8], not f32[8,8]; lower for "
            "these instead"
        )
        with pytest.raises(LayoutError, match=r"^compiled for arguments PyTreeDef.*; lower for these instead$"):
            compiled(X)

    @pytest.mark.parametrize(
        "options, args, message",
        [
            ({}, (X, "w"), "w is 'w': arguments are arrays and pytrees of arrays; name others in static_argnames"),
            ({"static_argnums": 1}, (X, [1]), "static arguments are to be hashable: 1=[1]"),
            ({"static_argnames": "y"}, (X, W), "the function has no arguments y; it has x, w"),
            (
                {"static_argnums": 0, "donate_argnames": "x"},
                (X, W),
                "arguments [0] are both static and donated; a static one holds no arrays",
            ),
        ],
    )
    def test_wrong_arguments(self, mesh: Mesh, options: Any, args: Any, message: str) -> None:
        with pytest.raises(TracingError) as caught:
            partir.jit(dense, mesh, [], **options)(*args)
        assert str(caught.value) == message

    def test_devices_that_are_not_there(self) -> None:
        fn = partir.jit(dense, Mesh({"B": 64}), [])
        assert fn.lower(X, W).report.peak_bytes > 0  # analysis needs none
        with pytest.raises(LayoutError, match=r"holds devices that JAX does not have: 32\.\.63"):
            fn(X, W)
