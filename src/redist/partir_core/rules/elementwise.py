"""Operations that work element by element, on operands of one shape, scalars and dimensions of size 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redist.partir_core.rules.build import Aval, Builder, Entry
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import Rule

__all__ = ["ENTRIES", "IDENTITIES", "elementwise"]

_FIRST = (frozenset({0}),)
_EITHER = (frozenset({0}), frozenset({1}))
_BOTH = (frozenset({0, 1}),)


def _names(text: str) -> list[str]:
    return text.split()


_MAPS = _names("""abs acos acosh asin asinh atan atanh bessel_i0e bessel_i1e cbrt ceil clz convert_element_type cos cosh
    digamma erf erf_inv erfc exp exp2 expm1 floor integer_pow is_finite lgamma log log1p logistic not
    population_count reduce_precision round rsqrt sign sin sinh sqrt square tan tanh

    and atan2 eq eq_to ge gt igamma igamma_grad_a igammac le le_to lt lt_to max min mulhi ne nextafter or polygamma
    pow rem shift_left shift_right_arithmetic shift_right_logical xor zeta

    clamp div regularized_incomplete_beta threefry2x32 empty2 platform_index

    nonbatchable nondifferentiable_backward select_if_vmap""")
_LINEAR_MAPS = _names("neg conj real imag copy stop_gradient name")
_HINTS = _names("sharding_constraint layout_constraint")
IDENTITIES = frozenset([*_HINTS, "device_put"])
"""Primitives that are run as nothing at all: they only say where a value should lie."""


def elementwise(_params: Mapping[str, Any], operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
    """One parallel factor per dimension; None where the ranks differ other than by scalars."""
    build = Builder(operands, results)
    shapes = {*build.results}
    if len(shapes) != 1:
        return None
    (shape,) = shapes
    if not operands and shape:
        return None
    if any(len(s) not in {0, len(shape)} for s in build.operands):
        return None
    for d, n in enumerate(shape):
        spots = [(k, d) for k, s in enumerate(build.operands) if s and s[d] != 1]
        build.parallel(n, spots, [(j, d) for j in range(len(results))])
    return build.rule()


def _side_by_side(_params: Mapping[str, Any], operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = Builder(operands, results)
    for k, shape in enumerate(build.operands):
        for d, n in enumerate(shape):
            build.parallel(n, [(k, d)], [(k, d)])
    return build.rule()


def _same(local: Local) -> tuple[Any, ...]:
    return local.operands


_WORDS = "every dimension parallel; dimensions of size 1 and scalars are broadcast"

_APART = "every dimension of every operand parallel, each for itself"


def _entry(linear: tuple[frozenset[int], ...] = (), missing: str = "") -> Entry:
    return Entry("elementwise", _WORDS, elementwise, linear=linear, missing=missing)


ENTRIES: dict[str, Entry] = {
    **dict.fromkeys(_MAPS, _entry()),
    **dict.fromkeys(_LINEAR_MAPS, _entry(_FIRST)),
    **dict.fromkeys(["add", "sub", "add_any", "complex"], _entry(_BOTH)),
    "mul": _entry(_EITHER),
    # -1: all cases, however many there are.
    "select_n": _entry((frozenset({1, -1}),)),
    **dict.fromkeys(
        _HINTS,
        Entry(
            "identity",
            "every dimension parallel; the layout that is asked for is left to the schedule",
            elementwise,
            _same,
            _FIRST,
        ),
    ),
    "device_put": Entry("identity", _APART, _side_by_side, _same),
    "optimization_barrier": Entry("identity", _APART, _side_by_side),
}
