"""Steps of diffrax and numpyro."""

from __future__ import annotations

from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO, autoguide
from numpyro.infer.hmc import hmc
from numpyro.infer.util import initialize_model


def _ode(solver: Any, adaptive: bool = True) -> Any:
    def run(y: Any, rate: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, rate: -rate * jnp.tanh(y))
        controller = diffrax.PIDController(1e-3, 1e-6) if adaptive else diffrax.ConstantStepSize()
        saved = diffrax.SaveAt(ts=jnp.linspace(0.0, 1.0, 3))
        return diffrax.diffeqsolve(
            term, solver, 0.0, 1.0, 0.1, y, args=rate, saveat=saved, stepsize_controller=controller, max_steps=16
        ).ys

    return run, (jnp.ones((4,)), jnp.ones((4,)))


def _sde(y: Any, key: Any) -> Any:
    noise = diffrax.VirtualBrownianTree(0.0, 1.0, 1e-2, (4,), key)
    terms = diffrax.MultiTerm(
        diffrax.ODETerm(lambda t, y, a: -y),
        diffrax.ControlTerm(
            lambda t, y, a: (
                diffrax.lineax.DiagonalLinearOperator(0.1 * y) if hasattr(diffrax, "lineax") else 0.1 * jnp.diag(y)
            ),
            noise,
        ),
    )
    return diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 0.1, y, max_steps=16).ys


def _model(x: Any, y: Any = None) -> None:
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {
        "tsit5": _ode(diffrax.Tsit5()),
        "dopri8": _ode(diffrax.Dopri8()),
        "euler": _ode(diffrax.Euler(), False),
        "kvaerno3": _ode(diffrax.Kvaerno3()),
        "sde": (_sde, (jnp.ones((4,)), jax.random.key(0))),
    }
    x, y = jnp.ones((6, 3)), jnp.ones((6,))
    key = jax.random.PRNGKey(0)
    guide = autoguide.AutoNormal(_model)
    svi = SVI(_model, guide, numpyro.optim.Adam(1e-2), Trace_ELBO())
    state = svi.init(key, x, y)
    found["svi"] = (svi.update, (state, x, y))
    full = SVI(_model, autoguide.AutoMultivariateNormal(_model), numpyro.optim.Adam(1e-2), Trace_ELBO(2))
    found["svi full"] = (full.update, (full.init(key, x, y), x, y))
    info = initialize_model(key, _model, model_args=(x,), model_kwargs={"y": y})
    for algorithm in ("HMC", "NUTS"):
        init, sample = hmc(info.potential_fn, algo=algorithm)
        start = init(info.param_info, num_warmup=5)
        found[algorithm] = (sample, (start,))
    sampled = {
        "beta": dist.Beta(2.0, jnp.ones(4)),
        "dirichlet": dist.Dirichlet(jnp.ones((2, 3))),
        "gamma": dist.Gamma(jnp.ones(4), 2.0),
        "student": dist.StudentT(jnp.full((4,), 3.0)),
        "poisson": dist.Poisson(jnp.ones(4)),
        "categorical": dist.Categorical(logits=jnp.ones((2, 3))),
        "mvn": dist.MultivariateNormal(jnp.zeros((2, 3)), covariance_matrix=jnp.eye(3)),
        "lkj": dist.LKJCholesky(3),
        "bernoulli": dist.Bernoulli(logits=jnp.ones(4)),
        "multinomial": dist.Multinomial(5, jnp.full((3,), 1 / 3)),
        "gumbel": dist.Gumbel(jnp.ones(4), 1.0),
        "cauchy": dist.Cauchy(jnp.ones(4), 1.0),
        "laplace": dist.Laplace(jnp.ones(4), 1.0),
        "vonmises": dist.VonMises(jnp.ones(4), 1.0),
        "truncated": dist.TruncatedNormal(jnp.ones(4), 1.0, low=0.0),
        "negative binomial": dist.NegativeBinomial2(jnp.ones(4), 2.0),
        "weibull": dist.Weibull(jnp.ones(4), 2.0),
        "wishart": dist.Wishart(4.0, jnp.eye(3)),
        "mixture": dist.MixtureSameFamily(dist.Categorical(jnp.ones((3,)) / 3), dist.Normal(jnp.ones((3,)), 1.0)),
    }
    for name, distribution in sampled.items():
        value = distribution.sample(jax.random.key(1))
        found[f"sample {name}"] = (lambda key, d=distribution: d.sample(key), (jax.random.key(0),))
        found[f"density {name}"] = (lambda value, d=distribution: d.log_prob(value), (value,))
    return found
