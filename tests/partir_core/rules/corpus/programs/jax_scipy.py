"""jax.scipy and jax.numpy."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax

UNARY = """bernoulli digamma entr erf erfc erfinv expi expit exp1 gammaln gammasgn gamma i0 i0e i1 i1e log_ndtr
log_softmax logit ndtr ndtri sici spence factorial softmax"""
BINARY = "betaln beta gammainc gammaincc hyp1f1 kl_div poch polygamma rel_entr xlog1py xlogy zeta"
DENSITIES = {
    "norm": 0,
    "expon": 0,
    "cauchy": 0,
    "laplace": 0,
    "logistic": 0,
    "uniform": 0,
    "beta": 2,
    "chi2": 1,
    "gamma": 1,
    "pareto": 1,
    "t": 1,
    "gennorm": 1,
    "truncnorm": 2,
    "vonmises": 1,
    "wrapcauchy": 1,
}
NUMPY_UNARY = """abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort average cbrt ceil cos cosh
cumprod cumsum deg2rad diff exp exp2 expm1 flip floor fliplr gradient i0 isfinite log log10 log1p
log2 logaddexp.reduce max mean median min nanmax nanmean nansum negative prod ptp ravel reciprocal
rint roll.1 rot90 round sign sin sinc sinh sort sqrt square std sum tan tanh trace transpose tril
triu trunc var unwrap cov corrcoef nancumsum signbit frexp modf"""
NUMPY_BINARY = """add arctan2 convolve.1 copysign cross.3 divide dot.t equal floor_divide float_power fmax fmod
greater heaviside hypot inner kron ldexp.i less logaddexp logaddexp2 matmul.t maximum minimum mod
multiply nextafter outer power remainder subtract tensordot.t true_divide vdot where.c append
hstack.l vstack.l concatenate.l stack.l isclose allclose digitize.1 interp.1 searchsorted.1
bitwise_and.i bitwise_or.i bitwise_xor.i left_shift.i right_shift.i gcd.i lcm.i"""


def _numpy() -> dict[str, Any]:
    found: dict[str, Any] = {}
    x, row, ints = jnp.linspace(0.1, 0.9, 24).reshape(4, 6), jnp.linspace(0.1, 0.9, 6), jnp.ones((4, 6), "int32")
    for entry in NUMPY_UNARY.split():
        name, _, how = entry.partition(".")
        function = getattr(jnp, name)
        if how == "1":
            function = partial(function, shift=1)
        found[f"jnp.{name}"] = (function if how != "reduce" else function.reduce, (x,))
    for entry in NUMPY_BINARY.split():
        name, _, how = entry.partition(".")
        function = getattr(jnp, name)
        args: tuple[Any, ...] = {
            "": (x, x),
            "1": (row, row),
            "3": (x[:, :3], x[:, :3]),
            "t": (x, x.T),
            "i": (ints, ints),
            "l": (x, x),
            "c": (x > 0.5, x, x),
        }[how]
        if name == "tensordot":
            function = partial(jnp.tensordot, axes=1)
        if name == "interp":
            args = (row, row, row)
        if name == "ldexp":
            args = (x, ints)
        found[f"jnp.{name}"] = ((lambda *xs, function=function: function(list(xs))) if how == "l" else function, args)
    i = jnp.array([2, 0, 3])
    found |= {
        "take": (lambda x, i: jnp.take(x, i, axis=0), (x, i)),
        "take clip": (lambda x, i: jnp.take(x, i, axis=1, mode="clip"), (x, i)),
        "take fill": (lambda x, i: jnp.take(x, i, axis=1, mode="fill", fill_value=7.0), (x, i)),
        "along": (lambda x, i: jnp.take_along_axis(x, i, axis=1), (x, jnp.zeros((4, 2), "int32"))),
        "index": (lambda x, i: x[i, i + 1], (x, i)),
        "mask": (lambda x: jnp.where(x > 0.5, x, 0), (x,)),
        "set": (lambda x, i, v: x.at[i].set(v), (x, i, x[:3])),
        "add at": (lambda x, i, v: x.at[i, i].add(v), (x, i, x[:3, 0])),
        "mul at": (lambda x, i, v: x.at[:, i].multiply(v), (x, i, x[:, :3])),
        "min at": (lambda x, i, v: x.at[i].min(v), (x, i, x[:3])),
        "max at": (lambda x, i, v: x.at[i].max(v, mode="clip"), (x, i, x[:3])),
        "apply at": (lambda x, i: x.at[i].apply(jnp.sin), (x, i)),
        "segment": (lambda x, i: jax.ops.segment_sum(x, i, 3), (x, jnp.array([0, 1, 1, 2]))),
        "segment max": (lambda x, i: jax.ops.segment_max(x, i, 3), (x, jnp.array([0, 1, 1, 2]))),
        "segment prod": (lambda x, i: jax.ops.segment_prod(x, i, 3), (x, jnp.array([0, 1, 1, 2]))),
        "mapped gather": (jax.vmap(lambda row, i: row[i]), (x, jnp.zeros((4, 2), "int32"))),
        "mapped update": (
            jax.vmap(lambda row, i, v: lax.dynamic_update_slice(row, v, (i,))),
            (x, jnp.zeros(4, "int32"), x[:, :2]),
        ),
        "mapped slice": (jax.vmap(lambda row, i: lax.dynamic_slice(row, (i,), (2,))), (x, jnp.zeros(4, "int32"))),
        "slice": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 6)), (x, 1)),
        "update": (lambda x, v, i: lax.dynamic_update_slice(x, v, (i, 0)), (x, x[:1], 1)),
        "pad": (lambda x: jnp.pad(x, ((1, 2), (0, 0))), (x,)),
        "pad wrap": (lambda x: jnp.pad(x, 1, mode="wrap"), (x,)),
        "tile": (lambda x: jnp.tile(x, (2, 1)), (x,)),
        "repeat": (lambda x: jnp.repeat(x, 3, axis=1), (x,)),
        "split": (lambda x: jnp.split(x, 3, axis=1), (x,)),
        "top_k": (lambda x: lax.top_k(x, 2), (x,)),
        "approx": (lambda x: lax.approx_max_k(x, 2), (x,)),
        "lexsort": (lambda a, b: jnp.lexsort((a, b)), (x, x)),
        "unique": (lambda x: jnp.unique(x, size=5), (row,)),
        "nonzero": (lambda x: jnp.nonzero(x, size=5), (row,)),
        "bincount": (lambda i: jnp.bincount(i, length=4), (i,)),
        "histogram": (lambda x: jnp.histogram(x, bins=4)[0], (row,)),
        "percentile": (lambda x: jnp.percentile(x, 30, axis=0), (x,)),
        "einsum": (lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (jnp.ones((2, 3, 4)), jnp.ones((2, 5, 4)))),
        "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, axis=1), (x,)),
        "cummax": (lambda x: lax.cummax(x, axis=1, reverse=True), (x,)),
        "cummin": (lambda x: lax.cummin(x, axis=0), (x,)),
        "associative": (lambda x: lax.associative_scan(jnp.add, x), (x,)),
        "map": (lambda x: lax.map(jnp.sin, x), (x,)),
        "switch": (lambda i, x: lax.switch(i, [jnp.sin, jnp.cos], x), (1, x)),
        "clamp": (lambda x: lax.clamp(0.2, x, 0.8), (x,)),
        "any": (lambda x: (jnp.any(x > 0.5, axis=0), jnp.all(x > 0.5, axis=1)), (x,)),
        "complex": (lambda a, b: jnp.abs(jnp.conj(lax.complex(a, b)).real + jnp.angle(lax.complex(a, b))), (x, x)),
        "bits": (lambda i: (lax.population_count(i), lax.clz(i), ~i), (ints,)),
        "view": (lambda x: x.view("int8"), (x,)),
        "astype": (lambda x: x.astype("bfloat16").astype("float32").astype("int8"), (x,)),
        "precision": (lambda x: lax.reduce_precision(x, 5, 10), (x,)),
        "barrier": (lambda a, b: lax.optimization_barrier((a, b)), (x, row)),
        "stop": (lambda x: lax.stop_gradient(x) * x, (x,)),
        "window": (lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "VALID"), (x,)),
        "window max": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME"), (x,)),
        "window min": (lambda x: lax.reduce_window(x, jnp.inf, lax.min, (1, 2), (1, 2), "SAME"), (x,)),
        "window mul": (lambda x: lax.reduce_window(x, 1.0, lax.mul, (1, 2), (1, 2), "SAME"), (x,)),
        "reduce": (lambda x: lax.reduce(x, 0.0, lambda a, b: a + 2 * b, (0,)), (x,)),
        "xor": (lambda i: lax.reduce_xor(i, axes=(0,)), (ints,)),
        "polyfit": (lambda x, y: jnp.polyfit(x, y, 2), (row, row)),
        "resize": (lambda x: jax.image.resize(x, (8, 3), "bilinear"), (x,)),
        "resize nearest": (lambda x: jax.image.resize(x, (8, 3), "nearest"), (x,)),
        "grouped conv": (
            lambda x, w: lax.conv_general_dilated(x, w, (1,), "SAME", batch_group_count=2),
            (jnp.ones((4, 3, 6)), jnp.ones((4, 3, 3))),
        ),
        "device_put": (lambda x: jax.device_put(x) + 1, (x,)),
    }
    return found


def _linalg() -> dict[str, Any]:
    a = jnp.eye(3) * 2 + jnp.ones((2, 3, 3)) * 0.1
    b, c = jnp.ones((2, 3, 4)), jnp.ones((2, 4, 3))
    functions = {
        "cholesky": jnp.linalg.cholesky,
        "inv": jnp.linalg.inv,
        "det": jnp.linalg.det,
        "slogdet": jnp.linalg.slogdet,
        "eigh": jnp.linalg.eigh,
        "eigvalsh": jnp.linalg.eigvalsh,
        "norm": jnp.linalg.norm,
        "pinv": jnp.linalg.pinv,
        "matrix_power": lambda a: jnp.linalg.matrix_power(a, 3),
        "matrix_rank": jnp.linalg.matrix_rank,
        "cond": jnp.linalg.cond,
        "lu": lambda a: jsp.linalg.lu(a[0]),
        "lu_factor": jsp.linalg.lu_factor,
        "expm": jsp.linalg.expm,
        "polar": lambda a: jsp.linalg.polar(a[0], method="svd"),
        "sqrtm": lambda a: jsp.linalg.sqrtm(a[0]),
        "hessenberg": jsp.linalg.hessenberg,
        "schur": lambda a: jsp.linalg.schur(a[0]),
        "hilbert": lambda a: jsp.linalg.hilbert(4) + a[0, 0, 0],
        "block_diag": lambda a: jsp.linalg.block_diag(a[0], a[1]),
        "tridiagonal": lambda a: jsp.linalg.eigh_tridiagonal(a[0, 0], a[0, 0, :2], eigvals_only=True),
    }
    found: dict[str, Any] = {f"linalg.{name}": (function, (a,)) for name, function in functions.items()}
    found |= {
        "linalg.eig": (jnp.linalg.eig, (a,)),
        "linalg.qr": (jnp.linalg.qr, (b,)),
        "linalg.qr tall": (jnp.linalg.qr, (c,)),
        "linalg.svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), (b,)),
        "linalg.svdvals": (jnp.linalg.svdvals, (b,)),
        "linalg.lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (c[0], jnp.ones((4, 2)))),
        "linalg.solve": (jnp.linalg.solve, (a, b)),
        "linalg.cho_solve": (lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), (a[0], b[0])),
        "linalg.solve_triangular": (lambda a, b: jsp.linalg.solve_triangular(a, b, trans=1), (a[0], b[0])),
        "linalg.tridiagonal_solve": (lax.linalg.tridiagonal_solve, (a[:, 0], a[:, 1], a[:, 2], b)),
        "linalg.multi_dot": (lambda *xs: jnp.linalg.multi_dot(xs), (b[0], c[0], b[0])),
        "linalg.toeplitz": (jsp.linalg.toeplitz, (a[0, 0],)),
        "linalg.householder": (lax.linalg.householder_product, (c, jnp.ones((2, 3)))),
    }
    return found


def programs() -> dict[str, Any]:
    x, i = jnp.linspace(0.1, 0.9, 8).reshape(2, 4), jnp.ones((2, 4), "int32")
    found: dict[str, Any] = {}
    for name in UNARY.split():
        function = getattr(jsp.special, name)
        found[f"special.{name}"] = (partial(function, 3), ()) if name == "bernoulli" else (function, (x,))
    for name in BINARY.split():
        function = getattr(jsp.special, name)
        args = (i, x) if name == "polygamma" else (x, x, x) if name == "hyp1f1" else (x + 1, x)
        found[f"special.{name}"] = (function, args)
    found |= {
        "special.betainc": (jsp.special.betainc, (x, x, x)),
        "special.logsumexp": (lambda x: jsp.special.logsumexp(x, axis=1), (x,)),
        "special.multigammaln": (lambda x: jsp.special.multigammaln(x + 2, 2), (x,)),
        "special.sph_harm": (jsp.special.fresnel, (x,)),
        "special.lpmn": (lambda x: jsp.special.expn(2, x), (x,)),
    }
    for name, count in DENSITIES.items():
        module = getattr(jsp.stats, name)
        arguments = (x, *(x[:, :1] + 1 for _ in range(count)))
        found[f"stats.{name}"] = (module.logpdf, arguments)
        if hasattr(module, "cdf"):
            found[f"stats.{name}.cdf"] = (module.cdf, arguments)
    found |= {
        "stats.poisson": (jsp.stats.poisson.logpmf, (i, x)),
        "stats.binom": (jsp.stats.binom.logpmf, (i, 3, x)),
        "stats.bernoulli": (jsp.stats.bernoulli.logpmf, (i, x)),
        "stats.multinomial": (jsp.stats.multinomial.logpmf, (i[0], 4, x[0])),
        "stats.dirichlet": (jsp.stats.dirichlet.logpdf, (jnp.full((3,), 1 / 3), jnp.ones(3))),
        "stats.mvn": (jsp.stats.multivariate_normal.logpdf, (x, jnp.zeros(4), jnp.eye(4))),
        "stats.kde": (lambda x: jsp.stats.gaussian_kde(x[0])(x[1]), (x,)),
        "stats.rankdata": (jsp.stats.rankdata, (x,)),
        "stats.sem": (jsp.stats.sem, (x,)),
        "signal.convolve": (lambda x: jsp.signal.convolve(x[0], x[1]), (x,)),
        "signal.convolve2d": (lambda x: jsp.signal.convolve2d(x, x[:, :2]), (x,)),
        "signal.fftconvolve": (lambda x: jsp.signal.fftconvolve(x[0], x[1]), (x,)),
        "signal.stft": (lambda x: jsp.signal.stft(x, nperseg=8), (jnp.linspace(0.0, 1.0, 24),)),
        "signal.welch": (lambda x: jsp.signal.welch(x, nperseg=8), (jnp.linspace(0.0, 1.0, 24),)),
        "signal.detrend": (jsp.signal.detrend, (x,)),
        "ndimage": (lambda x: jsp.ndimage.map_coordinates(x, [x, x], 1), (x,)),
        "interpolate": (
            lambda x: jsp.interpolate.RegularGridInterpolator((jnp.arange(2.0), jnp.arange(4.0)), x)(x[:, :2]),
            (x,),
        ),
        "cluster.vq": (lambda x: jsp.cluster.vq.vq(x, x), (x,)),
        "integrate": (jsp.integrate.trapezoid, (x,)),
        "sparse.cg": (lambda a, b: jsp.sparse.linalg.cg(a, b)[0], (jnp.eye(4) * 2, x[0])),
        "sparse.gmres": (lambda a, b: jsp.sparse.linalg.gmres(a, b)[0], (jnp.eye(4) * 2, x[0])),
        "optimize": (lambda x: jsp.optimize.minimize(lambda y: jnp.sum((y - 1) ** 2), x[0], method="BFGS").x, (x,)),
        "fft": (jnp.fft.fft2, (x,)),
        "rfft": (jnp.fft.rfft, (x,)),
        "irfft": (jnp.fft.irfft, (x,)),
        "dct": (jsp.fft.dct, (x,)),
        "idct": (jsp.fft.idct, (x,)),
    }
    return found | _numpy() | _linalg()
