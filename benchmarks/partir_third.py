"""Programs of third parties, written as their users write them: what partitioning has to cope with, unchanged.

Each builder imports its library and returns the function, its arguments and its schedules, over a batch axis B=4 and
a model axis M=2.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from redist.partir_core import FIRST_DIVISIBLE_DIM, REPLICATED, ManualPartition

__all__ = ["PROGRAMS", "Case"]

Schedules = Mapping[str, Sequence[ManualPartition]]


@dataclass(frozen=True, slots=True)
class Case:
    """A function, its arguments, and schedules by name."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    schedules: Schedules


def _numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _tile(axis: str, label: str, **dims: Any) -> ManualPartition:
    return ManualPartition({name.replace("__", "/"): dim for name, dim in dims.items()}, axis, label=label)


def _first(axis: str, label: str, *names: str) -> ManualPartition:
    return ManualPartition(dict.fromkeys(names, FIRST_DIVISIBLE_DIM), axis, label=label)


_BATCH = _tile("B", "BP", x=0, y=0)


def nnx_attention() -> Case:
    """flax.nnx: a Transformer block with dropout and optax's AdamW through `nnx.Optimizer`, split and merged."""
    nnx: Any = importlib.import_module("flax.nnx")
    optax: Any = importlib.import_module("optax")

    class Block(nnx.Module):  # type: ignore[misc, name-defined]
        def __init__(self, rngs: Any) -> None:
            self.norm = nnx.LayerNorm(16, rngs=rngs)
            self.attention = nnx.MultiHeadAttention(4, 16, decode=False, rngs=rngs)
            self.up = nnx.Linear(16, 64, rngs=rngs)
            self.down = nnx.Linear(64, 16, rngs=rngs)
            self.dropout = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            h = x + self.attention(self.norm(x))
            return h + self.dropout(self.down(nnx.gelu(self.up(h))))

    model = Block(nnx.Rngs(0))
    # The gradient of the keys' bias is 0 but for rounding, which Adam would blow up without a larger epsilon.
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2, eps=1e-3), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))

    def step(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)

        def loss(model: Any) -> Any:
            return jnp.mean((model(x) - y) ** 2)

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value, nnx.state((model, optimizer))

    heads = ManualPartition(
        {
            "state/0/attention/query/kernel/**": 1,
            "state/0/attention/key/kernel/**": 1,
            "state/0/attention/value/kernel/**": 1,
            "state/0/attention/out/kernel/**": 0,
            "state/0/up/kernel/**": 1,
            "state/0/down/kernel/**": 0,
        },
        "M",
        label="MP",
    )
    return Case(
        step, (state, _numbers(8, 6, 16), _numbers(8, 6, 16, seed=1)), {"BP": [_BATCH], "BP+MP": [_BATCH, heads]}
    )


