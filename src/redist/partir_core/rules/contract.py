"""Contractions: dot_general and convolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import FactorKind, Rule

__all__ = ["ENTRIES"]

_EITHER = (frozenset({0}), frozenset({1}))
_Params = Mapping[str, Any]


def _sum_of(dtype: Any) -> FactorKind:
    """Booleans are contracted by `or`, which no reduction of partial values here stands for."""
    return FactorKind.WHOLE if dtype == np.dtype(bool) else FactorKind.SUM


def _dot_general(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    numbers: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = params["dimension_numbers"]
    (left_sum, right_sum), (left_batch, right_batch) = numbers
    left, right = build.operands
    d = 0
    for a, b in zip(left_batch, right_batch, strict=True):
        build.parallel(left[a], [(0, a), (1, b)], [(0, d)])
        d += 1
    for k, shape, used in ((0, left, {*left_sum, *left_batch}), (1, right, {*right_sum, *right_batch})):
        for a, n in enumerate(shape):
            if a not in used:
                build.parallel(n, [(k, a)], [(0, d)])
                d += 1
    for a, b in zip(left_sum, right_sum, strict=True):
        build.tie(_sum_of(results[0].dtype), left[a], [(0, a), (1, b)])
    return build.rule()


def _ragged(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """A dot_general of which one dimension of the left side, whole here, falls into groups."""
    numbers = params["ragged_dot_dimension_numbers"]
    dot: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = numbers.dot_dimension_numbers
    (left_sum, right_sum), (left_batch, right_batch) = dot
    (ragged,) = numbers.lhs_ragged_dimensions
    grouped: tuple[int, ...] = tuple(numbers.rhs_group_dimensions)
    build = Builder(operands, results)
    left, right, sizes = build.operands
    d = 1 if ragged in left_sum else 0  # the groups come first in the result
    batch = range(len(sizes) - 1)
    for i, (a, b) in enumerate(zip(left_batch, right_batch, strict=True)):
        if a != ragged and len(batch) in {0, len(left_batch)}:
            build.parallel(left[a], [(0, a), (1, b), *((2, j) for j in batch if j == i)], [(0, d)])
        d += 1
    for k, shape, used in ((0, left, {*left_sum, *left_batch}), (1, right, {*right_sum, *right_batch, *grouped})):
        for a, n in enumerate(shape):
            if a in used:
                continue
            if (k, a) != (0, ragged):
                build.parallel(n, [(k, a)], [(0, d)])
            d += 1
    for a, b in zip(left_sum, right_sum, strict=True):
        if a != ragged:
            build.tie(_sum_of(results[0].dtype), left[a], [(0, a), (1, b)])
    return build.rule()


def _specs(params: _Params) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Where batch, features and space are in operand, kernel (output features, features, space) and result."""
    numbers = params["dimension_numbers"]
    return numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec


def _convolution(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """Batch, groups and features; a spatial dimension only where the window is one wide.

    The operand's features are (feature groups, features), the kernel's output features (feature groups,
    batch groups, features), the operand's batch (batch groups, batch); one of the two group counts is 1.
    """
    build = Builder(operands, results)
    lhs, rhs, out = _specs(params)
    groups: int = params["feature_group_count"]
    batch_groups: int = params["batch_group_count"]
    left, right = build.operands
    build.parallel(groups, [(0, lhs[1]), (1, rhs[0])], [(0, out[1])])
    build.parallel(batch_groups, [(0, lhs[0]), (1, rhs[0])], [(0, out[1])])
    build.parallel(left[lhs[0]] // batch_groups, [(0, lhs[0])], [(0, out[0])])
    build.parallel(right[rhs[0]] // groups // batch_groups, [(1, rhs[0])], [(0, out[1])])
    build.tie(_sum_of(results[0].dtype), right[rhs[1]], [(0, lhs[1]), (1, rhs[1])])
    windows = zip(params["window_strides"], params["padding"], params["lhs_dilation"], strict=True)
    for (stride, padding, dilation), d, w, e in zip(windows, lhs[2:], rhs[2:], out[2:], strict=True):
        if (right[w], stride, tuple(padding), dilation) == (1, 1, (0, 0), 1):
            build.parallel(left[d], [(0, d)], [(0, e)])
    return build.rule()


def _run_convolution(local: Local) -> tuple[Any, ...]:
    lhs, rhs, _ = _specs(local.params)
    features = local.rule.operands[1][rhs[0]]
    counts = {"feature_group_count": lhs[1], "batch_group_count": lhs[0]}
    # The factor that an operand dimension shares with the kernel's output features is a group.
    groups = {name: tuple(f for f in local.rule.operands[0][d] if f in features) for name, d in counts.items()}
    return local.bind(*local.operands, **{name: local.size(dims) for name, dims in groups.items()})


ENTRIES: dict[str, Entry] = {
    "dot_general": Entry(
        "contraction", "batch and free dimensions parallel; contracted ones a sum", _dot_general, linear=_EITHER
    ),
    "ragged_dot_general": Entry(
        "contraction",
        "batch and free dimensions parallel; contracted ones a sum; the ragged one and groups whole",
        _ragged,
        linear=_EITHER,
        missing="groups and the ragged dimension",
    ),
    "conv_general_dilated": Entry(
        "contraction",
        "batch, output features, feature and batch groups, and spatial dimensions under a window of one element "
        "parallel; input features a sum; other spatial dimensions whole",
        _convolution,
        _run_convolution,
        _EITHER,
        "spatial dimensions under wider windows (exchange of borders)",
    ),
}
