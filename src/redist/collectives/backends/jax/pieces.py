"""Blocks cut into the pieces that a collective sends, and put together from those it received."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from redist.collectives.backends.jax.modules import jnp, lax

if TYPE_CHECKING:
    from redist.collectives.backends.jax.frame import Moves

__all__ = ["joined", "split"]

_FEW = 64
"""Pieces that are named one by one; more would make long programs."""


def split(moves: Moves, block: Any) -> Any:
    """The pieces of a block by receiver, one after another along dimension 0: by their index over the digits that
    dimensions gain, those of the first dimension major."""
    cut = [j for j, added in enumerate(moves.added) if added]
    if len(cut) == 1 and (parts := moves.count(moves.added[cut[0]])) <= _FEW and math.prod(block.shape[: cut[0]]) > 1:
        # XLA's CPU copies slices faster than it transposes them.
        length = block.shape[cut[0]] // parts
        slices = [lax.slice_in_dim(block, p * length, (p + 1) * length, axis=cut[0]) for p in range(parts)]
        return jnp.concatenate(slices, axis=0)
    shape: list[int] = []
    front: list[int] = []
    rest: list[int] = []
    for j, added in enumerate(moves.added):
        if added:
            front.append(len(shape))
            shape.append(moves.count(added))
        rest.append(len(shape))
        shape.append(block.shape[j] // moves.count(added))
    pieces = block.reshape(shape).transpose([*front, *rest])
    first, *others = (shape[n] for n in rest)
    return pieces.reshape([math.prod(shape[n] for n in front) * first, *others])


def joined(moves: Moves, order: Sequence[int], pieces: Any, apart: bool) -> Any:
    """A block from the pieces of its group, one after another along dimension 0 by index over the digits `order`:
    each digit becomes the place of the piece in the dimension that it leaves. `apart`: XLA's CPU has the pieces in
    buffers of their own, as an all-to-all receives them."""
    sizes = [moves.sizes[d] for d in order]
    count = math.prod(sizes)
    shape = (pieces.shape[0] // count, *pieces.shape[1:])
    filled = [i for i, dropped in enumerate(moves.dropped) if dropped]
    if len(filled) == 1 and (2 - apart) < count <= _FEW and math.prod(shape[: filled[0]]) > 1:
        # XLA's CPU copies pieces side by side faster than it transposes them, if they come in the shape in which
        # they are put: a reshape or slice between is fused with the concatenation, which then goes element by
        # element. Two slices of one buffer are better transposed.
        turned = [order.index(d) for d in moves.dropped[filled[0]]]
        places = np.arange(count).reshape(sizes).transpose(turned).ravel().tolist()
        parts = [lax.slice_in_dim(pieces, p * shape[0], (p + 1) * shape[0]) for p in places]
        return jnp.concatenate(parts, axis=filled[0])
    split = pieces.reshape([*sizes, *shape])
    placed: list[int] = []
    whole: list[int] = []
    for i, dropped in enumerate(moves.dropped):
        placed += [*(order.index(d) for d in dropped), len(order) + i]
        whole.append(moves.count(dropped) * shape[i])
    return split.transpose(placed).reshape(whole)
