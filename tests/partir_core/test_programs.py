"""Whole programs under two schedules each: results of the unpartitioned run, collectives as derived by hand, and the
same ones in the program that XLA is given."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.models import graphnet, unet
from benchmarks.models.decode import decode
from benchmarks.models.gpt import Config, init
from benchmarks.models.schedules import BP, EDGES, GPT_MP, GRAPH_MP, UNET_MP
from benchmarks.partir_hlo import of_stablehlo
from redist import LayoutError, Mesh
from redist import partir_core as partir
from redist.partir_core import ManualPartition, tag

X = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
V = np.random.default_rng(2).standard_normal((8, 4)).astype(np.float32)


def lowered_counts(fn: Any, mesh: Mesh, schedule: Any, args: Any) -> dict[str, int]:
    """Collectives in the StableHLO, loops multiplied in."""
    return of_stablehlo(partir.jit(fn, mesh, schedule).lower(*args).as_text("stablehlo")).number


@pytest.mark.parametrize("name, schedule", [("BP", [BP]), ("BP+MP", [BP, UNET_MP])])
def test_unet(mesh: Mesh, check: Any, name: str, schedule: Any) -> None:
    """23 parameters: 8 convolutions, scales and biases of 6 norms, time, `qkv` and `out`. BP reduces their gradients
    and the loss. MP adds what `narrow` and `out` make, and on the way back what goes into `widen` and `qkv`."""
    step = partial(unet.training_step, unet.SMALL)
    key = jax.random.key(0)
    args = [*unet.state_of(unet.SMALL, key), unet.batch_of(unet.SMALL, key)]
    report = check(step, args, schedule)
    report.assert_collectives(all_reduce=24 + (4 if "MP" in name else 0))
    assert not report.conflicts and not report.blocked and not report.without_rule
    assert lowered_counts(step, mesh, schedule, args) == dict(report.collectives)


@pytest.mark.parametrize("name, schedule", [("edges", [EDGES]), ("edges+MP", [EDGES, GRAPH_MP])])
def test_graph_network(mesh: Mesh, check: Any, name: str, schedule: Any) -> None:
    """R rounds over divided edges: each adds up its messages and the gradients of `edge` and `message`, and but for
    the first one, whose nodes are inputs, the nodes' gradients from both ends of the edges: 5 R - 2. MP adds what
    `message` and `update` make, and on the way back what goes into `node` and, but for the first, `edge`: 4 R - 1."""
    config, key = graphnet.SMALL, jax.random.key(0)
    args = [*graphnet.state_of(config, key), graphnet.graph_of(config, key)]
    report = check(graphnet.training_step, args, schedule)
    expected = 5 * config.rounds - 2 + (4 * config.rounds - 1 if "MP" in name else 0)
    report.assert_collectives(all_reduce=expected)
    assert not report.conflicts and not report.without_rule
    assert lowered_counts(graphnet.training_step, mesh, schedule, args) == dict(report.collectives)


@pytest.mark.parametrize("name", ["BP", "BP+MP"])
def test_decoding_with_a_cache(mesh: Mesh, check: Any, name: str) -> None:
    """Two sums per layer and token under MP, in a loop."""
    config = Config(layers=2, width=16, heads=4, vocabulary=32, batch=8, length=8)
    params = jax.tree.map(lambda x: 20 * x, init(config, jax.random.key(0)))
    args = [params, jnp.arange(8) * 3 % config.vocabulary]
    schedule = [ManualPartition({"tokens": 0}, "B"), *([GPT_MP] if "MP" in name else [])]
    report = check(partial(decode, config), args, schedule)
    report.assert_collectives(all_reduce=2 * config.layers * config.length if "MP" in name else 0)
    assert lowered_counts(partial(decode, config), mesh, schedule, args) == dict(report.collectives)


class TestConstraints:
    """What a schedule decides of tagged values, for those who stay with `jax.jit`."""

    @staticmethod
    def model(x: Any, w: Any, v: Any, mark: Any = tag) -> Any:
        hidden = mark(jnp.tanh(x @ w), "hidden")
        return mark(hidden @ v, "out"), hidden

    def test_plain_jit_keeps_them(self, mesh: Mesh) -> None:
        schedule = [ManualPartition({"x": 0}, "B"), ManualPartition({"hidden": 1}, "M")]
        lowered = partir.jit(self.model, mesh, schedule).lower(X, W, V)
        spec = jax.sharding.PartitionSpec
        assert lowered.constraints == {"hidden": spec("B", "M"), "out": spec("B", None)}
        jax_mesh = mesh.to_jax()

        def constrained(x: Any, name: str) -> Any:
            sharding = jax.sharding.NamedSharding(jax_mesh, lowered.constraints[name])
            return jax.lax.with_sharding_constraint(x, sharding)

        whole = jax.sharding.NamedSharding(jax_mesh, spec())
        plain = jax.jit(partial(self.model, mark=lambda x, _: x), in_shardings=whole)
        fn = jax.jit(partial(self.model, mark=constrained), in_shardings=whole)
        assert all(y.sharding.is_fully_replicated for y in plain(X, W, V))  # nothing else says so
        for y, expected, name in zip(fn(X, W, V), self.model(X, W, V), ("out", "hidden"), strict=True):
            np.testing.assert_allclose(np.asarray(y), np.asarray(expected), rtol=1e-5, atol=1e-6)
            wanted = jax.sharding.NamedSharding(jax_mesh, lowered.constraints[name])
            assert y.sharding.is_equivalent_to(wanted, y.ndim), name

    def test_several_values_of_one_name(self, mesh: Mesh) -> None:
        def f(x: Any, y: Any, z: Any) -> Any:
            return tag(x * 2, "same"), tag(y * 2, "same"), tag(y + 1, "other"), tag(jnp.sum(z), "scalar")

        spec = jax.sharding.PartitionSpec
        lowered = partir.jit(f, mesh, [ManualPartition({"x": 0, "y": 0}, "B"), ManualPartition({"x": 1}, "M")])
        assert lowered.lower(X, X, X).constraints == {
            "same": spec("B", spec.UNCONSTRAINED),
            "other": spec("B", None),
            "scalar": spec(),
        }

    def test_what_a_spec_cannot_say(self, mesh: Mesh) -> None:
        def f(x: Any) -> Any:
            return tag(x * 2, "a"), tag(jnp.sum(x), "b"), tag(x[0], "b")

        with pytest.raises(LayoutError) as caught:
            _ = partir.jit(f, mesh, [ManualPartition({"x": 1}, "M")]).lower(X).constraints
        assert str(caught.value) == "tag b names values of 0, 1 dimensions; give them names of their own"
        with pytest.raises(LayoutError) as caught:
            _ = partir.jit(lambda x: tag(x * 2, "a"), mesh, [ManualPartition({"x": 0}, "B:(1)2")]).lower(X).constraints
        assert str(caught.value) == (
            "tag a is sharded along B:(1)2, and a PartitionSpec names whole axes only; use a mesh in which these parts "
            "are axes"
        )
