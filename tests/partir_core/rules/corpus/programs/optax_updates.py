"""One update of every optimiser of optax, with losses and schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import optax.contrib

PARAMS = {"w": jnp.ones((6, 4)), "b": jnp.ones((4,))}
OPTIMISERS = """adabelief adadelta adafactor adagrad adam adamax adamaxw adamw adan amsgrad fromage lamb lars lion
nadam nadamw noisy_sgd novograd optimistic_gradient_descent radam rmsprop rprop sgd sm3 yogi"""
CONTRIBUTED = """ademamix simplified_ademamix muon prodigy dadapt_adamw cocob dowg momo mechanize schedule_free_adamw"""


def update(optimiser: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A training step of least squares."""
    state = optimiser.init(PARAMS)

    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ params["w"] + params["b"]) - y) ** 2)

        value, grads = jax.value_and_grad(loss)(params)
        extra = {"value": value, "grad": grads, "value_fn": loss}
        updates, state = optax.with_extra_args_support(optimiser).update(grads, state, params, **extra)
        return optax.apply_updates(params, updates), state

    return step, (PARAMS, state, jnp.ones((8, 6)), jnp.ones((8, 4)))


def programs() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in OPTIMISERS.split():
        maker = getattr(optax, name)
        found[name] = update(maker() if name in {"adadelta"} else maker(1e-3))
    for name in CONTRIBUTED.split():
        maker = getattr(optax.contrib, name, None)
        if maker is None or name == "mechanize":
            continue
        found[name] = update(maker() if name in {"cocob"} else maker(1e-3) if name != "dowg" else maker())
    found["lbfgs"] = update(optax.lbfgs())
    found["polyak"] = update(optax.polyak_sgd())
    found["momentum"] = update(optax.sgd(optax.cosine_decay_schedule(0.1, 10), momentum=0.9, nesterov=True))
    found["chain"] = update(
        optax.chain(
            optax.clip_by_global_norm(1.0),
            optax.add_decayed_weights(1e-4, mask={"w": True, "b": False}),
            optax.scale_by_adam(),
            optax.scale_by_schedule(optax.warmup_cosine_decay_schedule(0.0, 1.0, 5, 20)),
            optax.ema(0.9),
        )
    )
    found["clipped"] = update(
        optax.chain(optax.adaptive_grad_clip(0.1), optax.clip(0.5), optax.zero_nans(), optax.sgd(0.1))
    )
    found["accumulated"] = update(optax.MultiSteps(optax.adam(1e-3), 2))
    found["finite"] = update(optax.apply_if_finite(optax.adam(1e-3), 3))
    found["masked"] = update(optax.masked(optax.adam(1e-3), {"w": True, "b": False}))
    found["centralized"] = update(optax.chain(optax.centralize(), optax.scale_by_trust_ratio(), optax.sgd(0.1)))
    x, y, labels = jnp.ones((4, 6)), jnp.ones((4, 6)), jnp.zeros((4,), "int32")
    for name in (
        "l2_loss",
        "huber_loss",
        "log_cosh",
        "cosine_distance",
        "sigmoid_binary_cross_entropy",
        "softmax_cross_entropy",
        "hinge_loss",
        "kl_divergence",
        "squared_error",
        "safe_softmax_cross_entropy",
    ):
        found[name] = (getattr(optax, name, None) or getattr(optax.losses, name), (x, y))
    found["integer labels"] = (optax.softmax_cross_entropy_with_integer_labels, (x, labels))
    found["ctc"] = (
        optax.ctc_loss,
        (jnp.ones((2, 7, 5)), jnp.zeros((2, 7)), jnp.ones((2, 3), "int32"), jnp.zeros((2, 3))),
    )
    found["smooth"] = (optax.smooth_labels, (jnp.ones((4, 6)), 0.1))
    found["focal"] = (optax.losses.sigmoid_focal_loss, (x, y))
    found["ranking"] = (optax.losses.ranking_softmax_loss, (x, y))
    found["triplet"] = (optax.losses.triplet_margin_loss, (x, y, x + 1))
    return found