def linen_cnn() -> Case:
    """flax.linen: a convolutional classifier with batch norm, its statistics in a mutable collection, and optax SGD
    with momentum through `TrainState`."""
    nn: Any = importlib.import_module("flax.linen")
    train_state: Any = importlib.import_module("flax.training.train_state")
    optax: Any = importlib.import_module("optax")

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.relu(nn.BatchNorm(use_running_average=False)(nn.Conv(8, (3, 3))(x)))
            x = nn.max_pool(x, (2, 2), strides=(2, 2))
            x = nn.relu(nn.Conv(16, (3, 3), strides=(2, 2))(x))
            x = x.reshape(x.shape[0], -1)
            return nn.Dense(4)(nn.relu(nn.Dense(32)(x)))

    class State(train_state.TrainState):  # type: ignore[misc, name-defined]
        batch_stats: Any

    net = Net()
    x, y = _numbers(8, 8, 8, 3), np.arange(8, dtype=np.int32) % 4
    variables = net.init(jax.random.key(0), x)
    state = State.create(
        apply_fn=net.apply,
        params=variables["params"],
        tx=optax.sgd(0.1, momentum=0.9),
        batch_stats=variables["batch_stats"],
    )

    def step(state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            given = {"params": params, "batch_stats": state.batch_stats}
            logits, new = state.apply_fn(given, x, mutable=["batch_stats"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
        return state.apply_gradients(grads=grads).replace(batch_stats=new["batch_stats"]), value

    channels = _tile(
        "M", "MP", state__params__Conv_0__kernel=3, state__params__Dense_0__kernel=1, state__params__Dense_1__kernel=0
    )
    return Case(step, (state, x, y), {"BP": [_BATCH], "BP+MP": [_BATCH, channels]})


def optax_lbfgs() -> Case:
    """optax: logistic regression by L-BFGS with its zoom line search, two steps: loops inside a conditional loop."""
    optax: Any = importlib.import_module("optax")
    solver = optax.lbfgs(memory_size=4)
    x, y = _numbers(2048, 512), (np.arange(2048) % 2).astype(np.float32)

    def fit(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            return optax.sigmoid_binary_cross_entropy(x @ w, y).mean() + 1e-2 * jnp.sum(w * w)

        state = solver.init(w)
        for _ in range(2):
            value, grad = optax.value_and_grad_from_state(loss)(w, state=state)
            updates, state = solver.update(grad, state, w, value=value, grad=grad, value_fn=loss)
            w = optax.apply_updates(w, updates)
        return w, loss(w)

    both = _tile("M", "features", x=1)
    return Case(fit, (np.zeros(512, np.float32), x, y), {"BP": [_BATCH], "BP+features": [_BATCH, both]})


def optax_zoo() -> Case:
    """optax: a chain of clipping, Lion, a schedule, accumulation over two steps and an exponential average."""
    optax: Any = importlib.import_module("optax")
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10)
    chain = optax.chain(optax.clip_by_global_norm(1.0), optax.lion(schedule), optax.ema(0.9))
    solver = optax.MultiSteps(chain, every_k_schedule=2)
    params = {"up": _numbers(16, 32), "down": _numbers(32, 16, seed=1), "bias": np.zeros(32, np.float32)}
    state = solver.init(params)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return optax.huber_loss(jnp.tanh(x @ p["up"] + p["bias"]) @ p["down"], y).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = solver.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    zero = ManualPartition(
        {"params": REPLICATED, "state/**/up": FIRST_DIVISIBLE_DIM, "state/**/down": FIRST_DIVISIBLE_DIM},
        "B",
        label="Z2",
    )
    args = (params, state, _numbers(16, 16), _numbers(16, 16, seed=2))
    return Case(step, args, {"BP": [_BATCH], "BP+Z2": [_BATCH, zero]})


def equinox_gru() -> Case:
    """equinox: a GRU over a scan, vmapped over the batch, filtered gradients, optax Adam."""
    eqx: Any = importlib.import_module("equinox")
    optax: Any = importlib.import_module("optax")

    class Model(eqx.Module):  # type: ignore[misc, name-defined]
        cell: Any
        head: Any

        def __init__(self, key: Any) -> None:
            a, b = jax.random.split(key)
            self.cell = eqx.nn.GRUCell(4, 16, key=a)
            self.head = eqx.nn.Linear(16, 2, key=b)

        def __call__(self, xs: Any) -> Any:
            h, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), jnp.zeros(16), xs)
            return self.head(h)

    model = Model(jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    solver = optax.adam(1e-2)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        @eqx.filter_value_and_grad
        def loss(params: Any) -> Any:
            return jnp.mean((jax.vmap(eqx.combine(params, static))(x) - y) ** 2)

        value, grads = loss(params)
        updates, state = solver.update(grads, state)
        return eqx.apply_updates(params, updates), state, value

    zero = _first("B", "Z3", "params/cell", "state/0/*/cell")
    args = (params, solver.init(params), _numbers(8, 5, 4), _numbers(8, 2, seed=1))
    return Case(step, args, {"BP": [_BATCH], "BP+Z3": [_BATCH, zero]})


def haiku_lstm() -> Case:
    """dm-haiku: an LSTM with layer norm and an embedding, `hk.transform` and `hk.dynamic_unroll`."""
    hk: Any = importlib.import_module("haiku")

    def network(tokens: Any) -> Any:
        x = hk.Embed(16, 8)(tokens)
        core = hk.LSTM(16)
        ys, _ = hk.dynamic_unroll(core, x, core.initial_state(tokens.shape[0]), time_major=False)
        return hk.nets.MLP([32, 16])(hk.LayerNorm(-1, True, True)(ys))

    net = hk.without_apply_rng(hk.transform(network))
    tokens = np.random.default_rng(0).integers(0, 16, (8, 6), np.int32)
    params = net.init(jax.random.key(0), tokens)

    def step(params: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(net.apply(params, x)), y[..., None], -1))

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    names = {"params/mlp~linear_0/w": 1, "params/mlp~linear_1/w": 0}
    model = ManualPartition({name.replace("mlp~", "mlp/~/"): dim for name, dim in names.items()}, "M", label="MP")
    return Case(step, (params, tokens, (tokens + 1) % 16), {"BP": [_BATCH], "BP+MP": [_BATCH, model]})


def diffrax_neural_ode() -> Case:
    """diffrax: gradients through an adaptive Tsit5 solve of a neural differential equation, vmapped over the batch."""
    diffrax: Any = importlib.import_module("diffrax")

    def step(params: Any, x: Any, y: Any) -> Any:
        def field(t: Any, state: Any, params: Any) -> Any:
            return jnp.tanh(state @ params["up"] + t) @ params["down"]

        def solve(params: Any, start: Any) -> Any:
            found = diffrax.diffeqsolve(
                diffrax.ODETerm(field),
                diffrax.Tsit5(),
                0.0,
                1.0,
                0.1,
                start,
                params,
                stepsize_controller=diffrax.PIDController(1e-2, 1e-3),
                max_steps=32,
            )
            return found.ys[0]

        def loss(params: Any) -> Any:
            return jnp.mean((jax.vmap(solve, (None, 0))(params, x) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    params = {"up": 0.25 * _numbers(16, 128), "down": 0.1 * _numbers(128, 16, seed=1)}
    model = _tile("M", "MP", params__up=1, params__down=0)
    return Case(step, (params, _numbers(64, 16), _numbers(64, 16, seed=2)), {"BP": [_BATCH], "BP+MP": [_BATCH, model]})


def numpyro_hmc() -> Case:
    """numpyro: ten leapfrog steps of Hamiltonian Monte Carlo on a logistic regression, the potential from the model,
    and one ELBO of an automatic guide."""
    numpyro: Any = importlib.import_module("numpyro")
    dist: Any = importlib.import_module("numpyro.distributions")
    util: Any = importlib.import_module("numpyro.infer.util")
    infer: Any = importlib.import_module("numpyro.infer")
    guides: Any = importlib.import_module("numpyro.infer.autoguide")

    def model(x: Any, y: Any) -> None:
        w = numpyro.sample("w", dist.Normal(jnp.zeros(64), 1.0).to_event(1))
        scale = numpyro.sample("scale", dist.HalfCauchy(1.0))
        with numpyro.plate("data", x.shape[0]):
            numpyro.sample("y", dist.Bernoulli(logits=scale * (x @ w)), obs=y)

    x, y = _numbers(2048, 64) / 16, (np.arange(2048) % 2).astype(np.int32)
    guide = guides.AutoNormal(model)
    svi = infer.SVI(model, guide, numpyro.optim.Adam(0.01), infer.Trace_ELBO())
    fitted = svi.init(jax.random.key(0), x, y)

    def step(position: Any, state: Any, key: Any, x: Any, y: Any) -> Any:
        def potential(z: Any) -> Any:
            return util.potential_energy(model, (x, y), {}, z)

        noise, choice = jax.random.split(key)
        momentum = {"w": jax.random.normal(noise, (64,)), "scale": jax.random.normal(choice, ())}

        def leap(_: Any, zp: Any) -> Any:
            z, p = zp
            p = jax.tree.map(lambda p, g: p - 0.05 * g, p, jax.grad(potential)(z))
            z = jax.tree.map(lambda z, p: z + 0.1 * p, z, p)
            return z, jax.tree.map(lambda p, g: p - 0.05 * g, p, jax.grad(potential)(z))

        def energy(z: Any, p: Any) -> Any:
            return potential(z) + 0.5 * sum(jnp.sum(v * v) for v in jax.tree.leaves(p))

        new, end = jax.lax.fori_loop(0, 10, leap, (position, momentum))
        accept = jnp.log(jax.random.uniform(choice)) < energy(position, momentum) - energy(new, end)
        state, loss = svi.update(state, x, y)
        return jax.tree.map(lambda a, b: jnp.where(accept, a, b), new, position), state, loss

    position = {"w": np.zeros(64, np.float32), "scale": np.zeros((), np.float32)}
    both = _tile("M", "features", x=1)
    args = (position, fitted, jax.random.key(1), x, y)
    return Case(step, args, {"BP": [_BATCH], "BP+features": [_BATCH, both]})


PROGRAMS: Mapping[str, Callable[[], Case]] = {
    "flax.nnx attention": nnx_attention,
    "flax.linen CNN": linen_cnn,
    "optax L-BFGS": optax_lbfgs,
    "optax chain": optax_zoo,
    "equinox GRU": equinox_gru,
    "haiku LSTM": haiku_lstm,
    "diffrax neural ODE": diffrax_neural_ode,
    "numpyro HMC and SVI": numpyro_hmc,
}
