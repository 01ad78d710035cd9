"""A graph network that passes messages along edges (gathers at both ends, sums into the receivers), and its
training step.

Parameters are `rounds`, a list of {`edge` (3 features, hidden), `message` (hidden, features), `node` (2 features,
hidden), `update` (hidden, features)}, and `head` (features, classes).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.models.optim import adam, zeros_like

Tree = Any


@dataclass(frozen=True, slots=True)
class Config:
    """Sizes of the graph and of the network."""

    nodes: int = 65536
    edges: int = 1048576
    features: int = 128
    hidden: int = 512
    classes: int = 16
    rounds: int = 4


SMALL = Config(nodes=24, edges=64, features=8, hidden=16, classes=4, rounds=2)


def init(config: Config, key: Any) -> Tree:
    """Parameters: normal, scaled by the square root of the inputs."""
    f, h = config.features, config.hidden
    shapes = {"edge": (3 * f, h), "message": (h, f), "node": (2 * f, h), "update": (h, f)}

    def normal(key: Any, shape: tuple[int, int]) -> Any:
        return jax.random.normal(key, shape) * shape[0] ** -0.5

    *keys, last = jax.random.split(key, config.rounds + 1)
    rounds = [
        {name: normal(k, s) for k, (name, s) in zip(jax.random.split(key, len(shapes)), shapes.items(), strict=True)}
        for key in keys
    ]
    return {"rounds": rounds, "head": normal(last, (f, config.classes))}


def state_of(config: Config, key: Any) -> tuple[Tree, Tree]:
    """Parameters and Adam's state."""
    params = init(config, key)
    return params, zeros_like(params)


def graph_of(config: Config, key: Any) -> Tree:
    """A random graph."""
    a, b, c, d, e = jax.random.split(key, 5)
    return {
        "nodes": jax.random.normal(a, (config.nodes, config.features)),
        "edges": jax.random.normal(b, (config.edges, config.features)),
        "senders": jax.random.randint(c, (config.edges,), 0, config.nodes),
        "receivers": jax.random.randint(d, (config.edges,), 0, config.nodes),
        "labels": jax.random.randint(e, (config.nodes,), 0, config.classes),
    }


def forward(params: Tree, graph: Tree) -> Any:
    """Logits (nodes, classes)."""
    nodes, edges = graph["nodes"], graph["edges"]
    senders, receivers = graph["senders"], graph["receivers"]
    for p in params["rounds"]:
        ends = jnp.concatenate([edges, nodes[senders], nodes[receivers]], axis=-1)
        edges = edges + jax.nn.silu(ends @ p["edge"]) @ p["message"]
        received = jax.ops.segment_sum(edges, receivers, nodes.shape[0])
        nodes = nodes + jax.nn.silu(jnp.concatenate([nodes, received], axis=-1) @ p["node"]) @ p["update"]
    return nodes @ params["head"]


def loss_of(params: Tree, graph: Tree) -> Any:
    """Mean cross-entropy of the nodes' labels."""
    logits = forward(params, graph)
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - jnp.take_along_axis(logits, graph["labels"][:, None], 1)[:, 0])


def training_step(params: Tree, state: Tree, graph: Tree) -> tuple[Tree, Tree, Any]:
    """One step: (parameters, optimizer state, loss)."""
    loss, grads = jax.value_and_grad(loss_of)(params, graph)
    params, state = adam(params, grads, state)
    return params, state, loss


def shapes(config: Config) -> tuple[Tree, Tree, Tree]:
    """(parameters, optimizer state, graph) as shapes only."""
    key = jax.random.key(0)
    params, state = jax.eval_shape(partial(state_of, config), key)
    return params, state, jax.eval_shape(partial(graph_of, config), key)
