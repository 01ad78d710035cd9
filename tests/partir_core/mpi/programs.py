"""Partitioned functions on every rank, against `jax.jit` of the same functions: `mpiexec -n 4 python programs.py`."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ranks import MESH, RANK, WORLD, check, main, same

import redist
from benchmarks.models import gpt, stacked
from benchmarks.models.schedules import BP, GPT_MP, GPT_Z2, GPT_Z3
from redist import BackendError, Layout, Mesh
from redist import partir_core as partir
from redist.partir_core import FIRST_DIVISIBLE_DIM, DistributedArray, ManualPartition

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
COLUMNS = [ManualPartition({"x": 1}, "B"), ManualPartition({"w": 1}, "M")]
ROWS = [ManualPartition({"x": 0}, "B"), ManualPartition({"w": 1}, "M")]
SCHEDULES = {
    "BP": [BP],
    "MP": [GPT_MP],
    "BP+MP": [BP, GPT_MP],
    "BP+MP+Z2": [BP, GPT_MP, GPT_Z2],
    "BP+MP+Z3": [BP, GPT_MP, GPT_Z3],
}


def trained(step: Any, params: Any, state: Any, batch: Any) -> tuple[Any, list[float]]:
    losses: list[float] = []
    for _ in range(3):
        params, state, loss = step(params, state, batch)
        losses.append(float(loss))
    return params, losses


def training(layers: int = 1, names: Any = ("BP+MP+Z2", "BP+MP+Z3"), **extras: Any) -> Any:
    """Three steps of a GPT: the unpartitioned losses, and those under each schedule."""
    config = gpt.Config(layers=layers, width=16, heads=4, vocabulary=32, batch=8, length=8, **extras)
    key = jax.random.key(0)
    params, state = gpt.state_of(config, key)
    batch = gpt.batch_of(config, jax.random.key(1))
    step = partial(gpt.training_step, config)
    expected, losses = trained(jax.jit(step), params, state, batch)
    found: dict[str, Any] = {"unpartitioned": losses}
    for name in names:
        partitioned = partir.jit(step, MESH, SCHEDULES[name], backend="mpi")
        got, found[name] = trained(partitioned, params, state, batch)
        same(got, expected, rtol=0, atol=3e-5)
        assert len(partitioned._made) == 1  # what it returned came back without tracing again
    return found


def training_two_layers() -> Any:
    return training(2, SCHEDULES)


def training_clipped_and_checkpointed() -> Any:
    return training(1, ["BP+MP+Z3"], clip=True, checkpoint=True)


def scans() -> Any:
    ws = stacked.weights_of(3)
    tactics = [ManualPartition({"x": 0}, "B"), ManualPartition({"ws/up": 2, "ws/down": 1}, "M")]
    zero = ManualPartition({"ws": FIRST_DIVISIBLE_DIM, "m": FIRST_DIVISIBLE_DIM}, "B")
    check(stacked.training_step, [ws, jax.tree.map(np.zeros_like, ws), X], [*tactics, zero])

    def kept(x: Any, w: Any, key: Any, count: int) -> Any:
        """Carries that pass through, that trade places and that are given out twice; keys; both directions."""

        def body(carry: Any, given: Any) -> Any:
            a, b, still, key = carry
            key, now = jax.random.split(key)
            c = jnp.tanh(a @ w) + given
            return (b, c, still, key), (c.sum(0), c, now, still[0], jnp.sum(jax.random.normal(now, (8,))))

        xs = jnp.arange(float(count))
        forward = jax.lax.scan(body, (x, x + 1, w, key), xs)
        return forward, jax.lax.scan(body, (x, x + 1, w, key), xs, reverse=True)

    for count in (0, 1, 4):
        report = check(lambda x, w, key, count=count: kept(x, w, key, count), [X, W, jax.random.key(5)], COLUMNS)
        assert count == 0 or report.collectives["all_gather"] > 0


def control_flow() -> Any:
    def f(x: Any, w: Any, n: Any) -> Any:
        def condition(state: Any) -> Any:
            return (state[1] < n) & (jnp.sum(state[0]) < 1e6)

        def body(state: Any) -> Any:
            return jnp.tanh(state[0] @ w) + state[0], state[1] + 1

        y, count = jax.lax.while_loop(condition, body, (x, 0))
        z = jax.lax.cond(jnp.sum(y) > 0, lambda y: y @ w, lambda y: y, y)
        again = jax.lax.cond(count > 0, lambda z: z @ w, lambda z: z, z)
        return jax.lax.switch(count % 3, [jnp.sin, jnp.cos, lambda z: z], z), count, again, z * 2

    for schedule in (COLUMNS, ROWS):
        fn = partir.jit(f, MESH, schedule, backend="mpi")
        for x in (X, -X):
            for n in (0, 4, 5):
                same(fn(x, W, np.int32(n)), jax.jit(f)(x, W, np.int32(n)))


def random_numbers() -> Any:
    def f(key: Any, x: Any) -> Any:
        noise, mask = jax.random.split(key)
        return x + jax.random.normal(noise, x.shape), jax.random.bernoulli(mask, 0.5, x.shape), noise

    for key in (jax.random.key(3), jax.random.PRNGKey(3), jax.random.key(3, impl="rbg")):
        check(f, [key, X], ROWS[:1])

    def g(keys: Any, x: Any) -> Any:
        """Keys that are cut, gathered, and drawn from."""
        return jax.vmap(jax.random.normal)(keys) + x, keys[::-1]

    check(g, [jax.random.split(jax.random.key(0), 16), X[:, 0]], [ManualPartition({"x": 0}, "B")])


def dtypes() -> Any:
    for dtype in ("bfloat16", "float16", "int8", "bool", "complex64"):
        x = jnp.asarray(np.round(4 * X)).astype(dtype)

        def f(x: Any) -> Any:
            return jnp.sum(x, axis=0), jnp.sort(x.real if x.dtype == jnp.complex64 else x, axis=0), x.T

        check(f, [x], [ManualPartition({"x": 0}, "B")])


def meshes() -> Any:
    """Sub-axes, devices in another order, one rank, some ranks of the world."""

    def dense(x: Any, w: Any) -> Any:
        return jnp.tanh(x @ w) + W  # W is a constant

    x = X[:8]
    halves = [ManualPartition({"x": 0}, "B:(1)2"), ManualPartition({"w": 1}, "B:(2)2")]
    report = check(dense, [x, W], halves, Mesh({"B": 4}))
    assert str(report.outputs["result"]) == "f32[8{B:(1)2}, 8{B:(2)2}]"
    check(lambda x, w: dense(x, w) @ w, [x, W], COLUMNS, Mesh({"B": 2, "M": 2}, [2, 0, 3, 1]))
    pair = WORLD.Split(RANK % 2, RANK)
    fn = partir.jit(dense, Mesh({"B": 2}), COLUMNS[:1], backend="mpi", comm=pair)
    y = fn(x + RANK % 2, W)
    assert y.comm is pair
    np.testing.assert_allclose(y.gather(), np.tanh((x + RANK % 2) @ W) + W, rtol=1e-4, atol=1e-5)
    single = partir.jit(dense, Mesh({}), [], backend="mpi", comm=WORLD.Split(RANK, 0))
    np.testing.assert_allclose(single(x, W).block, np.tanh(x @ W) + W, rtol=1e-4, atol=1e-5)
    pair.Free()


def passing() -> Any:
    """Blocks of any layout go in; results go on, are gathered, converted and donated."""
    fn = partir.jit(lambda x, w: (jnp.tanh(x @ w), jnp.sum(x), x), MESH, ROWS, backend="mpi")
    expected = np.tanh(X @ W)
    texts = ("f32[16{B}, 8]", "f32[16, 8{M,B}]", "f32[16{M,B}:balanced, 8]", "f32[16{B}@[0,3], 8]")
    for layout in map(lambda text: Layout.parse(text, MESH), texts):
        x = DistributedArray(X[layout.box(RANK)], layout)
        assert x.shape == (16, 8) and x.dtype == np.float32
        y, total, kept = fn(x, W)
        np.testing.assert_allclose(y.gather(), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(float(total), X.sum(), rtol=1e-4)
        np.testing.assert_array_equal(kept.gather(), X)
    shares = DistributedArray(X * (RANK == 3), Layout.parse("f32[16, 8] sum{B,M}", MESH))
    np.testing.assert_allclose(fn(shares, W)[0].gather(), expected, rtol=1e-5, atol=1e-6)
    flat = Mesh({"r": 4}, [3, 1, 0, 2])
    layout = Layout.parse("f32[8, 8{r}]", flat)
    y, _, _ = fn(X, DistributedArray(jnp.asarray(W[layout.box(RANK)]), layout))
    redist.mpi.release(WORLD)  # what was kept is made anew
    np.testing.assert_allclose(fn(X, W)[0].gather(), expected, rtol=1e-5, atol=1e-6)
    assert repr(y) == "DistributedArray(f32[16{B}, 8{M}] on B=2,M=2)" and y.block.shape == (8, 4)
    at_two = y.gather(2)
    assert (at_two is None) == (RANK != 2)
    if at_two is not None:
        np.testing.assert_allclose(at_two, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(fn(y, W)[0].gather(), np.tanh(expected @ W), rtol=1e-5, atol=1e-6)
    mine = X.copy()
    y, _, kept = fn(mine, W)
    mine[:] = 0  # the caller's memory is the caller's
    np.testing.assert_array_equal(kept.gather(), X)


def donation() -> Any:
    def f(x: Any, n: Any) -> Any:
        return x * 2 + jnp.mean(x), n + 1

    fn = partir.jit(f, MESH, [ManualPartition({"x": 0}, "B")], backend="mpi", donate_argnames="x")
    x, n = fn(X, 0)
    held = x.block.ctypes.data
    y, m = fn(x, n)
    same((y, m), jax.jit(f)(jax.jit(f)(X, 0)[0], 1))
    assert int(n) == 1 and int(m) == 2
    assert y.block.ctypes.data == held  # the same memory
    given = partir.jit(lambda x: (x, x), MESH, [ManualPartition({"x": 0}, "B")], backend="mpi")
    one, two = given(y)
    fn(one, n)  # takes the memory of that one alone
    same((two, y), (y.gather(), y.gather()))
    try:
        x.gather()
    except BackendError as error:
        return str(error)
    return "nothing"


def compiled() -> Any:
    lowered = partir.jit(lambda x, w: jnp.tanh(x @ w) @ w, MESH, COLUMNS, backend="mpi").lower(X, w=W)
    ready = lowered.compile()
    same(ready(X, w=W), np.tanh(X @ W) @ W)
    return dict(lowered.report.collectives)


def plain_calls() -> Any:
    """Static arguments, Python scalars, pytrees, results that are literals or inputs, no traffic at all."""
    made: list[str] = []

    def f(x: Any, kind: str, scale: Any) -> Any:
        made.append(kind)
        return {"y": getattr(jnp, kind)(x) * scale, "one": 1.0, "x": x}

    fn = partir.jit(f, MESH, [ManualPartition({"x": 0}, "B")], backend="mpi", static_argnames="kind")
    for kind in ("sin", "cos", "sin"):
        got = fn(X, kind, 2)
        same(got, jax.jit(f, static_argnames="kind")(X, kind, 2))
    assert sorted(made) == ["cos", "cos", "sin", "sin"]  # once by each
    inner = partir.jit(lambda x: x + 1, MESH, [], backend="mpi")
    outer = partir.jit(lambda x: inner(x) * 2, MESH, [ManualPartition({"x": 0}, "B")], backend="mpi")
    y = outer(X)
    same(y, 2 * (X + 1))
    assert str(y.layout) == "f32[16{B}, 8]"


if __name__ == "__main__":
    main(globals())
