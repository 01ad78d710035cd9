"""Linear algebra and Fourier transforms."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from opcases.draw import EXAMPLES, Draw, Program, example


@example("cholesky eigh")
def _(draw: Draw) -> Program:
    return lambda a: (lax.linalg.cholesky(a), lax.linalg.eigh(a)[1]), (draw.positive(draw.shape(1, 2), 3),)


@example("lu lu_pivots_to_permutation qr svd eig hessenberg schur")
def _(draw: Draw) -> Program:
    def run(a: Any) -> Any:
        _, pivots, _ = lax.linalg.lu(a)
        linalg = lax.linalg
        return (
            linalg.lu_pivots_to_permutation(pivots, 3),
            linalg.qr(a),
            linalg.svd(a),
            linalg.svd(a, compute_uv=False),
            linalg.eig(a),
            linalg.hessenberg(a),
            linalg.schur(a),
        )

    return run, (draw.positive(draw.shape(1, 2), 3),)


@example("geqrf householder_product ormqr")
def _(draw: Draw) -> Program:
    from jax._src.lax.linalg import geqrf, ormqr

    left = draw.rng.random() < 0.5

    def run(a: Any, c: Any) -> Any:
        packed, taus = geqrf(a)
        return lax.linalg.householder_product(packed[..., :3], taus), ormqr(packed, taus, c, left=left)

    batch = draw.shape(1, 2)
    return run, (draw.mixed(*batch, 4, 3), draw.mixed(*batch, *((4, 2) if left else (2, 4))))


@example("symmetric_product")
def _(draw: Draw) -> Program:
    batch = draw.shape(1, 2)
    return partial(lax.linalg.symmetric_product, symmetrize_output=True), (
        draw.mixed(*batch, 3, 2),
        draw.mixed(*batch, 3, 3),
    )


@example("tridiagonal")
def _(draw: Draw) -> Program:
    return lax.linalg.tridiagonal, (draw.positive(draw.shape(1, 2), 3),)


def _triangular(draw: Draw, left: bool) -> Program:
    batch = draw.shape(1, 2)
    other = draw.rng.choice([2, 4])
    b = draw.mixed(*batch, *((3, other) if left else (other, 3)))
    return partial(lax.linalg.triangular_solve, left_side=left, lower=True), (draw.positive(batch, 3), b)


EXAMPLES += [("triangular_solve", partial(_triangular, left=left)) for left in (True, False)]


@example("tridiagonal_solve")
def _(draw: Draw) -> Program:
    batch = draw.shape(1, 2)
    low, high = draw.floats(*batch, 4), draw.floats(*batch, 4)
    low, high = low.at[..., 0].set(0), high.at[..., -1].set(0)
    return lax.linalg.tridiagonal_solve, (low, draw.floats(*batch, 4) + 3, high, draw.mixed(*batch, 4, draw.size()))


@example("fft")
def _(draw: Draw) -> Program:
    x = draw.mixed(*draw.shape(1, 2), 4, 6)
    return draw.rng.choice([jnp.fft.fft, jnp.fft.fft2, jnp.fft.rfft, jnp.fft.ifft, jnp.fft.irfft]), (x,)
