"""Steps of several arrays as one collective: on blocks of some ten kibibytes, meeting costs more than moving."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from redist.collectives.backends.jax.frame import Frame, Moves
from redist.collectives.backends.jax.modules import jnp, lax
from redist.collectives.backends.jax.pieces import joined, split
from redist.collectives.backends.jax.reduce import reduce_scattered
from redist.collectives.backends.jax.wire import packed, unpacked
from redist.collectives.steps import AllGather, ReduceScatter
from redist.collectives.typing import after

if TYPE_CHECKING:
    from redist.types.layout import Layout, Reduction

__all__ = ["Bundled", "Kind", "kind_of", "run_bundle"]

Bundled = AllGather | ReduceScatter
Kind = tuple[type[Bundled], str, "Reduction | None", tuple[int, ...], tuple[int, ...]]
"""Steps of one kind can share a collective: their sort, dtype and reduction, and the stride and size of each digit
of the device position that they go over, in order."""


def kind_of(step: Bundled, before: Layout) -> Kind:
    """The kind of a step on a value laid out as `before`."""
    moves = Moves.between(before, after(step, before))
    digits = _digits(step, moves)
    reduction = before.partial.reduction if isinstance(step, ReduceScatter) and before.partial else None
    strides, sizes = (tuple(of[d] for d in digits) for of in (moves.strides, moves.sizes))
    return type(step), before.dtype, reduction, strides, sizes


def run_bundle(steps: Sequence[tuple[Bundled, Layout]], frame: Frame, blocks: Sequence[Any]) -> list[Any]:
    """The block of each array after its step, given that of the layout before it. All steps are of one kind."""
    assert len({kind_of(*step) for step in steps}) == 1, f"not of one kind: {steps}"
    moves = [Moves.between(before, after(step, before)) for step, before in steps]
    digits = [_digits(step, made) for (step, _), made in zip(steps, moves, strict=True)]
    count, groups = moves[0].count(digits[0]), moves[0].groups(digits[0], frame)
    step, before = steps[0]
    if isinstance(step, ReduceScatter):
        reduction = before.partial.reduction if before.partial else "sum"
        pieces = [split(made, block) for made, block in zip(moves, blocks, strict=True)]
        shapes = [(piece.shape[0] // count, *piece.shape[1:]) for piece in pieces]
        rows = jnp.concatenate([piece.reshape(count, -1) for piece in pieces], axis=1)
        row = reduce_scattered(rows, reduction, groups, frame)
        return [part.reshape(shape) for part, shape in zip(_cut(row, shapes), shapes, strict=True)]
    shapes = [block.shape for block in blocks]
    row = jnp.concatenate([packed(block).reshape(-1) for block in blocks])
    rows = lax.all_gather(row, frame.axes, axis_index_groups=groups, axis=0, tiled=False)
    whole: list[Any] = []
    for made, order, shape, part, block in zip(moves, digits, shapes, _cut(rows, shapes), blocks, strict=True):
        by_sender = part.reshape(count * shape[0], *shape[1:])
        whole.append(unpacked(joined(made, order, by_sender, apart=False), block.dtype))
    return whole


def _digits(step: Bundled, moves: Moves) -> list[int]:
    """What a step goes over: the digits that dimensions gain or lose, those of the first dimension major."""
    per_dim = moves.added if isinstance(step, ReduceScatter) else moves.dropped
    return [d for digits in per_dim for d in digits]


def _cut(rows: Any, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Parts of these sizes along the last dimension."""
    parts: list[Any] = []
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        parts.append(lax.slice_in_dim(rows, start, stop, axis=rows.ndim - 1))
        start = stop
    return parts
