"""Operations that arrange elements: transpose, broadcast, reshape, slice, pad, concatenate and their kin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np

from redist.partir_core.rules.build import Aval, Builder, Entry, RuleMaker
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import FactorKind, Rule

__all__ = ["ENTRIES"]

_FIRST = (frozenset({0}),)
_Params = Mapping[str, Any]


def _transpose(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, source in enumerate(params["permutation"]):
        build.parallel(build.results[0][d], [(0, source)], [(0, d)])
    return build.rule()


def _broadcast_in_dim(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    if len(operands) != 1:  # sizes that are only known when the program runs
        return None
    build = Builder(operands, results)
    sources = {d: k for k, d in enumerate(params["broadcast_dimensions"])}
    for d, n in enumerate(build.results[0]):
        tied = d in sources and build.operands[0][sources[d]] == n
        build.parallel(n, [(0, sources[d])] if tied else [], [(0, d)])
    return build.rule()


def _run_broadcast(local: Local) -> tuple[Any, ...]:
    return local.bind(*local.operands, shape=local.result_shape(0))


def _reshape(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    """Walk both shapes from the major side; what two dimensions have in common is a parallel factor.

    Where nothing is left in common (6 against 4 leaves 3 against 2), both sides are whole up to the next
    point where they meet. `dimensions` is the order in which the operand's are read.
    """
    if len(operands) != 1:  # sizes that are only known when the program runs
        return None
    build = Builder(operands, results)
    order: Sequence[int] = params.get("dimensions") or range(len(build.operands[0]))
    left = [(d, build.operands[0][d]) for d in order if build.operands[0][d] != 1]
    right = [(d, n) for d, n in enumerate(build.results[0]) if n != 1]
    while left and right:
        (d, n), (e, m) = left[0], right[0]
        common = gcd(n, m)
        if common > 1:
            build.parallel(common, [(0, d)], [(0, e)])
            left[:1] = [(d, n // common)] if n > common else []
            right[:1] = [(e, m // common)] if m > common else []
            continue
        before, after = 1, 1
        while before != after or before == 1:
            if before <= after:
                d, n = left.pop(0)
                build.tie(FactorKind.WHOLE, n, [(0, d)])
                before *= n
            else:
                e, m = right.pop(0)
                build.tie(FactorKind.WHOLE, m, [], [(0, e)])
                after *= m
    return build.rule()


def _run_reshape(local: Local) -> tuple[Any, ...]:
    return local.bind(*local.operands, new_sizes=local.result_shape(0))


def _squeeze(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    gone = set(params["dimensions"])
    kept = [d for d in range(len(build.operands[0])) if d not in gone]
    for e, d in enumerate(kept):
        build.parallel(build.operands[0][d], [(0, d)], [(0, e)])
    return build.rule()


def _unchanged(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval], changed: set[int]) -> Rule:
    """Dimensions run through every operand of the result's rank and every result, but for `changed`."""
    build = Builder(operands, results)
    rank = len(build.results[0])
    spots = [k for k, shape in enumerate(build.operands) if len(shape) == rank and rank]
    for d, n in enumerate(build.results[0]):
        if d not in changed:
            build.parallel(n, [(k, d) for k in spots], [(j, d) for j in range(len(results))])
    return build.rule()


