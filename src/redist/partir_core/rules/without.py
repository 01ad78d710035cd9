"""Primitives that have no rule, and why: an operation of theirs is kept whole, and reported."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["CONTROL", "WITHOUT_RULE"]

CONTROL: Mapping[str, str] = {
    "jit": "inlined",
    "closed_call": "inlined",
    "remat2": "inlined",
    "custom_jvp_call": "inlined",
    "custom_vjp_call": "inlined",
    "scan": "a program inside a program",
    "while": "a program inside a program",
    "cond": "a program inside a program",
}
"""Calls and control flow: not operations but programs, which propagation goes into."""

WITHOUT_RULE: Mapping[str, str] = {
    "custom_linear_solve": "a solver of programs (jax.scipy.sparse.linalg, jnp.linalg.solve); its batch is not cut yet",
    "linear_solve": "Lineax's solver, of programs too",
    "pure_callback": "a Python function that sees whole arrays",
    "io_callback": "a Python function with effects on whole arrays",
    "debug_callback": "a Python function that shows whole arrays",
    "ffi_call": "foreign code that takes whole arrays",
    "rng_uniform": "numbers that depend on when they are drawn, so that tiles would not agree",
}
"""Primitives that are kept whole."""
