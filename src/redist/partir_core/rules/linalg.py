"""Linear algebra and Fourier transforms: batches of matrices, each matrix in one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redist.partir_core.rules.build import Aval, Builder, Entry, RuleMaker
from redist.partir_core.rules.rule import Rule

__all__ = ["ENTRIES"]

_Params = Mapping[str, Any]


def _batched(rank: int) -> RuleMaker:
    """Leading dimensions pass; the first operand has `rank` others."""

    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
        return _leading(params, operands, results, rank).rule()

    return rule


def _leading(_params: _Params, operands: Sequence[Aval], results: Sequence[Aval], rank: int) -> Builder:
    build = Builder(operands, results)
    for d, n in enumerate(build.operands[0][: len(build.operands[0]) - rank]):
        build.parallel(n, [(k, d) for k in range(len(operands))], [(j, d) for j in range(len(results))])
    return build


def _triangular_solve(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = _leading(params, operands, results, 2)
    d = len(build.results[0]) - (1 if params["left_side"] else 2)
    build.parallel(build.results[0][d], [(1, d)], [(0, d)])
    return build.rule()


def _ormqr(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = _leading(params, operands, results, 2)
    d = len(build.results[0]) - (1 if params["left"] else 2)
    build.parallel(build.results[0][d], [(2, d)], [(0, d)])
    return build.rule()


def _tridiagonal_solve(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    build = _leading(params, operands, results, 1)
    d = len(build.results[0]) - 1
    build.parallel(build.results[0][d], [(3, d)], [(0, d)])
    return build.rule()


def _fft(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule:
    return _leading(params, operands, results, len(params["fft_lengths"])).rule()


_MATRICES = "batch dimensions parallel; a matrix whole"
_COLUMNS = "batch dimensions and those across right-hand sides parallel; a matrix whole"
_INSIDE = "cut matrices"
_DECOMPOSITIONS = "cholesky eig eigh geqrf hessenberg householder_product lu qr schur svd symmetric_product tridiagonal"

ENTRIES: dict[str, Entry] = {
    **dict.fromkeys(_DECOMPOSITIONS.split(), Entry("linear algebra", _MATRICES, _batched(2), missing=_INSIDE)),
    "lu_pivots_to_permutation": Entry("linear algebra", _MATRICES, _batched(1), missing=_INSIDE),
    "triangular_solve": Entry("linear algebra", _COLUMNS, _triangular_solve, linear=(frozenset({1}),), missing=_INSIDE),
    "tridiagonal_solve": Entry(
        "linear algebra", _COLUMNS, _tridiagonal_solve, linear=(frozenset({3}),), missing=_INSIDE
    ),
    "ormqr": Entry("linear algebra", _COLUMNS, _ormqr, linear=(frozenset({2}),), missing=_INSIDE),
    "fft": Entry(
        "Fourier transform",
        "batch dimensions parallel; transformed ones whole",
        _fft,
        linear=(frozenset({0}),),
        missing="cut transforms",
    ),
}
