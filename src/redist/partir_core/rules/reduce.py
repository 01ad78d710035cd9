"""Reductions of whole dimensions, cumulative operations, windows, sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redist.partir_core.rules.build import Aval, Builder, Entry, RuleMaker
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import FactorKind, Rule, combined

__all__ = ["ENTRIES"]

_FIRST = (frozenset({0}),)
_Params = Mapping[str, Any]


def _reduction(kind: FactorKind, axes: str = "axes", booleans_only: bool = False) -> RuleMaker:
    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
        build = Builder(operands, results)
        full = [k for k, shape in enumerate(build.operands) if shape or not build.operands[0]]
        whole = booleans_only and operands[0].dtype != np.dtype(bool)
        reduced = FactorKind.WHOLE if whole else combined(kind, operands[0].dtype)
        gone, e = set(params[axes]), 0
        for d, n in enumerate(build.operands[0]):
            if d in gone:
                build.tie(reduced, n, [(k, d) for k in full])
            else:
                build.parallel(n, [(k, d) for k in full], [(j, e) for j in range(len(results))])
                e += 1
        return build.rule()

    return rule


def _to_scalar(kind: FactorKind) -> RuleMaker:
    """A reduction of all dimensions."""

    def rule(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
        build = Builder(operands, results)
        for d, n in enumerate(build.operands[0]):
            build.tie(kind, n, [(0, d)])
        return build.rule()

    return rule


def _over_positions(kind: FactorKind) -> RuleMaker:
    """A collective that is left in a program only where `jax.vmap` named the axis: a reduction by now."""
    reduction = _reduction(kind)

    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
        positional = all(isinstance(axis, int) for axis in params["axes"]) and params["axis_index_groups"] is None
        return reduction(params, operands, results) if positional and len(operands) == 1 else None

    return rule


def _run_over_positions(local: Local) -> tuple[Any, ...]:
    from redist.collectives.backends.jax.modules import jnp

    reduce = {"psum": jnp.sum, "pmax": jnp.max, "pmin": jnp.min}[local.primitive.name]
    return (reduce(local.operands[0], axis=tuple(local.params["axes"])),)


def _except(axis: str) -> RuleMaker:
    """Every dimension passes but one; operands and results have one rank."""

    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
        build = Builder(operands, results)
        for d, n in enumerate(build.operands[0]):
            spots = [(k, d) for k in range(len(operands))], [(j, d) for j in range(len(results))]
            if d != params[axis] % len(build.operands[0]):
                build.parallel(n, *spots)
            elif build.results[0][d] == n:
                build.tie(FactorKind.WHOLE, n, *spots)
        return build.rule()

    return rule


def _window(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """Dimensions under a window of one element, unpadded and undilated, pass."""
    build = Builder(operands, results)
    rank = len(build.results[0])
    arrays = [k for k, shape in enumerate(build.operands) if len(shape) == rank]
    plain = (1,) * rank
    windows = zip(
        params["window_dimensions"],
        params["window_strides"],
        params["padding"],
        params.get("base_dilation", plain),
        strict=True,
    )
    for d, (width, stride, padding, dilation) in enumerate(windows):
        if (width, stride, tuple(padding), dilation) == (1, 1, (0, 0), 1):
            build.parallel(build.results[0][d], [(k, d) for k in arrays], [(j, d) for j in range(len(results))])
    return build.rule()


_SUMS = "kept dimensions parallel; reduced ones a {}"
_COMPLEX = "reduced dimensions of complex numbers"
_KEPT = "kept dimensions parallel; reduced ones whole"
_WINDOWS = "dimensions under a window of one element parallel; others whole"
_ALONG = "all dimensions but the {} one parallel"

ENTRIES: dict[str, Entry] = {
    "reduce_sum": Entry("reduction", _SUMS.format("sum"), _reduction(FactorKind.SUM), linear=_FIRST),
    "reduce_max": Entry("reduction", _SUMS.format("max"), _reduction(FactorKind.MAX), missing=_COMPLEX),
    "reduce_min": Entry("reduction", _SUMS.format("min"), _reduction(FactorKind.MIN), missing=_COMPLEX),
    "reduce_prod": Entry("reduction", _SUMS.format("product"), _reduction(FactorKind.PROD)),
    "reduce_or": Entry(
        "reduction",
        _SUMS.format("max (of booleans)"),
        _reduction(FactorKind.MAX, booleans_only=True),
        missing="reduced dimensions of integers",
    ),
    "reduce_and": Entry(
        "reduction",
        _SUMS.format("min (of booleans)"),
        _reduction(FactorKind.MIN, booleans_only=True),
        missing="reduced dimensions of integers",
    ),
    "reduce_xor": Entry("reduction", _KEPT, _reduction(FactorKind.WHOLE), missing="reduced dimensions"),
    "reduce": Entry(
        "reduction", _KEPT, _reduction(FactorKind.WHOLE, "dimensions"), missing="reduced dimensions: any function"
    ),
    **dict.fromkeys(
        ["argmax", "argmin"],
        Entry("reduction", _KEPT, _reduction(FactorKind.WHOLE), missing="reduced dimensions: a pair has to be reduced"),
    ),
    "psum": Entry("reduction", _SUMS.format("sum"), _over_positions(FactorKind.SUM), _run_over_positions, _FIRST),
    "pmax": Entry(
        "reduction", _SUMS.format("max"), _over_positions(FactorKind.MAX), _run_over_positions, missing=_COMPLEX
    ),
    "pmin": Entry(
        "reduction", _SUMS.format("min"), _over_positions(FactorKind.MIN), _run_over_positions, missing=_COMPLEX
    ),
    # Equinox's reductions over a mapped axis and everything else.
    **dict.fromkeys(["unvmap_any", "unvmap_max"], Entry("reduction", "a max", _to_scalar(FactorKind.MAX))),
    "unvmap_all": Entry("reduction", "a min", _to_scalar(FactorKind.MIN)),
    "cumsum": Entry(
        "cumulative", _ALONG.format("summed"), _except("axis"), linear=_FIRST, missing="the summed dimension"
    ),
    **dict.fromkeys(
        ["cumprod", "cummax", "cummin", "cumlogsumexp"],
        Entry("cumulative", _ALONG.format("accumulated"), _except("axis"), missing="the accumulated dimension"),
    ),
    "sort": Entry("sort", _ALONG.format("sorted"), _except("dimension"), missing="the sorted dimension"),
    "top_k": Entry("sort", _ALONG.format("searched"), _except("axis"), missing="the searched dimension"),
    "approx_top_k": Entry(
        "sort", _ALONG.format("searched"), _except("reduction_dimension"), missing="the searched dimension"
    ),
    "reduce_window_sum": Entry("window", _WINDOWS, _window, linear=_FIRST, missing="exchange of borders"),
    **dict.fromkeys(
        ["reduce_window", "reduce_window_max", "reduce_window_min", "select_and_gather_add"],
        Entry("window", _WINDOWS, _window, missing="exchange of borders"),
    ),
    "select_and_scatter_add": Entry("window", _WINDOWS, _window, linear=_FIRST, missing="exchange of borders"),
}
