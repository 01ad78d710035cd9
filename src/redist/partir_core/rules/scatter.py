"""The scatter family: windows put into, or combined with, an array at indices known when the program runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redist.partir_core.rules.build import Aval, Builder, Entry, RuleMaker
from redist.partir_core.rules.indices import clamped, signed, vector
from redist.partir_core.rules.local import Local
from redist.partir_core.rules.rule import FactorKind, Rule, combined

__all__ = ["ENTRIES"]

_Params = Mapping[str, Any]


def _windows(params: _Params, rank: int) -> dict[int, int]:
    """Operand dimension -> dimension of the updates, where a window extends."""
    numbers = params["dimension_numbers"]
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    return dict(zip([d for d in range(rank) if d not in gone], numbers.update_window_dims, strict=True))


def _picked(params: _Params, operand: Sequence[int], updates: Sequence[int]) -> list[int]:
    """Operand dimensions of which an update hits one element out of several."""
    windows = _windows(params, len(operand))
    placed = params["dimension_numbers"].scatter_dims_to_operand_dims
    return [d for d in placed if operand[d] != 1 and (d not in windows or updates[windows[d]] == 1)]


def _scatter(kind: FactorKind) -> RuleMaker:
    """The rule where updates are combined by `kind` (whole: they replace one another)."""

    def rule(params: _Params, operands: Sequence[Aval], results: Sequence[Aval]) -> Rule | None:
        from redist.collectives.backends.jax.modules import lax

        if params["mode"] == lax.GatherScatterMode.ONE_HOT:
            return None
        build = Builder(operands, results)
        numbers = params["dimension_numbers"]
        operand, indices, updates = build.operands
        batched = dict(zip(numbers.scatter_indices_batching_dims, numbers.operand_batching_dims, strict=True))
        batch = [e for e in range(len(updates)) if e not in numbers.update_window_dims]
        dtype = operands[0].dtype
        onto = FactorKind.WHOLE if dtype == np.dtype(bool) else combined(kind, dtype)
        for i, e in enumerate(batch):
            if i in batched:
                build.parallel(indices[i], [(0, batched[i]), (1, i), (2, e)], [(0, batched[i])])
            else:
                build.tie(onto, indices[i], [(1, i), (2, e)])
        for d, e in _windows(params, len(operand)).items():
            if updates[e] == operand[d]:
                build.parallel(operand[d], [(0, d), (2, e)], [(0, d)])
        for d in _picked(params, operand, updates):
            build.parallel(operand[d], [(0, d)], [(0, d)])
        return build.rule()

    return rule


def _run_scatter(local: Local) -> tuple[Any, ...]:
    """Indices count from the tile's start, and updates that lie elsewhere are dropped; see `_once`."""
    from redist.collectives.backends.jax.modules import lax

    params, dims = local.params, local.rule.operands[0]
    operand, indices, updates = local.operands
    whole, whole_updates = local.whole_operand_shape(0), local.whole_operand_shape(2)
    cut = [d for d in _picked(params, whole, whole_updates) if local.cut(dims[d])]
    operand = _once(local, operand)
    if not cut:
        return local.bind(operand, indices, updates)
    order: tuple[int, ...] = params["dimension_numbers"].scatter_dims_to_operand_dims
    if params["mode"] == lax.GatherScatterMode.CLIP:
        windows = _windows(params, len(whole))
        widths = [whole_updates[windows[d]] if d in windows else 1 for d in order]
        indices = clamped(indices, [whole[d] - width for d, width in zip(order, widths, strict=True)])
    here = signed(indices)
    here = here - vector([local.start(dims[d]) if d in cut else 0 for d in order], here.dtype)
    return local.bind(operand, here, updates, mode=lax.GatherScatterMode.FILL_OR_DROP)


def _once(local: Local, operand: Any) -> Any:
    """The operand on the first of the tiles that share the updates, the reduction's neutral value on others."""
    from redist.collectives.backends.jax.modules import jnp

    neutral = {FactorKind.SUM: 0, FactorKind.PROD: 1}
    factors = local.rule.factors
    shared = [f for f in local.tiles if factors[f].kind in neutral]
    if not shared:
        return operand
    first = local.is_first(shared)
    return jnp.where(first, operand, jnp.full_like(operand, neutral[factors[shared[0]].kind]))


def _entry(kind: FactorKind, words: str, missing: str = "", linear: bool = False) -> Entry:
    return Entry(
        "scatter",
        "batching and whole-window dimensions parallel; operand dimensions hit by single elements parallel, updates "
        f"elsewhere being dropped; {words}",
        _scatter(kind),
        _run_scatter,
        (frozenset({0, 2}),) if linear else (),
        "; ".join(["dimensions with partial windows", *filter(None, [missing])]),
    )


ENTRIES: dict[str, Entry] = {
    "scatter": _entry(
        FactorKind.WHOLE, "update dimensions whole", "update dimensions: the last one to write counts", linear=False
    ),
    "scatter-add": _entry(FactorKind.SUM, "update dimensions a sum, onto the operand once", linear=True),
    "scatter-sub": _entry(FactorKind.SUM, "update dimensions a sum, onto the operand once", linear=True),
    "scatter-mul": _entry(FactorKind.PROD, "update dimensions a product, onto the operand once"),
    "scatter-min": _entry(FactorKind.MIN, "update dimensions a min", "update dimensions of complex numbers"),
    "scatter-max": _entry(FactorKind.MAX, "update dimensions a max", "update dimensions of complex numbers"),
}
