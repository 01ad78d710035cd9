"""Floating-point operations of one device, by the usual counting: 2 per multiply-add of a contraction, 1 per
element that is computed (a transcendental function included) or reduced, 0 for moving data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import log2, prod

from redist.partir_core.program import Literal
from redist.partir_core.rules import families
from redist.partir_core.spmd import Compute, SpmdProgram

__all__ = ["family_of", "flops_of"]

_MOVES = frozenset(
    [
        "convert_element_type",
        "copy",
        "name",
        "real",
        "imag",
        "complex",
        "bitcast_convert_type",
        "stop_gradient",
        "select_n",
        "zeros_like",
        "reduced_vary_cast_p",
        "pvary",
        "to_edtype",
        "from_edtype",
    ]
)
_PER_OPERAND = frozenset({"reduction", "cumulative", "window"})


@lru_cache(maxsize=1)
def _families() -> Mapping[str, str]:
    return {name: entry.family for name, entry in families().items()}


def family_of(name: str) -> str:
    """Family of a primitive's rule; empty where it has none."""
    return _families().get(name, "")


def flops_of(op: Compute, program: SpmdProgram) -> int:
    """Of one run of an operation on one device; nothing for control flow, whose blocks count instead."""
    name, mesh = op.op.name, program.mesh
    family = family_of(name)

    def size(x: int | Literal) -> int:
        return 1 if isinstance(x, Literal) else program.values[x].local_size(mesh)

    if name == "dot_general":
        assert op.rule is not None
        parts = mesh.count([axis for axis, _ in op.nest])
        return 2 * prod(factor.size for factor in op.rule.factors) // parts
    if name == "conv_general_dilated":
        kernel = op.operands[1]
        assert isinstance(kernel, int)
        shape = program.values[kernel].local_shape(mesh)
        features = shape[int(op.op.params["dimension_numbers"].rhs_spec[0])]
        return 2 * size(op.results[0]) * size(kernel) // max(features, 1)
    if family == "elementwise" and name not in _MOVES:
        return size(op.results[0])
    if family in _PER_OPERAND:
        return size(op.operands[0])
    if family == "scatter" and name != "scatter":
        return size(op.operands[2])
    if family == "sort":
        count = size(op.operands[0])
        return int(count * max(1.0, log2(max(count, 1))))
    if family == "Fourier transform":
        count = prod(op.op.params["fft_lengths"])
        return int(5 * size(op.results[0]) * log2(max(count, 2)))
    if family == "linear algebra":
        shape = program.values[op.results[0]].local_shape(mesh)
        return size(op.results[0]) * (shape[-1] if shape else 1)
    return 0
