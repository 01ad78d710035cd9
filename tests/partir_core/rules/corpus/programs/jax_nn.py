"""jax.nn and jax.random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

ACTIVATIONS = """celu elu gelu glu hard_sigmoid hard_silu hard_swish hard_tanh identity leaky_relu log_sigmoid
log_softmax logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus
sparse_sigmoid squareplus standardize swish tanh"""
SIMPLE_DRAWS = """ball bits cauchy exponential gumbel laplace logistic maxwell normal rademacher rayleigh uniform"""


def programs() -> dict[str, Any]:
    x, key = jnp.ones((4, 6)), jax.random.key(0)
    found: dict[str, Any] = {
        name: (getattr(jax.nn, name), (x,)) for name in ACTIVATIONS.split() if hasattr(jax.nn, name)
    }
    found["one_hot"] = (lambda i: jax.nn.one_hot(i, 5), (jnp.zeros((4,), "int32"),))
    q = jnp.ones((2, 6, 4, 8))
    found["attention"] = (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        (q, q[:, :, :2], q[:, :, :2]),
    )
    found["ragged"] = (jax.lax.ragged_dot, (jnp.ones((6, 4)), jnp.ones((3, 4, 8)), jnp.array([2, 2, 2], "int32")))
    for name in SIMPLE_DRAWS.split():
        draw = getattr(jax.random, name)
        if name == "ball":
            found[name] = (lambda key: jax.random.ball(key, 3, shape=(4,)), (key,))
        elif name in {"rayleigh"}:
            found[name] = (lambda key: jax.random.rayleigh(key, 1.0, (4,)), (key,))
        else:
            found[name] = (lambda key, draw=draw: draw(key, (4, 6)), (key,))
    ones = jnp.ones((4,))
    found |= {
        "uniform bf16": (lambda key: jax.random.uniform(key, (4, 6), "bfloat16"), (key,)),
        "split": (lambda key: jax.random.split(jax.random.fold_in(key, 3), (2, 4)), (key,)),
        "old keys": (lambda key: jax.random.normal(jax.random.split(key)[0], (4,)), (jax.random.PRNGKey(0),)),
        "seeded": (lambda seed: jax.random.uniform(jax.random.key(seed), (4,)), (3,)),
        "mapped": (jax.vmap(lambda key: jax.random.normal(key, (6,))), (jax.random.split(key, 4),)),
        "rbg": (lambda key: jax.random.normal(key, (4, 6)), (jax.random.key(0, impl="rbg"),)),
        "permutation": (jax.random.permutation, (key, x)),
        "choice": (lambda key, x: jax.random.choice(key, x, (3,), replace=False), (key, x)),
        "randint": (lambda key: jax.random.randint(key, (4, 6), 0, 9), (key,)),
        "bernoulli": (jax.random.bernoulli, (key, ones * 0.5)),
        "categorical": (jax.random.categorical, (key, x)),
        "beta": (lambda key, a: jax.random.beta(key, a, 2.0), (key, ones)),
        "gamma": (jax.random.gamma, (key, ones)),
        "dirichlet": (lambda key, a: jax.random.dirichlet(key, a, (2,)), (key, ones)),
        "poisson": (jax.random.poisson, (key, ones)),
        "binomial": (lambda key, p: jax.random.binomial(key, 5.0, p), (key, ones * 0.5)),
        "t": (jax.random.t, (key, ones)),
        "truncated": (lambda key: jax.random.truncated_normal(key, -1.0, 1.0, (4,)), (key,)),
        "multivariate": (jax.random.multivariate_normal, (key, jnp.zeros(3), jnp.eye(3))),
        "orthogonal": (lambda key: jax.random.orthogonal(key, 3, (2,)), (key,)),
        "geometric": (jax.random.geometric, (key, ones * 0.5)),
        "wald": (jax.random.wald, (key, ones)),
    }
    return found