def _slice(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    changed = {d for d, n in enumerate(operands[0].shape) if results[0].shape[d] != n}
    return _unchanged(params, operands, results, changed)


def _run_slice(local: Local) -> tuple[Any, ...]:
    limits = list(local.params["limit_indices"])
    for d, dims in enumerate(local.rule.operands[0]):
        if local.cut(dims):
            limits[d] = local.size(dims)
    return local.bind(*local.operands, limit_indices=tuple(limits))


def _pad(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    padding = params["padding_config"]
    return _unchanged(params, operands, results, {d for d, p in enumerate(padding) if tuple(p) != (0, 0, 0)})


def _along(name: str) -> RuleMaker:
    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
        return _unchanged(params, operands, results, {params[name]})

    return rule


def _rev(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    return _unchanged(params, operands, results, set(params["dimensions"]))


def _stack(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.operands[0]):
        build.parallel(n, [(k, d) for k in range(len(operands))], [(0, d + (d >= params["axis"]))])
    return build.rule()


def _unstack(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, n in enumerate(build.results[0]):
        build.parallel(n, [(0, d + (d >= params["axis"]))], [(j, d) for j in range(len(results))])
    return build.rule()


def _tile(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for d, (n, copies) in enumerate(zip(build.operands[0], params["reps"], strict=True)):
        build.parallel(copies, [], [(0, d)])
        build.parallel(n, [(0, d)], [(0, d)])
    return build.rule()


def _run_tile(local: Local) -> tuple[Any, ...]:
    (shape,) = (operand.shape for operand in local.operands)
    copies = tuple(m // n for m, n in zip(local.result_shape(0), shape, strict=True))
    return local.bind(*local.operands, reps=copies)


def _iota(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    if operands:
        return None
    build = Builder(operands, results)
    for d, n in enumerate(build.results[0]):
        build.parallel(n, [], [(0, d)])
    return build.rule()


def _run_iota(local: Local) -> tuple[Any, ...]:
    from redist.collectives.backends.jax.modules import lax

    d: int = local.params["dimension"]
    dims = local.rule.results[0][d]
    if not local.cut(dims):
        return local.bind(shape=local.result_shape(0))
    # Counted in integers: sums of narrow numbers round, or overflow, where their count as a whole does not.
    dtype = np.dtype(local.params["dtype"])
    counter = dtype if dtype.kind in "iu" and dtype.itemsize >= 4 else np.dtype("int32")
    (counted,) = local.bind(shape=local.result_shape(0), dtype=counter)
    return (lax.convert_element_type(counted + lax.convert_element_type(local.start(dims), counter), dtype),)


def _bitcast(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    """The shorter shape's dimensions pass; an extra last one holds the parts of an element."""
    build = Builder(operands, results)
    for d in range(min(len(build.operands[0]), len(build.results[0]))):
        build.parallel(build.results[0][d], [(0, d)], [(0, d)])
    return build.rule()


_ALL = (frozenset({0, -1}),)
_UNCHANGED = "unchanged dimensions parallel; {} whole"

ENTRIES: dict[str, Entry] = {
    "transpose": Entry("transpose", "every dimension parallel", _transpose, linear=_FIRST),
    "broadcast_in_dim": Entry(
        "broadcast",
        "operand dimensions parallel; new ones, and those expanded from 1, parallel in the result alone",
        _broadcast_in_dim,
        _run_broadcast,
        _FIRST,
    ),
    "reshape": Entry(
        "reshape",
        "what operand and result dimensions have in common, from the major side, parallel; the rest whole",
        _reshape,
        _run_reshape,
        _FIRST,
        "factors behind a whole one (the 2 of 3x4 in 2x6)",
    ),
    "squeeze": Entry("reshape", "every dimension parallel", _squeeze, linear=_FIRST),
    "slice": Entry(
        "slice",
        _UNCHANGED.format("sliced ones"),
        _slice,
        _run_slice,
        _FIRST,
        "exchange of borders for cut slices",
    ),
    "pad": Entry(
        "slice", _UNCHANGED.format("padded ones"), _pad, linear=(frozenset({0, 1}),), missing="padding at borders"
    ),
    "rev": Entry("slice", _UNCHANGED.format("reversed ones"), _rev, linear=_FIRST, missing="mirrored tiles"),
    "concatenate": Entry(
        "concatenate", _UNCHANGED.format("the joined one"), _along("dimension"), linear=_ALL, missing="cut joined one"
    ),
    "split": Entry(
        "concatenate", _UNCHANGED.format("the split one"), _along("axis"), linear=_FIRST, missing="cut split one"
    ),
    "stack": Entry("concatenate", _UNCHANGED.format("the new one"), _stack, linear=_ALL, missing="cut new one"),
    "unstack": Entry(
        "concatenate", _UNCHANGED.format("the removed one"), _unstack, linear=_FIRST, missing="cut removed one"
    ),
    "tile": Entry(
        "broadcast",
        "copies parallel in the result alone, above the operand's dimensions, parallel too",
        _tile,
        _run_tile,
        _FIRST,
    ),
    "iota": Entry(
        "iota", "every dimension parallel in the result alone; counts from the tile's start", _iota, _run_iota
    ),
    "bitcast_convert_type": Entry(
        "elementwise", "common dimensions parallel; the one that holds the parts of an element whole", _bitcast
    ),
}
